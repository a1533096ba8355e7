"""What the double holds: catalogs, schemas in them, tables in those, and each as JSON."""

from __future__ import annotations

import json
import threading
import time
import uuid
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from databricks.sdk.service import catalog as sdk
from pydantic import BaseModel

from . import published
from .dialects import Dialect, Level
from .http import ServerFault
from .published import DATABRICKS_ONLY, check_reply, check_sdk_reply

MODELS: dict[Level, type[BaseModel]] = {
    Level.CATALOG: published.CatalogInfo,
    Level.SCHEMA: published.SchemaInfo,
    Level.TABLE: published.TableInfo,
}
_SDK_MODELS: dict[Level, type[Any]] = {
    Level.CATALOG: sdk.CatalogInfo,
    Level.SCHEMA: sdk.SchemaInfo,
    Level.TABLE: sdk.TableInfo,
}
_ID_FIELDS = {Level.CATALOG: "id", Level.SCHEMA: "schema_id", Level.TABLE: "table_id"}


def now() -> int:
    """Milliseconds since 1970."""
    return int(time.time() * 1000)


class Names:
    """The objects inside one parent by name.

    A name may have more than one after creators raced for it. The server cannot look such a name
    up any more, though it lists it.
    """

    def __init__(self) -> None:
        self._objects: dict[str, list[Entry]] = {}
        self._sorted: list[str] = []

    def __len__(self) -> int:
        return len(self._sorted)

    def __iter__(self) -> Iterator[Entry]:
        for name in self._sorted:
            yield from self._objects[name]

    def get(self, name: str) -> Entry | None:
        """Return the object of this name. Raises ServerFault where there are several."""
        found = self._objects.get(name, [])
        if len(found) > 1:
            count = len(found)
            raise ServerFault(
                f"Query did not return a unique result: {count} results were returned"
            )
        return found[0] if found else None

    def add(self, entry: Entry) -> None:
        """Put an object in, beside any other of its name."""
        if entry.name not in self._objects:
            insort(self._sorted, entry.name)
        self._objects.setdefault(entry.name, []).append(entry)

    def remove(self, name: str) -> None:
        """Take out all objects of this name."""
        del self._objects[name]
        self._sorted.remove(name)

    def discard(self, entry: Entry) -> bool:
        """Take out one object, and return whether it was there."""
        found = self._objects.get(entry.name, [])
        if all(each is not entry for each in found):
            return False
        if len(found) == 1:
            self.remove(entry.name)
        else:
            found[:] = [each for each in found if each is not entry]
        return True

    def page(self, after: str | None, size: int) -> list[Entry]:
        """Return at most ``size`` objects whose names come after ``after``, sorted by name."""
        start = 0 if after is None else bisect_right(self._sorted, after)
        found: list[Entry] = []
        for name in self._sorted[start : start + size]:
            found += self._objects[name]
        return found[:size]


@dataclass
class Entry:
    """One catalog, schema or table. ``info`` is what the API says of it, without absent fields."""

    level: Level
    dialect: Dialect
    info: dict[str, Any]
    children: Names = field(default_factory=Names)
    _json: dict[tuple[bool, bool], bytes] = field(default_factory=dict)

    @property
    def name(self) -> str:
        name: str = self.info["name"]
        return name

    @property
    def id(self) -> str:
        """The catalog's own id, kept through renames."""
        found: str = self.info[_ID_FIELDS[self.level]]
        return found

    def change(self, **fields: Any) -> None:
        """Set fields; None removes one."""
        self.info.update(fields, updated_at=now())
        self.info = {key: value for key, value in self.info.items() if value is not None}
        self._json.clear()

    def json(self, *, omit_columns: bool = False, omit_properties: bool = False) -> bytes:
        """Return the object as the server sends it; made and checked once for each change."""
        key = (omit_columns, omit_properties)
        if key not in self._json:
            self._json[key] = json.dumps(self._content(*key)).encode()
        return self._json[key]

    def _content(self, omit_columns: bool, omit_properties: bool) -> dict[str, Any]:
        model, content = MODELS[self.level], dict(self.info)
        if omit_columns and "columns" in content:
            content["columns"] = []
        if omit_properties and "properties" in content:
            content["properties"] = {}
        if self.dialect.databricks:
            content = {key: value for key, value in content.items() if value not in ({}, [])}
            check_sdk_reply(_SDK_MODELS[self.level], content)
            return check_reply(model, content, DATABRICKS_ONLY)
        return check_reply(model, {name: content.get(name) for name in model.model_fields})


@dataclass
class _Meeting:
    """Requests that want to change one name at the same time."""

    arrived: int = 0
    present: int = 0


class State:
    """Everything that one server knows, behind one lock.

    ``race_window`` is how many seconds a create, a rename or a drop waits, between looking its
    names up and changing them, for another change of one of them; both then succeed. With 0 each is
    atomic, which no open-source server's are.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.lock = threading.RLock()
        self.catalogs = Names()
        self.race_window = 0.0
        self.vanishing: set[str] = set()
        """Tables that are dropped in the middle of their next read, by name."""
        self._meetings: dict[tuple[int, str], _Meeting] = {}
        self._arrived = threading.Condition(self.lock)

    def new_entry(self, level: Level, fields: dict[str, Any]) -> Entry:
        """Return an object that is in no parent yet, with an id and times."""
        created = now()
        own: dict[str, Any] = {"created_at": created, "updated_at": created}
        if level is not Level.CATALOG or not self.dialect.databricks:
            own[_ID_FIELDS[level]] = str(uuid.uuid4())
        info = {key: value for key, value in {**fields, **own}.items() if value is not None}
        return Entry(level, self.dialect, info)

    def insert(self, parent: Names, entry: Entry, taken: Callable[[], Exception]) -> None:
        """Put an object in. Raises what ``taken`` returns where its name is not free."""
        if parent.get(entry.name) is not None:
            raise taken()
        self.wait_for_a_rival(parent, entry.name)
        parent.add(entry)

    def wait_for_a_rival(self, parent: Names, *names: str) -> None:
        """Let others step in who change one of these names, for as long as `race_window` says."""
        if not self.race_window:
            return
        wanted = [(id(parent), name) for name in names]
        meetings = [self._meetings.setdefault(each, _Meeting()) for each in wanted]
        for meeting in meetings:
            meeting.arrived += 1
            meeting.present += 1
        self._arrived.notify_all()
        self._arrived.wait_for(lambda: any(m.arrived > 1 for m in meetings), self.race_window)
        for each, meeting in zip(wanted, meetings, strict=True):
            meeting.present -= 1
            if not meeting.present:
                del self._meetings[each]

    def take_vanishing(self, entry: Entry) -> bool:
        """Drop a table if it is to vanish while it is read, between its row and its properties."""
        if entry.name not in self.vanishing:
            return False
        self.vanishing.discard(entry.name)
        for catalog in self.catalogs:
            for schema in catalog.children:
                schema.children.discard(entry)
        return True

    def tables(self) -> Iterator[Entry]:
        """Return every table there is."""
        for catalog in self.catalogs:
            for schema in catalog.children:
                yield from schema.children

"""A small catalog service in memory: requests in, answers or errors out, as over a wire.

It has what real ones have: pages, versions of entries, ids, a rule about whose files are deleted,
and bad days. Answers are copies; nothing of the server's is shared with its clients.
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
PAGE = 10
LONGEST_VALUE = 50_000
CHANGES = ("create", "update", "delete", "move", "make_schema", "change_schema", "delete_schema")


class ServerError(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"{status} {code}")
        self.status, self.code = status, code


class ConnectionLost(Exception):
    """No answer came."""


class NoAnswerInTime(ConnectionLost):
    """The client stopped waiting for an answer."""


class TinyServer:
    """Holds schemas and tables. ``on_request`` and ``on_answer`` may raise, or wait."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.schemas: dict[str, Json] = {}
        self.tables: dict[tuple[str, str], Json] = {}
        self.hidden: list[Json] = []
        """Tables that no schema lists."""
        self.closed: set[str] = set()
        """Schemas that are listed, and whose tables may not be read."""
        self.received: Counter[str] = Counter()
        self.on_request: Callable[[str, Json], None] | None = None
        self.on_answer: Callable[[str], None] | None = None
        self.deleted_files: list[str] = []
        self._ids = itertools.count(1)
        self._lock = threading.Lock()

    def request(self, operation: str, **body: Any) -> Json:
        """Answer a request."""
        if self.on_request is not None:
            self.on_request(operation, body)
        with self._lock:
            self.received[operation] += 1
            answer: Json = copy.deepcopy(getattr(self, f"_{operation}")(**copy.deepcopy(body)))
        if self.on_answer is not None:
            self.on_answer(operation)
        return answer

    # -- schemas ---------------------------------------------------------------------------------

    def _schema(self, schema: str) -> Json:
        if schema not in self.schemas:
            raise ServerError(404, "NO_SUCH_SCHEMA")
        return self.schemas[schema]

    def _open_schema(self, schema: str) -> Json:
        if schema in self.closed:
            raise ServerError(403, "FORBIDDEN")
        return self._schema(schema)

    def _get_schema(self, schema: str) -> Json:
        return self._schema(schema)

    def _make_schema(self, schema: str, options: Json) -> Json:
        if schema in self.schemas:
            raise ServerError(409, "SCHEMA_EXISTS")
        self._check(options)
        self.schemas[schema] = {"name": schema, "options": options}
        return {}

    def _change_schema(self, schema: str, options: Json) -> Json:
        self._schema(schema)
        self._check(options)
        self.schemas[schema]["options"] = options
        return {}

    def _delete_schema(self, schema: str, cascade: bool = False) -> Json:
        self._schema(schema)
        inside = [key for key in self.tables if key[0] == schema]
        if inside and not cascade:
            raise ServerError(409, "SCHEMA_NOT_EMPTY")
        for key in inside:
            del self.tables[key]
        del self.schemas[schema]
        return {}

    def _list_schemas(self, after: str = "") -> Json:
        return self._page([{"name": name} for name in sorted(self.schemas) if name > after])

    # -- tables ----------------------------------------------------------------------------------

    def _table(self, schema: str, table: str) -> Json:
        self._schema(schema)
        if (schema, table) not in self.tables:
            raise ServerError(404, "NO_SUCH_TABLE")
        return self.tables[schema, table]

    def _get(self, schema: str, table: str) -> Json:
        self._open_schema(schema)
        return self._whole(self._table(schema, table))

    def _whole(self, entry: Json) -> Json:
        if "corrupt" in entry:
            raise ServerError(500, "CORRUPT")
        return entry

    def _list(self, schema: str, after: str = "", brief: bool = False) -> Json:
        self._open_schema(schema)
        names = sorted(name for place, name in self.tables if place == schema and name > after)
        found = [self.tables[schema, name] for name in names]
        return self._page([{"name": t["name"]} if brief else self._whole(t) for t in found])

    def _list_hidden(self, after: str = "") -> Json:
        return self._page([row for row in self.hidden if row["name"] > after])

    def _partitions(self, schema: str, table: str, after: str = "") -> Json:
        places = enumerate(self._table(schema, table)["partitions"])
        rows = [{"name": f"{number:06d}", "location": place} for number, place in places]
        return self._page([row for row in rows if row["name"] > after])

    def _create(self, schema: str, table: str, **fields: Any) -> Json:
        self._schema(schema)
        if (schema, table) in self.tables:
            raise ServerError(409, "TABLE_EXISTS")
        self._check(fields["options"])
        entry = {"name": table, "id": f"id-{next(self._ids)}", "etag": self._etag(), **fields}
        self.tables[schema, table] = entry
        return entry

    def _update(self, schema: str, table: str, if_match: str | None = None, **fields: Any) -> Json:
        entry = self._table(schema, table)
        if if_match not in (None, entry["etag"]):
            raise ServerError(412, "ETAG_MISMATCH")
        self._check(fields.get("options", {}))
        entry |= {**fields, "etag": self._etag()}
        return entry

    def _move(
        self,
        schema: str,
        table: str,
        to: tuple[str, str],
        if_match: str | None = None,
        force: bool = False,
    ) -> Json:
        entry = self._table(schema, table)
        self._schema(to[0])
        if if_match not in (None, entry["etag"]):
            raise ServerError(412, "ETAG_MISMATCH")
        if to in self.tables and not force:
            raise ServerError(409, "TABLE_EXISTS")
        del self.tables[schema, table]
        self.tables[to] = entry | {"name": to[1], "etag": self._etag()}
        return {}

    def _delete(
        self, schema: str, table: str, if_id: str | None = None, purge: bool = False
    ) -> Json:
        entry = self._table(schema, table)
        if if_id not in (None, entry.get("id")):
            raise ServerError(412, "ID_MISMATCH")
        if purge:
            self.deleted_files.append(entry["location"])
        del self.tables[schema, table]
        return {}

    def _credentials(self, table_id: str = "", location: str = "", write: bool = False) -> Json:
        for entry in self.tables.values():
            if entry.get("id") == table_id:
                location = entry["location"]
        return {"token": f"{'write' if write else 'read'}:{location}", "seconds": 3600}

    def _etag(self) -> str:
        return f"etag-{next(self._ids)}"

    def _page(self, rows: list[Json]) -> Json:
        more = len(rows) > PAGE
        return {"rows": rows[:PAGE], "next": rows[PAGE - 1]["name"] if more else None}

    def _check(self, options: Json) -> None:
        if any(len(str(value)) > LONGEST_VALUE for value in options.values()):
            raise ServerError(400, "OPTION_TOO_LONG")

"""A small catalog service in memory, and a correct adapter of it, as a third party writes one.

The service takes requests and gives answers or errors, as over a wire. It has what real ones have:
pages, versions of entries, ids, a rule about whose files are deleted, and bad days. Answers are
copies; nothing of the server's is shared with its clients. The adapter follows the documentation.
"""

from __future__ import annotations

import copy
import itertools
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from lance_namespace.errors import (
    InternalError,
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableNotFoundError,
    ThrottlingError,
    UnauthenticatedError,
)
from pydantic import Field, SecretStr

from lance_bridge import (
    Capabilities,
    Catalog,
    CatalogConfig,
    LanceBridgeNamespace,
    NameRule,
    NamespaceRecord,
    TableRecord,
    select_tables,
)
from lance_bridge.catalog import GUARD, Path
from lance_bridge.errors import (
    OutcomeUnknownError,
    concurrent_modification,
    display,
    invalid,
    namespace_already_exists,
    namespace_not_empty,
    namespace_not_found,
    table_already_exists,
    table_not_found,
)
from lance_bridge.locations import other_locations

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


# -- the adapter -----------------------------------------------------------------------------------


logger = logging.getLogger(__name__)

SERVERS: dict[str, TinyServer] = {}
"""Running servers by the name that the property ``server`` holds."""

ETAG = "etag"
_FAILED = 500
_NAME = re.compile(r"[A-Za-z0-9_]+")


def _rule(noun: str) -> NameRule:
    return NameRule(noun, _NAME, "letters, digits and '_'", 100)


class TinyConfig(CatalogConfig):
    """The properties of ``impl=tiny``."""

    server: str = Field(alias="server", description="Which server.")
    user: str = Field(default="me", alias="user", description="Who calls.")
    token: SecretStr | None = Field(default=None, alias="token", description="Lets one in.")


class TinyCatalog(Catalog):
    """One connection to a :class:`TinyServer`."""

    def __init__(self, config: TinyConfig) -> None:
        self._config = config

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            namespace_levels=(_rule("schema"),),
            table_rule=_rule("table"),
            atomic_restrict=True,
            compares_drops=True,
            has_partitions=True,
            hides_tables=True,
        )

    def describe_connection(self) -> str:
        return f"server={self._config.server}, user={self._config.user}"

    def describe_server(self) -> Mapping[str, str]:
        return {"server": "tiny"}

    def close(self) -> None:
        """There is nothing to close."""

    # -- requests --------------------------------------------------------------------------------

    def send(self, operation: str, path: Path, **body: Any) -> Json:
        """Send a request once, and turn what goes wrong into errors of the library."""
        try:
            return SERVERS[self._config.server].request(operation, **body)
        except ServerError as error:
            if error.status == _FAILED and operation in CHANGES:
                raise self.unknown(error, operation, path) from error
            raise self.meaning(error, operation, path) from error
        except ConnectionLost as error:
            if operation in CHANGES:
                raise self.unknown(error, operation, path) from error
            raise ServiceUnavailableError(f"no answer to {operation}: {error!r}") from error

    def unknown(self, error: Exception, operation: str, path: Path) -> LanceNamespaceError:
        """Return that a change may have been made: its reply was lost, or the server failed."""
        return OutcomeUnknownError(f"'{display(path)}': {operation} ended with {error!r}")

    def meaning(self, error: ServerError, operation: str, path: Path) -> LanceNamespaceError:
        """Return what an answer of the server means for the object at ``path``."""
        by_code = {
            "NO_SUCH_SCHEMA": namespace_not_found(path[:1]),
            "NO_SUCH_TABLE": table_not_found(path),
            "SCHEMA_EXISTS": namespace_already_exists(path),
            "SCHEMA_NOT_EMPTY": namespace_not_empty(path, "it holds tables"),
            "TABLE_EXISTS": table_already_exists(path),
            "ETAG_MISMATCH": concurrent_modification(path),
            "ID_MISMATCH": concurrent_modification(path),
        }
        said = f"'{display(path)}': the server answered {error} to {operation}"
        by_status: dict[int, LanceNamespaceError] = {
            400: invalid(said),
            401: UnauthenticatedError(said),
            403: PermissionDeniedError(said),
            429: ThrottlingError(said),
            503: ServiceUnavailableError(said),
        }
        return by_code.get(error.code) or by_status.get(error.status) or InternalError(said)

    def pages(self, operation: str, path: Path, **body: Any) -> Iterator[Json]:
        """Yield the rows of all pages."""
        after: str | None = ""
        while after is not None:
            answer = self.send(operation, path, **body, after=after)
            yield from answer["rows"]
            after = answer["next"]

    # -- namespaces ------------------------------------------------------------------------------

    def list_namespaces(self, parent: Path) -> Iterable[str]:
        return sorted({str(row["name"]) for row in self.pages("list_schemas", parent)})

    def load_namespace(self, path: Path) -> NamespaceRecord:
        found = self.send("get_schema", path, schema=path[0])
        return NamespaceRecord((found["name"],), found["options"], found["options"].get("location"))

    def create_namespace(self, record: NamespaceRecord) -> None:
        options = dict(record.properties)
        self.send("make_schema", record.path, schema=record.path[0], options=options)

    def alter_namespace(self, record: NamespaceRecord) -> None:
        options = dict(record.properties)
        self.send("change_schema", record.path, schema=record.path[0], options=options)

    def drop_namespace(self, path: Path) -> None:
        self.send("delete_schema", path, schema=path[0])

    # -- tables ----------------------------------------------------------------------------------

    def record(self, namespace: Path, row: Json) -> TableRecord:
        """Return the record of a table's row."""
        return TableRecord(
            path=(*namespace, row["name"]),
            location=row["location"],
            properties=dict(row["options"]),
            entry_type=row["kind"],
            revision=row["etag"],
            identity=row["id"],
            is_external=row["kind"] == "EXTERNAL",
            is_partitioned="partitions" in row,
            other_locations=other_locations(row["location"], row["options"], [row.get("storage")]),
        )

    def fields(self, record: TableRecord) -> Json:
        """Return what the server is to hold of a record."""
        return {
            "location": record.location,
            "options": dict(record.properties),
            "kind": "EXTERNAL",
        }

    def scan_tables(
        self, namespace: Path, *, lance_only: bool = False, after: str | None = None
    ) -> Iterable[TableRecord]:
        return select_tables(self.entries(namespace), lance_only=lance_only, after=after)

    def entries(self, namespace: Path) -> Iterator[TableRecord]:
        """Yield all entries of a schema in the server's order."""
        for row in self.rows(namespace):
            if row.get("broken"):
                logger.warning("entry %s is broken", row["name"])
                yield TableRecord.unreadable((*namespace, row["name"]))
            else:
                yield self.record(namespace, row)

    def rows(self, namespace: Path) -> list[Json]:
        """Return the rows of a schema, one by one if one of them fails the listing."""
        try:
            return list(self.pages("list", namespace, schema=namespace[0]))
        except InternalError as error:
            if not _is_corrupt(error):
                raise
        rows = (self.row((*namespace, name)) for name in self.list_tables(namespace))
        return [row for row in rows if row is not None]

    def row(self, path: Path) -> Json | None:
        """Return the row of a table; None if it no longer exists."""
        try:
            return self.send("get", path, schema=path[0], table=path[1])
        except TableNotFoundError:
            return None
        except InternalError as error:
            if not _is_corrupt(error):
                raise
            return {"name": path[1], "broken": str(error)}

    def list_tables(self, namespace: Path, *, lance_only: bool = False) -> Iterable[str]:
        if lance_only:
            return super().list_tables(namespace, lance_only=True)
        rows = self.pages("list", namespace, schema=namespace[0], brief=True)
        return sorted({str(row["name"]) for row in rows})

    def scan_hidden_tables(self) -> Iterable[TableRecord]:
        for row in self.pages("list_hidden", ()):
            yield self.record(("hidden",), row)

    def partition_locations(self, record: TableRecord) -> Iterable[str]:
        schema, table = record.path
        try:
            for row in self.pages("partitions", record.path, schema=schema, table=table):
                yield row["location"]
        except (TableNotFoundError, NamespaceNotFoundError):
            return

    def load_table(self, path: Path) -> TableRecord:
        row = self.send("get", path, schema=path[0], table=path[1])
        if row.get("broken"):
            raise InternalError(f"the entry '{display(path)}' is broken")
        return self.record(path[:-1], row)

    def create_table(self, record: TableRecord) -> TableRecord:
        schema, table = record.path
        row = self.send("create", record.path, schema=schema, table=table, **self.fields(record))
        return self.record(record.path[:-1], row)

    def alter_table(self, record: TableRecord) -> None:
        for each in (record, self.load_table(record.path)):
            if each.properties.get(GUARD, ETAG) != ETAG:
                raise InvalidTableStateError(f"'{display(record.path)}' has another guard")
        schema, table = record.path
        body = {**self.fields(record), "if_match": record.revision}
        self.send("update", record.path, schema=schema, table=table, **body)

    def load_ownership(self, path: Path) -> Mapping[str, str]:
        row = self.send("get", path, schema=path[0], table=path[1])
        return {"kind": row["kind"]}

    def alter_ownership(self, record: TableRecord, marks: Mapping[str, str]) -> None:
        schema, table = record.path
        body = {**self.fields(record), "kind": marks["kind"], "if_match": record.revision}
        self.send("update", record.path, schema=schema, table=table, **body)

    def commit_guard(self, record: TableRecord) -> str:
        self.load_table(record.path)
        return ETAG

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        schema, table = record.path
        guarded = GUARD in {**record.properties, **self.load_table(record.path).properties}
        body = {"to": (new_path[0], new_path[1]), "if_match": record.revision if guarded else None}
        try:
            self.send("move", record.path, schema=schema, table=table, **body)
        except LanceNamespaceError as error:
            cause = error.__cause__
            code = cause.code if isinstance(cause, ServerError) else ""
            if code == "TABLE_EXISTS":
                raise table_already_exists(new_path) from error
            if code == "NO_SUCH_SCHEMA":
                raise namespace_not_found(new_path[:1]) from error
            raise

    def drop_table(self, record: TableRecord) -> None:
        schema, table = record.path
        self.send("delete", record.path, schema=schema, table=table, if_id=record.identity)

    def vend_credentials(self, record: TableRecord, *, write: bool) -> Mapping[str, str] | None:
        body = {"table_id": record.identity or "", "location": record.location, "write": write}
        answer = self.send("credentials", record.path, **body)
        ends = int((time.time() + answer["seconds"]) * 1000)
        return {"token": answer["token"], "expires_at_millis": str(ends)}


def _is_corrupt(error: LanceNamespaceError) -> bool:
    """Return whether the server failed over one row, and not over all."""
    return isinstance(error.__cause__, ServerError) and error.__cause__.code == "CORRUPT"


class TinyNamespace(LanceBridgeNamespace):
    """``impl=tiny``."""

    impl = "tiny"
    config_type = TinyConfig

    def open_catalog(self, config: TinyConfig) -> Catalog:
        return TinyCatalog(config)

"""What only Databricks does: Delta tables through REST, others through SQL, tokens and OAuth."""

from __future__ import annotations

import base64
import binascii
import itertools
import re
import time
import uuid
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import singledispatchmethod
from typing import Any
from urllib.parse import parse_qs

from databricks.sdk.service.sql import StatementResponse

from . import rules, sql
from .catalog_api import PREFIX, CatalogApi, Credentials
from .dialects import ErrorKind, Level
from .http import Answer, ApiError, Request, Route, ServerFault
from .published import check_sdk_reply
from .rules import cloud_location, overlap
from .state import Entry, State

_RESERVED = {
    "provider": "please use the USING clause to specify it",
    "location": "please use the LOCATION clause to specify it",
    "owner": "it will be set to the current user",
    "external": "please use CREATE EXTERNAL TABLE",
}
_RESERVED_LATER = dict.fromkeys(
    ("table_type", "collation", "is_managed_location"),
    "please remove it from the TBLPROPERTIES list",
)
_FORMATS = {"DELTA", "CSV", "JSON", "AVRO", "PARQUET", "ORC", "TEXT"}
_COLUMN = {
    "name": "value",
    "type_text": "string",
    "type_name": "STRING",
    "type_json": '{"name":"value","type":"string","nullable":true,"metadata":{}}',
    "position": 0,
    "nullable": True,
}
"""What a table of text has."""
_PREFIX = ("/api/2.0",)
_INVALID = ErrorKind(400, "INVALID_PARAMETER_VALUE")
_NOT_FOUND = ErrorKind(404, "NOT_FOUND")
_HOST_ONLY = ("",)
WAREHOUSE_ID = "double-warehouse"
_OLD_PREFIX = "/api/2.0/unity-catalog"


# -- SQL statements --------------------------------------------------------------------------------


class SqlError(Exception):
    """A statement that failed; ``condition`` and ``state`` as Spark names them."""

    def __init__(self, condition: str, state: str, message: str) -> None:
        super().__init__(f"[{condition}] {message} SQLSTATE: {state}")
        self.state = state


class Warehouse:
    """Executes statements on the catalog of a Databricks double, under its lock."""

    def __init__(self, api: CatalogApi) -> None:
        self._api = api
        self.refuses_overlaps = False
        """External tables may not share or nest locations, as on Databricks itself."""
        self.reserves_table_type = False
        """The property ``table_type`` is refused, as by Spark from 4.3 on; other cases pass."""

    def execute(self, text: str, defaults: sql.Name) -> None:
        """Run one statement. Raises SqlError.

        ``defaults`` are the catalog and schema of names that have none.
        """
        try:
            statement = sql.parse(text)
        except sql.SqlSyntaxError as error:
            raise SqlError("PARSE_SYNTAX_ERROR", "42601", str(error)) from error
        try:
            self._run(statement, defaults)
        except ApiError as error:
            raise self._as_sql(error) from error

    @singledispatchmethod
    def _run(self, statement: sql.Statement, defaults: sql.Name) -> None:
        raise TypeError(f"{statement} (names in {defaults})")

    @_run.register
    def _create(self, statement: sql.CreateTable, defaults: sql.Name) -> None:
        catalog, schema, name = _full(statement.name, defaults)
        parent = self._api.schema(catalog, schema)
        if parent.children.get(self._api.fold(name)) is not None:
            raise _already_exists((catalog, schema, name))
        properties = self._properties(statement.properties)
        more = {
            "catalog_name": parent.info["catalog_name"],
            "schema_name": parent.name,
            "full_name": f"{parent.info['full_name']}.{name.lower()}",
            "table_type": "EXTERNAL",
            "data_source_format": statement.using,
            "columns": [_COLUMN],
            "storage_location": self._location(statement.location),
        }
        if statement.using not in _FORMATS:
            raise SqlError("DATA_SOURCE_NOT_FOUND", "42K02", f"No such format: {statement.using}.")
        body = {"name": name, "properties": properties}
        entry = self._api.make(Level.TABLE, body, more)
        self._api.put(parent.children, entry, entry.name)

    @_run.register
    def _set(self, statement: sql.SetProperties, defaults: sql.Name) -> None:
        entry = self._table(statement.name, defaults)
        given = self._properties(statement.properties)
        rules.require_properties(given)
        entry.change(properties={**entry.info.get("properties", {}), **given})

    @_run.register
    def _unset(self, statement: sql.UnsetProperties, defaults: sql.Name) -> None:
        entry = self._table(statement.name, defaults)
        kept = dict(entry.info.get("properties", {}))
        absent = [key for key in statement.keys if key not in kept]
        if absent and not statement.if_exists:
            text = f"Attempted to unset non-existent properties {absent} in table."
            raise SqlError("UNSET_NONEXISTENT_PROPERTIES", "42K0J", text)
        entry.change(properties={k: v for k, v in kept.items() if k not in statement.keys})

    @_run.register
    def _move(self, statement: sql.SetLocation, defaults: sql.Name) -> None:
        entry = self._table(statement.name, defaults)
        entry.change(storage_location=self._location(statement.location, but=entry))

    @_run.register
    def _rename(self, statement: sql.RenameTable, defaults: sql.Name) -> None:
        catalog, schema, _ = _full(statement.name, defaults)
        entry = self._table(statement.name, defaults)
        *place, name = _full(statement.new_name, (catalog, schema))
        if [self._api.fold(part) for part in place] != [*map(self._api.fold, (catalog, schema))]:
            text = "Renaming a table across schemas is not supported."
            raise SqlError("UNSUPPORTED_FEATURE.RENAME_ACROSS", "0A000", text)
        name = rules.require_name(name, self._api.dialect)
        siblings = self._api.schema(catalog, schema).children
        if siblings.get(name) is not None:
            raise _already_exists((catalog, schema, name))
        siblings.remove(entry.name)
        entry.change(name=name, full_name=f"{entry.info['full_name'].rpartition('.')[0]}.{name}")
        siblings.add(entry)

    @_run.register
    def _drop(self, statement: sql.DropTable, defaults: sql.Name) -> None:
        catalog, schema, _ = _full(statement.name, defaults)
        siblings = self._api.schema(catalog, schema).children
        if statement.if_exists and siblings.get(self._api.fold(statement.name[-1])) is None:
            return
        siblings.remove(self._table(statement.name, defaults).name)

    # -- parts -----------------------------------------------------------------------------------

    def _table(self, name: sql.Name, defaults: sql.Name) -> Entry:
        return self._api.table(*_full(name, defaults))

    def _location(self, location: str | None, but: Entry | None = None) -> str:
        if location is None:
            text = "Managed tables have to be Delta: give a LOCATION."
            raise SqlError("UC_DATASOURCE_NOT_SUPPORTED", "0AKUC", text)
        try:
            place = cloud_location(location)
        except ValueError as error:
            raise SqlError("INVALID_PARAMETER_VALUE", "22023", f"{error}.") from error
        if self.refuses_overlaps:
            for other in self._api.state.tables():
                if other is not but and overlap(place, other.info.get("storage_location", "-")):
                    text = f"Input path url '{place}' overlaps with other external tables."
                    raise SqlError("INVALID_PARAMETER_VALUE.LOCATION_OVERLAP", "22023", text)
        return place

    def _properties(self, pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
        reserved = {**_RESERVED, **(_RESERVED_LATER if self.reserves_table_type else {})}
        found: dict[str, str] = {}
        for key, value in pairs:
            if key in found:
                raise SqlError("DUPLICATE_KEY", "23505", f"Found duplicate keys `{key}`.")
            if key in reserved:
                text = f"{key} is a reserved table property, {reserved[key]}."
                raise SqlError("UNSUPPORTED_FEATURE.SET_TABLE_PROPERTY", "0A000", text)
            found[key] = value
        return found

    def _as_sql(self, error: ApiError) -> SqlError:
        conditions = {
            kind.code: (condition, state)
            for level, condition, state in (
                (Level.CATALOG, "NO_SUCH_CATALOG_EXCEPTION", "42704"),
                (Level.SCHEMA, "SCHEMA_NOT_FOUND", "42704"),
                (Level.TABLE, "TABLE_OR_VIEW_NOT_FOUND", "42P01"),
            )
            for kind in (self._api.dialect.missing[level],)
        }
        found = conditions.get(error.kind.code, ("INVALID_PARAMETER_VALUE", "22023"))
        return SqlError(*found, error.message)


def _full(name: sql.Name, defaults: sql.Name) -> sql.Name:
    full = (*defaults[: 3 - len(name)], *name)
    if len(full) != 3:
        text = f"The name {'.'.join(name)} does not have three parts."
        raise SqlError("IDENTIFIER_TOO_MANY_NAME_PARTS", "42601", text)
    return full


def _already_exists(name: sql.Name) -> SqlError:
    quoted = ".".join(f"`{part}`" for part in name)
    text = f"Cannot create table or view {quoted} because it already exists."
    return SqlError("TABLE_OR_VIEW_ALREADY_EXISTS", "42P07", text)


@dataclass
class _Execution:
    """One statement that was submitted."""

    id: str
    text: str
    defaults: tuple[str, ...]
    polls_left: int
    state: str = "PENDING"
    error: dict[str, str] | None = None
    sql_state: str | None = None

    def reply(self) -> dict[str, Any]:
        status: dict[str, Any] = {"state": self.state}
        if self.error is not None:
            status |= {"error": self.error, "sql_state": self.sql_state}
        content: dict[str, Any] = {"statement_id": self.id, "status": status}
        if self.state == "SUCCEEDED":
            content["manifest"] = {
                "format": "JSON_ARRAY",
                "schema": {"column_count": 0},
                "total_chunk_count": 0,
                "total_row_count": 0,
                "truncated": False,
            }
        return check_sdk_reply(StatementResponse, content)


class StatementApi:
    """Statements of one warehouse.

    ``polls`` is how often a statement is asked for before it is done: 0 is done at once. One that
    is not done when it is submitted counts as longer than any ``wait_timeout``.
    """

    def __init__(self, warehouse: Warehouse, warehouse_id: str) -> None:
        self._warehouse = warehouse
        self._executions: dict[str, _Execution] = {}
        self._refused: list[str] = []
        self.warehouse_id = warehouse_id
        self.polls = 0
        self.submitted: list[str] = []
        """The text of every statement, in the order in which they came."""

    def routes(self) -> list[Route]:
        """Return the operations."""
        return [
            Route("POST", "/sql/statements", self.submit, _PREFIX),
            Route("GET", "/sql/statements/{statement_id}", self.poll, _PREFIX),
            Route("POST", "/sql/statements/{statement_id}/cancel", self.cancel, _PREFIX),
        ]

    def refuse(self, pattern: str) -> None:
        """Let statements that fit ``CREATE TABLE*`` fail for want of a privilege."""
        self._refused.append(pattern)

    def allow_all(self) -> None:
        """Take back what `refuse` did."""
        self._refused.clear()

    def submit(self, request: Request) -> Answer:
        body = request.fields
        self._require_valid(body)
        names = (body.get("catalog", "hive_metastore"), body.get("schema", "default"))
        execution = _Execution(str(uuid.uuid4()), body["statement"], names, self.polls)
        self._executions[execution.id] = execution
        self.submitted.append(execution.text)
        waits = body.get("wait_timeout", "10s") != "0s"
        if waits and not execution.polls_left:
            self._finish(execution)
        elif waits and body.get("on_wait_timeout") == "CANCEL":
            execution.state = "CANCELED"
        return Answer.of_json(execution.reply())

    def poll(self, request: Request) -> Answer:
        execution = self._execution(request)
        if execution.state in ("PENDING", "RUNNING"):
            if execution.polls_left:
                execution.polls_left -= 1
                execution.state = "RUNNING"
            else:
                self._finish(execution)
        return Answer.of_json(execution.reply())

    def cancel(self, request: Request) -> Answer:
        execution = self._execution(request)
        if execution.state in ("PENDING", "RUNNING"):
            execution.state = "CANCELED"
        return Answer.of_json({})

    def _execution(self, request: Request) -> _Execution:
        wanted = request.parameters["statement_id"]
        if wanted not in self._executions:
            text = f"The statement {wanted} was not found. (Statement ID: {wanted})"
            raise ApiError(_NOT_FOUND, text)
        return self._executions[wanted]

    def _require_valid(self, body: dict[str, Any]) -> None:
        wait = str(body.get("wait_timeout", "10s"))
        found = re.fullmatch(r"([0-9]+)s", wait)
        if found is None or (int(found[1]) != 0 and not 5 <= int(found[1]) <= 50):
            text = "wait_timeout must be 0 seconds, or between 5 and 50 seconds."
            raise ApiError(_INVALID, text)
        if not isinstance(body.get("statement"), str):
            raise ApiError(_INVALID, "statement is required")
        if body.get("warehouse_id") != self.warehouse_id:
            raise ApiError(_INVALID, f"{body.get('warehouse_id')} is not a valid endpoint id.")

    def _finish(self, execution: _Execution) -> None:
        try:
            self._require_allowed(execution.text)
            self._warehouse.execute(execution.text, execution.defaults)
        except SqlError as error:
            execution.state, execution.sql_state = "FAILED", error.state
            execution.error = {"error_code": "BAD_REQUEST", "message": str(error)}
        except ServerFault as error:
            execution.state, execution.sql_state = "FAILED", "XX000"
            execution.error = {"error_code": "INTERNAL_ERROR", "message": str(error)}
        else:
            execution.state = "SUCCEEDED"

    def _require_allowed(self, text: str) -> None:
        if any(fnmatchcase(text, pattern) for pattern in self._refused):
            message = "Insufficient privileges: User does not have CREATE TABLE or MODIFY on it."
            raise SqlError("INSUFFICIENT_PERMISSIONS", "42501", message)


# -- REST, tokens and OAuth ------------------------------------------------------------------------


class Authority:
    """Issues and checks tokens.

    ``lifetime`` (seconds) is that of tokens issued from now on. `revoke` ends all that were issued.
    """

    def __init__(self) -> None:
        self.tokens: set[str] = {"dapi-double"}
        """Personal tokens, which do not end."""
        self.clients: dict[str, str] = {"double-client": "double-secret"}
        self.lifetime = 3600.0
        self.issued = 0
        """How many tokens were issued."""
        self._ends: dict[str, float] = {}
        self._numbers = itertools.count(1)

    def routes(self) -> list[Route]:
        """Return the operations, none of which needs a token."""
        return [
            Route(method, path, handler, _HOST_ONLY, needs_token=False)
            for method, path, handler in (
                ("GET", "/.well-known/databricks-config", self.host_metadata),
                ("GET", "/oidc/.well-known/oauth-authorization-server", self.endpoints),
                ("POST", "/oidc/v1/token", self.token),
            )
        ]

    def host_metadata(self, request: Request) -> Answer:
        content = {"oidc_endpoint": f"http://{request.headers['host']}/oidc"}
        return Answer.of_json({**content, "workspace_id": "1", "cloud": "AWS"})

    def endpoints(self, request: Request) -> Answer:
        start = f"http://{request.headers['host']}/oidc/v1"
        content = {"authorization_endpoint": f"{start}/authorize"}
        return Answer.of_json({**content, "token_endpoint": f"{start}/token"})

    def token(self, request: Request) -> Answer:
        form = {key: values[0] for key, values in parse_qs(request.raw.decode()).items()}
        if form.get("grant_type") != "client_credentials":
            return _oauth_error("unsupported_grant_type", form.get("grant_type", ""))
        client, secret = _basic(request) or (
            form.get("client_id", ""),
            form.get("client_secret", ""),
        )
        if not client or self.clients.get(client) != secret:
            return _oauth_error("invalid_client", "Client authentication failed", 401)
        token = f"oauth-{next(self._numbers)}"
        self._ends[token] = time.monotonic() + self.lifetime
        self.issued += 1
        content = {"access_token": token, "token_type": "Bearer", "scope": form.get("scope", "")}
        return Answer.of_json({**content, "expires_in": int(self.lifetime)})

    def revoke(self) -> None:
        """End every token that was issued; personal ones stay."""
        self._ends = dict.fromkeys(self._ends, 0.0)

    def require(self, request: Request) -> None:
        """Raises ApiError where the request has no token that counts."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or not token:
            text = "Credential was not sent or was of an unsupported type for this API."
            raise ApiError(ErrorKind(401, "UNAUTHENTICATED"), text)
        if token in self.tokens:
            return
        if token not in self._ends:
            raise ApiError(ErrorKind(403, "403"), "Invalid access token.")
        if time.monotonic() >= self._ends[token]:
            raise ApiError(ErrorKind(401, "UNAUTHENTICATED"), "Token is expired.")


def _basic(request: Request) -> tuple[str, str] | None:
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme != "Basic":
        return None
    try:
        user, _, secret = base64.b64decode(encoded).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return user, secret


def _oauth_error(code: str, text: str, status: int = 400) -> Answer:
    return Answer.of_json({"error": code, "error_description": text}, status)


class DatabricksApi(CatalogApi):
    """Unity Catalog of a Databricks workspace, with one SQL warehouse."""

    def __init__(self, state: State, credentials: Credentials) -> None:
        super().__init__(state)
        self._credentials = credentials
        self.authority = Authority()
        self.warehouse = Warehouse(self)
        self.statements = StatementApi(self.warehouse, WAREHOUSE_ID)

    def routes(self) -> list[Route]:
        return [
            *super().routes(),
            *self._credentials.routes((_OLD_PREFIX, PREFIX)),
            *self.statements.routes(),
            *self.authority.routes(),
        ]

    def create_catalog(self, request: Request) -> Answer:
        """A new catalog has two schemas, of which one cannot be dropped."""
        answer = super().create_catalog(request)
        catalog = self.catalog(request.fields["name"])
        for name in ("default", "information_schema"):
            place = {"catalog_name": catalog.name, "full_name": f"{catalog.name}.{name}"}
            self.put(catalog.children, self.make(Level.SCHEMA, {"name": name}, place), name)
        return answer

    def create_table(self, request: Request) -> Answer:
        """External Delta tables only."""
        body = request.fields
        if (body.get("table_type"), body.get("data_source_format")) != ("EXTERNAL", "DELTA"):
            text = "Only EXTERNAL tables in DELTA format can be created through this API."
            raise ApiError(self.dialect.invalid, text)
        parent = self.schema(str(body.get("catalog_name")), str(body.get("schema_name")))
        try:
            location = cloud_location(str(body.get("storage_location")))
        except ValueError as error:
            raise ApiError(self.dialect.invalid, str(error)) from error
        more = {
            "catalog_name": parent.info["catalog_name"],
            "schema_name": parent.name,
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "columns": rules.require_columns(body, self.dialect),
            "storage_location": location,
        }
        entry = self.make(Level.TABLE, body, more)
        entry.info["full_name"] = f"{parent.info['full_name']}.{entry.name}"
        self.put(parent.children, entry, entry.info["full_name"])
        return Answer(200, entry.json())

    def delete_schema(self, request: Request) -> Answer:
        if request.parameters["full_name"].lower().endswith(".information_schema"):
            text = "Schema 'information_schema' is a system schema and cannot be deleted."
            raise ApiError(self.dialect.invalid, text)
        return super().delete_schema(request)

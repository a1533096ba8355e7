"""The API of all dialects, and of the open-source server: catalogs to tables, and credentials."""

from __future__ import annotations

import base64
import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from . import published, rules
from .dialects import Dialect, ErrorKind, Level
from .http import Answer, ApiError, Request, Route, ServerFault, duplicate, missing
from .published import check_reply
from .rules import MANAGED_PREFIX, bucket_of, normalized, require_unmanaged
from .state import Entry, Names, State, now

_KINDS: dict[str, tuple[str, type[BaseModel], type[BaseModel]]] = {
    "volumes": ("volumes", published.ListVolumesResponseContent, published.VolumeInfo),
    "functions": ("functions", published.ListFunctionsResponse, published.FunctionInfo),
    "models": (
        "registered_models",
        published.ListRegisteredModelsResponse,
        published.RegisteredModelInfo,
    ),
}
_TABLE_OPERATIONS = ("READ", "READ_WRITE")
_PATH_OPERATIONS = ("PATH_READ", "PATH_READ_WRITE", "PATH_CREATE_TABLE")
PREFIX = "/api/2.1/unity-catalog"
PAGED = frozenset({"max_results", "page_token"})
_LISTS: dict[Level, tuple[str, type[BaseModel]]] = {
    Level.CATALOG: ("catalogs", published.ListCatalogsResponse),
    Level.SCHEMA: ("schemas", published.ListSchemasResponse),
    Level.TABLE: ("tables", published.ListTablesResponse),
}


# -- other objects of schemas ----------------------------------------------------------------------


class Others:
    """Names of objects by kind (``volumes``, ``functions``, ``models``) and schema."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str, str], list[str]] = {}

    def add(self, kind: str, catalog: str, schema: str, name: str) -> None:
        """Put an object into a schema."""
        self._names.setdefault((kind, catalog, schema), []).append(name)

    def count(self, catalog: str, schema: str) -> int:
        """Return how many there are in a schema."""
        return sum(len(self._names.get((kind, catalog, schema), ())) for kind in _KINDS)

    def routes(self, prefix: str, require_schema: Any) -> list[Route]:
        """Return the listings; ``require_schema(catalog, schema)`` raises where there is none."""
        names = frozenset({"catalog_name", "schema_name"})
        paged = names | {"max_results", "page_token"}

        def handler(kind: str) -> Any:
            return lambda request: self._list(kind, request, require_schema)

        return [
            Route("GET", f"/{kind}", handler(kind), (prefix,), query=paged, required=names)
            for kind in _KINDS
        ]

    def _list(self, kind: str, request: Request, require_schema: Any) -> Answer:
        key, page, item = _KINDS[kind]
        catalog, schema = (
            request.query.get("catalog_name", ""),
            request.query.get("schema_name", ""),
        )
        require_schema(catalog, schema)
        rows = [
            check_reply(item, {"name": name, "catalog_name": catalog, "schema_name": schema})
            for name in self._names.get((kind, catalog, schema), ())
        ]
        return Answer.of_json(check_reply(page, {key: rows, "next_page_token": None}))


# -- credentials for storage -----------------------------------------------------------------------


@dataclass(frozen=True)
class Bucket:
    """What the server knows of a bucket. ``lifetime`` is in seconds."""

    access_key_id: str
    secret_access_key: str
    session_token: str = "vended-session"
    lifetime: float = 3600.0


class Credentials:
    """Vends for tables by id, and for paths. ``buckets`` is by ``s3://name``."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._dialect: Dialect = state.dialect
        self._numbers = itertools.count(1)
        self.buckets: dict[str, Bucket] = {}

    def routes(self, prefixes: Sequence[str]) -> list[Route]:
        """Return the operations."""
        return [
            Route(
                "POST",
                "/temporary-table-credentials",
                self.for_table,
                prefixes,
                request=published.GenerateTemporaryTableCredential,
            ),
            Route(
                "POST",
                "/temporary-path-credentials",
                self.for_path,
                prefixes,
                request=published.GenerateTemporaryPathCredential,
            ),
        ]

    def for_table(self, request: Request) -> Answer:
        body = request.fields
        wanted = body.get("table_id")
        self._require_operation(body, _TABLE_OPERATIONS)
        if not self._dialect.databricks:
            _require_uuid(wanted)
        for table in self._state.tables():
            if table.id == wanted:
                return self._vend(table.info.get("storage_location"))
        if self._dialect.databricks:
            raise missing(self._dialect, Level.TABLE, str(wanted))
        text = f"Neither table nor staging table found with id: {wanted}"
        raise ApiError(self._dialect.missing[Level.TABLE], text)

    def for_path(self, request: Request) -> Answer:
        body = request.fields
        self._require_operation(body, _PATH_OPERATIONS)
        return self._vend(body.get("url"))

    def _require_operation(self, body: dict[str, Any], allowed: Sequence[str]) -> None:
        operation = body.get("operation")
        if operation is None and not self._dialect.databricks:
            raise ServerFault('Cannot invoke "ordinal()" because the operation is null')
        if operation not in allowed:
            raise ApiError(self._dialect.unparsable, "Privileges cannot be null or empty.")

    def _vend(self, location: object) -> Answer:
        if not isinstance(location, str):
            raise ApiError(self._dialect.invalid, "Storage location is null.")
        content: dict[str, Any] = {}
        if not self._dialect.databricks:
            location = normalized(location, self._dialect)
        if not location.startswith(("file:", "/")):
            content = self._keys(location)
        if self._dialect.credentials_url:
            content["url"] = location
        fields = published.TemporaryCredentials.model_fields
        if not self._dialect.databricks:
            shown = fields.keys() - ({"url"} if not self._dialect.credentials_url else set())
            content = {name: content.get(name) for name in fields if name in shown}
        return Answer.of_json(check_reply(published.TemporaryCredentials, content))

    def _keys(self, location: str) -> dict[str, Any]:
        bucket = self.buckets.get(bucket_of(location))
        if bucket is None:
            kind = ErrorKind(400, "FAILED_PRECONDITION")
            text = "S3 bucket configuration not found."
            if self._dialect.databricks:
                kind = ErrorKind(403, "PERMISSION_DENIED")
                text = f"No external location was found for the path {location}"
            raise ApiError(kind, text)
        # Each answer is another session, so that a test can tell a refresh from a cache.
        return {
            "expiration_time": now() + int(bucket.lifetime * 1000),
            "aws_temp_credentials": {
                "access_key_id": bucket.access_key_id,
                "secret_access_key": bucket.secret_access_key,
                "session_token": f"{bucket.session_token}-{next(self._numbers)}",
            },
        }


def _require_uuid(table_id: object) -> None:
    if table_id is None:
        raise ServerFault('Cannot invoke "String.length()" because "name" is null')
    try:
        uuid.UUID(str(table_id))
    except ValueError:
        raise ValueError(f"Invalid UUID string: {table_id}") from None


# -- catalogs, schemas and tables ------------------------------------------------------------------


class CatalogApi:
    """The operations that Databricks and the open-source server share; under the state's lock."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.dialect: Dialect = state.dialect
        self.others = Others()
        self.empty_pages = self.dialect.databricks
        """A listing begins with a page that has no rows and carries a token."""
        self.lists: Callable[[Request, Entry], bool] = lambda _request, _entry: True
        """Whether a page shows an object to who asks; it is then shorter."""

    def routes(self) -> list[Route]:
        """Return the operations."""

        def route(method: str, template: str, handler: Any, **options: Any) -> Route:
            return Route(method, template, handler, (PREFIX,), **options)

        deletes = {"query": frozenset({"force"})}
        tables = PAGED | {"catalog_name", "schema_name", "omit_columns", "omit_properties"}
        if self.dialect.databricks:
            tables |= {"include_browse", "omit_username", "include_manifest_capabilities"}
        return [
            route("GET", "/catalogs", self.list_catalogs, query=PAGED),
            route("POST", "/catalogs", self.create_catalog, request=published.CreateCatalog),
            route("GET", "/catalogs/{name}", self.get_catalog),
            route("PATCH", "/catalogs/{name}", self.update, request=published.UpdateCatalog),
            route("DELETE", "/catalogs/{name}", self.delete_catalog, **deletes),
            route(
                "GET",
                "/schemas",
                self.list_schemas,
                query=PAGED | {"catalog_name"},
                required=frozenset({"catalog_name"}),
            ),
            route("POST", "/schemas", self.create_schema, request=published.CreateSchema),
            route("GET", "/schemas/{full_name}", self.get_schema),
            route("PATCH", "/schemas/{full_name}", self.update, request=published.UpdateSchema),
            route("DELETE", "/schemas/{full_name}", self.delete_schema, **deletes),
            route(
                "GET",
                "/tables",
                self.list_tables,
                query=tables,
                required=frozenset({"catalog_name", "schema_name"}),
            ),
            route("POST", "/tables", self.create_table, request=published.CreateTable),
            route("GET", "/tables/{full_name}", self.get_table),
            route("DELETE", "/tables/{full_name}", self.delete_table),
            *self.others.routes(PREFIX, self.schema),
        ]

    # -- look-ups --------------------------------------------------------------------------------

    def fold(self, name: str) -> str:
        """Return a name as it is kept."""
        return name.lower() if self.dialect.databricks else name

    def catalog(self, name: str) -> Entry:
        """Raises ApiError."""
        found = self.state.catalogs.get(self.fold(name))
        if found is None:
            raise missing(self.dialect, Level.CATALOG, name)
        return found

    def schema(self, catalog: str, name: str) -> Entry:
        """Raises ApiError, about the outermost level that is missing."""
        found = self.catalog(catalog).children.get(self.fold(name))
        if found is None:
            raise missing(self.dialect, Level.SCHEMA, f"{catalog}.{name}")
        return found

    def table(self, catalog: str, schema: str, name: str) -> Entry:
        """Raises ApiError, about the outermost level that is missing."""
        found = self.schema(catalog, schema).children.get(self.fold(name))
        if found is None:
            raise missing(self.dialect, Level.TABLE, f"{catalog}.{schema}.{name}")
        return found

    def split(self, full_name: str, count: int) -> list[str]:
        """Return the names of a full name. Raises ApiError where there are not ``count``."""
        names = full_name.split(".")
        if len(names) != count:
            what = "table name" if count == 3 else "schema full name"
            raise ApiError(self.dialect.invalid, f"Invalid {what}: {full_name}")
        return names

    # -- pages -----------------------------------------------------------------------------------

    def list_catalogs(self, request: Request) -> Answer:
        return self._page(Level.CATALOG, self.state.catalogs, request)

    def list_schemas(self, request: Request) -> Answer:
        parent = self.catalog(request.query.get("catalog_name", ""))
        return self._page(Level.SCHEMA, parent.children, request)

    def list_tables(self, request: Request) -> Answer:
        query = request.query
        parent = self.schema(query.get("catalog_name", ""), query.get("schema_name", ""))
        return self._page(Level.TABLE, parent.children, request)

    def _page(self, level: Level, names: Names, request: Request) -> Answer:
        field, model = _LISTS[level]
        token = request.query.get("page_token")
        size = self._page_size(request.query)
        rows = [] if self.empty_pages and token is None else names.page(self._after(token), size)
        following = rows[-1].name if len(rows) >= size else None
        if self.empty_pages:
            following = _sealed(following if rows else "" if token is None else None)
        omit = {
            key: request.query.get(key) == "true" for key in ("omit_columns", "omit_properties")
        }
        shown = [row.json(**omit) for row in rows if self.lists(request, row)]
        return self._list_answer(field, model, shown, following)

    def _list_answer(
        self, field: str, model: type[BaseModel], rows: list[bytes], token: str | None
    ) -> Answer:
        # Rows were checked when they were made; what is left to check is what is around them.
        around = check_reply(model, {field: [], "next_page_token": token})
        ending = Answer.of_json({key: around[key] for key in around if key != field}).body
        if self.dialect.databricks:
            ending = b"{}" if token is None else ending
            if not rows:
                return Answer(200, ending)
        start = b'{"' + field.encode() + b'": [' + b", ".join(rows) + b"]"
        return Answer(200, start + (b"}" if ending == b"{}" else b", " + ending[1:]))

    def _page_size(self, query: Mapping[str, str]) -> int:
        try:
            wanted = int(query.get("max_results", "0"))
        except ValueError:
            raise ApiError(self.dialect.unparsable, "max_results is not a number") from None
        if wanted < 0:
            text = "maxResults must be greater than or equal to 0"
            raise ApiError(self.dialect.invalid, text)
        return min(wanted or self.dialect.page_size, self.dialect.page_size)

    def _after(self, token: str | None) -> str | None:
        if token is None or not self.empty_pages:
            return token
        try:
            return base64.urlsafe_b64decode(token).decode().removeprefix("after:") or None
        except ValueError:
            raise ApiError(self.dialect.invalid, "Invalid page token") from None

    # -- one object ------------------------------------------------------------------------------

    def get_catalog(self, request: Request) -> Answer:
        return Answer(200, self.catalog(request.parameters["name"]).json())

    def get_schema(self, request: Request) -> Answer:
        return Answer(200, self.schema(*self.split(request.parameters["full_name"], 2)).json())

    def get_table(self, request: Request) -> Answer:
        entry = self.table(*self.split(request.parameters["full_name"], 3))
        return Answer(200, entry.json(omit_properties=self.state.take_vanishing(entry)))

    def create_catalog(self, request: Request) -> Answer:
        body = request.fields
        entry = self.make(Level.CATALOG, body, {})
        self._set_storage_root(entry, body.get("storage_root"), "catalogs")
        self.put(self.state.catalogs, entry, entry.name)
        return Answer(200, entry.json())

    def create_schema(self, request: Request) -> Answer:
        body = request.fields
        rules.require_name(body.get("name"), self.dialect)
        parent = self.catalog(str(body.get("catalog_name")))
        entry = self.make(Level.SCHEMA, body, {"catalog_name": parent.name})
        self._set_storage_root(entry, body.get("storage_root"), "schemas")
        entry.info["full_name"] = f"{parent.name}.{entry.name}"
        taken = f"{parent.name}.{entry.name}" if self.dialect.databricks else entry.name
        self.put(parent.children, entry, taken)
        return Answer(200, entry.json())

    def _set_storage_root(self, entry: Entry, root: str | None, kind: str) -> None:
        """Set the root, and the directory below it that is for managed data alone."""
        if root is None:
            return
        if not self.dialect.managed_storage:
            entry.change(storage_root=root)
            return
        root = normalized(root, self.dialect)
        require_unmanaged(root, self.dialect)
        location = f"{root}/{MANAGED_PREFIX}/{kind}/{entry.id}"
        rules.require_length(location, rules.MAX_STORAGE_LOCATION)
        entry.change(storage_root=root, storage_location=location)

    def make(self, level: Level, body: Mapping[str, Any], more: Mapping[str, Any]) -> Entry:
        """Return a new object with what all have in common."""
        name = rules.require_name(body.get("name"), self.dialect)
        properties = rules.require_properties(body.get("properties"))
        comment = rules.require_length(body.get("comment"), rules.max_comment(level, self.dialect))
        common = {"name": name, "comment": comment, "properties": properties}
        return self.state.new_entry(level, {**common, **more})

    def put(self, parent: Names, entry: Entry, name: str) -> None:
        """Raises ApiError where the name is taken; ``name`` is how the message calls it."""
        self.state.insert(parent, entry, lambda: duplicate(self.dialect, entry.level, name))

    def create_table(self, request: Request) -> Answer:
        raise NotImplementedError

    def update(self, request: Request) -> Answer:
        """Update a catalog or schema: properties are replaced as a whole, none is no change."""
        if "name" in request.parameters:
            entry = self.catalog(request.parameters["name"])
        else:
            entry = self.schema(*self.split(request.parameters["full_name"], 2))
        body = request.fields
        properties = rules.require_properties(body.get("properties"))
        longest = rules.max_comment(entry.level, self.dialect)
        comment = rules.require_length(body.get("comment"), longest)
        if body.get("new_name") is not None:
            raise ServerFault("the double renames neither catalogs nor schemas")
        if properties:
            entry.change(properties=properties)
        if comment is not None:
            entry.change(comment=comment)
        return Answer(200, entry.json())

    def delete_catalog(self, request: Request) -> Answer:
        entry = self.catalog(request.parameters["name"])
        inside = [schema for schema in entry.children if schema.name != "information_schema"]
        if inside and request.query.get("force") != "true":
            text = "Cannot delete catalog with schemas. Use force=true to force deletion."
            if self.dialect.databricks:
                text = (
                    f"Catalog '{entry.name}' is not empty. The catalog has {len(inside)} schema(s)"
                )
            raise ApiError(self.dialect.not_empty, text)
        self.state.catalogs.remove(entry.name)
        return self.deleted()

    def delete_schema(self, request: Request) -> Answer:
        catalog, name = self.split(request.parameters["full_name"], 2)
        entry = self.schema(catalog, name)
        inside = len(entry.children) + self.others.count(catalog, name)
        if inside and request.query.get("force") != "true":
            text = "Cannot delete schema with tables"
            if self.dialect.databricks:
                text = f"Schema '{catalog}.{name}' is not empty. The schema has tables(s)"
            raise ApiError(self.dialect.not_empty, text)
        siblings = self.catalog(catalog).children
        self.state.wait_for_a_rival(siblings, entry.name)
        siblings.discard(entry)
        return self.deleted()

    def delete_table(self, request: Request) -> Answer:
        catalog, schema, name = self.split(request.parameters["full_name"], 3)
        entry = self.table(catalog, schema, name)
        siblings = self.schema(catalog, schema).children
        self.state.wait_for_a_rival(siblings, entry.name)
        siblings.discard(entry)  # where another has removed it meanwhile, no row is deleted
        return self.deleted()

    def deleted(self) -> Answer:
        """Return the answer to a delete: of the open-source server it is not JSON."""
        return Answer.of_json({}) if self.dialect.databricks else Answer.of_text("200 OK")


def _sealed(after: str | None) -> str | None:
    """Return a token that a client can only give back."""
    if after is None:
        return None
    return base64.urlsafe_b64encode(f"after:{after}".encode()).decode()


# -- the open-source server ------------------------------------------------------------------------


_RENAME = "/delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}/rename"


class OpenSourceApi(CatalogApi):
    """Unity Catalog OSS. There is no update of a table in it."""

    def __init__(self, state: State, credentials: Credentials) -> None:
        super().__init__(state)
        self._credentials = credentials

    def routes(self) -> list[Route]:
        found = [*super().routes(), *self._credentials.routes((PREFIX,))]
        if self.dialect.renames:
            rename = Route(
                "POST",
                _RENAME,
                self.rename_table,
                (PREFIX,),
                request=published.DeltaRenameTableRequest,
                delta=True,
            )
            found.append(rename)
        return found

    def create_table(self, request: Request) -> Answer:
        """The order of the checks is the server's: it decides which error a caller sees."""
        body = request.fields
        table_format = rules.require_format(body, self.dialect)
        table_type = body.get("table_type")
        if table_type is None:
            raise ServerFault("Error creating table: null")
        if table_type not in published.TableType._value2member_map_:
            raise ApiError(self.dialect.unparsable, f"Unexpected value '{table_type}'")
        rules.require_name(body.get("name"), self.dialect)
        columns = rules.require_columns(body, self.dialect)
        catalog, schema = str(body.get("catalog_name")), str(body.get("schema_name"))
        parent = self.schema(catalog, schema)
        full_name = f"{catalog}.{schema}.{body['name']}"
        if parent.children.get(body["name"]) is not None:
            raise duplicate(self.dialect, Level.TABLE, full_name)
        more = {
            "catalog_name": catalog,
            "schema_name": schema,
            "table_type": body["table_type"],
            "data_source_format": table_format,
            "columns": columns,
            "storage_location": self._location(body),
        }
        entry = self.make(Level.TABLE, body, more)
        self.put(parent.children, entry, full_name)
        return Answer(200, entry.json())

    def _location(self, body: dict[str, Any]) -> str:
        if body["table_type"] != "EXTERNAL":
            text = f"The double makes external tables only, not {body['table_type']}"
            raise ApiError(self.dialect.invalid, text)
        given = body.get("storage_location")
        if given is None:
            raise ServerFault('Cannot invoke "NormalizedURL.isCloudStorageRoot()"')
        location = normalized(str(given), self.dialect)
        if not location.startswith("file:") and location.count("/") < 3:
            text = f"External table storage location must include a non-empty path prefix: {given}"
            raise ApiError(self.dialect.invalid, text)
        rules.require_length(location, rules.MAX_LOCATION)
        self._require_outside_of_managed_storage(location)
        return location

    def _require_outside_of_managed_storage(self, location: str) -> None:
        require_unmanaged(location, self.dialect)
        below = location.rstrip("/") + "/"
        if any(managed.startswith(below) for managed in self.managed_locations()):
            text = f"Input path '{location}' overlaps with managed storage."
            raise ApiError(self.dialect.invalid, text)

    def managed_locations(self) -> Iterator[str]:
        """Yield the directories of managed data, of all catalogs and schemas."""
        for catalog in self.state.catalogs:
            for entry in (catalog, *catalog.children):
                yield from filter(None, [entry.info.get("storage_location")])

    def rename_table(self, request: Request) -> Answer:
        """The id, location and properties stay."""
        names = request.parameters
        new_name = request.fields.get("new-name")
        if not isinstance(new_name, str) or not new_name.strip():
            raise ApiError(self.dialect.invalid, "New table name is required.")
        rules.require_name(new_name, self.dialect)
        siblings = self.schema(names["catalog"], names["schema"]).children
        entry = self.table(names["catalog"], names["schema"], names["table"])
        if new_name != entry.name:
            if siblings.get(new_name) is not None:
                raise duplicate(self.dialect, Level.TABLE, new_name)
            self.state.wait_for_a_rival(siblings, entry.name, new_name)
            if not siblings.discard(entry):
                raise ServerFault("Row was updated or deleted by another transaction")
            entry.change(name=new_name)
            siblings.add(entry)
        return Answer(204)

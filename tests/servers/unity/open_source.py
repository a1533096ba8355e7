"""What only the open-source server does: makes any external table, renames within a schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import published, rules
from .catalog_api import PREFIX, CatalogApi, Credentials
from .dialects import Level
from .http import Answer, ApiError, Request, Route, ServerFault, duplicate
from .rules import normalized, require_unmanaged
from .state import State

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

"""What only Databricks does: Delta tables through REST, all others through SQL, OAuth."""

from __future__ import annotations

from . import rules
from .catalog_api import PREFIX, CatalogApi
from .credentials import Credentials
from .dialects import Level
from .locations import cloud_location
from .messages import Answer, ApiError, Request
from .oauth import Authority
from .router import Route
from .state import State
from .statements import StatementApi
from .warehouse import Warehouse

WAREHOUSE_ID = "double-warehouse"
_OLD_PREFIX = "/api/2.0/unity-catalog"


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

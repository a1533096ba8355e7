"""The models of the published API that the double uses, from the modules that define them."""

from __future__ import annotations

from unitycatalog.client.models.catalog_info import CatalogInfo
from unitycatalog.client.models.create_catalog import CreateCatalog
from unitycatalog.client.models.create_schema import CreateSchema
from unitycatalog.client.models.create_table import CreateTable
from unitycatalog.client.models.function_info import FunctionInfo
from unitycatalog.client.models.generate_temporary_path_credential import (
    GenerateTemporaryPathCredential,
)
from unitycatalog.client.models.generate_temporary_table_credential import (
    GenerateTemporaryTableCredential,
)
from unitycatalog.client.models.list_catalogs_response import ListCatalogsResponse
from unitycatalog.client.models.list_functions_response import ListFunctionsResponse
from unitycatalog.client.models.list_registered_models_response import ListRegisteredModelsResponse
from unitycatalog.client.models.list_schemas_response import ListSchemasResponse
from unitycatalog.client.models.list_tables_response import ListTablesResponse
from unitycatalog.client.models.list_volumes_response_content import ListVolumesResponseContent
from unitycatalog.client.models.registered_model_info import RegisteredModelInfo
from unitycatalog.client.models.schema_info import SchemaInfo
from unitycatalog.client.models.table_info import TableInfo
from unitycatalog.client.models.table_type import TableType
from unitycatalog.client.models.temporary_credentials import TemporaryCredentials
from unitycatalog.client.models.update_catalog import UpdateCatalog
from unitycatalog.client.models.update_schema import UpdateSchema
from unitycatalog.client.models.volume_info import VolumeInfo
from unitycatalog.delta.models.delta_error_response import (  # type: ignore[import-untyped]  # no types in this part
    DeltaErrorResponse,
)
from unitycatalog.delta.models.delta_rename_table_request import (  # type: ignore[import-untyped]  # the same
    DeltaRenameTableRequest,
)

__all__ = [
    "CatalogInfo",
    "CreateCatalog",
    "CreateSchema",
    "CreateTable",
    "DeltaErrorResponse",
    "DeltaRenameTableRequest",
    "FunctionInfo",
    "GenerateTemporaryPathCredential",
    "GenerateTemporaryTableCredential",
    "ListCatalogsResponse",
    "ListFunctionsResponse",
    "ListRegisteredModelsResponse",
    "ListSchemasResponse",
    "ListTablesResponse",
    "ListVolumesResponseContent",
    "RegisteredModelInfo",
    "SchemaInfo",
    "TableInfo",
    "TableType",
    "TemporaryCredentials",
    "UpdateCatalog",
    "UpdateSchema",
    "VolumeInfo",
]

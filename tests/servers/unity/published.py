"""The published API, against whose models every request and reply of the double is held.

The models are those of ``unitycatalog-client``, generated from the published API. They let fields
pass that the API does not have, so names of fields are compared here too. What that package lacks,
the SQL statements of Databricks, is held against the dataclasses of ``databricks-sdk``; these
check names of fields and values of enumerations only.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from typing import Any, Protocol

from databricks.sdk.service.sql import (
    Disposition,
    ExecuteStatementRequestOnWaitTimeout,
    Format,
    StatementExecutionAPI,
)
from pydantic import BaseModel, ValidationError
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


# -- checks ----------------------------------------------------------------------------------------


DATABRICKS_ONLY = frozenset(
    {"full_name", "metastore_id", "catalog_type", "storage_credential_name"}
)
"""Fields of Databricks' replies that the open-source API does not have."""


class InvalidReplyError(AssertionError):
    """The double was about to say something that no server says: a defect of the double."""


class SdkModel(Protocol):
    """A dataclass of databricks-sdk."""

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> SdkModel: ...
    def as_dict(self) -> dict[str, Any]: ...


def problems(model: type[BaseModel], content: object, extra: Collection[str] = ()) -> list[str]:
    """Return what in ``content`` the model does not allow; ``extra`` are fields to let pass."""
    try:
        parsed = model.model_validate(content)
    except ValidationError as error:
        return [
            f"{model.__name__}.{'.'.join(map(str, item['loc']))}: {item['msg']}"
            for item in error.errors()
        ]
    if not isinstance(content, dict):
        return [f"{model.__name__}: not a JSON object"]
    return list(_unknown_fields(model.__name__, parsed, content, extra))


def _unknown_fields(
    where: str, parsed: BaseModel, content: Mapping[str, Any], extra: Collection[str]
) -> Iterator[str]:
    known = {field.alias or name: name for name, field in type(parsed).model_fields.items()}
    for key, value in content.items():
        if key in extra:
            continue
        if key not in known:
            yield f"{where}.{key}: the API has no such field"
            continue
        inside = getattr(parsed, known[key])
        if isinstance(inside, BaseModel):
            yield from _unknown_fields(f"{where}.{key}", inside, value, ())
        elif isinstance(inside, list):
            for part, item in zip(inside, value, strict=True):
                if isinstance(part, BaseModel):
                    yield from _unknown_fields(f"{where}.{key}", part, item, ())


def check_reply(
    model: type[BaseModel], content: dict[str, Any], extra: Collection[str] = ()
) -> dict[str, Any]:
    """Return ``content``. Raises InvalidReplyError where the model does not allow it."""
    found = problems(model, content, extra)
    if found:
        raise InvalidReplyError(f"the double made a reply that the API does not allow: {found}")
    return content


def check_sdk_reply(model: type[Any], content: dict[str, Any]) -> dict[str, Any]:
    """Return ``content``. Raises InvalidReplyError where the SDK's dataclass loses any of it."""
    understood: dict[str, Any] = model.from_dict(content).as_dict()
    if understood != content:
        raise InvalidReplyError(f"databricks-sdk reads {content} as {understood}")
    return content


def statement_problems(content: Mapping[str, Any]) -> list[str]:
    """Return what in a request to execute a statement the SDK's own method could not send."""
    signature = inspect.signature(StatementExecutionAPI.execute_statement)
    known = set(signature.parameters) - {"self"}
    found = [f"statement.{key}: the API has no such field" for key in sorted(set(content) - known)]
    texts = ("statement", "warehouse_id", "catalog", "schema", "wait_timeout")
    for key in texts:
        if not isinstance(content.get(key, ""), str):
            found.append(f"statement.{key}: not a string")
    enums: dict[str, type[Enum]] = {
        "on_wait_timeout": ExecuteStatementRequestOnWaitTimeout,
        "disposition": Disposition,
        "format": Format,
    }
    for key, values in enums.items():
        if key in content and content[key] not in {value.value for value in values}:
            found.append(f"statement.{key}: {content[key]!r} is none of its values")
    return found

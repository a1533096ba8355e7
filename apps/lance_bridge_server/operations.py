"""The operations of the Lance REST specification: path, request and response, and calls of them.

Source: the OpenAPI document of lance-namespace, and the routes of pylance's RestAdapter that it
lacks (``refresh`` of a table).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import lance_namespace as api
from lance_namespace.errors import InvalidInputError
from pydantic import BaseModel

from lance_bridge.requests import (
    ExtendedColumnsRequest,
    ExtendedIndexRequest,
    OrderedQuery,
    OrderedQueryAnalysis,
    OrderedQueryPlan,
    as_model,
)


class Body(Enum):
    """The type of a request's body."""

    JSON = "json"
    """The request's model. Clients may omit it in requests that read, such as describe."""
    NONE = "none"
    """No body: all fields are in the path and the query."""
    ROWS = "rows"
    """Rows, as an Arrow IPC stream; the other fields are in the path and the query."""
    METADATA = "metadata"
    """The map of a schema's metadata, not wrapped in an object."""


class Answer(Enum):
    """The type of a response's body."""

    JSON = "json"
    EMPTY = "empty"
    VALUE = "value"
    """A JSON number or string, not wrapped in an object."""
    ROWS = "rows"
    """An Arrow IPC file or stream."""
    METADATA = "metadata"


@dataclass(frozen=True)
class Operation:
    """The REST route of one operation of `lance_namespace.LanceNamespace`."""

    name: str
    """The method of a namespace."""
    path: str
    request: type[BaseModel]
    body: Body = Body.JSON
    answer: Answer = Answer.JSON
    status: int = 200
    method: str = "POST"
    is_read: bool = False
    """Whether it changes nothing, so that clients may retry it after any failure."""
    is_query: bool = False
    """Whether it evaluates expressions or reads rows, and so runs in a process of its own."""

    @property
    def requires_body(self) -> bool:
        """Whether the specification requires a body."""
        return self.body in (Body.JSON, Body.METADATA) and not self.is_read

    @cached_property
    def has_id(self) -> bool:
        """Whether the path contains the identifier of a namespace, table or transaction."""
        return "{id}" in self.path


def _namespace(name: str, path: str, request: type[BaseModel], **rest: object) -> Operation:
    return Operation(name, f"/v1/namespace/{{id}}/{path}", request, **rest)  # type: ignore[arg-type]


def _table(name: str, path: str, request: type[BaseModel], **rest: object) -> Operation:
    return Operation(name, f"/v1/table/{{id}}/{path}", request, **rest)  # type: ignore[arg-type]


_NOT_FORWARDED = {"identity", "storage_options"}
_READ = {"is_read": True}
_NO_BODY = {"body": Body.NONE}
_LISTED = {**_READ, **_NO_BODY}
_ROWS = {"body": Body.ROWS}
_EXISTS = {**_READ, "answer": Answer.EMPTY}
_VALUE = {**_READ, "answer": Answer.VALUE}
_QUERY = {"is_query": True}

OPERATIONS = (
    _namespace("create_namespace", "create", api.CreateNamespaceRequest),
    _namespace("list_namespaces", "list", api.ListNamespacesRequest, method="GET", **_LISTED),
    _namespace("describe_namespace", "describe", api.DescribeNamespaceRequest, **_READ),
    _namespace("drop_namespace", "drop", api.DropNamespaceRequest),
    _namespace("namespace_exists", "exists", api.NamespaceExistsRequest, **_EXISTS),
    _namespace("list_tables", "table/list", api.ListTablesRequest, method="GET", **_LISTED),
    Operation("list_all_tables", "/v1/table", api.ListTablesRequest, Body.NONE,
              method="GET", is_read=True),
    Operation("batch_create_table_versions", "/v1/table/version/batch-create",
              api.BatchCreateTableVersionsRequest),
    Operation("batch_commit_tables", "/v1/table/batch-commit", api.BatchCommitTablesRequest),
    _table("register_table", "register", api.RegisterTableRequest),
    _table("declare_table", "declare", api.DeclareTableRequest),
    _table("describe_table", "describe", api.DescribeTableRequest, **_READ),
    _table("table_exists", "exists", api.TableExistsRequest, **_EXISTS),
    _table("drop_table", "drop", api.DropTableRequest, **_NO_BODY),
    _table("deregister_table", "deregister", api.DeregisterTableRequest),
    _table("restore_table", "restore", api.RestoreTableRequest),
    _table("rename_table", "rename", api.RenameTableRequest),
    _table("update_table_schema_metadata", "schema_metadata/update",
           api.UpdateTableSchemaMetadataRequest, body=Body.METADATA, answer=Answer.METADATA),
    _table("update_field_metadata", "update_field_metadata", api.UpdateFieldMetadataRequest),
    _table("list_table_versions", "version/list", api.ListTableVersionsRequest, **_LISTED),
    _table("create_table_version", "version/create", api.CreateTableVersionRequest),
    _table("describe_table_version", "version/describe", api.DescribeTableVersionRequest, **_READ),
    _table("batch_delete_table_versions", "version/delete", api.BatchDeleteTableVersionsRequest),
    _table("alter_table_add_columns", "add_columns", ExtendedColumnsRequest, **_QUERY),
    _table("alter_table_alter_columns", "alter_columns", api.AlterTableAlterColumnsRequest,
           **_QUERY),
    _table("alter_table_drop_columns", "drop_columns", api.AlterTableDropColumnsRequest),
    _table("alter_table_backfill_columns", "backfill_column",
           api.AlterTableBackfillColumnsRequest, status=202, **_QUERY),
    _table("get_table_stats", "stats", api.GetTableStatsRequest, **_READ),
    _table("create_table", "create", api.CreateTableRequest, **_ROWS),
    _table("insert_into_table", "insert", api.InsertIntoTableRequest, **_ROWS),
    _table("merge_insert_into_table", "merge_insert", api.MergeInsertIntoTableRequest,
           **_ROWS, **_QUERY),
    _table("update_table", "update", api.UpdateTableRequest, **_QUERY),
    _table("delete_from_table", "delete", api.DeleteFromTableRequest, **_QUERY),
    _table("query_table", "query", OrderedQuery, answer=Answer.ROWS, **_READ, **_QUERY),
    _table("count_table_rows", "count_rows", api.CountTableRowsRequest, **_VALUE, **_QUERY),
    _table("explain_table_query_plan", "explain_plan", OrderedQueryPlan, **_VALUE, **_QUERY),
    _table("analyze_table_query_plan", "analyze_plan", OrderedQueryAnalysis, **_VALUE, **_QUERY),
    _table("create_table_index", "create_index", ExtendedIndexRequest, **_QUERY),
    _table("create_table_scalar_index", "create_scalar_index", ExtendedIndexRequest, **_QUERY),
    _table("list_table_indices", "index/list", api.ListTableIndicesRequest, **_READ),
    _table("describe_table_index_stats", "index/{index_name}/stats",
           api.DescribeTableIndexStatsRequest, **_READ),
    _table("drop_table_index", "index/{index_name}/drop", api.DropTableIndexRequest, **_NO_BODY),
    _table("list_table_tags", "tags/list", api.ListTableTagsRequest, **_LISTED),
    _table("get_table_tag_version", "tags/version", api.GetTableTagVersionRequest, **_READ),
    _table("create_table_tag", "tags/create", api.CreateTableTagRequest),
    _table("update_table_tag", "tags/update", api.UpdateTableTagRequest),
    _table("delete_table_tag", "tags/delete", api.DeleteTableTagRequest),
    _table("list_table_branches", "branches/list", api.ListTableBranchesRequest, **_LISTED),
    _table("create_table_branch", "branches/create", api.CreateTableBranchRequest),
    _table("delete_table_branch", "branches/delete", api.DeleteTableBranchRequest),
    _table("refresh_materialized_view", "refresh", api.RefreshMaterializedViewRequest, status=202),
    Operation("refresh_materialized_view", "/v1/materialized_view/{id}/refresh",
              api.RefreshMaterializedViewRequest, status=202),
    Operation("create_materialized_view", "/v1/materialized_view/{id}/create",
              api.CreateMaterializedViewRequest, status=201),
    Operation("describe_transaction", "/v1/transaction/{id}/describe",
              api.DescribeTransactionRequest, is_read=True),
    Operation("alter_transaction", "/v1/transaction/{id}/alter", api.AlterTransactionRequest),
)  # fmt: skip


# -- calls -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One request for an operation."""

    operation: Operation
    fields: dict[str, Any]
    """The request's fields as JSON values."""
    delimiter: str
    context: Mapping[str, str]
    """Headers for the catalog: the request's id and its trace."""
    min_version: int | None = None
    """The oldest version that LanceDB's client accepts; None for other clients."""

    @property
    def is_lancedb(self) -> bool:
        """Whether LanceDB's client sent it."""
        return self.min_version is not None

    def model(self) -> BaseModel:
        """Return the request model for a namespace.

        Credentials in the body are dropped, because the specification sends them in headers only.
        Storage options are dropped too: this server would send its own credentials to an endpoint
        that the client chooses.

        Raises:
            InvalidInputError: (13) a field is missing or has a wrong value.
        """
        try:
            model = as_model(self.operation.request, self.fields)
        except InvalidInputError:
            model = as_model(self.operation.request, _normalize_json(self.fields))
        dropped = dict.fromkeys(_NOT_FORWARDED & type(model).model_fields.keys())
        return model.model_copy(update={**dropped, "context": dict(self.context)})


_LONG_LIST = 10_000


def _normalize_json(value: Any) -> Any:
    """Return JSON that the models accept: they are stricter than the specification.

    They reject 1.0 for an integer, and null for a missing vector. The numbers of vectors need not
    be integers, and may be millions; other long lists are not examined either.
    """
    if isinstance(value, dict):
        changed = {
            name: each if name == "vector" else _normalize_json(each)
            for name, each in value.items()
        }
        return {**changed, "vector": {}} if changed.get("vector", value) is None else changed
    if isinstance(value, list) and len(value) <= _LONG_LIST:
        return [_normalize_json(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value

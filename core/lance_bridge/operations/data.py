"""Operations on the data of a table: rows, columns, indices, metadata; and materialized views."""

from __future__ import annotations

from typing import Any, Final, TypeVar, cast

import lance_namespace as api
import pyarrow as pa

from .. import engine
from ..arrow_types import schema_from_base64
from ..dataset import columns, create, indices, insert, query, read, update_delete_merge
from ..dataset.rows import Data, Rows
from ..dataset.searches import Request
from ..errors import invalid, unsupported
from ..paging import PageRequest
from ..requests import CreateMode, ExtendedColumnsRequest, Ref, parse_mode
from . import Operations

T = TypeVar("T")

# -- rows ------------------------------------------------------------------------------------------


class DeleteResponse(api.DeleteFromTableResponse):
    """A response that also has the number of deleted rows, which LanceDB's clients read."""

    num_deleted_rows: int


class DataOperations(Operations):
    """Create a table with rows, count them, insert, merge, update and delete."""

    def create_table(
        self, request: api.CreateTableRequest, request_data: Data
    ) -> api.CreateTableResponse:
        """Create a table from rows; ``Data`` has the accepted forms.

        Raises: UnsupportedOperation, NamespaceNotFound, TableAlreadyExists, InvalidInput,
        ConcurrentModification, PermissionDenied, Unauthenticated, ServiceUnavailable,
        InvalidTableState.
        """
        path = self.tables.path_of(request.id)
        mode = parse_mode(CreateMode, request.mode, CreateMode.CREATE)
        table = create.NewTable(
            path,
            Rows.from_data(request_data),
            mode,
            request.properties,
            request.storage_options,
        )
        made, version = create.create_table(self.connection, table)
        return api.CreateTableResponse(
            location=made.uri,
            version=version,
            storage_options=made.answer_options(vend=None, write=True),
            properties=made.properties,
        )

    def count_table_rows(self, request: api.CountTableRowsRequest) -> api.CountTableRowsResponse:
        """Count rows, with a version, branch and predicate.

        Raises: NamespaceNotFound, TableNotFound, TableVersionNotFound, TableColumnNotFound,
        InvalidInput, InvalidTableState, TableBranchNotFound.
        """
        table, ref = self._table_at(request, request.version)
        count = read.count_rows(table, ref, request.predicate)
        return api.CountTableRowsResponse(count=count)

    def insert_into_table(
        self, request: api.InsertIntoTableRequest, request_data: Data
    ) -> api.InsertIntoTableResponse:
        """Append rows, or replace all; ``Data`` has the accepted forms.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, ConcurrentModification,
        ServiceUnavailable, InvalidTableState, TableSchemaValidation, TableBranchNotFound.
        """
        mode = parse_mode(insert.InsertMode, request.mode, insert.InsertMode.APPEND)
        ref = Ref.of(branch=request.branch)
        rows = Rows.from_data(request_data)
        table = self.tables.load_by_id(request.id)
        done = insert.insert(table, rows, mode, ref)
        return api.InsertIntoTableResponse(
            transaction_id=done.transaction_id, num_inserted_rows=done.rows, version=done.version
        )

    def merge_insert_into_table(
        self, request: api.MergeInsertIntoTableRequest, request_data: Data
    ) -> api.MergeInsertIntoTableResponse:
        """Update, insert and delete by key; ``Data`` has the accepted forms.

        Raises: UnsupportedOperation (nested key), NamespaceNotFound, TableNotFound,
        TableColumnNotFound, InvalidInput, ConcurrentModification, ServiceUnavailable,
        InvalidTableState, TableSchemaValidation, TableBranchNotFound.
        """
        wanted = update_delete_merge.Merge(
            on=request.on,
            update_matched=bool(request.when_matched_update_all),
            update_condition=request.when_matched_update_all_filt,
            insert_unmatched=bool(request.when_not_matched_insert_all),
            delete_by_source=bool(request.when_not_matched_by_source_delete),
            delete_condition=request.when_not_matched_by_source_delete_filt,
            use_index=bool(request.use_index),
            timeout=update_delete_merge.parse_timeout(request.timeout),
        )
        ref = Ref.of(branch=request.branch)
        rows = Rows.from_data(request_data)
        table = self.tables.load_by_id(request.id)
        done = update_delete_merge.merge(table, rows, wanted, ref)
        return api.MergeInsertIntoTableResponse(
            transaction_id=done.transaction_id,
            num_updated_rows=done.updated,
            num_inserted_rows=done.inserted,
            num_deleted_rows=done.deleted,
            version=done.version,
        )

    def update_table(self, request: api.UpdateTableRequest) -> api.UpdateTableResponse:
        """Set columns to expressions.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, TableColumnNotFound,
        InvalidInput, ConcurrentModification, ServiceUnavailable, InvalidTableState,
        TableBranchNotFound.
        """
        ref = Ref.of(branch=request.branch)
        wanted = update_delete_merge.Update(request.updates, request.predicate, request.properties)
        done = update_delete_merge.update(self.tables.load_by_id(request.id), wanted, ref)
        return api.UpdateTableResponse(
            transaction_id=done.transaction_id,
            updated_rows=done.rows,
            version=done.version,
            properties=None if done.properties is None else dict(done.properties),
        )

    def delete_from_table(self, request: api.DeleteFromTableRequest) -> api.DeleteFromTableResponse:
        """Delete the rows that match.

        Raises: NamespaceNotFound, TableNotFound, TableColumnNotFound, InvalidInput,
        ConcurrentModification, ServiceUnavailable, InvalidTableState, TableBranchNotFound.
        """
        table, ref = self._table_at(request)
        done = update_delete_merge.delete_rows(table, request.predicate, ref)
        return DeleteResponse(
            version=done.version, transaction_id=done.transaction_id, num_deleted_rows=done.rows
        )


# -- queries ---------------------------------------------------------------------------------------


class QueryResponse(bytes):
    """The bytes of an Arrow IPC file, which also have the members of a `QueryTableResponse`.

    The API returns that model, whose `data` holds the file; LanceDB expects the bytes themselves,
    and a pydantic model cannot be bytes.
    """

    context: None = None

    @property
    def data(self) -> bytes:
        """The file."""
        return self

    def model_dump(self) -> dict[str, Any]:
        """Return the fields of the `QueryTableResponse`."""
        return api.QueryTableResponse(data=bytes(self)).model_dump()


class QueryOperations(Operations):
    """Operations that read rows: query, explain and analyze a plan.

    A request names any of: a filter, a vector or several, a full-text query. Without a vector
    (none, or an empty one) and without a full-text query, ``k`` is how many rows are read. Both
    together are a hybrid search: the ranks of the two are fused.
    """

    def query_table(self, request: api.QueryTableRequest) -> api.QueryTableResponse:
        """Return an Arrow IPC file; see `QueryResponse`.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, TableVersionNotFound,
        TableColumnNotFound, InvalidInput, ServiceUnavailable, InvalidTableState,
        TableBranchNotFound.
        """
        answer: Any = QueryResponse(query.to_file(self.query_table_reader(request)))
        return cast("api.QueryTableResponse", answer)

    def query_table_reader(self, request: api.QueryTableRequest) -> pa.RecordBatchReader:
        """Return a reader, for results larger than memory. Not in the specification.

        Lance reads ahead, up to the size of its I/O buffer. A hybrid search is held in memory.

        Raises the errors of `query_table`; reading may raise InvalidInput and ServiceUnavailable.
        """
        return query.read(self._query(request))

    def explain_table_query_plan(self, request: api.ExplainTableQueryPlanRequest) -> str:
        """Return how a query would be run.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, TableVersionNotFound,
        TableColumnNotFound, InvalidInput, ServiceUnavailable, InvalidTableState,
        TableBranchNotFound.
        """
        inner = request.query.model_copy()
        inner.id = _merge_field("id", request.id, inner.id)
        inner.branch = _merge_field("branch", request.branch, inner.branch)
        return query.explain(self._query(inner), verbose=bool(request.verbose))

    def analyze_table_query_plan(self, request: api.AnalyzeTableQueryPlanRequest) -> str:
        """Run a query; return its plan with what each step took.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, TableVersionNotFound,
        TableColumnNotFound, InvalidInput, ServiceUnavailable, InvalidTableState,
        TableBranchNotFound.
        """
        return query.analyze(self._query(request))

    def _query(self, request: Request) -> query.Query:
        return query.parse(self.tables.load_by_id(request.id), request)


def _merge_field(name: str, outer: T | None, inner: T | None) -> T | None:
    """Return the value of a request or of the query in it; InvalidInput (13) if they differ."""
    if outer is not None and inner is not None and outer != inner:
        raise invalid(f"The request has another `{name}` than the query in it")
    return inner if outer is None else outer


# -- views -----------------------------------------------------------------------------------------

NEED_ENGINE: Final = ("create_materialized_view", "refresh_materialized_view")
"""Operations that no catalog supports by itself."""

_QUERY_VIEW = "query"
_ENGINE_OPTIONS = (
    "concurrency",
    "intra_applier_concurrency",
    "source_task_size",
    "cluster",
    "manifest",
)


class ComputeOperations(Operations):
    """Materialized views. Unsupported without a compute engine."""

    def create_materialized_view(
        self, request: api.CreateMaterializedViewRequest
    ) -> api.CreateMaterializedViewResponse:
        """Create a view of a query; it is complete on return.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, TableAlreadyExists,
        TableColumnNotFound, InvalidInput, ConcurrentModification, ServiceUnavailable.
        """
        worker = engine.require_engine("create_materialized_view")
        if request.kind != _QUERY_VIEW:
            raise unsupported(f"kind '{request.kind[:60]}' is not supported: only {_QUERY_VIEW} is")
        if request.udtf_spec is not None:
            raise invalid(f"udtf_spec is not allowed with kind {_QUERY_VIEW}")
        if request.auto_refresh:
            raise unsupported(
                "auto_refresh is not supported: call RefreshMaterializedView when the sources have "
                "changed"
            )
        problem = "output_schema is not an Arrow schema in base64"
        schema = schema_from_base64(request.output_schema, problem)
        made = worker.create_materialized_view(
            self,
            self.tables.path_of(request.id),
            request.source_query,
            schema,
            with_data=request.with_no_data is False,
        )
        return api.CreateMaterializedViewResponse(version=made.version, job_id=made.job_id)

    def refresh_materialized_view(
        self, request: api.RefreshMaterializedViewRequest
    ) -> api.RefreshMaterializedViewResponse:
        """Compute the rows of a view again; they are complete on return.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, TableVersionNotFound,
        TableColumnNotFound, InvalidInput, ConcurrentModification, ServiceUnavailable,
        InvalidTableState.
        """
        worker = engine.require_engine("refresh_materialized_view")
        for name in _ENGINE_OPTIONS:
            if getattr(request, name) is not None:
                raise unsupported(f"{name} is not supported: the engine decides on that itself")
        if request.output_limit is not None:
            raise invalid("output_limit is for chunker views, and there are only query views")
        if request.src_version is not None and request.src_version < 1:
            raise invalid(f"src_version must be 1 or more, not {request.src_version}")
        job = worker.refresh_materialized_view(
            self,
            self.tables.path_of(request.id),
            source_version=request.src_version,
            max_rows_per_fragment=request.max_rows_per_fragment,
        )
        return api.RefreshMaterializedViewResponse(job_id=job)


# -- columns and metadata --------------------------------------------------------------------------


class SchemaOperations(Operations):
    """Operations on columns and metadata."""

    def alter_table_add_columns(
        self, request: api.AlterTableAddColumnsRequest
    ) -> api.AlterTableAddColumnsResponse:
        """Add columns by SQL expression, or of nulls (`ExtendedColumnsRequest`).

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, TableColumnNotFound,
        InvalidInput, ConcurrentModification, InvalidTableState, TableBranchNotFound.
        """
        table, ref = self._table_at(request)
        if isinstance(request, ExtendedColumnsRequest) and request.arrow_schema is not None:
            version = columns.add_null_columns(table, ref, request.arrow_schema)
        else:
            version = columns.add_columns(table, ref, request.new_columns)
        return api.AlterTableAddColumnsResponse(version=version)

    def alter_table_alter_columns(
        self, request: api.AlterTableAlterColumnsRequest
    ) -> api.AlterTableAlterColumnsResponse:
        """Rename, retype, allow nulls or not.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, TableColumnNotFound,
        InvalidInput, ConcurrentModification, InvalidTableState, TableBranchNotFound.
        """
        table, ref = self._table_at(request)
        version = columns.alter_columns(table, ref, request.alterations)
        return api.AlterTableAlterColumnsResponse(version=version)

    def alter_table_drop_columns(
        self, request: api.AlterTableDropColumnsRequest
    ) -> api.AlterTableDropColumnsResponse:
        """Drop columns and the indices on them.

        Raises: NamespaceNotFound, TableNotFound, TableColumnNotFound, InvalidInput,
        ConcurrentModification, InvalidTableState, TableBranchNotFound.
        """
        table, ref = self._table_at(request)
        version, transaction = columns.drop_columns(table, ref, request.columns)
        return api.AlterTableDropColumnsResponse(version=version, transaction_id=transaction)

    def alter_table_backfill_columns(
        self, request: api.AlterTableBackfillColumnsRequest
    ) -> api.AlterTableBackfillColumnsResponse:
        """Fill a computed column; it is done on return.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, TableColumnNotFound,
        InvalidInput, ConcurrentModification, InvalidTableState, TableBranchNotFound.
        """
        ref = Ref.of(branch=request.branch)
        worker = engine.current()
        columns.refuse_backfill_options(request, has_engine=worker is not None)
        table = self.tables.load_by_id(request.id)
        if worker is None:
            job = columns.backfill(table, ref, request)
        else:
            order = columns.plan_backfill(table, ref, request)
            job = worker.backfill(self, table.record, ref, order)
        return api.AlterTableBackfillColumnsResponse(job_id=job)

    def update_table_schema_metadata(
        self, request: api.UpdateTableSchemaMetadataRequest
    ) -> api.UpdateTableSchemaMetadataResponse:
        """Replace the schema's metadata.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, ConcurrentModification,
        InvalidTableState, TableBranchNotFound.
        """
        table, ref = self._table_at(request)
        now, transaction = columns.replace_schema_metadata(table, ref, request.metadata)
        return api.UpdateTableSchemaMetadataResponse(metadata=now, transaction_id=transaction)

    def update_field_metadata(
        self, request: api.UpdateFieldMetadataRequest
    ) -> api.UpdateFieldMetadataResponse:
        """Merge into or replace the metadata of fields.

        Raises: NamespaceNotFound, TableNotFound, TableColumnNotFound, InvalidInput,
        ConcurrentModification, InvalidTableState, TableBranchNotFound.
        """
        table, ref = self._table_at(request)
        version, fields = columns.update_field_metadata(table, ref, request.updates)
        return api.UpdateFieldMetadataResponse(version=version, fields=fields)


# -- indices ---------------------------------------------------------------------------------------


class IndexOperations(Operations):
    """Operations on indices, and statistics of a table."""

    def create_table_index(
        self, request: api.CreateTableIndexRequest
    ) -> api.CreateTableIndexResponse:
        """Build an index; it is ready on return.

        Raises: NamespaceNotFound, TableNotFound, TableIndexAlreadyExists, TableColumnNotFound,
        InvalidInput, ConcurrentModification, InvalidTableState, TableBranchNotFound.
        """
        table, ref = self._table_at(request)
        transaction = indices.create(table, ref, request)
        return api.CreateTableIndexResponse(transaction_id=transaction)

    def create_table_scalar_index(
        self, request: api.CreateTableIndexRequest
    ) -> api.CreateTableScalarIndexResponse:
        """Build an index that is not on vectors.

        Raises: NamespaceNotFound, TableNotFound, TableIndexAlreadyExists, TableColumnNotFound,
        InvalidInput, ConcurrentModification, InvalidTableState, TableBranchNotFound.
        """
        table, ref = self._table_at(request)
        transaction = indices.create(table, ref, request, only_scalar=True)
        return api.CreateTableScalarIndexResponse(transaction_id=transaction)

    def list_table_indices(
        self, request: api.ListTableIndicesRequest
    ) -> api.ListTableIndicesResponse:
        """List indices by name, of a version or branch.

        Raises: NamespaceNotFound, TableNotFound, TableVersionNotFound, InvalidInput,
        InvalidTableState, TableBranchNotFound.
        """
        ref = Ref.of(request.version, branch=request.branch)
        path = self.tables.path_of(request.id)
        page = PageRequest.parse(f"indices {path} {ref}", request.limit, request.page_token)
        table = self.tables.load_by_id(request.id)
        found, token = indices.list_indices(table, ref, page)
        return api.ListTableIndicesResponse(indexes=found, page_token=token)

    def describe_table_index_stats(
        self, request: api.DescribeTableIndexStatsRequest
    ) -> api.DescribeTableIndexStatsResponse:
        """Return what an index covers.

        Raises: NamespaceNotFound, TableNotFound, TableIndexNotFound, TableVersionNotFound,
        InvalidInput, InvalidTableState, TableBranchNotFound.
        """
        table, ref = self._table_at(request, request.version)
        return indices.describe_stats(table, ref, request.index_name)

    def drop_table_index(self, request: api.DropTableIndexRequest) -> api.DropTableIndexResponse:
        """Drop an index.

        Raises: NamespaceNotFound, TableNotFound, TableIndexNotFound, InvalidInput,
        ConcurrentModification, InvalidTableState, TableBranchNotFound.
        """
        table, ref = self._table_at(request)
        transaction = indices.drop(table, ref, request.index_name)
        return api.DropTableIndexResponse(transaction_id=transaction)

    def get_table_stats(self, request: api.GetTableStatsRequest) -> api.GetTableStatsResponse:
        """Return bytes, rows and the spread of rows over fragments.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, InvalidTableState,
        TableBranchNotFound.
        """
        ref = Ref.of(branch=request.branch)
        return read.table_stats(self.tables.load_by_id(request.id), ref)

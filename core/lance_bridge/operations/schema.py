"""Operations on columns and metadata."""

from __future__ import annotations

import lance_namespace as api

from .. import engine
from ..dataset import columns, indices, read
from ..paging import PageRequest
from ..requests import ExtendedColumnsRequest, Ref
from . import Operations

# -- columns ---------------------------------------------------------------------------------------


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

"""Operations on columns and metadata."""

from __future__ import annotations

import lance_namespace as api

from .. import engine
from ..dataset import computed_columns, null_columns, schema_evolution
from ..extended_requests import ExtendedColumnsRequest
from ..requests import Ref
from .base import Operations


class SchemaOperations(Operations):
    """Operations on columns and metadata."""

    def alter_table_add_columns(
        self, request: api.AlterTableAddColumnsRequest
    ) -> api.AlterTableAddColumnsResponse:
        """Add columns by SQL expression, or of nulls (`ExtendedColumnsRequest`).

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, TableColumnNotFound,
        InvalidInput, ConcurrentModification, InvalidTableState, TableBranchNotFound.
        """
        ref = Ref.of(branch=request.branch)
        table = self.tables.load_by_id(request.id)
        if isinstance(request, ExtendedColumnsRequest) and request.arrow_schema is not None:
            version = null_columns.add(table, ref, request.arrow_schema)
        else:
            version = schema_evolution.add_columns(table, ref, request.new_columns)
        return api.AlterTableAddColumnsResponse(version=version)

    def alter_table_alter_columns(
        self, request: api.AlterTableAlterColumnsRequest
    ) -> api.AlterTableAlterColumnsResponse:
        """Rename, retype, allow nulls or not.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, TableColumnNotFound,
        InvalidInput, ConcurrentModification, InvalidTableState, TableBranchNotFound.
        """
        ref = Ref.of(branch=request.branch)
        table = self.tables.load_by_id(request.id)
        version = schema_evolution.alter_columns(table, ref, request.alterations)
        return api.AlterTableAlterColumnsResponse(version=version)

    def alter_table_drop_columns(
        self, request: api.AlterTableDropColumnsRequest
    ) -> api.AlterTableDropColumnsResponse:
        """Drop columns and the indices on them.

        Raises: NamespaceNotFound, TableNotFound, TableColumnNotFound, InvalidInput,
        ConcurrentModification, InvalidTableState, TableBranchNotFound.
        """
        ref = Ref.of(branch=request.branch)
        table = self.tables.load_by_id(request.id)
        version, transaction = schema_evolution.drop_columns(table, ref, request.columns)
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
        computed_columns.refuse_options(request, has_engine=worker is not None)
        table = self.tables.load_by_id(request.id)
        if worker is None:
            job = computed_columns.backfill(table, ref, request)
        else:
            order = computed_columns.plan(table, ref, request)
            job = worker.backfill(self, table.record, ref, order)
        return api.AlterTableBackfillColumnsResponse(job_id=job)

    def update_table_schema_metadata(
        self, request: api.UpdateTableSchemaMetadataRequest
    ) -> api.UpdateTableSchemaMetadataResponse:
        """Replace the schema's metadata.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, ConcurrentModification,
        InvalidTableState, TableBranchNotFound.
        """
        ref = Ref.of(branch=request.branch)
        table = self.tables.load_by_id(request.id)
        now, transaction = schema_evolution.replace_schema_metadata(table, ref, request.metadata)
        return api.UpdateTableSchemaMetadataResponse(metadata=now, transaction_id=transaction)

    def update_field_metadata(
        self, request: api.UpdateFieldMetadataRequest
    ) -> api.UpdateFieldMetadataResponse:
        """Merge into or replace the metadata of fields.

        Raises: NamespaceNotFound, TableNotFound, TableColumnNotFound, InvalidInput,
        ConcurrentModification, InvalidTableState, TableBranchNotFound.
        """
        ref = Ref.of(branch=request.branch)
        table = self.tables.load_by_id(request.id)
        version, fields = schema_evolution.update_field_metadata(table, ref, request.updates)
        return api.UpdateFieldMetadataResponse(version=version, fields=fields)

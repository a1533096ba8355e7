"""Operations on indices, and statistics of a table."""

from __future__ import annotations

import lance_namespace as api

from ..dataset import indices, read
from ..paging import PageRequest
from ..requests import Ref
from .base import Operations


class IndexOperations(Operations):
    """Operations on indices, and statistics of a table."""

    def create_table_index(
        self, request: api.CreateTableIndexRequest
    ) -> api.CreateTableIndexResponse:
        """Build an index; it is ready on return.

        Raises: NamespaceNotFound, TableNotFound, TableIndexAlreadyExists, TableColumnNotFound,
        InvalidInput, ConcurrentModification, InvalidTableState, TableBranchNotFound.
        """
        ref = Ref.of(branch=request.branch)
        table = self.tables.load_by_id(request.id)
        transaction = indices.create(table, ref, request)
        return api.CreateTableIndexResponse(transaction_id=transaction)

    def create_table_scalar_index(
        self, request: api.CreateTableIndexRequest
    ) -> api.CreateTableScalarIndexResponse:
        """Build an index that is not on vectors.

        Raises: NamespaceNotFound, TableNotFound, TableIndexAlreadyExists, TableColumnNotFound,
        InvalidInput, ConcurrentModification, InvalidTableState, TableBranchNotFound.
        """
        ref = Ref.of(branch=request.branch)
        table = self.tables.load_by_id(request.id)
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
        ref = Ref.of(request.version, branch=request.branch)
        table = self.tables.load_by_id(request.id)
        return indices.describe_stats(table, ref, request.index_name)

    def drop_table_index(self, request: api.DropTableIndexRequest) -> api.DropTableIndexResponse:
        """Drop an index.

        Raises: NamespaceNotFound, TableNotFound, TableIndexNotFound, InvalidInput,
        ConcurrentModification, InvalidTableState, TableBranchNotFound.
        """
        ref = Ref.of(branch=request.branch)
        table = self.tables.load_by_id(request.id)
        transaction = indices.drop(table, ref, request.index_name)
        return api.DropTableIndexResponse(transaction_id=transaction)

    def get_table_stats(self, request: api.GetTableStatsRequest) -> api.GetTableStatsResponse:
        """Return bytes, rows and the spread of rows over fragments.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, InvalidTableState,
        TableBranchNotFound.
        """
        ref = Ref.of(branch=request.branch)
        return read.table_stats(self.tables.load_by_id(request.id), ref)

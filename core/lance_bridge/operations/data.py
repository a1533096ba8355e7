"""Operations on the rows of a table."""

from __future__ import annotations

from lance_namespace import (
    CountTableRowsRequest,
    CountTableRowsResponse,
    CreateTableRequest,
    CreateTableResponse,
)

from .. import modes
from ..dataset import create, read
from ..dataset.data import Data, Rows
from ..ref import Ref
from .base import Operations


class DataOperations(Operations):
    """Create with data, and count."""

    # -- tables as data --------------------------------------------------------------------------

    def create_table(self, request: CreateTableRequest, request_data: Data) -> CreateTableResponse:
        """Create a table from rows; ``Data`` says what may be handed in.

        Errors: 0, 1, 5, 13, 14, 15, 16, 17, 19.
        """
        path = self._table(request.id)
        mode = modes.parse(modes.CreateMode, request.mode, modes.CreateMode.CREATE)
        table = create.NewTable(
            path,
            Rows.of(request_data),
            mode,
            request.properties,
            request.storage_options,
        )
        made, version = create.create_table(self.connection, table)
        return CreateTableResponse(
            location=made.uri,
            version=version,
            storage_options=made.storage_options(write=True),
            properties=made.properties,
        )

    def count_table_rows(self, request: CountTableRowsRequest) -> CountTableRowsResponse:
        """Count rows, with a version, branch and predicate. Errors: 1, 4, 11, 12, 13, 19, 22."""
        ref = Ref.of(request.version, branch=request.branch)
        table = self._lance_table(request.id)
        count = read.count_rows(table, ref, request.predicate)
        return CountTableRowsResponse(count=count)

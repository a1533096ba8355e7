"""The order of a query's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
from lance.dataset import ColumnOrdering

from ...extended_requests import OrderedQuery, OrderedQueryAnalysis
from .. import paths
from .nearest import Request

if TYPE_CHECKING:
    from ...table import Table


def parse_order(
    dataset: lance.LanceDataset, table: Table, request: Request
) -> list[ColumnOrdering] | None:
    """Return the order that a request asks for, in the form of pylance's scanner.

    Raises:
        InvalidInputError: (13) a column's name is not a path.
        TableColumnNotFoundError: (12) a column does not exist.
    """
    if not isinstance(request, OrderedQuery | OrderedQueryAnalysis) or not request.order_by:
        return None
    return [
        ColumnOrdering(
            paths.find_column(dataset, table, each.column_name).path,
            each.ascending,
            each.nulls_first,
        )
        for each in request.order_by
    ]

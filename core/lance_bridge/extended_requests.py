"""Requests with fields that LanceDB's clients send and the specification lacks.

The operations of lance-bridge's namespaces take them in place of the specification's requests.
"""

from __future__ import annotations

import lance_namespace as api
from lance_namespace import LanceNamespace
from pydantic import BaseModel

from .errors import unsupported


class ColumnOrder(BaseModel):
    """One column that rows are sorted by. Source: ``ColumnOrdering`` of LanceDB."""

    column_name: str
    """The path of a column of the table."""
    ascending: bool = True
    nulls_first: bool = False


class OrderedQuery(api.QueryTableRequest):
    """A query with sorted rows; a search sorts the ``k`` nearest rows after it found them."""

    order_by: list[ColumnOrder] | None = None


class OrderedQueryAnalysis(api.AnalyzeTableQueryPlanRequest):
    """An analysis of an `OrderedQuery`."""

    order_by: list[ColumnOrder] | None = None


class OrderedQueryPlan(api.ExplainTableQueryPlanRequest):
    """The plan of an `OrderedQuery`."""

    query: OrderedQuery


class ReplacingIndexRequest(api.CreateTableIndexRequest):
    """An index that may replace the one with its name, on the same column."""

    replace: bool = False


def require_order(namespace: LanceNamespace, request: BaseModel) -> None:
    """Refuse an order that a namespace of another library would ignore.

    Raises:
        UnsupportedOperationError: (0)
    """
    query = getattr(request, "query", request)
    if getattr(query, "order_by", None) and not hasattr(namespace, "query_table_reader"):
        raise unsupported("This catalog does not support order_by: sort the rows that it returns")

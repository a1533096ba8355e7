"""Requests with fields that LanceDB's clients send and the specification lacks.

The operations of lance-bridge's namespaces take them in place of the specification's requests.
"""

from __future__ import annotations

import lance_namespace as api
from lance_namespace import LanceNamespace
from lance_namespace_urllib3_client.models import AddColumnsEntry
from pydantic import BaseModel, Field

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


class ExtendedIndexRequest(api.CreateTableIndexRequest):
    """An index that may replace the one with its name, with all options that LanceDB sends."""

    replace: bool = False
    """Whether it replaces the index of its name on the same column."""
    min_ngram_length: int | None = None
    max_ngram_length: int | None = None
    prefix_only: bool | None = None
    block_size: int | None = None
    custom_stop_words: list[str] | None = None
    lancedb_defaults: bool | None = None
    """Whether ``num_sub_vectors`` has LanceDB's default, which is better for long vectors."""

    @property
    def further_options(self) -> list[str]:
        """The given options that the specification lacks."""
        return [name for name in FURTHER_INDEX_OPTIONS if getattr(self, name) is not None]


FURTHER_INDEX_OPTIONS = (
    "min_ngram_length",
    "max_ngram_length",
    "prefix_only",
    "block_size",
    "custom_stop_words",
)
"""Options of full-text indices that the specification lacks."""


class ExtendedColumnsRequest(api.AlterTableAddColumnsRequest):
    """New columns, which may be columns of nulls of any Arrow type."""

    new_columns: list[AddColumnsEntry] = Field(default_factory=list)
    arrow_schema: str | None = None
    """The columns of nulls: a schema as an Arrow IPC message, in base64. A struct that exists gets
    the fields that it lacks. Entries of `new_columns` are for namespaces that ignore this, and have
    the same columns, if an expression can make all of them."""


def require_extensions(namespace: LanceNamespace, request: BaseModel) -> None:
    """Refuse fields of this module that a namespace of another library would ignore.

    Raises:
        UnsupportedOperationError: (0)
    """
    if hasattr(namespace, "query_table_reader"):
        return
    query = getattr(request, "query", request)
    if getattr(query, "order_by", None):
        raise unsupported("This catalog does not support order_by: sort the rows that it returns")
    if isinstance(request, ExtendedIndexRequest) and request.further_options:
        raise unsupported(
            f"This catalog does not support {request.further_options[0]} of an index; leave it out"
        )
    if not isinstance(request, ExtendedColumnsRequest) or request.arrow_schema is None:
        return
    if not request.new_columns:
        raise unsupported(
            "This catalog cannot add columns of nulls of such a type: give them expressions"
        )

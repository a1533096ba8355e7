"""Operations that read rows: query, explain and analyze a plan."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import lance_namespace as api
import pyarrow as pa

from ..dataset.query import query
from ..dataset.query.nearest import Request
from ..errors import invalid
from .base import Operations

T = TypeVar("T")


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

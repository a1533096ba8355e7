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


class QueryAnswer(bytes):
    """The bytes of an Arrow IPC file, which also have the members of a `QueryTableResponse`.

    The API answers with that model, whose `data` holds the file; LanceDB expects the bytes
    themselves, and a pydantic model cannot be bytes.
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
        """Answer with an Arrow IPC file, see `QueryAnswer`.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, TableVersionNotFound,
        TableColumnNotFound, InvalidInput, ServiceUnavailable, InvalidTableState,
        TableBranchNotFound.
        """
        answer: Any = QueryAnswer(query.to_file(self.query_table_reader(request)))
        return cast("api.QueryTableResponse", answer)

    def query_table_reader(self, request: api.QueryTableRequest) -> pa.RecordBatchReader:
        """Answer with a reader, for answers larger than memory. Not in the specification.

        Lance reads ahead, as far as its I/O buffer goes. A hybrid search is in memory as a whole.

        Raises what `query_table` raises; reading on may raise InvalidInput and ServiceUnavailable.
        """
        return query.read(self._query(request))

    def explain_table_query_plan(self, request: api.ExplainTableQueryPlanRequest) -> str:
        """Return how a query would be run.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, TableVersionNotFound,
        TableColumnNotFound, InvalidInput, ServiceUnavailable, InvalidTableState,
        TableBranchNotFound.
        """
        inner = request.query.model_copy()
        inner.id = _same("id", request.id, inner.id)
        inner.branch = _same("branch", request.branch, inner.branch)
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


def _same(name: str, outer: T | None, inner: T | None) -> T | None:
    """Return what a request and the query in it both say, or either."""
    if outer is not None and inner is not None and outer != inner:
        raise invalid(f"The request has another `{name}` than the query in it")
    return inner if outer is None else outer

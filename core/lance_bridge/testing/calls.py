"""A client with one method per operation, the rows that it sends, and the expected errors."""

from __future__ import annotations

import itertools
import typing
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import lance_namespace as api
import pyarrow as pa
from lance_namespace import ErrorCode, LanceNamespaceError

# -- rows and streams ------------------------------------------------------------------------------


RUN = uuid.uuid4().hex[:8]
PREFIX = f"lbkit_{RUN}"
"""Prefix of every namespace that this run makes."""

SCHEMA = pa.schema([("id", pa.int64()), ("word", pa.string())])

_counter = itertools.count()


def unique_name() -> str:
    """Return a name in lower case letters, digits and underscores that no other run uses."""
    return f"{PREFIX}_{next(_counter)}"


def rows(ids: Iterable[int]) -> pa.Table:
    """Return a table of :data:`SCHEMA` with these ids."""
    numbers = list(ids)
    words = [f"word {number}" for number in numbers]
    return pa.table({"id": numbers, "word": words}, schema=SCHEMA)


def ipc(table: pa.Table) -> bytes:
    """Return the Arrow IPC stream of a table."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


# -- rows of the cases' tables ---------------------------------------------------------------------


COLOURS = ("red", "green", "blue")
KINDS = ("apple", "pear", "plum", "fig", "lime")
DIMENSION = 8
IDS = range(40)

ITEM_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("word", pa.string()),
        pa.field("text", pa.string()),
        pa.field("n", pa.int32()),
        pa.field("inner", pa.struct([pa.field("x", pa.int64())])),
        pa.field("vector", pa.list_(pa.float32(), DIMENSION)),
    ]
)


def vector_of(number: int) -> list[float]:
    """Return the ``vector`` of a row; its numbers are exact in 32 bits."""
    return [number / 4, *(((number * 37 + axis * 11) % 101) / 128 for axis in range(1, DIMENSION))]


def items(ids: Iterable[int]) -> pa.Table:
    """Return rows with these ids; ``n`` is the id, but null if the id ends with 9."""
    rows = [
        {
            "id": number,
            "word": KINDS[number % 4],
            "text": f"{COLOURS[number % 3]} {KINDS[number % 5]}",
            "n": None if number % 10 == 9 else number,
            "inner": {"x": number * 2},
            "vector": vector_of(number),
        }
        for number in ids
    ]
    return pa.Table.from_pylist(rows, schema=ITEM_SCHEMA)


# -- client ----------------------------------------------------------------------------------------


Id = Sequence[str] | None


class Calls:
    """A client under test, called with identifiers in place of request models.

    Keyword options are fields of the request model of the operation. ``locations`` collects every
    location in a response, so that a case can clean up.
    """

    def __init__(self, client: api.LanceNamespace) -> None:
        self.client = client
        self.locations: set[str] = set()

    def call(
        self, operation: str, id: Id, data: pa.Table | bytes | None = None, **fields: Any
    ) -> Any:
        """Call an operation by its name in ``LanceNamespace``.

        Args:
            data: The rows of an operation that takes some.
            fields: Fields of the request; nested models are given as mappings.
        """
        given = {"id": None if id is None else list(id), **fields}
        request = request_model(operation).model_validate(given)
        content = () if data is None else (data if isinstance(data, bytes) else ipc(data),)
        answer: Any = getattr(self.client, operation)(request, *content)
        return answer

    def close(self) -> None:
        """Close the client, if it can be closed."""
        close = getattr(self.client, "close", None)
        if callable(close):
            close()

    # -- namespaces ------------------------------------------------------------------------------

    def create_namespace(self, id: Id, **options: Any) -> api.CreateNamespaceResponse:
        return self.client.create_namespace(_request(api.CreateNamespaceRequest, id, options))

    def describe_namespace(self, id: Id) -> api.DescribeNamespaceResponse:
        return self.client.describe_namespace(_request(api.DescribeNamespaceRequest, id, {}))

    def namespace_exists(self, id: Id) -> None:
        self.client.namespace_exists(_request(api.NamespaceExistsRequest, id, {}))

    def drop_namespace(self, id: Id, **options: Any) -> api.DropNamespaceResponse:
        return self.client.drop_namespace(_request(api.DropNamespaceRequest, id, options))

    def list_namespaces(self, id: Id, **options: Any) -> api.ListNamespacesResponse:
        return self.client.list_namespaces(_request(api.ListNamespacesRequest, id, options))

    # -- tables ----------------------------------------------------------------------------------

    def list_tables(self, id: Id, **options: Any) -> api.ListTablesResponse:
        return self.client.list_tables(_request(api.ListTablesRequest, id, options))

    def list_all_tables(self, **options: Any) -> api.ListTablesResponse:
        return self.client.list_all_tables(api.ListTablesRequest(**options))

    def declare_table(self, id: Id, **options: Any) -> api.DeclareTableResponse:
        answer = self.client.declare_table(_request(api.DeclareTableRequest, id, options))
        self._note_location(answer.location)
        return answer

    def create_table(
        self, id: Id, content: pa.Table | bytes, **options: Any
    ) -> api.CreateTableResponse:
        data = content if isinstance(content, bytes) else ipc(content)
        answer = self.client.create_table(_request(api.CreateTableRequest, id, options), data)
        self._note_location(answer.location)
        return answer

    def register_table(self, id: Id, location: str, **options: Any) -> api.RegisterTableResponse:
        options = {"location": location, **options}
        return self.client.register_table(_request(api.RegisterTableRequest, id, options))

    def describe_table(self, id: Id, **options: Any) -> api.DescribeTableResponse:
        return self.client.describe_table(_request(api.DescribeTableRequest, id, options))

    def table_exists(self, id: Id, **options: Any) -> None:
        self.client.table_exists(_request(api.TableExistsRequest, id, options))

    def deregister_table(self, id: Id) -> api.DeregisterTableResponse:
        answer = self.client.deregister_table(_request(api.DeregisterTableRequest, id, {}))
        self._note_location(answer.location)
        return answer

    def drop_table(self, id: Id) -> api.DropTableResponse:
        return self.client.drop_table(_request(api.DropTableRequest, id, {}))

    def rename_table(self, id: Id, new_name: str, **options: Any) -> api.RenameTableResponse:
        options = {"new_table_name": new_name, **options}
        return self.client.rename_table(_request(api.RenameTableRequest, id, options))

    def count(self, id: Id, **options: Any) -> int:
        """Return the count, which implementations return as a number or in a response model."""
        request = _request(api.CountTableRowsRequest, id, options)
        answer: Any = self.client.count_table_rows(request)
        return int(getattr(answer, "count", answer))

    # -- listings --------------------------------------------------------------------------------

    def all_tables(self, id: Id, limit: int | None = None, **options: Any) -> list[str]:
        """Return all names of ``list_tables``, page by page."""
        return collect(self.list_tables, "tables", limit, id=id, **options)

    def all_namespaces(self, id: Id, limit: int | None = None) -> list[str]:
        """Return all names of ``list_namespaces``, page by page."""
        return collect(self.list_namespaces, "namespaces", limit, id=id)

    def _note_location(self, location: str | None) -> None:
        if location:
            self.locations.add(location)


def pages(
    call: Callable[..., Any], field: str, limit: int | None, token: str | None = None, **more: Any
) -> Iterator[tuple[list[str], str | None]]:
    """Yield each page of a listing, from ``token`` on, with the token of the next page.

    Fails if a page is longer than ``limit``, or if a token is repeated, because such a listing
    never ends.
    """
    seen: set[str] = set()
    while True:
        answer = call(limit=limit, page_token=token, **more)
        names = list(getattr(answer, field))
        assert limit is None or len(names) <= limit, f"a page of {len(names)} names, limit {limit}"
        token = answer.page_token or None
        yield names, token
        if token is None:
            return
        assert token not in seen, f"the listing gave the token {token!r} twice"
        seen.add(token)


def collect(
    call: Callable[..., Any], field: str, limit: int | None, token: str | None = None, **more: Any
) -> list[str]:
    """Return the names of all pages of a listing from ``token`` on."""
    return [name for names, _ in pages(call, field, limit, token, **more) for name in names]


@cache
def request_model(operation: str) -> Any:
    """Return the type of an operation's request."""
    return typing.get_type_hints(getattr(api.LanceNamespace, operation))["request"]


def _request(model: Any, id: Id, options: dict[str, Any]) -> Any:
    return model(id=list(id) if id is not None else None, **options)


# -- expected errors -------------------------------------------------------------------------------


_T = TypeVar("_T")


@contextmanager
def refused(*codes: ErrorCode, naming: str = "") -> Iterator[None]:
    """Require that the block raises a Lance error with one of these codes.

    Args:
        codes: The expected codes.
        naming: What the message must contain, in any letter case.
    """
    wanted = " or ".join(f"{code.name} ({code.value})" for code in codes)
    raised: LanceNamespaceError | None = None
    try:
        yield
    except LanceNamespaceError as error:
        raised = error
    assert raised is not None, f"expected {wanted}, but the call succeeded"
    shown = described(raised)
    if raised.code not in codes:
        raise AssertionError(f"expected {wanted}, got {shown}") from raised
    assert str(raised).strip(), f"{shown} has no message"
    assert naming.lower() in str(raised).lower(), f"{shown} does not name {naming!r}"


def described(error: LanceNamespaceError) -> str:
    """Return an error with its code, for a message."""
    return f"{type(error).__name__} ({int(error.code)}): {error}"


def code_of(call: Callable[..., object], *arguments: object) -> ErrorCode | None:
    """Return the code of the Lance error that the call raises, or None if it succeeds."""
    try:
        call(*arguments)
    except LanceNamespaceError as error:
        return ErrorCode(error.code)
    return None


def answer_of(
    call: Callable[[_T], object], argument: _T, codes: Collection[ErrorCode], naming: str = ""
) -> str:
    """Return what is wrong with the result of a call that must be refused; empty if nothing.

    Its error must have one of these codes, and a message that contains ``naming`` in any case.
    """
    given = repr(argument)[:60]
    expected = " or ".join(ErrorCode(each).name for each in codes)
    try:
        call(argument)
    except LanceNamespaceError as error:
        is_named = str(error).strip() and naming.lower() in str(error).lower()
        if error.code in codes and is_named:
            return ""
        return f"{given}: {described(error)}; expected {expected}"
    except Exception as error:  # noqa: BLE001 - an error without a code is wrong too
        return f"{given}: {type(error).__name__}: {error}"
    return f"{given}: accepted; expected {expected}"

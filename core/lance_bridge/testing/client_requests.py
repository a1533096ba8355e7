"""Cases: requests as pylance and LanceDB send them, and operations that are not implemented."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import pyarrow as pa
from lance_namespace import ErrorCode, LanceNamespace

from .build import ipc
from .calls import request_model
from .case_namespace import CaseNamespace
from .cases import Cases, Refusals, needs, why_absent
from .expect import answer_of, code_of

_MESSAGES = {
    "describe_table": (ErrorCode.TABLE_NOT_FOUND, "table not found"),
    "describe_namespace": (ErrorCode.NAMESPACE_NOT_FOUND, "namespace not found"),
    "create_namespace": (ErrorCode.NAMESPACE_ALREADY_EXISTS, "namespace already exists"),
}


class _Request(dict[str, Any]):
    """A mapping with `model_dump` that is not a model, as those clients pass it."""

    def model_dump(self) -> dict[str, Any]:
        return dict(self)


def _request(operation: str, **fields: Any) -> _Request:
    """Return a request with all optional fields null, and with a field that the API lacks."""
    return _Request({
        **dict.fromkeys(request_model(operation).model_fields),
        **fields,
        "field_of_a_later_release": None,
    })  # fmt: skip


class ClientCases(Cases):
    """A request that is a mapping has the same result as a model with the same fields."""

    def test_a_table_lives_its_life_through_requests_that_are_mappings(
        self, ns: CaseNamespace
    ) -> None:
        api: Any = ns.client
        table_id = ns.table()
        rows = ipc(pa.table({"a": [1, 2]}))
        api.create_table(_request("create_table", id=table_id, mode="Create"), rows)
        described = api.describe_table(_request("describe_table", id=table_id))
        ns.locations.add(described.location)
        names = api.list_tables(_request("list_tables", id=ns.id)).tables
        assert names == [table_id[-1]]
        api.table_exists(_request("table_exists", id=table_id))
        api.drop_table(_request("drop_table", id=table_id))
        assert ns.names() == []

    @needs("rename", "rename_table")
    def test_a_mapping_without_what_the_operation_needs_is_invalid_input(
        self, ns: CaseNamespace
    ) -> None:
        api: Any = ns.client
        request = _request("rename_table", id=ns.with_rows())
        assert code_of(api.rename_table, request) == ErrorCode.INVALID_INPUT

    def test_the_message_of_an_error_begins_as_clients_expect(
        self, ns: CaseNamespace, refusals: Refusals
    ) -> None:
        """Rust clients see only the text of an error, and decide by it."""
        ids = {
            "describe_table": ns.table(),
            "describe_namespace": ns.missing_namespace(),
            "create_namespace": ns.id,
        }
        complaints = {}
        for name, (code, beginning) in _MESSAGES.items():
            if not why_absent(ns.target, name):
                request, call = _request(name, id=ids[name]), getattr(ns.client, name)
                complaints[name] = answer_of(call, request, [code], beginning)
        refusals.compare(complaints)

    @needs("absent")
    def test_absent_operations_are_unsupported(self, ns: CaseNamespace, refusals: Refusals) -> None:
        codes = [ErrorCode.UNSUPPORTED]
        refusals.compare(
            {
                name: answer_of(partial(_call_bare, ns, name), ns.table(), codes, name)
                for name in sorted(ns.features.absent)
            }
        )

    def test_the_client_describes_its_connection(self, ns: CaseNamespace) -> None:
        first = ns.client.namespace_id()
        assert first
        assert first == ns.target.connect().namespace_id()


def _call_bare(ns: CaseNamespace, name: str, table_id: list[str]) -> object:
    """Call an operation by name with a request that has only an identifier."""
    arguments: list[object] = [request_model(name).model_construct(id=table_id)]
    if "request_data" in inspect.signature(getattr(LanceNamespace, name)).parameters:
        arguments.append(b"")
    result: object = getattr(ns.client, name)(*arguments)
    return result

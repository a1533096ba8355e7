"""Cases: requests as the Rust code of pylance and of LanceDB sends them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from lance_namespace import ErrorCode

from .build import ipc
from .calls import request_model
from .case_namespace import CaseNamespace
from .cases import Cases, skip_if_absent
from .expect import code_of, refused

_MESSAGES = {
    "describe_table": (ErrorCode.TABLE_NOT_FOUND, "table not found"),
    "describe_namespace": (ErrorCode.NAMESPACE_NOT_FOUND, "namespace not found"),
    "create_namespace": (ErrorCode.NAMESPACE_ALREADY_EXISTS, "namespace already exists"),
}


class _Request(dict[str, Any]):
    """A mapping with `model_dump`, which is no model: what those clients hand over."""

    def model_dump(self) -> dict[str, Any]:
        return dict(self)


def _request(operation: str, **fields: Any) -> _Request:
    """Return a request with all optional fields null, and one that the API does not have."""
    return _Request({
        **dict.fromkeys(request_model(operation).model_fields),
        **fields,
        "field_of_a_later_release": None,
    })  # fmt: skip


class MappingRequestCases(Cases):
    """A request that is a mapping is answered as the model with the same fields is."""

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

    def test_a_mapping_without_what_the_operation_needs_is_invalid_input(
        self, ns: CaseNamespace
    ) -> None:
        skip_if_absent(ns.target, "rename_table")
        api: Any = ns.client
        request = _request("rename_table", id=ns.with_rows())
        assert code_of(api.rename_table, request) == ErrorCode.INVALID_INPUT

    @pytest.mark.parametrize("operation", _MESSAGES)
    def test_the_message_of_an_error_begins_as_clients_expect(
        self, ns: CaseNamespace, operation: str
    ) -> None:
        """Rust clients see the text of an error alone, and decide by it."""
        ids = {
            "describe_table": ns.table(),
            "describe_namespace": ns.missing_namespace(),
            "create_namespace": ns.id,
        }
        if operation == "create_namespace":
            skip_if_absent(ns.target, operation)
        code, beginning = _MESSAGES[operation]
        call = getattr(ns.client, operation)
        with refused(code, naming=beginning):
            call(_request(operation, id=ids[operation]))

"""Cases: transactions."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from lance_namespace import ErrorCode

from ..cases import needs
from ..expect import refused
from .case_table import CaseTable, DataOperationCases, thin

INVALID = ErrorCode.INVALID_INPUT
NOT_FOUND = ErrorCode.TRANSACTION_NOT_FOUND


def uuid_of(table: CaseTable, version: int) -> str:
    """Return the id of the transaction that made a version."""
    read = table.dataset().read_transaction(version)
    assert read is not None
    return str(read.uuid)


class TransactionCases(DataOperationCases):
    """DescribeTransaction and AlterTransaction."""

    @thin
    def test_a_transaction_is_described_by_its_id_and_by_its_version(
        self, indexed_table: CaseTable
    ) -> None:
        api = indexed_table.ns
        for name in ("2", uuid_of(indexed_table, 2)):
            answer = api.call("describe_transaction", [*indexed_table.id, name])
            assert answer.status.upper() == "SUCCEEDED"
            assert answer.properties["uuid"] == uuid_of(indexed_table, 2)
            assert answer.properties["operation"] == "Append"
            assert answer.properties["version"] == "2"

    def test_the_transaction_of_an_answer_can_be_described(self, table: CaseTable) -> None:
        name = table.call("update_table", updates=[["word", "'new'"]]).transaction_id
        if name is not None:  # the specification lets an answer have none
            answer = table.ns.call("describe_transaction", [*table.id, name])
            assert answer.properties["operation"] == "Update"

    @pytest.mark.parametrize("operation", ["describe_transaction", "alter_transaction"])
    def test_an_unknown_transaction_is_transaction_not_found(
        self, indexed_table: CaseTable, operation: str
    ) -> None:
        reason = indexed_table.ns.target.lacks(operation)
        if reason:
            pytest.skip(reason)
        more = {"actions": [status("Succeeded")]} if operation.startswith("alter") else {}
        for name in ("99", str(uuid.uuid4())):
            with refused(NOT_FOUND, naming=name):
                indexed_table.ns.call(operation, [*indexed_table.id, name], **more)

    def test_a_name_that_no_transaction_can_have_is_refused(self, indexed_table: CaseTable) -> None:
        with refused(INVALID, NOT_FOUND, naming="no id"):
            indexed_table.ns.call("describe_transaction", [*indexed_table.id, "no id"])

    @thin
    @needs("alter_transaction")
    def test_a_transaction_is_never_altered_but_what_holds_is_accepted(
        self, indexed_table: CaseTable
    ) -> None:
        answer = _alter(indexed_table, status("Succeeded"))
        assert answer.status.upper() == "SUCCEEDED"
        for action in (status("Canceled"), {"setPropertyAction": {"key": "a", "value": "b"}}):
            with refused(ErrorCode.UNSUPPORTED, INVALID):
                _alter(indexed_table, action)

    @needs("alter_transaction")
    @pytest.mark.parametrize("action", [{}, {"setStatusAction": {"status": "Odd"}}], ids=str)
    def test_an_alteration_that_says_nothing_is_invalid_input(
        self, indexed_table: CaseTable, action: dict[str, Any]
    ) -> None:
        with refused(INVALID):
            _alter(indexed_table, action)


def status(name: str) -> dict[str, Any]:
    """Return the action that sets a status."""
    return {"setStatusAction": {"status": name}}


def _alter(table: CaseTable, *actions: dict[str, Any]) -> Any:
    return table.ns.call("alter_transaction", [*table.id, "2"], actions=list(actions))

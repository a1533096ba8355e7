"""Cases: transactions."""

from __future__ import annotations

import uuid
from typing import Any

from lance_namespace import ErrorCode

from ..cases import needs, why_absent
from ..expect import refused
from .case_table import CaseTable, DataOperationCases

INVALID = ErrorCode.INVALID_INPUT
NOT_FOUND = ErrorCode.TRANSACTION_NOT_FOUND


def uuid_of(table: CaseTable, version: int) -> str:
    """Return the id of the transaction that made a version."""
    read = table.dataset().read_transaction(version)
    assert read is not None
    return str(read.uuid)


class TransactionCases(DataOperationCases):
    """DescribeTransaction and AlterTransaction."""

    def test_a_transaction_is_described_by_its_id_and_by_its_version(
        self, shared_table: CaseTable
    ) -> None:
        api = shared_table.ns
        for name in ("2", uuid_of(shared_table, 2)):
            answer = api.call("describe_transaction", [*shared_table.id, name])
            assert answer.status.upper() == "SUCCEEDED"
            assert answer.properties["uuid"] == uuid_of(shared_table, 2)
            assert answer.properties["operation"] == "Append"
            assert answer.properties["version"] == "2"

    def test_the_transaction_of_an_answer_can_be_described(self, table: CaseTable) -> None:
        name = table.call("update_table", updates=[["word", "'new'"]]).transaction_id
        if name is not None:  # the specification lets a response have none
            answer = table.ns.call("describe_transaction", [*table.id, name])
            assert answer.properties["operation"] == "Update"

    def test_an_unknown_transaction_is_transaction_not_found(self, shared_table: CaseTable) -> None:
        more = {"describe_transaction": {}, "alter_transaction": {"actions": [status("Succeeded")]}}
        for operation, fields in more.items():
            if why_absent(shared_table.ns.target, operation):
                continue
            for name in ("99", str(uuid.uuid4())):
                with refused(NOT_FOUND, naming=name):
                    shared_table.ns.call(operation, [*shared_table.id, name], **fields)

    def test_a_name_that_no_transaction_can_have_is_refused(self, shared_table: CaseTable) -> None:
        with refused(INVALID, NOT_FOUND, naming="no id"):
            shared_table.ns.call("describe_transaction", [*shared_table.id, "no id"])

    @needs("alter_transaction")
    def test_a_transaction_is_never_altered_but_what_holds_is_accepted(
        self, shared_table: CaseTable
    ) -> None:
        answer = _alter(shared_table, status("Succeeded"))
        assert answer.status.upper() == "SUCCEEDED"
        for action in (status("Canceled"), {"setPropertyAction": {"key": "a", "value": "b"}}):
            with refused(ErrorCode.UNSUPPORTED, INVALID):
                _alter(shared_table, action)

    @needs("alter_transaction")
    def test_an_alteration_that_says_nothing_is_invalid_input(
        self, shared_table: CaseTable
    ) -> None:
        for action in ({}, {"setStatusAction": {"status": "Odd"}}):
            with refused(INVALID):
                _alter(shared_table, action)


def status(name: str) -> dict[str, Any]:
    """Return the action that sets a status."""
    return {"setStatusAction": {"status": name}}


def _alter(table: CaseTable, *actions: dict[str, Any]) -> Any:
    return table.ns.call("alter_transaction", [*table.id, "2"], actions=list(actions))

"""The audit log of changes that are still running when their request ends."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import lance_namespace as api
import pytest
from lance_namespace.errors import PermissionDeniedError, ServiceUnavailableError
from server.http_requests import refused
from server.policies import clients, declare, memory_namespace
from server.test_audit import broken, lines_of, rows_with_text
from servers.processes import wait_until

from lance_bridge_server.audit import AuditLog, AuditTrail, open_audit_log
from lance_bridge_server.authorization.accesses import Access
from lance_bridge_server.authorization.port import AllowAll, Decision
from lance_bridge_server.operations import OPERATIONS, Operation
from lance_bridge_server.principals import Principal

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#the-audit-log")]


class Gate:
    """Makes the thread that comes to it wait."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.is_open = threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.is_open.wait(30)


class GatedAuthorizer(AllowAll):
    """Decides on one operation when a gate opens."""

    def __init__(self, gate: Gate, operation: str) -> None:
        self._gate, self._operation = gate, operation

    def check(
        self,
        principal: Principal,
        operation: str,
        path: tuple[str, ...],
        location: str | None = None,
    ) -> Decision:
        if operation == self._operation:
            self._gate.wait()
        return super().check(principal, operation, path, location)


SOON = {"x-request-timeout-ms": "1000"}
UPDATE = {"updates": [["id", "id + 1"]]}


@pytest.mark.parametrize("error", [None, PermissionDeniedError("no"), OSError("disk")])
def test_a_change_that_outlives_its_request_has_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    namespace, file = memory_namespace(tmp_path), tmp_path / "audit.jsonl"
    declare(namespace, "db.v")
    namespace.create_table(api.CreateTableRequest(id=["db", "v"]), rows_with_text())
    gate, update = Gate(), namespace.update_table

    def update_late(request: Any) -> Any:
        gate.wait()
        if error is not None:
            raise error
        return update(request)

    monkeypatch.setattr(namespace, "update_table", update_late)
    with clients(namespace, AllowAll(), audit=open_audit_log(file)) as client_of:
        send = client_of("ann")
        refused(send("POST", "/v1/table/db$v/update", json=UPDATE, headers=SOON), 503, 17)
        wait_until(lambda: len(lines_of(file)) == 2)
        unknown = lines_of(file)[1]
        assert (unknown["event"], unknown["code"], unknown["status"]) == ("unknown", 17, 503)
        assert "version_after" not in unknown
        gate.is_open.set()
        wait_until(lambda: len(lines_of(file)) == 3)
    line = lines_of(file)[2]
    assert line["ids"] == [["db", "v"]]
    assert (line["request_id"], line["status"]) == (unknown["request_id"], 503)
    assert line["duration_ms"] > unknown["duration_ms"]
    if error is None:
        assert (line["event"], line["code"]) == ("commit", None)
        assert (line["version_before"], line["version_after"]) == (1, 2)
    else:
        code = 15 if isinstance(error, PermissionDeniedError) else 18
        assert (line["event"], line["code"]) == ("failure", code)


def test_a_change_that_ends_before_its_response_is_written_has_one_result(tmp_path: Path) -> None:
    """The timeout had passed already, so the response says that its outcome is unknown."""
    file = tmp_path / "audit.jsonl"
    trail, operation = trail_of_change(open_audit_log(file))
    with trail.running(operation):
        trail.begin(operation)
    trail.end(503, 17)
    assert [(each["event"], each.get("code")) for each in lines_of(file)] == [
        ("decision", None),
        ("commit", None),
    ]


def trail_of_change(log: AuditLog) -> tuple[AuditTrail, Operation]:
    """Return a trail with one decision, and its operation."""
    operation = next(each for each in OPERATIONS if each.name == "drop_table")
    trail = AuditTrail(log, {"state": {"operation": operation}})
    trail.record(Access(operation.name, ("db", "t")), Decision(allowed=True))
    return trail, operation


def test_a_change_does_not_begin_after_its_request_has_ended(tmp_path: Path) -> None:
    namespace, file = memory_namespace(tmp_path), tmp_path / "audit.jsonl"
    declare(namespace, "db.t")
    gate = Gate()
    authorizer = GatedAuthorizer(gate, "drop_table")
    with clients(namespace, authorizer, audit=open_audit_log(file)) as client_of:
        send = client_of("ann")
        answer = send("POST", "/v1/table/db$t/drop", headers=SOON)
        assert "outcome is unknown" in refused(answer, 503, 17)
        wait_until(lambda: len(lines_of(file)) == 1)
        gate.is_open.set()
        wait_until(lambda: len(lines_of(file)) == 2)
        assert send("POST", "/v1/table/db$t/exists").status_code == 200
    found = [(each["event"], each["decision"], each["code"]) for each in lines_of(file)[:2]]
    assert found == [("decision", "none", 17), ("decision", "allow", 17)]


def test_a_change_whose_lines_were_lost_at_the_end_of_its_request_is_refused() -> None:
    trail, operation = trail_of_change(broken(refuse_changes=True))
    trail.end(503, 17)
    with pytest.raises(ServiceUnavailableError):
        trail.begin(operation)


def test_a_decision_on_a_read_that_outlives_its_request_has_a_line(tmp_path: Path) -> None:
    namespace, file = memory_namespace(tmp_path), tmp_path / "audit.jsonl"
    declare(namespace, "db.t")
    gate = Gate()
    authorizer = GatedAuthorizer(gate, "describe_table")
    with clients(namespace, authorizer, audit=open_audit_log(file)) as client_of:
        refused(client_of("ann")("POST", "/v1/table/db$t/describe", json={}, headers=SOON), 503, 17)
        wait_until(lambda: len(lines_of(file)) == 1)
        gate.is_open.set()
        wait_until(lambda: len(lines_of(file)) == 2)
    assert [each["decision"] for each in lines_of(file)] == ["none", "allow"]

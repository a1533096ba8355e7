"""The audit log: one line for each decision and each commit, without secrets or values."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from core.memory_catalog import SERVERS
from lance.namespace import RestNamespace
from lance_namespace.errors import InvalidInputError, PermissionDeniedError, ServiceUnavailableError
from server.gateways import (
    ARROW,
    cedar,
    clients,
    declare,
    memory_namespace,
    one_row,
    operation_named,
    refused,
    serve_namespace,
)
from servers.processes import wait_until

from lance_bridge.testing.calls import ipc
from lance_bridge.transaction_versions import VersionChange, VersionChanges
from lance_bridge_cli.streams import checked_streams
from lance_bridge_server.access.audit import LOGGER, AuditLog, AuditTrail, open_audit_log
from lance_bridge_server.access.authentication import Principal
from lance_bridge_server.access.authorizer import AllowAll
from lance_bridge_server.access.permissions import Access, Decision
from lance_bridge_server.operations import Operation

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#the-audit-log")]

POLICIES = """
@id("owns") permit(principal == User::"ann", action, resource);
@id("sees") permit(principal == User::"bob", action in Action::"see", resource in Namespace::"db");
@id("closed") forbid(principal, action, resource == Table::"db.closed");
"""


def lines_of(file: Path) -> list[dict[str, Any]]:
    """Return the lines that are complete: the server may be writing another one."""
    *lines, _ = file.read_text().split("\n")
    return [json.loads(line) for line in lines]


@pytest.fixture
def served(tmp_path: Path) -> Any:
    namespace = memory_namespace(tmp_path)
    declare(namespace, "db.t", "db.closed")
    return namespace, cedar(tmp_path, POLICIES), tmp_path / "audit.jsonl"


def test_a_line_that_a_crash_damaged_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_text('{"n": 1}\n{"n": 2}\n{"torn": {"n": 3}\n{"n": 4}\n')
    log = open_audit_log(file)
    assert log.last_lines(3) == [{"n": 4}, {"n": 2}]
    log.close()


def test_a_read_has_a_line_for_its_decision(served: Any) -> None:
    namespace, authorizer, file = served
    with clients(namespace, authorizer, audit=open_audit_log(file)) as client_of:
        headers = {"x-request-id": "r1"}
        client_of("bob", "analysts")("POST", "/v1/table/db$t/describe", json={}, headers=headers)
    (line,) = lines_of(file)
    assert line.pop("time").endswith("+00:00")
    assert line.pop("duration_ms") > 0
    assert line == {
        "event": "decision", "request_id": "r1", "client": "127.0.0.1",
        "principal": "bob", "method": "proxy", "groups": ["analysts"],
        "operation": "describe_table", "action": "describe_table", "id": ["db", "t"],
        "decision": "allow", "visible": True, "policies": ["sees"], "code": None, "status": 200,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("user", "table", "expected"),
    [
        ("bob", "t", ("deny", True, [], 15, 403)),
        ("bob", "closed", ("deny", False, ["closed"], 4, 404)),
        ("eve", "t", ("deny", False, [], 1, 404)),
    ],
)
def test_a_refused_change_has_one_line(
    served: Any, user: str, table: str, expected: tuple[Any, ...]
) -> None:
    namespace, authorizer, file = served
    with clients(namespace, authorizer, audit=open_audit_log(file)) as client_of:
        client_of(user)("POST", f"/v1/table/db${table}/drop")
    (line,) = lines_of(file)
    keys = ("decision", "visible", "policies", "code", "status")
    assert tuple(line[key] for key in keys) == expected


def test_a_change_has_a_line_before_and_one_after(served: Any) -> None:
    namespace, authorizer, file = served
    with clients(namespace, authorizer, audit=open_audit_log(file)) as client_of:
        for _ in range(2):
            client_of("ann")(
                "POST",
                "/v1/table/db$new/create",
                content=one_row(),
                headers={"Content-Type": ARROW},
            )
    decision, commit, second, failure = lines_of(file)
    assert (decision["event"], decision["policies"]) == ("decision", ["owns"])
    assert "status" not in decision
    assert (commit["event"], commit["ids"], commit["status"]) == ("commit", [["db", "new"]], 200)
    assert (commit["version_after"], commit["request_id"]) == (1, decision["request_id"])
    assert (failure["event"], failure["code"], failure["status"]) == ("failure", 5, 409)
    assert second["request_id"] == failure["request_id"]


CHANGES: list[tuple[str, dict[str, Any], int]] = [
    ("update", {"updates": [["id", "id + 1"]]}, 1),
    ("delete", {"predicate": "id = 7"}, 1),
    ("add_columns", {"new_columns": [{"name": "x", "expression": "1"}]}, 1),
    ("alter_columns", {"alterations": [{"path": "id", "rename": "other"}]}, 1),
    ("drop_columns", {"columns": ["text"]}, 1),
    ("schema_metadata/update", {"key": "value"}, 1),
    ("update_field_metadata", {"updates": [{"path": "id", "metadata": {"key": "value"}}]}, 1),
    ("create_scalar_index", {"column": "id", "index_type": "BTREE", "name": "i"}, 1),
    ("create_index", {"column": "text", "index_type": "FTS"}, 1),
    ("restore", {"version": 1}, 1),
    ("alter_columns", {"alterations": [{"path": "id", "data_type": {"type": "int32"}}]}, 2),
    ("tags/create", {"tag": "v", "version": 1}, 0),
]
"""Requests for a change of a table, with the number of versions that each makes."""


def rows_with_text() -> bytes:
    field = pa.field("id", pa.int64(), metadata={"unit": "m"})
    return ipc(pa.table([[1], ["a"]], schema=pa.schema([field, ("text", pa.string())])))


@pytest.mark.parametrize("managed", [False, True], ids=["storage", "catalog"])
def test_a_commit_has_the_versions_before_and_after(served: Any, *, managed: bool) -> None:
    namespace, authorizer, file = served
    properties = {"properties": json.dumps({"managed_by": "impl"})} if managed else {}
    arrow = {"headers": {"Content-Type": ARROW}, "content": rows_with_text()}
    merge = {"on": "id", "when_matched_update_all": "true"}
    expected: list[tuple[int | None, int | None]] = [(0, 1), (1, 1), (1, 2), (2, 3), (3, 4)]
    with clients(namespace, authorizer, audit=open_audit_log(file)) as client_of:
        send = client_of("ann")

        def change(path: str, **request: Any) -> None:
            answer = send("POST", f"/v1/table/db$v/{path}", **request)
            assert answer.is_success, answer.text

        change("create", params=properties, **arrow)
        change("create", params={"mode": "exist_ok"}, **arrow)
        change("insert", **arrow)
        change("insert", params={"mode": "overwrite"}, **arrow)
        change("merge_insert", params=merge, **arrow)
        version = 4
        for path, body, count in CHANGES:
            change("create", params={"mode": "overwrite"}, **arrow)
            change(path, json=body)
            created = (version + 1, version + 1 + count) if count else (None, None)
            expected += [(version, version + 1), created]
            version += 1 + count
        change("create_scalar_index", json={"column": "id", "index_type": "BTREE", "name": "i"})
        change("index/i/drop")
        expected += [(version, version + 1), (version + 1, version + 2)]
    commits = [each for each in lines_of(file) if each["event"] == "commit"]
    found = [(each.get("version_before"), each.get("version_after")) for each in commits]
    assert dict(enumerate(found)) == dict(enumerate(expected))


def test_a_change_that_fails_after_its_commit_has_its_versions(served: Any) -> None:
    namespace, authorizer, file = served
    namespace.create_table(api.CreateTableRequest(id=["db", "v"]), rows_with_text())

    def refuse(name: str, moment: str) -> None:
        if (name, moment) == ("alter_table", "before"):
            raise PermissionDeniedError("entries may not be altered")

    SERVERS[str(file.parent)].fault = refuse
    with clients(namespace, authorizer, audit=open_audit_log(file)) as client_of:
        body = {"updates": [["id", "id + 1"]], "properties": {"key": "value"}}
        client_of("ann")("POST", "/v1/table/db$v/update", json=body)
    line = lines_of(file)[-1]
    assert (line["event"], line["version_before"], line["version_after"]) == ("failure", 1, 2)


def test_versions_that_clients_write_have_those_before(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    namespace = memory_namespace(tmp_path)
    declare(namespace, "db.t")
    namespace.manage_table(["db", "t"])
    with serve_namespace(namespace, audit=open_audit_log(file)) as url:
        client = RestNamespace(uri=url)  # type: ignore[no-untyped-call]  # pylance has no types
        for mode in ("overwrite", "append"):
            lance.write_dataset(
                pa.table({"id": [1]}), namespace_client=client, table_id=["db", "t"], mode=mode
            )
    lines = [each for each in lines_of(file) if each["event"] == "commit"]
    found = [(each["operation"], each["version_before"], each["version_after"]) for each in lines]
    assert found == [("create_table_version", 0, 1), ("create_table_version", 1, 2)]


def test_each_table_of_a_batch_has_its_versions(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    operation = operation_named("batch_commit_tables")
    trail = AuditTrail(open_audit_log(file), {"state": {"operation": operation}})
    created = [
        {"create_table_version": {"id": ["db", name], "version": 5, "manifest_path": "m"}}
        for name in ("t", "u")
    ]
    request = api.BatchCommitTablesRequest.from_dict({"operations": created})
    trail.begin(operation)
    trail.note_result(request, api.BatchCommitTablesResponse(results=[]))
    trail.end(200, None)
    assert lines_of(file)[-1]["versions"] == [
        {"id": ["db", name], "version_before": 4, "version_after": 5} for name in ("t", "u")
    ]


def test_each_decision_of_a_page_has_one_line(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    operation = operation_named("create_table_tag")
    trail = AuditTrail(open_audit_log(file), {"state": {"operation": operation}})
    for name in ("describe_table", "list_table_tags", "create_table_tag"):
        trail.record(Access(name, ("db", "t")), Decision(allowed=True))
        trail.begin(operation)
    trail.end(200, None)
    assert [(each["event"], each.get("action")) for each in lines_of(file)] == [
        ("decision", "describe_table"),
        ("decision", "list_table_tags"),
        ("decision", "create_table_tag"),
        ("commit", None),
    ]


def test_a_committed_version_replaces_the_one_before_it() -> None:
    changes = VersionChanges()
    changes.add(("db", "t"), read=5, after=5)
    changes.add(("db", "t"), read=5, after=8)  # others have committed 6 and 7
    changes.add(("db", "t"), read=8, after=9)
    assert changes == {("db", "t"): VersionChange(7, 9)}


def test_requests_without_credentials_and_malformed_ones_have_a_line(served: Any) -> None:
    namespace, authorizer, file = served
    with clients(namespace, authorizer, audit=open_audit_log(file)) as client_of:
        client_of("")("POST", "/v1/table/db$t/describe", json={})
        client_of("ann")("POST", "/v1/table/db$t/describe", json={"version": "x"})
    found = [(each["principal"], each["decision"], each["code"]) for each in lines_of(file)]
    assert found == [(None, "none", 16), ("ann", "none", 13)]


def test_values_and_credentials_are_not_written(served: Any) -> None:
    namespace, authorizer, file = served
    secret = "S3cr3tValue"
    with clients(namespace, authorizer, audit=open_audit_log(file)) as client_of:
        send = client_of("ann")
        headers = {"x-api-key": secret, "authorization": f"Bearer {secret}"}
        send(
            "POST", "/v1/table/db$t/delete", json={"predicate": f"a = '{secret}'"}, headers=headers
        )
        send("POST", "/v1/table/db$t/update", json={"updates": [["a", f"'{secret}'"]]})
        send("POST", f"/v1/table/db$t/describe?page_token={secret}", json={"tag": secret})
        properties = {"storage_options": json.dumps({"secret": secret}), "mode": secret}
        send("POST", "/v1/table/db$u/create", params=properties, content=one_row(),
             headers={"Content-Type": ARROW, **headers})  # fmt: skip
    assert len(lines_of(file)) >= 4
    assert secret not in file.read_text()


def test_names_cannot_add_lines(served: Any) -> None:
    namespace, authorizer, file = served
    with clients(namespace, authorizer, audit=open_audit_log(file)) as client_of:
        client_of("ann")("POST", "/v1/table/db$a%0A%7B%7D/describe", json={})
        client_of("ann")("POST", "/v1/namespace/db%0A%7B%7D/describe", json={})
    assert [each["code"] for each in lines_of(file)] == [13, 13]


# -- sinks -----------------------------------------------------------------------------------------


class Broken(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002
        raise OSError("No space left on device")


def broken(*, refuse_changes: bool) -> AuditLog:
    logger = logging.Logger("broken")
    logger.addHandler(Broken())
    return AuditLog(logger, refuse_changes=refuse_changes)


def test_changes_can_be_refused_when_the_log_cannot_be_written(served: Any) -> None:
    namespace, authorizer, _ = served
    with clients(namespace, authorizer, audit=broken(refuse_changes=True)) as client_of:
        refused = client_of("ann")("POST", "/v1/namespace/new/create", json={})
        assert (refused.status_code, refused.json()["code"]) == (503, 17)
        assert client_of("ann")("POST", "/v1/namespace/db/describe", json={}).status_code == 200
        assert client_of("ann")("POST", "/v1/namespace/new/exists", json={}).status_code == 404


def test_requests_go_on_when_the_log_cannot_be_written(
    served: Any, caplog: pytest.LogCaptureFixture
) -> None:
    namespace, authorizer, _ = served
    with clients(namespace, authorizer, audit=broken(refuse_changes=False)) as client_of:
        assert client_of("ann")("POST", "/v1/namespace/new/create", json={}).status_code == 200
    assert "audit log was not written: No space left on device" in caplog.text


def test_a_full_device_is_noticed() -> None:
    log = open_audit_log(Path("/dev/full"), rotation="external", refuse_changes=True)
    with pytest.raises(Exception, match="audit log cannot be written"):
        log.write_before_change({"event": "decision"})


def test_full_standard_output_refuses_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("wb") as full:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(full))
        with pytest.raises(SystemExit):
            _write_to_standard_output()


@checked_streams()
def _write_to_standard_output() -> None:
    log = open_audit_log("stdout", refuse_changes=True)
    for _ in range(3):
        with pytest.raises(ServiceUnavailableError, match="audit log cannot be written"):
            log.write_before_change({"event": "decision"})


def test_files_are_rotated(tmp_path: Path) -> None:
    log = open_audit_log(tmp_path / "audit.jsonl", max_bytes=1000, backups=2)
    for number in range(100):
        log.write({"number": number, "text": "x" * 50})
    log.close()
    files = sorted(tmp_path.glob("audit.jsonl*"))
    assert [each.name for each in files] == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    assert all(each.stat().st_size <= 1000 for each in files)
    assert lines_of(files[0])[-1]["number"] == 99


@pytest.mark.parametrize("rotation", ["size", "daily"])
def test_logs_that_share_a_file_during_a_reload_lose_no_line(tmp_path: Path, rotation: Any) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_text('{"number": -1}\n')
    os.utime(file, (0, 0))  # its day has ended
    logs = [open_audit_log(file, rotation=rotation, max_bytes=100, backups=10) for _ in range(2)]
    for number in range(30):
        logs[number % 2].write({"number": number})
        if number == 1:
            logs[0].close()  # a change that outlives its request is written later
    logs[1].close()
    files = sorted(tmp_path.iterdir(), reverse=True)  # the oldest first
    assert len(files) > 1
    lines = [line["number"] for each in files for line in lines_of(each)]
    assert lines == list(range(-1, 30))


def test_files_that_another_program_moved_are_opened_again(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    log = open_audit_log(file, rotation="external")
    log.write({"number": 1})
    file.rename(tmp_path / "old")
    log.write({"number": 2})
    log.close()
    assert lines_of(file) == [{"number": 2}]


@pytest.mark.parametrize("rotation", ["size", "daily", "external"])
def test_others_cannot_read_the_files(tmp_path: Path, rotation: Any) -> None:
    mask = os.umask(0)
    try:
        log = open_audit_log(tmp_path / "audit.jsonl", rotation=rotation, max_bytes=1)
        for number in range(2):
            log.write({"number": number})
        log.close()
    finally:
        os.umask(mask)
    files = list(tmp_path.iterdir())
    assert (len(files) > 1) is (rotation == "size")
    assert {each.stat().st_mode & 0o777 for each in files} == {0o640}


def test_lines_can_go_to_standard_output_or_a_logger(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    open_audit_log("stdout").write({"number": 1})
    assert capsys.readouterr().out == '{"number": 1}\n'
    with caplog.at_level(logging.INFO, LOGGER):
        open_audit_log("logger").write({"number": 2})
    assert [each.getMessage() for each in caplog.records] == ['{"number": 2}']


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="audit log cannot be opened"):
        open_audit_log(tmp_path / "absent" / "audit.jsonl")


# -- changes that are still running when their request ends ----------------------------------------


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
    operation = operation_named("drop_table")
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

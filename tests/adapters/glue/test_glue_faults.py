"""Renames, each of which is several requests, broken at each: the right code, and nothing lost."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count

import pytest
from lance_namespace.errors import ErrorCode, LanceNamespaceError
from servers.glue_server import GlueServer
from servers.http_proxy import Answer, Delay, Fault, HttpProxy

from lance_bridge.testing.calls import Calls

from .building import BUCKET, DATA_FILE, Connect, raw_table

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec(
        "glue.md#concurrency-and-crash-safety", "glue.md#connections", "glue.md#renametable"
    ),
]

FOREVER = float("inf")
State = Mapping[str, Mapping[str, str]]
"""Of each database, its tables and where they are; an ``{}`` stands for the test's database."""


BEFORE: State = {"{}": {"t": "t"}, "{}_empty": {}}
RENAMES = {"in a namespace": "", "across namespaces": "_empty"}
"""To which of the databases."""

UNREADABLE = {ErrorCode.INTERNAL, ErrorCode.SERVICE_UNAVAILABLE}
UNAVAILABLE = {ErrorCode.SERVICE_UNAVAILABLE}
FAULTS: dict[str, tuple[Fault | Answer | Delay, set[ErrorCode]]] = {
    "throttling": (Answer.of_aws("ThrottlingException"), {ErrorCode.THROTTLING}),
    "500": (Answer.of_aws("InternalServiceException", status=500), UNREADABLE),
    "silence": (Delay(), UNAVAILABLE),
    "reset": (Fault.RESET, UNAVAILABLE),
    "lost reply": (Fault.LOSE_REPLY, UNAVAILABLE),
    "truncated reply": (Fault.TRUNCATE_REPLY, UNREADABLE),
    "malformed reply": (Fault.MALFORMED_REPLY, UNREADABLE),
    "another server's reply": (Answer.of_json(200, {"message": "hello"}), UNREADABLE),
    "expired credentials": (Answer.of_aws("ExpiredTokenException"), {ErrorCode.UNAUTHENTICATED}),
    "refusal": (Answer.of_aws("AccessDeniedException"), {ErrorCode.PERMISSION_DENIED}),
}
EACH_OUTCOME_OR_ALL = [
    pytest.param(("500", "reset", "lost reply"), id="each outcome"),
    pytest.param(FAULTS, id="all", marks=pytest.mark.slow),
]
"""Refused, not received, and received: what the others lead to as well, with codes of their own."""


@dataclass
class Lake:
    """What a test works on: a database behind a proxy, with the table ``t`` in it."""

    server: GlueServer
    proxy: HttpProxy
    namespaces: dict[bool, Calls]
    """One that waits for long, and one that does not (True); neither repeats anything."""
    database: str

    def restore(self) -> None:
        """Make what `BEFORE` says, with data, in place of what there is."""
        glue = self.server.glue
        for name in self.state():
            glue.delete_database(Name=name.format(self.database))
        for name in BEFORE:
            glue.create_database(DatabaseInput={"Name": name.format(self.database)})
        descriptor = {"Location": f"s3://{BUCKET}/{self.database}/t"}
        marks = {"table_type": "lance"}
        raw_table(self.server, self.database, "t", Parameters=marks, StorageDescriptor=descriptor)
        self.server.put(BUCKET, f"{self.database}/t/{DATA_FILE}")

    def state(self) -> State:
        """Return what there is, in the form of `BEFORE`."""
        listed = self.server.glue.get_paginator("get_databases").paginate()
        names = [each["Name"] for page in listed for each in page["DatabaseList"]]
        own = [name for name in names if name.startswith(self.database)]
        return {name.replace(self.database, "{}"): self._tables(name) for name in own}

    def _tables(self, database: str) -> dict[str, str]:
        entries = self.server.glue.get_tables(DatabaseName=database)["TableList"]
        places = {each["Name"]: each["StorageDescriptor"]["Location"] for each in entries}
        return {name: location.rpartition("/")[2] for name, location in places.items()}

    def has_data(self) -> bool:
        return f"{self.database}/t/{DATA_FILE}" in self.server.keys(BUCKET)

    def failure(self, to: str, step: int, fault: str) -> LanceNamespaceError | None:
        """Rename the table, break all requests from one on, and return the error.

        Returns None where the rename is done before that request.
        """
        calls = self.namespaces[fault == "silence"]
        numbers = count()
        self.proxy.reset()
        self.proxy.fail_next(lambda _: next(numbers) >= step, FAULTS[fault][0], times=FOREVER)
        begun, error = time.monotonic(), None
        try:
            calls.rename_table([self.database, "t"], "u", new_namespace_id=[f"{self.database}{to}"])
        except LanceNamespaceError as caught:
            error = caught
        assert time.monotonic() - begun < 30
        assert bool(self.proxy.fired) is (error is not None), f"{self.proxy.fired}: {error!r}"
        assert error is None or error.code in FAULTS[fault][1]
        return error


@pytest.fixture
def lake(server: GlueServer, proxy: HttpProxy, connect: Connect, database: str) -> Lake:
    waits = {False: "10", True: "0.5"}
    namespaces = {
        short: connect(max_retries="0", **{"client.read-timeout": wait})
        for short, wait in waits.items()
    }
    made = Lake(server, proxy, namespaces, database)
    made.restore()
    return made


@pytest.mark.parametrize("faults", EACH_OUTCOME_OR_ALL)
@pytest.mark.parametrize("where", RENAMES)
def test_a_rename_that_fails_anywhere_loses_nothing_and_names_what_is_left(
    lake: Lake, where: str, faults: Iterable[str]
) -> None:
    for fault in faults:
        _break_rename_everywhere(lake, RENAMES[where], fault)
        lake.restore()


def _break_rename_everywhere(lake: Lake, to: str, fault: str) -> None:
    for step in count():
        error = lake.failure(to, step, fault)
        state = lake.state()
        entries = {**state["{}"], **state["{}_empty"]}
        assert set(entries.values()) == {"t"}
        assert lake.has_data()
        if error is None:
            assert set(entries) == {"u"}
            break
        # Whether there is a copy is not known where its reply is lost, and all that follows.
        if len(entries) == 2 and lake.proxy.fired[0][0] != "CreateTable":
            assert "both names" in str(error)
        if state != BEFORE:
            lake.restore()
    assert step >= 4

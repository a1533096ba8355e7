"""The small service as a target of the kit, with all its hooks."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path as FilePath

from lance_namespace import LanceNamespace

from lance_bridge.catalog import Catalog, Path
from lance_bridge.config import load
from lance_bridge.locations import for_lance
from lance_bridge.testing import Faults, HeldChange, Neighbour, RawEntry, Target

from ..faulty_servers import AnsweredFaults
from .adapter import (
    CHANGES,
    PAGE,
    SERVERS,
    ConnectionLost,
    Json,
    NoAnswerInTime,
    ServerError,
    TinyConfig,
    TinyNamespace,
    TinyServer,
)

_TOKEN = "a very secret token"
Request = Callable[[str, Json], None]


class TinyTarget(Target):
    """A new server, and an adapter of a given class."""

    page_size = PAGE
    secrets = (_TOKEN,)
    broken_entry_types = ("no etag",)
    unreadable_types = ("entry", "batch", "schema")

    def __init__(self, data_root: FilePath, kind: Callable[[TinyConfig], Catalog]) -> None:
        self.data_root = str(data_root)
        self._kind = kind
        self.server = PurgingServer(uuid.uuid4().hex)
        SERVERS[self.server.name] = self.server
        self._properties = {"server": self.server.name, "token": _TOKEN}

    def connect(self) -> LanceNamespace:
        return TinyNamespace(**self._properties)

    def catalog(self) -> Catalog:
        return self._kind(load(TinyConfig, "tiny", self._properties))

    def other_catalog(self) -> Catalog:
        return self._kind(load(TinyConfig, "tiny", {**self._properties, "user": "you"}))

    def read_entry(self, path: Path) -> RawEntry:
        row = self.server.tables[path[0], path[1]]
        return RawEntry(row["location"], dict(row["options"]), row["kind"] == "EXTERNAL")

    def write_entry(self, path: Path, entry: RawEntry) -> None:
        self.server.request(
            "create",
            schema=path[0],
            table=path[1],
            location=entry.location,
            options=dict(entry.properties),
            kind="EXTERNAL" if entry.is_external else "MANAGED",
        )

    def make_entry(
        self, namespace_id: Sequence[str], name: str, location: str, entry_type: str
    ) -> None:
        assert entry_type == "no etag"
        self.server.tables[namespace_id[0], name] = {"name": name, "broken": location}

    def inhabit(self, namespace_id: Sequence[str], location: str) -> list[Neighbour]:
        return [self._add(namespace_id[0], *each) for each in neighbours_at(location)]

    def _add(self, schema: str, neighbour: Neighbour, fields: Mapping[str, object]) -> Neighbour:
        plain: dict[str, object] = {"location": None, "options": {}, "kind": "EXTERNAL"}
        self.server.request("create", schema=schema, table=neighbour.name, **{**plain, **fields})
        return neighbour

    @contextmanager
    def unreadable(self, unreadable_type: str) -> Iterator[list[str]]:
        schema, table = f"unreadable_{unreadable_type}", "bad"
        self.server.request("make_schema", schema=schema, options={})
        for name in ("a", table, "z"):
            self._add(schema, Neighbour(name), {"location": f"/nowhere/{name}"})
        if unreadable_type == "schema":
            self.server.closed.add(schema)
        elif unreadable_type == "entry":
            self.server.tables[schema, table] = {"name": table, "broken": "yes"}
        else:
            self.server.tables[schema, table]["corrupt"] = True
        try:
            yield [schema] if unreadable_type == "schema" else [schema, table]
        finally:
            self.server.closed.discard(schema)
            self.server.request("delete_schema", schema=schema, cascade=True)

    def remove_entry(self, namespace_id: Sequence[str], name: str) -> None:
        self.server.tables.pop((namespace_id[0], name), None)

    def make_partitioned_table(
        self, namespace_id: Sequence[str], name: str, location: str, partitions: Sequence[str]
    ) -> None:
        self.server.request(
            "create",
            schema=namespace_id[0],
            table=name,
            location=location,
            options={},
            kind="EXTERNAL",
            partitions=list(partitions),
        )

    @contextmanager
    def hidden_table(self, location: str) -> Iterator[None]:
        # The last of more than a page.
        for number in range(PAGE + 1):
            row = {"name": f"t{number:02d}", "id": str(number), "etag": "", "options": {}}
            place = location if number == PAGE else f"{location}-{number}"
            self.server.hidden.append({**row, "location": place, "kind": "EXTERNAL"})
        yield
        self.server.hidden.clear()

    def grants(self, options: Mapping[str, str], location: str, *, write: bool) -> bool:
        right, _, place = options["token"].partition(":")
        return place == location and (right == "write" or not write)

    @contextmanager
    def faults(self) -> Iterator[Faults]:
        yield TinyFaults(self.server, self.catalog())


def neighbours_at(location: str) -> Iterator[tuple[Neighbour, Mapping[str, object]]]:
    """Yield entries that other tools make with this service, and the fields of each."""
    place = f"{location}/{{}}".format
    yield (
        Neighbour("delta", [place("delta")]),
        {"location": place("none"), "storage": {"path": place("delta")}},
    )
    yield (
        Neighbour("iceberg", [place("iceberg"), place("old")]),
        {
            "location": place("old"),
            "options": {
                "table_type": "ICEBERG",
                "metadata_location": f"{place('iceberg')}/metadata/1.metadata.json",
            },
        },
    )
    yield (
        Neighbour("unknown format", [place("shards/1")]),
        {"options": {"shards": f"file://{place('shards/1')}"}},
    )
    yield Neighbour("above", [place("shards")]), {"location": place("shards")}
    yield (
        Neighbour("days", [place("days"), place("day=1")]),
        {"location": place("days"), "partitions": [place("day=1")]},
    )
    yield Neighbour("view"), {"kind": "VIEW"}
    yield (
        Neighbour("lost", [place("lost")], is_lance=True),
        {"location": place("lost"), "options": {"table_type": "lance"}},
    )


class PurgingServer(TinyServer):
    """Deletes the files that it should delete."""

    def request(self, operation: str, **body: object) -> Json:
        answer = super().request(operation, **body)
        while self.deleted_files:
            shutil.rmtree(for_lance(self.deleted_files.pop()), ignore_errors=True)
        return answer


class TinyFaults(AnsweredFaults):
    """Faults of the server: the status and the code of each."""

    refusal = (403, "FORBIDDEN")
    busy = (503, "BUSY")
    failure = (500, "INTERNAL")

    def __init__(self, server: TinyServer, catalog: Catalog) -> None:
        super().__init__(catalog)
        self._server = server

    @contextmanager
    def _requests(self, treat: Request) -> Iterator[None]:
        self._server.on_request = treat
        try:
            yield
        finally:
            self._server.on_request = None

    @contextmanager
    def answered(self, answer: tuple[int, str], passing: int = 0) -> Iterator[None]:
        left = passing

        def treat(_: str, __: Json) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise ServerError(*answer)

        with self._requests(treat):
            yield

    def reject(self) -> AbstractContextManager[None]:
        return self.answered((401, "WHO_ARE_YOU"))

    def lose_next_reply(self) -> AbstractContextManager[None]:
        return self._after_a_change(ConnectionLost())

    def stall_next_reply(self) -> AbstractContextManager[None]:
        return self._after_a_change(NoAnswerInTime())

    def fail_next_reply(self) -> AbstractContextManager[None]:
        return self._after_a_change(ServerError(500, "INTERNAL"))

    @contextmanager
    def _after_a_change(self, error: Exception) -> Iterator[None]:
        def lose(operation: str) -> None:
            if operation in CHANGES:
                self._server.on_answer = None
                raise error

        self._server.on_answer = lose
        try:
            yield
        finally:
            self._server.on_answer = None

    @contextmanager
    def hold_next_change(self) -> Iterator[HeldChange]:
        held = HeldChange()

        def hold(operation: str, _: Json) -> None:
            if operation in CHANGES:
                self._server.on_request = None
                held.arrived.set()
                assert held.release.wait(30), "the change was not released"

        with self._requests(hold):
            yield held

    def changes_received(self) -> int:
        return sum(self._server.received[name] for name in CHANGES)

"""Clients that take turns at each of their steps, over a catalog and a storage in memory.

Each client is a thread that stops before every call of the catalog and of the storage until it is
let go on, or dies there. Only one runs at a time, so that a sequence of turns can be repeated.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.managed import batches
from lance_bridge.storage.store import TableFiles

from .managed_tables import Death
from .memory_catalog import MemoryCatalog, MemoryServer, Moment

_SECONDS = 30.0
"""How long a client may take for one step before the test fails."""

_own = threading.local()


class Client:
    """One client, which does one thing and has an outcome then."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_done = False
        self.loses: Moment | None = None
        """Whether the reply to its next change of an entry is lost, before or after the effect."""
        self.next_file = ""
        """The file that its next step reads or changes, if it is one of the storage."""
        self.is_changing = False
        """Whether its next step is a change of an entry."""
        self._is_dying = False
        self._goes, self._stops = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(act,), daemon=True)
        self._thread.start()
        self._await()

    def go(self) -> None:
        """Let it do one step, to the next one or to its end."""
        if not self.is_done:
            self._goes.release()
            self._await()

    def finish(self) -> None:
        """Let it go on to its end."""
        while not self.is_done:
            self.go()

    def die(self) -> None:
        """End it where it is."""
        self._is_dying = True
        self.finish()

    def step(self, file: str = "", *, changes: bool = False) -> None:
        """Stop until it is let go on; called by the client itself."""
        if self._is_dying:
            raise Death
        self.next_file, self.is_changing = file, changes
        self._stops.release()
        self._goes.acquire()
        if self._is_dying:
            raise Death

    def lose_reply(self, moment: Moment) -> None:
        """Raise where the reply to a change is to be lost; called by the client itself."""
        if self.loses == moment:
            self.loses = None
            raise OutcomeUnknownError("lost")

    def _run(self, act: Callable[[], Any]) -> None:
        _own.client = self
        try:
            self.step()
            self.result = act()
        except BaseException as error:  # noqa: BLE001 - the outcome, also of a client that died
            self.error = error
        self.is_done = True
        self._stops.release()

    def _await(self) -> None:
        assert self._stops.acquire(timeout=_SECONDS), "a client does not reach its next step"


def step(file: str = "") -> None:
    """Have the running client stop here, if it is one."""
    client = getattr(_own, "client", None)
    if client is not None:
        client.step(file)


class MemoryFiles:
    """What takes the place of all storage: the content of files by location and path."""

    def __init__(self) -> None:
        self.content: dict[tuple[str, str], bytes] = {}

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Have every table's files be here."""
        for name in ("list", "head", "read", "put_new", "put_over", "remove"):
            patch.setattr(TableFiles, name, self._method(getattr(self, name)))

    def _method(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def method(files: TableFiles, *args: Any) -> Any:
            step(str(args[0]))
            return act(files.location, *args)

        return method

    def list(self, location: str, inside: str) -> list[Any]:
        """As `TableFiles`, and so are the others."""
        return [
            self._meta(path, data)
            for (place, path), data in sorted(self.content.items())
            if place == location and path.startswith(f"{inside}/")
        ]

    def head(self, location: str, path: str) -> Any | None:
        data = self.content.get((location, path))
        return None if data is None else self._meta(path, data)

    def read(self, location: str, path: str) -> bytes | None:
        return self.content.get((location, path))

    def put_new(self, location: str, path: str, data: bytes) -> bool:
        if (location, path) in self.content:
            return False
        self.content[location, path] = data
        return True

    def put_over(self, location: str, path: str, data: bytes) -> None:
        self.content[location, path] = data

    def remove(self, location: str, paths: Sequence[str]) -> None:
        for path in paths:
            self.content.pop((location, path), None)

    def _meta(self, path: str, data: bytes) -> dict[str, Any]:
        now = datetime.now(timezone.utc)
        return {"path": path, "size": len(data), "e_tag": None, "last_modified": now}


def install_steps(patch: pytest.MonkeyPatch, server: MemoryServer) -> None:
    """Make steps of the calls of the catalog; clients wait for nothing but their turn."""
    load, change = MemoryCatalog.load_table, MemoryServer.change

    def load_table(catalog: MemoryCatalog, path: Any) -> Any:
        if not getattr(_own, "is_changing", False):
            step()
        return load(catalog, path)

    def change_at_once(server: MemoryServer, name: str, effect: Callable[[], None]) -> None:
        def act() -> None:
            _own.is_changing = True
            try:
                effect()
            finally:
                _own.is_changing = False

        change(server, name, act)

    def fault(_: str, moment: Moment) -> None:
        client = getattr(_own, "client", None)
        if client is not None:
            client.step(changes=moment == "before")
            client.lose_reply(moment)

    patch.setattr(MemoryCatalog, "load_table", load_table)
    patch.setattr(MemoryServer, "change", change_at_once)
    patch.setattr(batches, "STALLED_SECONDS", 0.0)
    patch.setattr(batches, "SECONDS_PER_TABLE", 0.0)
    patch.setattr(batches, "POLL_SECONDS", 0.0)
    one_by_one = nullcontext(SimpleNamespace(map=map))  # a client does one thing after the other
    patch.setattr(batches, "ThreadPoolExecutor", lambda _: one_by_one)
    server.fault = fault


def manifest(version: int, mark: str) -> bytes:
    """Return the least that is a manifest of a version, with a mark that says whose it is.

    It also names the transaction that it began with, at the version before.
    """
    head = f"{mark}\n{version - 1}-{uuid.UUID(int=0)}.txn\n".encode()
    message = b"\x18" + _varint(version)
    footer = len(head).to_bytes(8, "little") + b"\x00\x00\x02\x00LANC"
    return head + len(message).to_bytes(4, "little") + message + footer


def mark_of(data: bytes) -> str:
    """Return the mark of a manifest."""
    return data.partition(b"\n")[0].decode()


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])

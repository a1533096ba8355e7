"""The audit log's destinations: a file, standard output or a logger."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from functools import partial
from io import TextIOWrapper
from logging.handlers import (
    BaseRotatingHandler,
    RotatingFileHandler,
    TimedRotatingFileHandler,
    WatchedFileHandler,
)
from pathlib import Path
from typing import Any, Literal

from lance_namespace.errors import ServiceUnavailableError

from lance_bridge.errors import invalid

LOGGER = "lance_bridge.audit"
"""The logger for lines that go neither to a file nor to standard output."""

Rotation = Literal["size", "daily", "external"]

_log = logging.getLogger(__name__)
_TAIL_BYTES = 256 << 10
_ROTATION = threading.Lock()
"""Held while a line is written to a file that this process rotates."""


class _Raising(logging.Handler):
    """Raises exceptions instead of printing them."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002 - of logging
        raise  # noqa: PLE0704 - logging calls this while it handles the exception


class _File(_Raising, logging.FileHandler):
    """Creates files that the owner can read and write, and the group can read."""

    def _open(self) -> TextIOWrapper:
        opener = partial(os.open, mode=0o640)
        return open(self.baseFilename, "a", encoding=self.encoding, opener=opener)


class _RotatedFile(_File, BaseRotatingHandler):
    """Continues in the new file if another handler has rotated the file.

    After a reload, the previous gateway's handler still writes to the file. If both rotated it, the
    second one would replace the rotated file with the new, nearly empty one.
    """

    def _open(self) -> TextIOWrapper:
        stream = super()._open()
        self._opened = os.fstat(stream.fileno())
        return stream

    def emit(self, record: logging.LogRecord) -> None:
        with _ROTATION:
            if self._is_replaced():
                self._leave_file()
            super().emit(record)

    def _is_replaced(self) -> bool:
        try:
            found = os.stat(self.baseFilename)
        except FileNotFoundError:
            return True
        return not os.path.samestat(found, self._opened)

    def _leave_file(self) -> None:
        """Close the stream; logging opens the file again for the next line."""
        if self.stream is not None:
            self.stream.close()
        self.stream = None


class _SizedFile(_RotatedFile, RotatingFileHandler):
    pass


class _DailyFile(_RotatedFile, TimedRotatingFileHandler):
    def _leave_file(self) -> None:
        super()._leave_file()
        self.rolloverAt = self.computeRollover(int(time.time()))


class _WatchedFile(_File, WatchedFileHandler):
    pass


class _Stream(_Raising, logging.StreamHandler[Any]):
    pass


class AuditLog:
    """Writes lines of JSON to a logger. Safe to share between threads.

    Args:
        refuse_changes: Whether a change is refused if its line cannot be written. Otherwise the
            failure is logged and the request continues. Requests that read always continue.
        file: The file that the lines are written to, if any.
    """

    def __init__(
        self, logger: logging.Logger, *, refuse_changes: bool = False, file: Path | None = None
    ) -> None:
        self._logger = logger
        self._refuse_changes = refuse_changes
        self.file = file

    def write(self, line: Mapping[str, Any]) -> None:
        """Write a line, or log an error if that fails."""
        self._try_write(line)

    def write_before_change(self, line: Mapping[str, Any]) -> None:
        """Write a line about a change that has not been made yet.

        Raises:
            ServiceUnavailableError: (17) it was not written, and changes are refused then.
        """
        if not self._try_write(line) and self._refuse_changes:
            message = "The audit log cannot be written; nothing was changed"
            raise ServiceUnavailableError(message)

    def last_lines(self, count: int) -> list[dict[str, Any]]:
        """Return the last lines of the file, latest first, or an empty list if there is no file.

        Only the last 256 KiB of the file are read. Lines that a crash damaged are left out.

        Raises:
            ServiceUnavailableError: (17) the file cannot be read.
        """
        if self.file is None:
            return []
        try:
            with self.file.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                start = file.seek(max(0, size - _TAIL_BYTES))
                lines = file.read(_TAIL_BYTES).splitlines(keepends=True)
        except OSError as error:
            raise ServiceUnavailableError("The audit log cannot be read") from error
        # The first line may lack its start, and the last one may not be complete yet.
        whole = [each for each in lines[1 if start else 0 :] if each.endswith(b"\n")]
        found = (_parse(each) for each in reversed(whole[-count:]))
        return [each for each in found if each is not None]

    def _try_write(self, line: Mapping[str, Any]) -> bool:
        try:
            self._logger.info("%s", json.dumps(line))
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            _log.error("A line of the audit log was not written: %s", error)
            return False
        return True

    def close(self) -> None:
        """Close the file."""
        for handler in self._logger.handlers:
            handler.close()


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return a line, or None if a crash left only a part of it."""
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return found


def open_audit_log(
    to: Literal["stdout", "logger"] | Path,
    *,
    rotation: Rotation = "size",
    max_bytes: int = 100 << 20,
    backups: int = 10,
    refuse_changes: bool = False,
) -> AuditLog:
    """Return an audit log.

    Args:
        to: A file, standard output, or the logger `LOGGER` with its own handlers.
        rotation: When a new file replaces the current one: before it exceeds ``max_bytes``, at
            midnight UTC, or by another program, such as logrotate. Only the last works if several
            processes write one file.
        backups: How many replaced files are kept.

    Raises:
        InvalidInputError: (13) the file cannot be opened.
    """
    if to == "logger":
        return AuditLog(logging.getLogger(LOGGER), refuse_changes=refuse_changes)
    logger = logging.Logger(LOGGER)
    try:
        logger.addHandler(_handler(to, rotation, max_bytes, backups))
    except OSError as error:
        raise invalid(f"The audit log cannot be opened: {error}") from error
    file = to if isinstance(to, Path) else None
    return AuditLog(logger, refuse_changes=refuse_changes, file=file)


def _handler(
    to: Literal["stdout"] | Path, rotation: Rotation, max_bytes: int, backups: int
) -> logging.Handler:
    if to == "stdout":
        return _Stream(sys.stdout)
    if rotation == "size":
        return _SizedFile(to, maxBytes=max_bytes, backupCount=backups, encoding="utf-8")
    if rotation == "daily":
        return _DailyFile(to, when="midnight", utc=True, backupCount=backups, encoding="utf-8")
    return _WatchedFile(to, encoding="utf-8")

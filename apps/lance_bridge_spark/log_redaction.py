"""Keeps secrets out of what py4j logs at DEBUG: each call of the JVM, with its arguments."""

from __future__ import annotations

import logging
import re
import threading
from itertools import pairwise

from lance_bridge.config import SECRET_STORAGE_PATTERN
from lance_bridge.redaction import HIDDEN, is_secret

STORAGE_PATTERN = rf"^(?:spark\.sql\.catalog\.[^.\s]+\.)?{SECRET_STORAGE_PATTERN}"
"""Options of stores, of the data source and of catalogs: all but those known to be harmless."""
_PY4J = ("clientserver", "java_gateway")
_BYTES = re.compile(r"^j[A-Za-z0-9+/=]{40,}$", re.MULTILINE)
"""An argument of bytes in a command for the JVM, such as a function that tasks are to run."""


_COMMAND, _ANSWER = "Command to send: ", "Answer received: "


class _WithoutSecrets(logging.Filter):
    """Knows of each thread which answer comes next: the value of a secret setting is hidden."""

    def __init__(self) -> None:
        super().__init__()
        self._next = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        clean = text
        if text.startswith(_COMMAND):
            clean = _without_settings(_BYTES.sub(f"j{HIDDEN}", text))
            self._next.is_secret = _asks_for_secret(text) or getattr(self._next, "named", False)
        elif text.startswith(_ANSWER):
            if getattr(self._next, "is_secret", False):
                clean = f"{_ANSWER}{HIDDEN}"
            # Settings are read as pairs, too: a name is one answer, and its value the next.
            self._next.named = clean == text and _is_secret(text.partition("!ys")[2])
        if clean != text:
            record.msg, record.args = clean, ()
        return True


def _without_settings(command: str) -> str:
    """Hide each text, which is a line that begins with ``s``, that follows a secret's name."""
    lines = command.split("\n")
    for number, (name, value) in enumerate(pairwise(lines), 1):
        if name[:1] == value[:1] == "s" and _is_secret(name[1:]):
            lines[number] = f"s{HIDDEN}"
    return "\n".join(lines)


def _asks_for_secret(command: str) -> bool:
    """Return whether the last argument, which ``e`` follows, is a secret's name."""
    arguments = command.rstrip("\n").split("\n")[:-1]
    return bool(arguments) and arguments[-1][:1] == "s" and _is_secret(arguments[-1][1:])


def _is_secret(name: str) -> bool:
    return is_secret(name) or re.search(STORAGE_PATTERN, name) is not None


_filter = _WithoutSecrets()


def redact_logs() -> None:
    """Have py4j log neither the functions that tasks get nor secret settings. Safe to repeat.

    At DEBUG it logs each call of the JVM. The functions hold storage options, in base64.
    """
    for name in _PY4J:
        logging.getLogger(f"py4j.{name}").addFilter(_filter)

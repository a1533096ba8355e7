"""Secrets in the settings of a session: a warning, and patterns that make Spark hide them.

Spark passes settings as process arguments and shows them in its event log and web pages. It hides
those whose names match its patterns, which do not cover all names of our secrets; it never hides
process arguments.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from lance_namespace.errors import LanceNamespaceError

from lance_bridge.config import SECRET_STORAGE_PATTERN
from lance_bridge.namespace import LanceBridgeNamespace
from lance_bridge.redaction import HIDDEN, SPARK_PATTERN, contains_secret, is_secret
from lance_bridge.registry import implementation

logger = logging.getLogger(__name__)

CORE_PATTERN = "spark.redaction.regex"
_CORE_DEFAULT = "(?i)secret|password|token|access[.]?key"
_SQL_PATTERN = "spark.sql.redaction.options.regex"
_SQL_DEFAULT = "(?i)url"


def warn_of_secrets(prefix: str, catalogs: Mapping[str, Mapping[str, str]]) -> None:
    """Log a warning if catalogs have secrets in their settings, once per set of names.

    Args:
        prefix: The prefix of the settings of catalogs.
    """
    for name, properties in catalogs.items():
        secret = find_secret_check(properties.get("impl", ""))
        keys = [f"{prefix}{name}.{key}" for key in sorted(properties) if secret(key)]
        if keys:
            _warn_once(
                f"The settings {', '.join(keys)} hold secrets, which Spark's process arguments and "
                f"event logs may show. Name a file with {prefix}{name}.secrets.file or a function "
                f"with {prefix}{name}.secrets.provider, or use the environment"
            )


def find_secret_check(impl: str) -> Callable[[str], bool]:
    """Return the function that tells secret properties of a catalog from others."""
    try:
        cls = implementation(impl)
    except LanceNamespaceError:
        return is_secret
    return cls.config_type.is_secret if issubclass(cls, LanceBridgeNamespace) else is_secret


def secret_properties(properties: Mapping[str, str]) -> list[str]:
    """Return the keys of a catalog's properties that hold a secret, by their names or values."""
    is_secret_name = find_secret_check(properties.get("impl", ""))
    return sorted(
        key
        for key, value in properties.items()
        if is_secret_name(key) or re.search(STORAGE_PATTERN, key) or contains_secret(value)
    )


@cache
def _warn_once(text: str) -> None:
    logger.warning("%s", text)


def with_patterns(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings for a new session, with patterns that cover the names of our secrets."""
    return {**settings, CORE_PATTERN: _extend(settings.get(CORE_PATTERN, _CORE_DEFAULT))}


def set_patterns(spark: Any) -> None:
    """Make a session hide our secrets in `SET`, in plans, and in its event log from now on.

    A Spark Connect server keeps the pattern of its event log.
    """
    redact_logs()
    known = spark.conf.get(_SQL_PATTERN, _SQL_DEFAULT)
    spark.conf.set(_SQL_PATTERN, _extend(known))
    context = getattr(spark, "_jsc", None)
    if context is not None:
        conf = context.sc().conf()
        conf.set(CORE_PATTERN, _extend(conf.get(CORE_PATTERN, _CORE_DEFAULT)))


def _extend(pattern: str) -> str:
    for each in (SPARK_PATTERN, STORAGE_PATTERN):
        if each not in pattern:
            pattern = f"{pattern}|{each}"
    return pattern


STORAGE_PATTERN = rf"^(?:spark\.sql\.catalog\.[^.\s]+\.)?{SECRET_STORAGE_PATTERN}"
"""Storage options of the data source and of catalogs: all but those known to be harmless."""
_PY4J = ("clientserver", "java_gateway")
_BYTES = re.compile(r"^j[A-Za-z0-9+/=]{40,}$", re.MULTILINE)
"""A byte-string argument of a command for the JVM, such as a function that tasks will run."""


_COMMAND, _ANSWER = "Command to send: ", "Answer received: "


class _SecretFilter(logging.Filter):
    """Hide values of secret settings; per thread, track whether the next reply is one."""

    def __init__(self) -> None:
        super().__init__()
        self._next = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        clean = text
        if text.startswith(_COMMAND):
            clean = _hide_settings(_BYTES.sub(f"j{HIDDEN}", text))
            self._next.is_secret = _asks_for_secret(text) or getattr(self._next, "named", False)
        elif text.startswith(_ANSWER):
            if getattr(self._next, "is_secret", False):
                clean = f"{_ANSWER}{HIDDEN}"
            # Settings are also read as pairs: one reply is the name, and the next is the value.
            self._next.named = clean == text and _is_secret(text.partition("!ys")[2])
        if clean != text:
            record.msg, record.args = clean, ()
        return True


def _hide_settings(command: str) -> str:
    """Hide each string (a line that begins with ``s``) that follows a secret's name."""
    lines = command.split("\n")
    for number, (name, value) in enumerate(pairwise(lines), 1):
        if name[:1] == value[:1] == "s" and _is_secret(name[1:]):
            lines[number] = f"s{HIDDEN}"
    return "\n".join(lines)


def _asks_for_secret(command: str) -> bool:
    """Return whether the last argument, before the final ``e``, is a secret's name."""
    arguments = command.rstrip("\n").split("\n")[:-1]
    return bool(arguments) and arguments[-1][:1] == "s" and _is_secret(arguments[-1][1:])


def _is_secret(name: str) -> bool:
    return is_secret(name) or re.search(STORAGE_PATTERN, name) is not None


_filter = _SecretFilter()


def redact_logs() -> None:
    """Keep py4j from logging tasks' functions and secret settings. Safe to repeat.

    At DEBUG it logs each call to the JVM. The functions contain storage options in base64.
    """
    for name in _PY4J:
        logging.getLogger(f"py4j.{name}").addFilter(_filter)

"""Builds SQL statements for Databricks, with every name and value quoted, and runs them."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from lance_namespace.errors import ServiceUnavailableError, UnauthenticatedError

from lance_bridge.catalog import TABLE_TYPE, Path
from lance_bridge.dotted_names import quoted
from lance_bridge.errors import invalid

from .client import Client
from .config import UnityConfig
from .errors import ErrorReply, LostReply
from .mapping import OTHER_TYPE_KEY

_ROUTE = "/api/2.0/sql/statements"
_PLAIN = re.compile(r"[^A-Za-z0-9 _./:=@,+*()\[\]{}<>|%&!?#~^\u0080-\U0010ffff-]")
_ERROR_CLASS = re.compile(
    r"\s*(?:[\w.$]+(?:Exception|Error): )*(?:\[([A-Z0-9_.]+)\]|([A-Z][A-Z_.]+):)"
)
_RESERVED = {"external", "location", "owner", "provider"}
"""The keys that Databricks reserves, in this letter case only."""
_WAITING = {"PENDING", "RUNNING"}
_DONE = {"SUCCEEDED", "CLOSED"}
_STATUS = {"BAD_REQUEST": 400, "NOT_FOUND": 400, "ALREADY_EXISTS": 409, "ABORTED": 409,
           "UNAUTHENTICATED": 401, "RESOURCE_EXHAUSTED": 429}  # fmt: skip
_LONGEST_WAIT = 30
_SHORTEST_WAIT = 5
"""Seconds that the server accepts for ``wait_timeout``, besides 0."""
_MARGIN = 5.0
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_SECONDS_TO_CANCEL = 10.0
_FAILURES = (LostReply, ErrorReply, UnauthenticatedError)


def literal(text: str) -> str:
    r"""Return a text as a SQL string literal.

    Characters that could end the string, or have a meaning in it (quotes, backslashes, ``$`` of
    variables, control characters), are written as ``\uXXXX``, which works with every setting of
    the SQL parser.
    """
    return "'" + _PLAIN.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "'"


def create_table(path: Path, location: str, properties: Mapping[str, str]) -> str:
    """Return the statement that creates an external table.

    Raises:
        InvalidInputError: Databricks reserves the key of a property.
    """
    statement = f"CREATE TABLE {quoted(path)} USING TEXT LOCATION {literal(location)}"
    return (
        f"{statement} TBLPROPERTIES ({_format_properties(properties)})" if properties else statement
    )


def set_properties(path: Path, properties: Mapping[str, str]) -> str:
    """Return the statement that adds and replaces properties; raises the same errors."""
    return f"ALTER TABLE {quoted(path)} SET TBLPROPERTIES ({_format_properties(properties)})"


def unset_properties(path: Path, keys: list[str]) -> str:
    """Return the statement that removes properties, if they exist."""
    names = ", ".join(map(literal, keys))
    return f"ALTER TABLE {quoted(path)} UNSET TBLPROPERTIES IF EXISTS ({names})"


def set_location(path: Path, location: str) -> str:
    """Return the statement that changes a table's location."""
    return f"ALTER TABLE {quoted(path)} SET LOCATION {literal(location)}"


def rename_table(path: Path, new_path: Path) -> str:
    """Return the statement that renames a table."""
    return f"ALTER TABLE {quoted(path)} RENAME TO {quoted(new_path)}"


def with_other_key(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with the table's type under a key that Spark does not reserve."""
    return {OTHER_TYPE_KEY if key == TABLE_TYPE else key: text for key, text in properties.items()}


def is_key_refused(error: ErrorReply) -> bool:
    """Return True if a statement failed because of the key of the table's type."""
    return error.code == "UNSUPPORTED_FEATURE" and f"{TABLE_TYPE} is a reserved" in error.text


def _format_properties(properties: Mapping[str, str]) -> str:
    reserved = sorted(_RESERVED & set(properties))
    if reserved:
        raise invalid(f"Property '{reserved[0]}' is reserved by Databricks: use another key")
    return ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items())


class Warehouse:
    """Runs statements on a SQL warehouse."""

    def __init__(self, client: Client, config: UnityConfig) -> None:
        self._client = client
        self._id = config.warehouse_id
        self._timeout = config.statement_timeout
        wait = int(min(_LONGEST_WAIT, config.read_timeout - _MARGIN, config.statement_timeout))
        self._wait = f"{wait if wait >= _SHORTEST_WAIT else 0}s"

    def run(self, statement: str) -> None:
        """Run a statement, and wait until it has ended.

        Raises:
            ErrorReply: it failed; the code is that of SQL.
            LostReply: it may have happened or not.
            InvalidInputError: the warehouse does not exist, or accepts no statements.
            ServiceUnavailableError: it took too long and is cancelled.
        """
        deadline = time.monotonic() + self._timeout
        body = {
            "warehouse_id": self._id,
            "statement": statement,
            "wait_timeout": self._wait,
            "on_wait_timeout": "CONTINUE",
        }
        try:
            reply = self._client.change("POST", _ROUTE, body)
        except ErrorReply as error:
            if error.status not in (400, 404):
                raise
            # An error of the warehouse: errors of the statement itself are in its state.
            raise invalid(f"SQL warehouse '{self._id}' (warehouse_id) refuses: {error}") from error
        name = quote(str(reply.get("statement_id", "")), safe="")
        reply = self._wait_for(name, reply, deadline)
        if _state(reply) in _WAITING:
            reply = self._cancel(name)
        _require_success(reply)

    def _wait_for(self, name: str, reply: dict[str, Any], deadline: float) -> dict[str, Any]:
        """Poll until the statement has ended, or the deadline has passed."""
        pause = _FIRST_PAUSE
        while _state(reply) in _WAITING and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            try:
                reply = self._client.get(f"{_ROUTE}/{name}")
            except _FAILURES as error:
                text = f"the outcome of statement {name} is unknown: {error}"
                raise LostReply(text, sent=True, change=True) from error
        return reply

    def _cancel(self, name: str) -> dict[str, Any]:
        """Cancel a statement that takes too long; return its reply if it ended otherwise."""
        waited = f"after {self._timeout:g} seconds (statement_timeout)"
        try:
            self._client.change("POST", f"{_ROUTE}/{name}/cancel", {}, silent=True)
        except _FAILURES as error:
            text = f"statement {name} had not ended {waited} and could not be cancelled: {error}"
            raise LostReply(text, sent=True, change=True) from error
        deadline = time.monotonic() + _SECONDS_TO_CANCEL
        reply = self._wait_for(name, {"status": {"state": "RUNNING"}}, deadline)
        if _state(reply) == "CANCELED":
            raise ServiceUnavailableError(
                f"Statement {name} was cancelled {waited}: the warehouse may be starting"
            )
        return reply


def _state(reply: Mapping[str, Any]) -> str:
    status = reply.get("status")
    return str(status.get("state", "")) if isinstance(status, dict) else ""


def _require_success(reply: Mapping[str, Any]) -> None:
    state = _state(reply)
    if state in _DONE:
        return
    if state != "FAILED":
        raise LostReply(
            f"the statement ended in the state {state or '(none)'}", sent=True, change=True
        )
    error = reply["status"].get("error") or {}
    text = str(error.get("message", ""))
    code = str(error.get("error_code", ""))
    found = _ERROR_CLASS.match(text)
    status = _STATUS.get(code, 500)
    # Only the error class in the message says what is missing.
    code = "BAD_REQUEST" if code == "NOT_FOUND" else code
    raise ErrorReply(status, (found[1] or found[2]) if found else code, text, change=True)

"""The SQL statement execution API of Databricks: submit, poll, cancel."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from databricks.sdk.service.sql import StatementResponse

from .dialects import ErrorKind
from .messages import Answer, ApiError, Request, ServerFault
from .router import Route
from .validation import check_sdk_reply
from .warehouse import SqlError, Warehouse

_PREFIX = ("/api/2.0",)
_INVALID = ErrorKind(400, "INVALID_PARAMETER_VALUE")
_NOT_FOUND = ErrorKind(404, "NOT_FOUND")


@dataclass
class _Execution:
    """One statement that was submitted."""

    id: str
    text: str
    defaults: tuple[str, ...]
    polls_left: int
    state: str = "PENDING"
    error: dict[str, str] | None = None
    sql_state: str | None = None

    def reply(self) -> dict[str, Any]:
        status: dict[str, Any] = {"state": self.state}
        if self.error is not None:
            status |= {"error": self.error, "sql_state": self.sql_state}
        content: dict[str, Any] = {"statement_id": self.id, "status": status}
        if self.state == "SUCCEEDED":
            content["manifest"] = {
                "format": "JSON_ARRAY",
                "schema": {"column_count": 0},
                "total_chunk_count": 0,
                "total_row_count": 0,
                "truncated": False,
            }
        return check_sdk_reply(StatementResponse, content)


class StatementApi:
    """Statements of one warehouse.

    ``polls`` is how often a statement is asked for before it is done: 0 is done at once. One that
    is not done when it is submitted counts as longer than any ``wait_timeout``.
    """

    def __init__(self, warehouse: Warehouse, warehouse_id: str) -> None:
        self._warehouse = warehouse
        self._executions: dict[str, _Execution] = {}
        self._refused: list[str] = []
        self.warehouse_id = warehouse_id
        self.polls = 0
        self.submitted: list[str] = []
        """The text of every statement, in the order in which they came."""

    def routes(self) -> list[Route]:
        """Return the operations."""
        return [
            Route("POST", "/sql/statements", self.submit, _PREFIX),
            Route("GET", "/sql/statements/{statement_id}", self.poll, _PREFIX),
            Route("POST", "/sql/statements/{statement_id}/cancel", self.cancel, _PREFIX),
        ]

    def refuse(self, pattern: str) -> None:
        """Let statements that fit ``CREATE TABLE*`` fail for want of a privilege."""
        self._refused.append(pattern)

    def allow_all(self) -> None:
        """Take back what `refuse` did."""
        self._refused.clear()

    def submit(self, request: Request) -> Answer:
        body = request.fields
        self._require_valid(body)
        names = (body.get("catalog", "hive_metastore"), body.get("schema", "default"))
        execution = _Execution(str(uuid.uuid4()), body["statement"], names, self.polls)
        self._executions[execution.id] = execution
        self.submitted.append(execution.text)
        waits = body.get("wait_timeout", "10s") != "0s"
        if waits and not execution.polls_left:
            self._finish(execution)
        elif waits and body.get("on_wait_timeout") == "CANCEL":
            execution.state = "CANCELED"
        return Answer.of_json(execution.reply())

    def poll(self, request: Request) -> Answer:
        execution = self._execution(request)
        if execution.state in ("PENDING", "RUNNING"):
            if execution.polls_left:
                execution.polls_left -= 1
                execution.state = "RUNNING"
            else:
                self._finish(execution)
        return Answer.of_json(execution.reply())

    def cancel(self, request: Request) -> Answer:
        execution = self._execution(request)
        if execution.state in ("PENDING", "RUNNING"):
            execution.state = "CANCELED"
        return Answer.of_json({})

    def _execution(self, request: Request) -> _Execution:
        wanted = request.parameters["statement_id"]
        if wanted not in self._executions:
            text = f"The statement {wanted} was not found. (Statement ID: {wanted})"
            raise ApiError(_NOT_FOUND, text)
        return self._executions[wanted]

    def _require_valid(self, body: dict[str, Any]) -> None:
        wait = str(body.get("wait_timeout", "10s"))
        found = re.fullmatch(r"([0-9]+)s", wait)
        if found is None or (int(found[1]) != 0 and not 5 <= int(found[1]) <= 50):
            text = "wait_timeout must be 0 seconds, or between 5 and 50 seconds."
            raise ApiError(_INVALID, text)
        if not isinstance(body.get("statement"), str):
            raise ApiError(_INVALID, "statement is required")
        if body.get("warehouse_id") != self.warehouse_id:
            raise ApiError(_INVALID, f"{body.get('warehouse_id')} is not a valid endpoint id.")

    def _finish(self, execution: _Execution) -> None:
        try:
            self._require_allowed(execution.text)
            self._warehouse.execute(execution.text, execution.defaults)
        except SqlError as error:
            execution.state, execution.sql_state = "FAILED", error.state
            execution.error = {"error_code": "BAD_REQUEST", "message": str(error)}
        except ServerFault as error:
            execution.state, execution.sql_state = "FAILED", "XX000"
            execution.error = {"error_code": "INTERNAL_ERROR", "message": str(error)}
        else:
            execution.state = "SUCCEEDED"

    def _require_allowed(self, text: str) -> None:
        if any(fnmatchcase(text, pattern) for pattern in self._refused):
            message = "Insufficient privileges: User does not have CREATE TABLE or MODIFY on it."
            raise SqlError("INSUFFICIENT_PERMISSIONS", "42501", message)

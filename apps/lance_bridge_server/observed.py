"""What an answer turned out to be, for what records it: audit log, metrics, traces."""

from __future__ import annotations

import json

from lance_namespace.errors import ErrorCode
from starlette.types import Message, Send

ERROR = 400
"""The lowest status of errors."""
INTERNAL = ErrorCode.INTERNAL.value


class ObservedSend:
    """Passes an answer on, and keeps its status, the code of an error, and how much was sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None
        self.code: int | None = None
        self.bytes = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            body = message.get("body", b"")
            self.bytes += len(body)
            if self.status is not None and self.status >= ERROR and self.code is None:
                self.code = _code_in(body)
        await self._send(message)


def _code_in(body: bytes) -> int | None:
    """Return the code in the JSON of an error; all of the gateway's errors are that."""
    try:
        code = json.loads(body)["code"]
    except (ValueError, KeyError, TypeError):
        return None
    return code if isinstance(code, int) else None

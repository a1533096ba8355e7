"""What passes through an HTTP proxy of the tests, and what may be done to it there."""

from __future__ import annotations

import enum
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit


class Fault(enum.Enum):
    """What may be done to a request, where nothing more needs to be said."""

    RESET = "reset the connection (RST); the server never hears of the request"
    DROP_REQUEST = "close the connection; the server never hears of the request"
    LOSE_REPLY = "let the server do it, then reset the connection instead of replying"
    TRUNCATE_REPLY = "let the server do it, send the head and half of the body, then close"
    MALFORMED_REPLY = "let the server do it, and send half of the body as if it were all"
    EMPTY_REPLY = "let the server do it, and send its head with an empty body"


@dataclass(frozen=True)
class Answer:
    """A reply that is given in the server's place; it never hears of the request."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_json(cls, status: int, content: Any, **headers: str) -> Answer:
        """Return one with a JSON body; ``_`` in a header's name stands for ``-``."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        body = json.dumps(content).encode()
        return cls(status, body, {"Content-Type": "application/json", **named})

    @classmethod
    def of_aws(cls, code: str, message: str = "injected by a test", status: int = 400) -> Answer:
        """Return an error as AWS's JSON services give it."""
        body = json.dumps({"__type": code, "Message": message}).encode()
        return cls(status, body, {"Content-Type": "application/x-amz-json-1.1"})


@dataclass(frozen=True)
class Delay:
    """Wait until ``release`` is set, or the client has left.

    Args:
        effect_first: The server does it at once, and its reply waits; else the request waits.
        arrives_late: The request reaches the server after the wait though the client has left.
    """

    release: threading.Event = field(default_factory=threading.Event)
    effect_first: bool = False
    arrives_late: bool = False


Treatment = Fault | Answer | Delay


@dataclass(frozen=True)
class Request:
    """One request as the client sent it. ``key`` is what it is counted under."""

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    """Names are in lower case."""
    body: bytes = field(repr=False)
    key: str = ""

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


Matcher = str | Callable[[Request], bool]
"""A pattern for keys (``Get*``), or a function of the whole request."""


def operation(request: Request) -> str:
    """Return what a request asks for: an AWS operation (``GetTables``), or ``METHOD /path``."""
    target = request.headers.get("x-amz-target", "")
    if target:
        return target.rpartition(".")[2]
    if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        action = parse_qs(request.body.decode(errors="replace")).get("Action")
        if action:
            return action[0]
    return f"{request.method} {urlsplit(request.path).path}"

"""HTTP sessions whose answers end in time: a socket's timeout begins anew with every byte."""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

_CONNECTIONS = 32


def new_session() -> requests.Session:
    """Return a session that adds no credentials of its own and repeats nothing.

    An answer, from its first byte to its last, may take as long as the read timeout.
    """
    session = requests.Session()
    session.auth = _unchanged  # else a .netrc would take the place of the header
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Adapter(pool_maxsize=_CONNECTIONS, max_retries=0))
    return session


def _unchanged(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}


class _Stream(io.RawIOBase):
    """What comes from a socket until its timeout is over, counted from now."""

    def __init__(self, connection: socket.socket, raw: io.RawIOBase) -> None:
        self._socket = connection
        self._raw = raw
        seconds = connection.gettimeout()
        self._deadline = None if seconds is None else time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out within an answer")
            self._socket.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_Stream(sock, self.fp.detach()))


class _Http(HTTPConnection):
    response_class = _Response


class _Https(HTTPSConnection):
    response_class = _Response


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _Http


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _Https

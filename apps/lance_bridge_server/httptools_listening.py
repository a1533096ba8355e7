"""uvicorn's protocol on httptools, which needs half of the time of h11, with a limit of headers."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .listening import HEADER_BYTES, WatchedProtocol


class HttpTools(WatchedProtocol, HttpToolsProtocol):  # type: ignore[misc]  # uvicorn has other types
    """The protocol where httptools is installed. It collects headers and trailers of any size."""

    _unparsed = 0
    """Bytes that came since headers were complete, or a part of a body was."""

    def data_received(self, data: bytes) -> None:
        self._unparsed += len(data)
        super().data_received(data)
        if self._unparsed > HEADER_BYTES:
            self._unparsed = 0
            self.send_400_response("Invalid HTTP request received.")

    def on_headers_complete(self) -> None:
        self._unparsed = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        super().on_body(body)

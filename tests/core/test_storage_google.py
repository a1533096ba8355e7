"""A vended token for Google's storage reaches it: shown on a server that notes what it is asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from lance_bridge.storage.store import TableStorage

pytestmark = pytest.mark.quick

NOTHING = (
    b'<?xml version="1.0"?><ListBucketResult><Name>b</Name><KeyCount>0</KeyCount>'
    b"<IsTruncated>false</IsTruncated></ListBucketResult>"
)


class EmptyBucket(HTTPServer):
    """Holds nothing, and notes who asks."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.asked: list[str | None] = []


class _Answer(BaseHTTPRequestHandler):
    server: EmptyBucket

    def do_GET(self) -> None:
        self.server.asked.append(self.headers.get("Authorization"))
        self.send_response(200)
        self.send_header("Content-Length", str(len(NOTHING)))
        self.end_headers()
        self.wfile.write(NOTHING)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def bucket() -> Iterator[EmptyBucket]:
    with EmptyBucket() as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        yield server
        server.shutdown()
        serving.join()


def test_a_vended_token_is_sent(bucket: EmptyBucket) -> None:
    account = {
        "gcs_base_url": f"http://127.0.0.1:{bucket.server_port}",
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }
    options = {
        "google_service_account_key": json.dumps(account),
        "allow_http": "true",
        "google_storage_token": "vended",
        "expires_at_millis": "1",
    }
    assert not TableStorage(options).is_occupied("gs://bucket/t.lance")
    assert bucket.asked == ["Bearer vended"]

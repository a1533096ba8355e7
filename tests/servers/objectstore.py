"""An S3 that is not S3: moto in a process of its own, for tests that read and write objects."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, TypeVar

import boto3
from botocore.config import Config

from .processes import end

_HOST = "127.0.0.1"
_START_SECONDS = 60.0

ACCESS_KEY = "test-access-key"
SECRET_KEY = "test-secret-key"
REGION = "us-east-1"

# moto says where it listens only in its log, so the port is chosen by the child itself.
_SERVE = """
import sys
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app),
                     threaded=True)
with open(sys.argv[1] + ".part", "w") as file:
    file.write(str(server.server_port))
import os
os.replace(sys.argv[1] + ".part", sys.argv[1])
server.serve_forever()
"""


_Server = TypeVar("_Server", bound="MotoServer")


class MotoServer:
    """A context manager around one moto server on a free port of this machine.

    Nothing in it ever fails of its own accord; what it holds is gone when it stops.
    """

    def __init__(self) -> None:
        self._directory: TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def endpoint(self) -> str:
        """Where it answers: ``http://127.0.0.1:PORT``."""
        return f"http://{_HOST}:{self._port}"

    @property
    def storage_options(self) -> dict[str, str]:
        """Options for Lance and obstore; with ``storage.`` before each, for a namespace."""
        return {
            "aws_access_key_id": ACCESS_KEY,
            "aws_secret_access_key": SECRET_KEY,
            "aws_region": REGION,
            "aws_endpoint": self.endpoint,
            "allow_http": "true",
        }

    def make_bucket(self, name: str) -> str:
        """Make a bucket and return its URI, ``s3://NAME``."""
        self.client.create_bucket(Bucket=name)
        return f"s3://{name}"

    def put(self, bucket: str, key: str, body: bytes = b"x") -> None:
        """Write one object under exactly this key."""
        self.client.put_object(Bucket=bucket, Key=key, Body=body)

    def keys(self, bucket: str) -> list[str]:
        """Return the keys of all objects in a bucket, sorted."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return sorted(item["Key"] for page in pages for item in page.get("Contents", ()))

    @contextmanager
    def refusing_credentials(self) -> Iterator[None]:
        """Check credentials for a while, without any known user: every request is refused."""
        self._require_credentials_after(b"0")
        try:
            yield
        finally:
            self._require_credentials_after(b"inf")

    def powerless_options(self) -> dict[str, str]:
        """Options of a known user who may do nothing once credentials are checked."""
        iam = self._client("iam")
        iam.create_user(UserName="powerless")
        key = iam.create_access_key(UserName="powerless")["AccessKey"]
        return {
            **self.storage_options,
            "aws_access_key_id": key["AccessKeyId"],
            "aws_secret_access_key": key["SecretAccessKey"],
        }

    def _require_credentials_after(self, requests: bytes) -> None:
        url = f"{self.endpoint}/moto-api/reset-auth"
        # As a form, which is what urllib says by default, moto would not see the body.
        request = urllib.request.Request(url, requests, {"Content-Type": "text/plain"})
        with urllib.request.urlopen(request, timeout=5) as answer:
            assert answer.status == 200

    @cached_property
    def client(self) -> Any:
        """Return a boto3 client, which knows nothing of what is under test."""
        return self._client("s3")

    def _client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
        )

    def __enter__(self: _Server) -> _Server:
        self._directory = TemporaryDirectory(prefix="moto-")
        port_file = Path(self._directory.name, "port")
        log = Path(self._directory.name, "log")
        try:
            with log.open("wb") as output:
                self._process = subprocess.Popen(
                    self._command(port_file),
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            self._await(port_file, log)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process; safe to repeat."""
        if self._process is not None:
            end(self._process)
            self._process = None
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    def _command(self, port_file: Path) -> list[str]:
        """Return what starts the server, which writes its port to the file once it listens."""
        return [sys.executable, "-c", _SERVE, str(port_file)]

    def _environment(self) -> dict[str, str]:
        return dict(os.environ)

    def _await(self, port_file: Path, log: Path) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            if port_file.exists():
                self._port = int(port_file.read_text())
                if self._answers():
                    return
            time.sleep(0.05)
        raise RuntimeError(f"moto did not start:\n{log.read_text(errors='replace')[-2000:]}")

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.endpoint}/moto-api/", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return False

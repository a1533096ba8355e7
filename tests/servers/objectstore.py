"""S3 that is not AWS's: servers in processes of their own, for tests of objects."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from .processes import ServerProcess

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


class S3Server(ServerProcess):
    """An S3 in a process of its own."""

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


class MotoServer(S3Server):
    """One moto server, in which nothing ever fails of its own accord. It checks no credentials."""

    health = "/moto-api/"

    def reset(self) -> None:
        """Remove all that it holds."""
        url = f"{self.endpoint}/moto-api/reset"
        with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=60) as done:
            assert done.status == 200

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
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200

    def _command(self, port_file: Path) -> list[str]:
        return [sys.executable, "-c", _SERVE, str(port_file)]

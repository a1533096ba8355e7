"""Object stores that are not a cloud's: S3 of moto; MinIO and Azurite, which check credentials."""

from __future__ import annotations

import base64
import ipaddress
import json
import os
import shutil
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from cryptography import x509
from server.certificates import Authority

from .processes import HOST, ServerProcess, free_port, inherited_owners

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
ROLE = "arn:aws:iam::123456789012:role/lance"
"""Any role is as good as another."""
_BINARY = Path(__file__).parents[2] / ".cache" / "minio" / "minio"
needs_minio = pytest.mark.skipif(not _BINARY.exists(), reason="no MinIO: make stores")
ACCOUNT = "devstoreaccount1"
_PROGRAM = Path(__file__).parents[2] / ".cache/azurite/node_modules/azurite/dist/src/blob/main.js"
_NODE = shutil.which("node")
_TENANT = "11111111-1111-1111-1111-111111111111"
_LIFE_SECONDS = 3600
needs_azurite = pytest.mark.skipif(
    not (_NODE and _PROGRAM.exists()), reason="no Azurite: make stores"
)


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


# -- MinIO -----------------------------------------------------------------------------------------


class MinioServer(S3Server):
    """A context manager around one server, with one user who may do anything."""

    health = "/minio/health/ready"

    @cached_property
    def sts(self) -> Any:
        """A boto3 client of STS."""
        return self._client("sts")

    def session_options(self, policy: str) -> dict[str, str]:
        """Return options for Lance with the credentials of a session under a policy."""
        answer = self.sts.assume_role(
            RoleArn=ROLE, RoleSessionName="test", DurationSeconds=900, Policy=policy
        )
        credentials = answer["Credentials"]
        return {
            **self.storage_options,
            "aws_access_key_id": credentials["AccessKeyId"],
            "aws_secret_access_key": credentials["SecretAccessKey"],
            "aws_session_token": credentials["SessionToken"],
        }

    def _command(self, port_file: Path) -> list[str]:
        port_file.write_text(str(port := free_port()))
        data = self.directory / "data"
        return [str(_BINARY), "server", "--quiet", "--address", f"{HOST}:{port}", str(data)]

    def _environment(self) -> dict[str, str]:
        return {
            **inherited_owners(),
            "HOME": str(self.directory),  # for certificates
            "MINIO_ROOT_USER": ACCESS_KEY,
            "MINIO_ROOT_PASSWORD": SECRET_KEY,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
        }


# -- Azurite ---------------------------------------------------------------------------------------


class AzuriteServer(ServerProcess):
    """A context manager around one server, which speaks TLS: it takes no tokens without."""

    @property
    def endpoint(self) -> str:
        """Where the account is: ``https://127.0.0.1:PORT/devstoreaccount1``."""
        return f"https://{HOST}:{self._port}/{ACCOUNT}"

    @cached_property
    def authority(self) -> Authority:
        """Who has signed its certificate."""
        return Authority(self.directory)

    @property
    def storage_options(self) -> dict[str, str]:
        """Options for Lance, without credentials."""
        return {
            "azure_storage_account_name": ACCOUNT,
            "azure_endpoint": self.endpoint,
            "allow_invalid_certificates": "true",
        }

    def _command(self, port_file: Path) -> list[str]:
        assert _NODE is not None
        port_file.write_text(str(port := free_port()))
        host = x509.IPAddress(ipaddress.ip_address(HOST))
        certificate, key = self.authority.issue("azurite", names=[host])
        options = {
            "blobHost": HOST,
            "blobPort": str(port),
            "location": str(self.directory),
            "oauth": "basic",
            "cert": str(certificate),
            "key": str(key),
        }
        flags = ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
        pairs = [part for name, value in options.items() for part in (f"--{name}", value)]
        return [_NODE, str(_PROGRAM), *pairs, *flags]

    def _environment(self) -> dict[str, str]:
        own = {"PATH": os.environ["PATH"], "HOME": str(self.directory)}
        return {**inherited_owners(), **own}

    def _answers(self) -> bool:
        try:
            socket.create_connection((HOST, self._port), timeout=5).close()
        except OSError:
            return False
        return True


def oauth_token() -> str:
    """Return a token that Azurite accepts."""
    now = int(time.time())
    claims = {
        "aud": "https://storage.azure.com",
        "iss": f"https://sts.windows.net/{_TENANT}/",
        "nbf": now - 60,
        "iat": now - 60,
        "exp": now + _LIFE_SECONDS,
        "oid": "22222222-2222-2222-2222-222222222222",
        "tid": _TENANT,
        "ver": "1.0",
    }
    return ".".join([_encoded({"alg": "none", "typ": "JWT"}), _encoded(claims), "c2ln"])


def _encoded(part: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()

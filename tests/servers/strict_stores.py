"""MinIO and Azurite: object stores that check credentials. `make stores` builds and fetches them.

MinIO has S3, and STS that enforces session policies. It runs as a program of its own, and is no
part of what is shipped (its licence is AGPL-3.0). Its last public sources are used, which enforce
session policies also for the user who may do anything. What is not as on AWS:

- AssumeRole gives a session of the calling user, here the one of `ACCESS_KEY`, who may do anything:
  any role is accepted, and the session policy alone says what a session may do. A life of less
  than 900 seconds is refused.
- ``${*}``, ``${?}`` and ``${$}`` in a resource are no escapes: such a resource matches nothing.

Azurite is an Azure Blob Storage that checks SAS and OAuth tokens. What is not as on Azure:

- Any token of OAuth with the right audience, tenant and times is accepted, whoever signed it: it
  gives user delegation keys, and may do anything.
- There is no hierarchical namespace. A SAS for a directory (``sr=d``) is not known, and refused for
  everything, so that only SAS for a container or a blob can show what they allow.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import os
import shutil
import socket
import time
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from server.certificates import Authority

from .objectstore import ACCESS_KEY, SECRET_KEY, S3Server
from .processes import HOST, ServerProcess, free_port, inherited_owners

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

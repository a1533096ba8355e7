"""MinIO: S3 and STS that check signatures and enforce session policies. `make stores` builds it.

It runs as a program of its own, and is no part of what is shipped (its licence is AGPL-3.0). Its
last public sources are used, which enforce session policies also for the user who may do anything.

What is not as on AWS:

- AssumeRole gives a session of the calling user, here the one of `ACCESS_KEY`, who may do anything:
  any role is accepted, and the session policy alone says what a session may do. A life of less
  than 900 seconds is refused.
- ``${*}``, ``${?}`` and ``${$}`` in a resource are no escapes: such a resource matches nothing.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from .objectstore import ACCESS_KEY, SECRET_KEY, S3Server
from .processes import HOST, free_port, inherited_owners

ROLE = "arn:aws:iam::123456789012:role/lance"
"""Any role is as good as another."""
_BINARY = Path(__file__).parents[2] / ".cache" / "minio" / "minio"

needs_minio = pytest.mark.skipif(not _BINARY.exists(), reason="no MinIO: make stores")


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

"""An AWS that is not AWS: Glue, S3, STS and IAM of moto, with Glue held to AWS's documentation.

`servers.moto_app` says what of it is moto's and what is ours. The server counts nothing and slows
nothing down, so it is what a benchmark measures against; to count requests or to break them, put a
`servers.http_proxy.HttpProxy` in front of it.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from servers.object_stores import ACCESS_KEY, REGION, SECRET_KEY, MotoServer

__all__ = ["ACCESS_KEY", "ACCOUNT", "REGION", "ROLE", "SECRET_KEY", "GlueServer"]

ACCOUNT = "123456789012"
"""The account of all callers, and so the catalog of those who name none."""
ROLE = f"arn:aws:iam::{ACCOUNT}:role/lance"
"""A role that anybody may assume."""

_TESTS = Path(__file__).parents[1]


class GlueServer(MotoServer):
    """A context manager around one server; what it holds is gone when it stops."""

    def __init__(self) -> None:
        super().__init__()
        self._now: dict[str, Any] = {}

    @property
    def properties(self) -> dict[str, str]:
        """Connection properties of a namespace on it, without ``root`` and ``storage.*``."""
        return {
            "region": REGION,
            "endpoint": self.endpoint,
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
        }

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which AWS's own clients in another process use it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        }

    @cached_property
    def glue(self) -> Any:
        """A raw boto3 client of Glue, which knows nothing of what is under test."""
        return self._client("glue")

    @contextmanager
    def small_pages(self, size: int) -> Iterator[None]:
        """Let Glue's pages hold no more than ``size`` entries for a while."""
        with self._controls(page_size=size):
            yield

    @contextmanager
    def short_sessions(self, seconds: float) -> Iterator[None]:
        """For a while, let new sessions end so soon, and refuse those that have ended.

        Requests without a session are accepted by `ACCESS_KEY` alone.
        """
        with self._controls(session_seconds=seconds, require_keys=[ACCESS_KEY]):
            yield

    @contextmanager
    def known_keys_only(self) -> Iterator[None]:
        """For a while, refuse requests by keys that are unknown or have expired."""
        with self._controls(require_keys=[ACCESS_KEY]):
            yield

    def end_sessions(self) -> None:
        """End all sessions that there are, whatever they say of their expiration.

        Noticed within `short_sessions` and `known_keys_only`, whose settings stay as they are.
        """
        self._set(**self._now, end_sessions=True)

    @contextmanager
    def _controls(self, **controls: Any) -> Iterator[None]:
        before = self._now
        self._now = {**before, **controls}
        self._set(**self._now)
        try:
            yield
        finally:
            self._now = before
            self._set(**before)

    def _set(self, **controls: Any) -> None:
        request = urllib.request.Request(
            f"{self.endpoint}/controls", json.dumps(controls).encode(), method="PUT"
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 204

    def _command(self, port_file: Path) -> list[str]:
        return [sys.executable, "-m", "servers.moto_app", str(port_file)]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(_TESTS)}

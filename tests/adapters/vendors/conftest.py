"""Fixtures for tests of the vendors: an AWS that is not AWS, and nothing of this machine's user."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers.glue_server import GlueServer

from ..glue.conftest import no_environment  # noqa: F401 - a fixture that all tests use
from .grants import BUCKET


@pytest.fixture(scope="session")
def aws() -> Iterator[GlueServer]:
    """The server that tests share: S3 and STS."""
    with GlueServer() as running:
        running.make_bucket(BUCKET)
        yield running

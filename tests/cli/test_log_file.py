"""The log file of a migration: stacks of failures, and no secret in any of them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from lance_bridge_migrate.commands.progress import log_file

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    "secret",
    [
        "jdbc:mysql://ann:hunter2@db/x",
        "token=hunter2",
        "Authorization: Bearer hunter2hunter2",
        "dapi0123456789abcdef0123456789abcdef",
    ],
)
def test_no_secret_of_a_failure_is_in_the_log_file(tmp_path: Path, secret: str) -> None:
    logger = logging.getLogger("lance_bridge_migrate.run")
    with log_file(tmp_path) as path:
        try:
            raise ValueError(secret)
        except ValueError:
            logger.exception("table sales.orders failed: %s", secret)
    text = path.read_text()
    assert "ValueError" in text
    assert "sales.orders" in text
    assert secret not in text
    assert "hunter2" not in text

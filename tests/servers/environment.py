"""The environment of tests, without what the machine's user has set."""

from __future__ import annotations

import os

import pytest

CLOUDS = ("AWS_", "DATABRICKS_")
KEPT = ("LANCE_BRIDGE_TEST_", "LANCE_BRIDGE_CACHE")


def remove_settings(patch: pytest.MonkeyPatch, *more: str) -> None:
    """Keep settings of the user out of tests, and out of the processes that they start.

    Args:
        more: Beginnings of names, besides those of AWS and Databricks.
    """
    for variable in list(os.environ):
        if variable.startswith((*CLOUDS, *more)) and not variable.startswith(KEPT):
            patch.delenv(variable)
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    patch.setenv("DATABRICKS_CONFIG_FILE", "/nonexistent")

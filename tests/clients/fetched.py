"""Clients in other languages, which ``make test`` fetches into ``.cache``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

_CACHE = Path(__file__).parents[2] / ".cache"


def node_packages() -> Path:
    """Return the directory with LanceDB for Node.js; skip the test where it is not."""
    return _fetched("npm", _CACHE / "node")


def java_client() -> Path:
    """Return the directory with the jars of the Java client; skip the test where it is not."""
    return _fetched("mvn", _CACHE / "java-client")


def _fetched(tool: str, directory: Path) -> Path:
    if (directory / ".complete").exists():
        return directory
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    pytest.skip(f"make {directory.relative_to(_CACHE.parent)}/.complete has not run")

"""Clients that are installed apart: what ``make test`` fetches into ``.cache``, and DuckDB's."""

from __future__ import annotations

import importlib.util
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


def extension_file() -> Path:
    """Return the extension that the installed release of DuckDB loads."""
    found = importlib.util.find_spec("duckdb_extension_lance")
    assert found is not None
    assert found.origin is not None
    [file] = Path(found.origin).parent.glob("extensions/*/lance.duckdb_extension")
    return file

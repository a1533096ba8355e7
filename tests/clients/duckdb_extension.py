"""DuckDB's extension for Lance, as the package ``duckdb-extension-lance`` has it."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def extension_file() -> Path:
    """Return the extension that the installed release of DuckDB loads."""
    found = importlib.util.find_spec("duckdb_extension_lance")
    assert found is not None
    assert found.origin is not None
    [file] = Path(found.origin).parent.glob("extensions/*/lance.duckdb_extension")
    return file

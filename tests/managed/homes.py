"""New catalogs and namespaces for tables of tests, in a configuration of their own."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance_namespace as api

import lance_bridge


@dataclass(frozen=True)
class Home:
    """A catalog by its name in the configuration, and the namespace of a table in it."""

    catalog: str
    namespace: list[str]
    other: str
    """Another catalog, which has no namespace yet."""


def new_home(directory: Path, properties: Mapping[str, str] | None = None) -> Home:
    """Return a new namespace in ``prod`` of a new configuration.

    Args:
        properties: Those of the catalog, with ``impl``; a new one in a SQLite file without.
    """
    root = directory / uuid.uuid4().hex[:8]
    root.mkdir()
    sqlite = {"impl": "lance_catalog_sqlite.SqliteNamespace"}
    given = {
        "prod": {**(properties or {**sqlite, "file": f"{root}/prod.db"}), "root": f"{root}/prod"},
        "other": {**sqlite, "file": f"{root}/other.db", "root": f"{root}/other"},
    }
    config = root / "config.yaml"
    config.write_text(json.dumps({"catalogs": given}))  # which is YAML, too
    os.environ["LANCE_BRIDGE_CONFIG"] = str(config)
    home = Home("prod", [f"db_{root.name}"], "other")
    connected: Any = lance_bridge.connect("prod")
    with connected as ns:
        ns.create_namespace(api.CreateNamespaceRequest(id=home.namespace))
    return home

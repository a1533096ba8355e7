"""What tests of the Unity adapter share."""

from __future__ import annotations

from collections.abc import Callable

from lance_bridge.catalog import TableRecord
from lance_bridge_unity.catalog import UnityCatalog

Connect = Callable[..., UnityCatalog]
"""Makes catalogs with these properties."""

API = "/api/2.1/unity-catalog"
ID = "lance_bridge.id"
TABLE = ("c", "s", "t")


def record(name: str = "t", own: str = "1", root: str = "file:///data", **more: str) -> TableRecord:
    """Return a Lance table in the schema ``c.s``, with this id."""
    return TableRecord(
        (*TABLE[:2], name), f"{root}/{name}", {"table_type": "lance", ID: own, **more}
    )

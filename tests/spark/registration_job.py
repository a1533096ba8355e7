"""What a session says that was started with the wrong Python; called through `sparks`."""

from __future__ import annotations

from typing import Any

from lance_namespace.errors import UnsupportedOperationError

from lance_bridge_spark import register


def refusal(spark: Any) -> str:
    """Register a catalog; return why that is refused."""
    try:
        register(spark, {"prod": {"impl": "hive", "uri": "thrift://localhost:1"}})
    except UnsupportedOperationError as error:
        return str(error)
    return ""

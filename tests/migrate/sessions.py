"""Sessions of Spark in processes of their own, whose catalog is a real metastore."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from servers.sparks import Spark

_SECONDS = 1400.0


def hive_session(uri: str, module: str, directory: Path, names: Sequence[str]) -> dict[str, str]:
    """Do checks of a module in one session; return the traces of those that fail."""
    spark = Spark(
        conf={
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.hive.metastore.uris": uri,
            "spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict",
        }
    )
    arguments: dict[str, Any] = {"uri": uri, "directory": str(directory), "names": list(names)}
    found: dict[str, str] = spark.run(f"{module}:run", directory, seconds=_SECONDS, **arguments)
    return found

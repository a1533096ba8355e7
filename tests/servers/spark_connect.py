"""Becomes a Spark Connect server: ``python -m servers.spark_connect SETTINGS MASTER``.

The settings are JSON. The process is replaced by ``spark-submit`` of the PySpark that this Python
imports, so that ending it ends the server.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pyspark

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


def command(settings: dict[str, str], master: str) -> list[str]:
    """Return the command line of a server on a free port of 127.0.0.1."""
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    own = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }
    pairs = [f"{key}={value}" for key, value in {**settings, **own}.items()]
    given = [part for pair in pairs for part in ("--conf", pair)]
    return [str(submit), "--master", master, "--class", _CLASS, *given, "spark-internal"]


if __name__ == "__main__":
    line = command(json.loads(sys.argv[1]), sys.argv[2])
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.execv(line[0], line)

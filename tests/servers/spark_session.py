"""Processes of `servers.sparks`: one calls a function with a session, one is a Connect server.

``python -m servers.spark_session ANSWER`` takes the task as JSON on standard input. ``--connect
SETTINGS MASTER``, with settings in JSON, becomes ``spark-submit`` of the PySpark that this Python
imports, so that ending the process ends the server.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


def session(master: str, conf: Mapping[str, str]) -> SparkSession:
    """Return a session on a master, or of a server where it is an address ``sc://…``."""
    builder = SparkSession.builder
    builder = builder.remote(master) if master.startswith("sc://") else builder.master(master)
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main(answer: Path, task: Mapping[str, Any]) -> None:
    """Do a task and write what came of it."""
    module, _, name = task["function"].partition(":")
    function = getattr(importlib.import_module(module), name)
    spark = session(task["master"], task["conf"])
    try:
        result = function(spark, **task["arguments"])
    finally:
        spark.stop()
    part = answer.with_suffix(".part")
    part.write_text(json.dumps(result), encoding="utf-8")
    os.replace(part, answer)


def serve(settings: dict[str, str], master: str) -> None:
    """Become a Spark Connect server on a free port of 127.0.0.1."""
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    own = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }
    pairs = [f"{key}={value}" for key, value in {**settings, **own}.items()]
    given = [part for pair in pairs for part in ("--conf", pair)]
    line = [str(submit), "--master", master, "--class", _CLASS, *given, "spark-internal"]
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.execv(line[0], line)


if __name__ == "__main__":
    if sys.argv[1] == "--connect":
        serve(json.loads(sys.argv[2]), sys.argv[3])
    main(Path(sys.argv[1]), json.load(sys.stdin))

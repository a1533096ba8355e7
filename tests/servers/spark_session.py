"""The process in which `servers.sparks` calls a function with a session.

Called as ``python -m servers.spark_session ANSWER``, with the task as JSON on standard input.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


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


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.load(sys.stdin))

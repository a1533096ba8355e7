"""Tests that start servers and wait to be ended; run by `servers.test_lifetimes` alone.

``LIFETIMES_READY`` is a directory in which each test makes a file once its servers run.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from server.gateways import GatewayProcess

from lance_bridge_metastore import Metastore
from servers.glue_server import GlueServer
from servers.unity.server import UnityProcess

from .processes import wait_until
from .sparks import Spark

pytestmark = pytest.mark.slow

_SECONDS = 600.0
"""No test waits longer, where nothing ends it."""


def test_in_python(tmp_path: Path) -> None:
    with GlueServer(), UnityProcess(), GatewayProcess(tmp_path / "log", *_arguments(tmp_path)):
        _wait_to_be_ended("python")


def test_in_java(tmp_path: Path) -> None:
    started = tmp_path / "started"
    with ExitStack() as stack:
        stack.enter_context(Metastore("2.3", tmp_path / "hms"))
        function = "servers.lifetimes_suite:use_spark"
        stack.enter_context(Spark().start(function, tmp_path / "spark", started=str(started)))
        wait_until(started.exists)
        _wait_to_be_ended("java")


def use_spark(spark: Any, started: str) -> None:
    """Be what a session is for, until it is ended."""
    assert spark.range(3).count() == 3
    Path(started).touch()
    time.sleep(_SECONDS)


def _arguments(directory: Path) -> list[str]:
    """Return arguments for a gateway with worker processes."""
    catalog = {"impl": "dir", "root": str(directory / "lake")}
    settings = {"catalogs": {"files": catalog}, "workers": 2}
    (directory / "server.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    return ["--config", str(directory / "server.yaml")]


def _wait_to_be_ended(name: str) -> None:
    (Path(os.environ["LIFETIMES_READY"]) / name).touch()
    time.sleep(_SECONDS)

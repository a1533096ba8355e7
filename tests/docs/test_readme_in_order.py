"""README and the first pages, in order, on an empty system: a new metastore, an empty home.

Every snippet and every command runs, but for the project's own tests, and what installs packages
(`tests/install/test_wheel.py`). Addresses and absolute paths are those of the test.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from servers.processes import end
from servers.sparks import ROOT, SHORT_JVM

from lance_bridge_hive import HiveNamespace

from .gateway_pages import REPOSITORY, Block, blocks

pytestmark = [
    pytest.mark.spec(
        "docs/how-to/migrate.md#every-migration",
        "docs/how-to/spark.md#what-was-run",
        "migration.md#convert",
    ),
]

START = REPOSITORY / "docs" / "start.md"
IN_SPARK = REPOSITORY / "docs" / "how-to" / "spark.md"
README = REPOSITORY / "README.md"
MIGRATE = REPOSITORY / "docs" / "how-to" / "migrate.md"
NOT_RUN = ("pip install ", "make ")
METASTORE = "lance-bridge metastore start "
SERVE = "lance-bridge serve "
ADDRESS = re.compile(r"(?:localhost|metastore):9083")
SERVED = "localhost:2333"
MIGRATION = re.compile(r"\d{8}-\d{6}-([a-z-]+)-[0-9a-f]{6}")
SPARK_DEFAULTS = """
spark.ui.enabled false
spark.driver.memory 1g
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.sql.shuffle.partitions 2
"""
UNWANTED = ("LANCE_BRIDGE_", "SPARK_", "PYSPARK_", "HADOOP_", "HIVE_", "AWS_", "DATABRICKS_")
"""How variables begin that a new user has not set."""
CACHE = "LANCE_BRIDGE_CACHE"


@dataclass
class NewUser:
    """Follows pages in a home directory; ``said`` has what each command printed."""

    home: Path
    port: str = ""
    served: str = SERVED
    running: list[subprocess.Popen[str]] = field(default_factory=list)
    program: subprocess.Popen[str] | None = None
    migrations: dict[str, str] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)

    def follow(self, block: Block) -> None:
        """Run a block, and check what it prints and its exit code."""
        if block.language != "sh":
            self.run_snippets([block])
        for line in block.text.splitlines() if block.language == "sh" else ():
            for command in line.split(" && "):
                self._command(command)

    def run_snippets(self, parts: list[Block]) -> None:
        """Run snippets that go on from one another, and check what they print."""
        _, printed, _ = self._run([[each.language, self._here(each.text)] for each in parts])
        expected = [line for each in parts for line in each.printed]
        assert printed.splitlines() == expected, printed

    def _command(self, text: str) -> None:
        if text.startswith(NOT_RUN):
            return
        if text.startswith(METASTORE):
            uri = self._start(text.replace("--port 9083", "--port 0"), "thrift://")
            self.port = uri.rpartition(":")[2]
            return
        if text.startswith(SERVE):
            self.served = self._start(f"{self._here(text)} --port 0", "http://")
            return
        code, out, error = self._run(shlex.split(self._here(text))[1:])
        assert code == 0, f"{text}\n{out}\n{error}"
        self.said[" ".join(text.split()[:3])] = out
        for found in MIGRATION.finditer(out):
            self.migrations[found[1]] = found[0]

    def _start(self, text: str, scheme: str) -> str:
        """Start what runs until Ctrl-C; return the address that it prints, without the scheme."""
        # The program itself, and no shell around it, which Ctrl-C would have to reach as well.
        words = text.split()
        started = subprocess.Popen(
            [str(Path(sys.executable).with_name(words[0])), *words[1:]],
            cwd=self.home,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.running.append(started)
        assert started.stdout is not None
        return next(
            line.strip().removeprefix(scheme) for line in started.stdout if line.startswith(scheme)
        )

    def _run(self, task: list[Any]) -> tuple[int, str, str]:
        """Have `docs.snippet_processes` do a task."""
        if self.program is None:
            self.program = subprocess.Popen(
                [sys.executable, "-m", "docs.snippet_processes"],
                cwd=self.home,
                env={**self.environment, "PYTHONPATH": str(ROOT / "tests")},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self.program.stdin is not None
        assert self.program.stdout is not None
        self.program.stdin.write(json.dumps(task) + "\n")
        self.program.stdin.flush()
        code, out, error = json.loads(self.program.stdout.readline())
        return code, out, error

    def _here(self, text: str) -> str:
        """Return a text with the addresses, directories and identifiers that there are here."""
        text = ADDRESS.sub(f"127.0.0.1:{self.port}", text).replace(SERVED, self.served)
        text = text.replace("/data/", f"{self.home}/data/")
        return MIGRATION.sub(lambda match: self.migrations.get(match[1], match[0]), text)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a terminal where the virtual environment is active."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(UNWANTED) or k == CACHE}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {
            **kept,
            "HOME": str(self.home),
            "PATH": path,
            "SPARK_CONF_DIR": str(self.home / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            **SHORT_JVM,
        }


@pytest.fixture
def user(tmp_path: Path) -> Iterator[NewUser]:
    (tmp_path / "conf").mkdir()
    defaults = f"{SPARK_DEFAULTS}spark.local.dir {tmp_path}\n"
    (tmp_path / "conf" / "spark-defaults.conf").write_text(defaults, encoding="utf-8")
    made = NewUser(tmp_path)
    yield made
    if made.program is not None:
        end(made.program)
    for each in reversed(made.running):
        each.send_signal(signal.SIGINT)
        try:
            assert each.wait(60) == 0
        finally:
            each.kill()


def add_orders(home: Path) -> None:
    """Add a row to the Parquet table ``sales.orders``, as its own writers would."""
    [directory] = [path for path in home.rglob("orders") if path.is_dir()]
    schema = pq.read_schema(next(directory.glob("*.parquet")))
    rows = [{"id": 4, "article": 2, "amount": Decimal("9.0")}]
    pq.write_table(pa.Table.from_pylist(rows, schema), directory / "more.parquet")


@pytest.mark.documents
def test_the_readme_runs_from_top_to_bottom_on_an_empty_system(user: NewUser) -> None:
    for block in blocks(START):
        user.follow(block)
    in_spark = [each for each in blocks(IN_SPARK) if each.language in ("python", "sql")]
    assert len(in_spark) > 3
    user.run_snippets(in_spark)
    for name in ("first", "second"):
        lance.write_dataset(pa.table({"id": [1]}), user.home / "data" / "tables" / f"{name}.lance")
    for block in [*blocks(README), *blocks(MIGRATE)]:
        user.follow(block)
        if "migrate verify" in block.text and "convert" in block.text:
            add_orders(user.home)
    _check(user)


def _check(user: NewUser) -> None:
    """Check what the commands said, and what is there in the end."""
    assert "films.silent" in user.said["lance-bridge table list"]
    assert "Nothing was changed" in user.said["lance-bridge migrate convert"]
    exported = pq.read_table(user.home / "data" / "parquet" / "sales" / "orders_lance")
    assert sorted(exported["id"].to_pylist()) == [1, 2, 3, 4]
    with HiveNamespace(uri=f"thrift://127.0.0.1:{user.port}") as namespace:
        left = lance.dataset(namespace_client=namespace, table_id=["sales", "orders_lance"])
        assert left.count_rows() == 3, "the catch-up was undone, and the conversion was not"

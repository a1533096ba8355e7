"""The README from its first line to its last, on an empty system: a new metastore, an empty home.

Every snippet and every command runs, but for what installs packages (`test_clean_installs`), the
project's own tests, and the kit (`test_kit_command`). Addresses and absolute paths are those of the
test.
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
import yaml
from servers.processes import end
from servers.sparks import ROOT, SHORT_JVM

from lance_bridge_hive import HiveNamespace

from .test_readme import README, printed_by

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.timeout(1500)]

NOT_RUN = ("pip install ", "make ", "python -m lance_bridge.testing ")
METASTORE = "lance-bridge metastore start "
SERVE = "lance-bridge serve "
EXITS = {"lance-bridge managed check": 3}
"""Commands that find something."""
ADDRESS = re.compile(r"(?:localhost|metastore):9083")
SERVED = "localhost:2333"
MIGRATION = re.compile(r"\d{8}-\d{6}-([a-z-]+)-[0-9a-f]{6}")
BLOCK = re.compile(
    r"^## (?P<section>[^\n]*)$"
    r"|^```(?P<language>\w+)\n(?P<text>.*?)^```$"
    r"|^    (?P<command>\S[^\n]*)$",
    re.MULTILINE | re.DOTALL,
)
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


@dataclass(frozen=True)
class Block:
    """A snippet in ``python``, ``sql`` or ``yaml``, or one command (``sh``), and its section."""

    language: str
    text: str
    section: str


def blocks(text: str) -> list[Block]:
    """Return the snippets and commands of a document, in order."""
    found, section = [], ""
    for match in BLOCK.finditer(text):
        if match["section"] is not None:
            section = match["section"]
        elif match["language"] is not None:
            found.append(Block(match["language"], match["text"], section))
        else:
            found.append(Block("sh", match["command"], section))
    return found


@dataclass
class NewUser:
    """Follows the README in a home directory; ``said`` has what each command printed."""

    home: Path
    port: str = ""
    served: str = SERVED
    running: list[subprocess.Popen[str]] = field(default_factory=list)
    program: subprocess.Popen[str] | None = None
    migrations: dict[str, str] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)

    def follow(self, block: Block) -> None:
        """Run a block, and check what it prints and its exit code."""
        if block.language == "yaml":
            written = (self.home / ".lance-bridge.yaml").read_text(encoding="utf-8")
            assert yaml.safe_load(written) == yaml.safe_load(self._here(block.text))
        elif block.language == "sh":
            self._command(block.text)
        else:
            self.run_snippets([block])

    def run_snippets(self, parts: list[Block]) -> None:
        """Run snippets that go on from one another, and check what they print."""
        _, printed, _ = self._run([[each.language, self._here(each.text)] for each in parts])
        expected = [line for each in parts for line in printed_by(each.text)]
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
        words = shlex.split(self._here(text))[1:]
        file = words.pop() if words[-2] == ">" else None
        code, out, error = self._run([each for each in words if each != ">"])
        name = " ".join(text.split()[:3])
        assert code == EXITS.get(name, 0), f"{text}\n{out}\n{error}"
        if file:
            (self.home / file).write_text(out, encoding="utf-8")
        self.said[name] = out
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
        """Have `docs.readme_program` do a task."""
        if self.program is None:
            self.program = subprocess.Popen(
                [sys.executable, "-m", "docs.readme_program"],
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
        text = text.replace("/data/", f"{self.home}/data/").replace("/shared/", f"{self.home}/")
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
    todo = blocks(README)
    assert {each.language for each in todo} == {"python", "sql", "yaml", "sh"}
    in_spark = [each for each in todo if each.section == "In Spark"]
    assert len(in_spark) > 3
    for block in todo:
        if block not in in_spark:
            user.follow(block)
        elif block is in_spark[0]:
            user.run_snippets(in_spark)
        if block.text.startswith("lance-bridge migrate verify"):
            add_orders(user.home)
    _check(user)


def _check(user: NewUser) -> None:
    """Check what the commands said, and what is there in the end."""
    assert "sales.articles" in user.said["lance-bridge table list"]
    assert "version 3 is quarantined" in user.said["lance-bridge managed check"]
    assert '"amount": 2' in user.said["lance-bridge table query"]
    assert "Nothing was changed" in user.said["lance-bridge migrate convert"]
    assert "checksums" in user.said["lance-bridge migrate verify"]
    exported = pq.read_table(user.home / "data" / "parquet" / "sales" / "orders_lance")
    assert sorted(exported["id"].to_pylist()) == [1, 2, 3, 4]
    with HiveNamespace(uri=f"thrift://127.0.0.1:{user.port}") as namespace:
        left = lance.dataset(namespace_client=namespace, table_id=["sales", "orders_lance"])
        assert left.count_rows() == 3, "the catch-up was undone, and the conversion was not"


def test_blocks_come_in_the_order_of_the_document() -> None:
    text = "## A\n\n    one -x\n\n```python\n    two\n```\n\n## B\n\n```sql\nthree\n```\n"
    assert blocks(text) == [
        Block("sh", "one -x", "A"),
        Block("python", "    two\n", "A"),
        Block("sql", "three\n", "B"),
    ]

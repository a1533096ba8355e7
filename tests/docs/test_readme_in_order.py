"""The README from its first line to its last, on an empty system: a new metastore, an empty home.

Every snippet and every command runs, but for what installs packages (`test_clean_installs`) or runs
the project's own tests. Addresses and absolute paths are those of the test.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from lance_bridge_hive import HiveNamespace

from .test_readme import README, printed_by

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.timeout(1500)]

NOT_RUN = ("pip install ", "make ")
METASTORE = "lance-bridge metastore start "
SERVE = "lance-bridge serve "
KIT = "python -m lance_bridge.testing "
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
_SECONDS = 600.0


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
            self._python(block.text)

    def follow_in_spark(self, parts: list[Block]) -> None:
        """Run the blocks of a section one after another in one program, as they go on."""
        lines = []
        for part in parts:
            if part.language == "python":
                lines.append(part.text)
            for statement in part.text.split(";\n") if part.language == "sql" else ():
                lines.append(f"spark.sql({statement!r}).collect()\n")
        self._python("".join(lines))

    def _python(self, text: str) -> None:
        script = self.home / "snippet.py"
        script.write_text(self._here(text), encoding="utf-8")
        done = self._run([sys.executable, str(script)])
        assert done.returncode == 0, f"{text}\n{done.stderr[-5000:]}"
        assert done.stdout.splitlines() == printed_by(text), text

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
        here = self._here(text)
        if text.startswith(KIT):
            here += " -k rename"  # other tests run all of it
        done = self._run(["sh", "-c", here])
        name = " ".join(text.split()[:3])
        assert done.returncode == EXITS.get(name, 0), f"{here}\n{done.stdout}\n{done.stderr}"
        self.said[name] = done.stdout
        for found in MIGRATION.finditer(done.stdout):
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

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )

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
        }


@pytest.fixture
def user(tmp_path: Path) -> Iterator[NewUser]:
    (tmp_path / "conf").mkdir()
    defaults = f"{SPARK_DEFAULTS}spark.local.dir {tmp_path}\n"
    (tmp_path / "conf" / "spark-defaults.conf").write_text(defaults, encoding="utf-8")
    made = NewUser(tmp_path)
    yield made
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


def test_the_readme_runs_from_top_to_bottom_on_an_empty_system(user: NewUser) -> None:
    todo = blocks(README)
    in_spark = [each for each in todo if each.section == "In Spark"]
    assert {each.language for each in todo} == {"python", "sql", "yaml", "sh"}
    assert len(in_spark) > 3
    for block in todo:
        if block not in in_spark:
            user.follow(block)
        elif block is in_spark[0]:
            user.follow_in_spark(in_spark)
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

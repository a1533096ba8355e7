"""dbt, with dbt-spark in an environment of its own, by the files and commands of its page."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pytest
from docs.gateway_pages import blocks
from servers.metastores import Metastores
from servers.processes import inherited_owners, run_command
from servers.sparks import ROOT, SHORT_JVM

from lance_bridge_hive import HiveNamespace

pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(2000),
    pytest.mark.spec(
        "docs/how-to/dbt.md#run-it",
        "docs/how-to/dbt.md#snapshots",
        "docs/how-to/dbt.md#what-dbt-does-with-lance-tables",
        "spark.md#session-catalog",
    ),
]

PAGE = ROOT / "docs" / "how-to" / "dbt.md"
ENVIRONMENT = ROOT / ".cache" / "dbt"
NOT_MADE = "make .cache/dbt/.complete has not run"
DATABASE = "shop_models"
SECONDS = 900.0
"""Two minutes on a machine that does nothing else."""
_SNIPPET = re.compile(r"(.*?)^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`([\w./]+\.(?:csv|sql|yml))`")
_DEFAULTS = """
spark.ui.enabled false
spark.driver.bindAddress 127.0.0.1
spark.driver.host 127.0.0.1
spark.driver.memory 1g
spark.sql.shuffle.partitions 2
"""
NEXT_DAY = {
    "seeds/raw_customers.csv": "id,name,city\n1,Ada,Chur\n2,Bob,Basel\n3,Eve,Bern\n",
    "seeds/raw_orders.csv": (
        "id,customer_id,amount,changed_at\n"
        "1,1,2.5,2026-01-01 10:00:00\n"
        "2,1,5.0,2026-01-03 08:00:00\n"
        "3,2,8.5,2026-01-02 09:00:00\n"
        "4,3,1.0,2026-01-03 09:00:00\n"
    ),
}
"""Files that have changed: a customer moved, an order costs more, and there is one more of each."""
PARTITIONED = """
{{ config(materialized='table', partition_by='city') }}
select 1 as id, 'Bern' as city
"""


@dataclass(frozen=True)
class Project:
    """A project of dbt in a directory, and the catalog that has its tables."""

    directory: Path
    hive: HiveNamespace

    def write(self, path: str, text: str) -> None:
        file = self.directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def run(self, command: str, code: int = 0) -> str:
        """Run a command as in a shell where the environment is active; return what it printed."""
        return run_command(
            *("sh", "-eu", "-c", command),
            code=code,
            seconds=SECONDS,
            cwd=self.directory,
            env=self._variables,
            stdin=subprocess.DEVNULL,
        ).stdout

    @property
    def _variables(self) -> dict[str, str]:
        kept = {key: os.environ[key] for key in ("JAVA_HOME", "LANG") if key in os.environ}
        roots = (str(ROOT / name) for name in ("core", "adapters", "apps"))
        return {
            **kept,
            **inherited_owners(),
            **SHORT_JVM,
            "HOME": str(self.directory),
            "PATH": f"{ENVIRONMENT / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(roots),
            "SPARK_CONF_DIR": str(self.directory / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def dataset(self, name: str) -> lance.LanceDataset:
        """Open a table without Spark."""
        found = self.hive.describe_table(api.DescribeTableRequest(id=[DATABASE, name]))
        return lance.dataset(found.location)

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return all rows of a table, in the order of its values."""
        found = self.dataset(name).to_table(columns=[*columns] or None)
        return sorted(tuple(row.values()) for row in found.to_pylist())


def files() -> Iterator[tuple[str, str]]:
    """Yield the files of the page: the text before a snippet names its file last."""
    for before, language, snippet in _SNIPPET.findall(PAGE.read_text(encoding="utf-8")):
        if language != "sh":
            yield _FILE.findall(before)[-1], snippet


def command(section: str) -> str:
    """Return the commands below a heading of the page."""
    [found] = [each for each in blocks(PAGE) if each.section == section and each.language == "sh"]
    return found.text


RUN, SNAPSHOT = command("Run it"), command("Snapshots")
EXPORT = RUN.splitlines()[0]
"""What each new shell needs."""


@pytest.fixture(scope="module")
def project(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The files of the page, with the address of the metastore that there is here."""
    if not (ENVIRONMENT / ".complete").exists():
        pytest.skip(NOT_MADE)
    uri = metastores.get("2.3").uri
    with HiveNamespace(uri=uri) as hive:
        project = Project(tmp_path_factory.mktemp("shop"), hive)
        for path, text in files():
            project.write(path, text.replace("thrift://metastore:9083", uri))
        project.write("conf/spark-defaults.conf", _DEFAULTS)
        yield project


def test_the_page_is_followed_and_later_runs_change_the_tables(project: Project) -> None:
    project.run(RUN)
    project.run(f"{EXPORT}\n{SNAPSHOT}")
    _check_the_first_day(project)

    for path, text in NEXT_DAY.items():
        project.write(path, text)
    project.run(f"{EXPORT}\ndbt build && dbt docs generate")

    _check_the_next_day(project)
    catalog = (project.directory / "target" / "catalog.json").read_text(encoding="utf-8")
    nodes = json.loads(catalog)["nodes"]
    shown = {name: [*each["columns"]] for name, each in nodes.items()}
    assert shown["model.shop.orders"] == ["id", "customer_id", "amount", "changed_at"]
    assert shown["model.shop.city_totals"] == ["city", "amount"]
    assert shown["seed.shop.raw_customers"] == ["id", "name", "city"]


def test_what_a_model_cannot_have_is_refused(project: Project) -> None:
    project.write("models/partitioned.sql", PARTITIONED)
    project.write("models/odd.sql", "{{ config(materialized='incremental', file_format='odd') }}")
    try:
        printed = project.run(f"{EXPORT}\ndbt run --select partitioned odd", code=1)
    finally:
        for name in ("partitioned", "odd"):
            (project.directory / "models" / f"{name}.sql").unlink()
    assert "PARTITIONED BY" in printed
    assert "Invalid file format provided: odd" in printed


def _check_the_first_day(project: Project) -> None:
    assert project.rows("customers") == [(1, "Ada", "Bern"), (2, "Bob", "Basel")]
    assert project.rows("orders", "id", "amount") == [(1, 2.5), (2, 4.0), (3, 8.5)]
    assert project.rows("order_log") == [(1, 2.5), (2, 4.0), (3, 8.5)]
    assert [amount for _, amount in project.rows("daily")] == [6.5, 8.5]
    assert project.rows("customer_history", "id", "city") == [(1, "Bern"), (2, "Basel")]
    listed = project.hive.list_tables(api.ListTablesRequest(id=[DATABASE])).tables
    assert "city_totals" not in listed


def _check_the_next_day(project: Project) -> None:
    orders = [(1, 2.5), (2, 5.0), (3, 8.5), (4, 1.0)]
    assert project.rows("orders", "id", "amount") == orders
    assert project.rows("order_log", "id", "amount") == [(1, 2.5), (2, 4.0), (3, 8.5), (4, 1.0)]
    assert [day is not None for _, day in project.rows("order_log", "id", "added")] == [
        *(False, False, False),
        True,
    ]
    assert [amount for _, amount in project.rows("daily")] == [2.5, 8.5, 6.0]
    assert len(project.dataset("daily").versions()) == 2
    history = project.rows("customer_history", "id", "city", "dbt_valid_to")
    assert [(id, city, until is None) for id, city, until in history] == [
        (1, "Bern", False),
        (1, "Chur", True),
        (2, "Basel", True),
        (3, "Bern", True),
    ]

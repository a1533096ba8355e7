"""DropTable keeps the files of tables that real Spark made beside a Lance table."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidTableStateError
from migrate.sessions import beside
from servers.metastores import Metastores

from lance_bridge.testing.calls import Calls
from lance_bridge_hive import HiveNamespace

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spark,
    pytest.mark.spec("common.md#shared-locations"),
]

ROWS = pa.table({"id": [1, 2, 3]})
Made = tuple[Calls, str, dict[str, str]]


@pytest.fixture(scope="module")
def made(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """A client, a database of it, and the directories of Spark's tables by their names."""
    uri, directory = metastores.get("2.3").uri, tmp_path_factory.mktemp("neighbours")
    database = f"spark_{uuid.uuid4().hex[:8]}"
    found = beside(uri).run(
        "spark.neighbour_jobs:make_tables",
        directory / "spark",
        database=database,
        directory=str(directory / "lake"),
    )
    with closing(Calls(HiveNamespace(uri=uri))) as calls:
        yield calls, database, found


def files_of(directory: Path) -> set[Path]:
    return {each for each in directory.rglob("*") if each.is_file()}


@pytest.mark.parametrize("inside", ["", "day=1/mine.lance"])
def test_no_file_of_spark_s_tables_is_deleted(made: Made, inside: str) -> None:
    calls, database, directories = made
    assert len(directories) > 15
    for name, directory in directories.items():
        location = Path(directory, inside)
        lance.write_dataset(ROWS, location)
        before = files_of(Path(directory))
        mine = [database, f"mine_{name}_{len(inside)}"]
        calls.register_table(mine, str(location))
        with pytest.raises(InvalidTableStateError, match=f"overlaps that of '{database}.{name}'"):
            calls.drop_table(mine)
        assert files_of(Path(directory)) == before
        calls.deregister_table(mine)


def test_a_partition_elsewhere_keeps_its_files(made: Made) -> None:
    calls, database, directories = made
    location = Path(directories["hive_orc"]).parent / "elsewhere"
    lance.write_dataset(ROWS, location)
    (location / "000000_0").write_text("a file of ORC")
    mine = [database, "mine_elsewhere"]
    calls.register_table(mine, str(location))
    with pytest.raises(InvalidTableStateError, match=r"partition of '.*hive_orc'"):
        calls.drop_table(mine)
    assert (location / "000000_0").exists()
    calls.deregister_table(mine)

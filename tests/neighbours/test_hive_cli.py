"""A Lance table in a metastore beside one of ORC, and what Hive's command line makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from servers.metastores import Metastores
from servers.query_engines import HiveCommandLine

from lance_bridge.testing.calls import Calls
from lance_bridge_hive import HiveNamespace

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

DATABASE = "hive_cli"
LANCE_TABLE, ORC_TABLE = f"{DATABASE}.ours", f"{DATABASE}.orc"
ROWS = pa.table(
    {"id": pa.array([1, 2, 3]), "vector": pa.array([[0.0, 1.0]] * 3, pa.list_(pa.float32(), 2))}
)
VALUES = "1\ta\n2\tb"
NO_INPUT = "Cannot create an instance of InputFormat class org.apache.hadoop.mapred.FileInputFormat"
NO_OUTPUT = "Output Format must implement HiveOutputFormat"


@pytest.fixture(scope="module")
def hive(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> HiveCommandLine:
    return HiveCommandLine(metastores.get("2.3").uri, tmp_path_factory.mktemp("hive"))


@pytest.fixture(scope="module")
def calls(
    metastores: Metastores, hive: HiveCommandLine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Calls]:
    """A client, and a database in which Hive has made a table of ORC."""
    root = str(tmp_path_factory.mktemp("lance"))
    calls = Calls(HiveNamespace(uri=metastores.get("2.3").uri, root=root))
    calls.create_namespace([DATABASE])
    *_, made = hive.run(
        f"CREATE TABLE {ORC_TABLE} (id INT, name STRING) STORED AS ORC",
        f"INSERT INTO {ORC_TABLE} VALUES (1, 'a'), (2, 'b')",
        f"SELECT * FROM {ORC_TABLE}",
    )
    assert made == VALUES
    yield calls
    hive.run(f"DROP TABLE {ORC_TABLE}")
    calls.drop_namespace([DATABASE])


@pytest.fixture(params=[False, True], ids=["no columns", "published columns"])
def publishes(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(autouse=True)
def ours(calls: Calls, publishes: bool) -> Iterator[Path]:
    """The Lance table's directory."""
    properties = {"publish.columns": "true"} if publishes else {}
    location = calls.create_table([DATABASE, "ours"], ROWS, properties=properties).location
    assert location is not None
    yield Path(location.removeprefix("file://"))
    calls.drop_table([DATABASE, "ours"])


def test_hive_lists_and_describes_it(hive: HiveCommandLine, publishes: bool) -> None:
    tables, extended, columns, formatted, made, orc_rows = hive.run(
        f"SHOW TABLES IN {DATABASE}",
        f"SHOW TABLE EXTENDED IN {DATABASE} LIKE '*'",
        f"DESCRIBE {LANCE_TABLE}",
        f"DESCRIBE FORMATTED {LANCE_TABLE}",
        f"SHOW CREATE TABLE {LANCE_TABLE}",
        f"SELECT * FROM {ORC_TABLE}",
    )
    assert tables.split() == ["orc", "ours"]
    assert extended.count("tableName:") == 2
    published = ["id", "bigint", "vector", "array<float>"]
    assert columns.split() == (published if publishes else [])
    assert "org.apache.hadoop.hive.serde2.lazybinary.LazyBinarySerDe" in formatted
    assert made.startswith("CREATE EXTERNAL TABLE")
    assert orc_rows == VALUES


def test_hive_refuses_to_read_it(hive: HiveCommandLine, publishes: bool) -> None:
    """No row is made of its files, and no count is taken from published statistics."""
    count, literal, rows, column, joined = hive.run(
        f"SELECT count(*) FROM {LANCE_TABLE}",
        f"SELECT 1 FROM {LANCE_TABLE}",
        f"SELECT * FROM {LANCE_TABLE}",
        f"SELECT id FROM {LANCE_TABLE}",
        f"SELECT o.id FROM {LANCE_TABLE} o JOIN {ORC_TABLE} t ON o.id = t.id",
    )
    assert NO_INPUT in count
    assert NO_INPUT in literal
    for answer in (rows, column, joined):
        assert answer.startswith("FAILED: SemanticException") or NO_INPUT in answer
        assert (NO_INPUT in answer) is publishes


def test_hive_refuses_to_change_its_rows(
    hive: HiveCommandLine, calls: Calls, publishes: bool
) -> None:
    values = "SELECT id, array(cast(1 AS FLOAT))" if publishes else "SELECT id"
    inserted, truncated, analyzed = hive.run(
        f"INSERT INTO {LANCE_TABLE} {values} FROM {ORC_TABLE}",
        f"TRUNCATE TABLE {LANCE_TABLE}",
        f"ANALYZE TABLE {LANCE_TABLE} COMPUTE STATISTICS",
    )
    assert NO_OUTPUT in inserted
    assert "Cannot truncate non-managed table" in truncated
    assert NO_INPUT in analyzed
    assert calls.count([DATABASE, "ours"]) == 3


def test_what_hive_changes_of_the_entry_leaves_the_table_whole(
    hive: HiveCommandLine, calls: Calls, tmp_path: Path
) -> None:
    """LOAD DATA puts a file beside the table's own, which nobody reads."""
    file = tmp_path / "rows.txt"
    file.write_text("4\n", encoding="utf-8")
    *changes, refused, orc_rows = hive.run(
        f"ALTER TABLE {LANCE_TABLE} ADD COLUMNS (extra INT)",
        f"LOAD DATA LOCAL INPATH '{file}' INTO TABLE {LANCE_TABLE}",
        f"ALTER TABLE {LANCE_TABLE} RENAME TO {DATABASE}.renamed",
        f"SELECT * FROM {DATABASE}.renamed",
        f"SELECT * FROM {ORC_TABLE}",
    )
    assert changes == ["", "", ""]
    assert NO_INPUT in refused
    assert orc_rows == VALUES
    assert calls.count([DATABASE, "renamed"]) == 3
    calls.rename_table([DATABASE, "renamed"], "ours")


def test_a_table_that_hive_drops_keeps_its_files(
    hive: HiveCommandLine, calls: Calls, ours: Path
) -> None:
    assert hive.run(f"DROP TABLE {LANCE_TABLE}") == [""]
    assert calls.all_tables([DATABASE]) == []
    calls.register_table([DATABASE, "ours"], str(ours))
    assert calls.count([DATABASE, "ours"]) == 3

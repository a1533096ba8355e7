"""Forty tables of all kinds that Spark reads from a metastore, and their rows beside Lance's.

Called in the process of a Spark session: see `servers.sparks`.
"""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
from servers.hive_raw import raw_client

import lance_bridge

_WIDE = ", ".join(f"id * {n} AS c{n}" for n in range(200))
_ROW = "id, concat('row ', id) AS name, CAST(id AS DOUBLE) / 7 AS number"
_PARTS = f"SELECT {_ROW}, id % 3 AS part FROM range(60)"
_TEXTS = (
    "element_at(array('', 'a b', 'zäöü ✓', NULL, '%2F', repeat('x', 5000)), "
    "CAST(1 + id % 6 AS INT))"
)
_NESTED = (
    "SELECT CAST(id AS INT) AS id, array(named_struct('m', map('k', array(id, NULL)), "
    "'s', named_struct('x', CAST(id AS DECIMAL(9,2)), 'y', IF(id % 2 = 0, NULL, 'y')))) AS deep "
    "FROM range(40)"
)
_AS_SELECT = {
    "numbers": "SELECT CAST(id AS TINYINT) AS a, CAST(id AS SMALLINT) AS b, CAST(id AS INT) AS c, "
    "IF(id % 3 = 0, NULL, id) AS d, id % 2 = 0 AS e FROM range(50)",
    "decimals": "SELECT id, CAST(id / 3 AS DECIMAL(5,2)) AS small, CAST(id AS DECIMAL(38,0)) AS "
    "big, CAST(-id AS DECIMAL(38,18)) AS fine FROM range(50)",
    "texts": f"SELECT id, {_TEXTS} AS text FROM range(60)",
    "binaries": f"SELECT id, CAST({_TEXTS} AS BINARY) AS bytes FROM range(60)",
    "dates": "SELECT id, date_add(DATE'1582-12-31', CAST(id * 4000 AS INT)) AS day FROM range(50)",
    "times": "SELECT id, timestamp_micros(id * 987654321987) AS zoned, "
    "CAST(timestamp_micros(id * 123456789123) AS TIMESTAMP_NTZ) AS plain FROM range(50)",
    "floats": "SELECT id, CAST(element_at(array('NaN', 'Infinity', '-0.0', '1e-40', NULL), "
    "CAST(1 + id % 5 AS INT)) AS DOUBLE) AS d, CAST(id / 3 AS FLOAT) AS f FROM range(50)",
    "lists": "SELECT id, IF(id = 3, NULL, sequence(0, id % 4)) AS lists, array(array('a', NULL), "
    "array()) AS nested FROM range(50)",
    "maps": "SELECT id, map(concat('k', id), id, 'n', NULL) AS one FROM range(50)",
    "structs": "SELECT id, named_struct('a', id, 'b', named_struct('c', NULL, 'd', 'x')) AS s "
    "FROM range(50)",
    "deep": _NESTED,
    "vectors": "SELECT id, transform(sequence(1, 16), x -> CAST(x * id AS FLOAT)) AS v "
    "FROM range(200)",
    "many_files": f"SELECT {_ROW} FROM range(0, 800, 1, 16)",
    "larger": f"SELECT {_ROW}, uuid() AS u FROM range(0, 300000, 1, 4)",
    "wide": f"SELECT {_WIDE} FROM range(20)",
    "nulls": "SELECT CAST(NULL AS STRING) AS a, CAST(NULL AS ARRAY<INT>) AS b FROM range(9)",
    "names": "SELECT id AS `a b`, 1 AS `ä,ö`, 2 AS `x-y` FROM range(9)",
    "intervals": "SELECT id, make_dt_interval(CAST(id AS INT), 2, 3, 4.5) AS i FROM range(9)",
}
"""As tables of Parquet that Spark has made."""
_PARTITIONED = {
    "part_number": _PARTS,
    "part_text": f"SELECT {_ROW}, element_at(array('a b', 'ä/ö', '=', NULL), "
    "CAST(1 + id % 4 AS INT)) AS part FROM range(60)",
    "part_date": f"SELECT {_ROW}, date_add(DATE'2024-02-28', CAST(id % 3 AS INT)) AS part "
    "FROM range(60)",
    "part_larger": f"SELECT {_ROW}, id % 10 AS part FROM range(0, 100000, 1, 2)",
}
_OTHERS = {
    "empty": "(id BIGINT, s STRUCT<a: INT>) USING parquet",
    "part_empty": "(id BIGINT, part STRING) USING parquet PARTITIONED BY (part)",
    "limited": "USING parquet AS SELECT id, CAST('ab' AS CHAR(5)) AS c, CAST('xyz' AS VARCHAR(9)) "
    "AS v FROM range(9)",
    "part_two": f"USING parquet PARTITIONED BY (part, other) AS SELECT *, part + 1 AS other "
    f"FROM ({_PARTS})",
    "orc_plain": f"USING orc AS SELECT {_ROW} FROM range(70)",
    "orc_deep": f"USING orc AS {_NESTED}",
    "orc_part": f"USING orc PARTITIONED BY (part) AS {_PARTS}",
    "csv_plain": f"USING csv AS SELECT {_ROW} FROM range(70)",
    "csv_part": f"USING csv PARTITIONED BY (part) AS {_PARTS}",
    "json_deep": f"USING json AS {_NESTED}",
    "json_part": f"USING json PARTITIONED BY (part) AS {_PARTS}",
}
_OF_HIVE = ("PARQUET", "ORC", "AVRO", "TEXTFILE", "SEQUENCEFILE", "RCFILE")
_DAMAGED = ("gone", "emptied", "less", "less_later", "part_gone", "part_less", "part_gone_later")
"""Tables whose files the test removes: the last of them once the plan is made."""


def make(spark: Any, database: str, directory: str) -> list[str]:
    """Make the tables; return the names of those that stay whole."""
    spark.sql(f"CREATE DATABASE {database} LOCATION '{directory}'")
    made = {name: f"USING parquet AS {rows}" for name, rows in _AS_SELECT.items()}
    by_part = "USING parquet PARTITIONED BY (part) AS"
    made |= {name: f"{by_part} {rows}" for name, rows in _PARTITIONED.items()}
    made |= _OTHERS
    for name, how in made.items():
        spark.sql(f"CREATE TABLE {database}.{name} {how}")
    hive = [_make_hive(spark, database, form) for form in _OF_HIVE]
    part = "hive_part"
    spark.sql(
        f"CREATE TABLE {database}.{part} (id BIGINT, name STRING, number DOUBLE) "
        "PARTITIONED BY (part BIGINT) STORED AS PARQUET"
    )
    spark.sql(f"INSERT INTO {database}.{part} {_PARTS}")
    for name in _DAMAGED:
        how = by_part if name.startswith("part_") else "USING parquet AS"
        spark.sql(f"CREATE TABLE {database}.{name} {how} {_PARTS.replace('range(60)', _FILES)}")
    spark.sql(f"CREATE VIEW {database}.a_view AS SELECT 1 AS one")
    return sorted([*made, *hive, part])


_FILES = "range(0, 60, 1, 4)"


def _make_hive(spark: Any, database: str, form: str) -> str:
    name = f"hive_{form.lower()}"
    spark.sql(
        f"CREATE TABLE {database}.{name} (id BIGINT, name STRING, number DOUBLE) STORED AS {form}"
    )
    spark.sql(f"INSERT INTO {database}.{name} SELECT {_ROW} FROM range(80)")
    return name


def entries(port: int, database: str) -> dict[str, str]:
    """Return a database's entries as a metastore has them, in text."""
    with raw_client(port) as client:
        names = client.get_all_tables(database)
        return {name: repr(client.get_table(database, name)) for name in names}


# -- their rows ------------------------------------------------------------------------------------


def differences(
    spark: Any, database: str, target: str, properties: dict[str, str], names: list[str]
) -> dict[str, str]:
    """Return the tables that pylance reads other rows of than Spark reads from their sources."""
    found = {}
    connection: Any = lance_bridge.connect("hive", properties)
    with connection as namespace:
        for name in names:
            there = _rows(spark.table(f"{database}.{name}").toArrow())
            here = lance.dataset(namespace_client=namespace, table_id=[target, name])
            rows = _rows(here.to_table())
            if rows != there:
                pair = next((p for p in zip(rows, there, strict=False) if p[0] != p[1]), None)
                found[name] = f"{len(rows)} rows for {len(there)}: {str(pair)[:500]}"
    return found


def _rows(table: Any) -> list[str]:
    return sorted(repr(_plain(row)) for row in table.to_pylist())


def _plain(value: Any) -> Any:
    """Return what is the same for the same value, whichever type of Arrow it had."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc).isoformat()
    return value


def left(spark: Any, database: str, target: str, properties: dict[str, str]) -> list[str]:  # noqa: ARG001 - as all are called
    """Return the files below the root that no version of a registered table names."""
    root = Path(properties["root"])
    known: set[Path] = set()
    connection: Any = lance_bridge.connect("hive", properties)
    with connection as namespace:
        request = api.ListTablesRequest(id=[target])
        for name in namespace.list_tables(request).tables:
            described = namespace.describe_table(api.DescribeTableRequest(id=[target, name]))
            known |= _own_files(Path(str(described.location).removeprefix("file://")))
    return sorted(str(each) for each in root.rglob("*") if each.is_file() and each not in known)


def _own_files(place: Path) -> set[Path]:
    """Return the files of one table: the mark that keeps its place, and what versions name."""
    mark = place / ".lance-reserved"
    if not (place / "_versions").is_dir():
        return {mark}
    latest = lance.dataset(str(place))
    kept = {mark} | {
        each for part in ("_versions", "_transactions") for each in (place / part).iterdir()
    }
    for version in latest.versions():
        dataset = lance.dataset(str(place), version=version["version"])
        for fragment in dataset.get_fragments():
            kept |= {place / "data" / file.path for file in fragment.data_files()}
    return kept

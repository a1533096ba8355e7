"""Tables that Spark wrote, in a real metastore or at random, become tables of Lance there."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import lance_namespace as api
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, event, example, given, settings
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError
from migrate.sessions import Scene, failed, rows_of
from migrate.test_export import open_export
from pyspark.sql import types as spark
from servers.hive_entries import raw_client
from spark.sql_helpers import set_conf

from lance_bridge_migrate import Level, State, verify

pytestmark = [pytest.mark.servers, pytest.mark.spec("migration.md#convert", "migration.md#export")]

ROWS = (
    "SELECT id, CAST(id AS DOUBLE) / 3 AS number, concat('row ', id) AS name, "
    "array(CAST(id AS FLOAT), CAST(1 AS FLOAT)) AS vector, id % 3 AS part FROM range(30)"
)
Table = tuple[spark.StructType, list[tuple[Any, ...]]]
Kind = tuple[spark.DataType, st.SearchStrategy[Any]]
EXAMPLES = 20
_DAY = timedelta(days=20_000)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FLOATS = st.floats() | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf])
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_PLAIN: list[Kind] = [
    (spark.BooleanType(), st.booleans()),
    (spark.ByteType(), st.integers(-128, 127)),
    (spark.ShortType(), st.integers(-(2**15), 2**15 - 1)),
    (spark.IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    (spark.LongType(), st.integers(-(2**63), 2**63 - 1)),
    (spark.FloatType(), st.floats(width=32)),
    (spark.DoubleType(), _FLOATS),
    (spark.DecimalType(20, 3), st.decimals(-(10**16), 10**16, places=3)),
    (spark.DecimalType(38, 0), st.decimals(-(10**37), 10**37, places=0)),
    (spark.StringType(), _TEXT),
    (spark.BinaryType(), st.binary(max_size=8).map(bytearray)),
    (spark.DateType(), st.dates(date(1800, 1, 1), date(2200, 1, 1))),
    (spark.TimestampType(), st.timedeltas(-_DAY, _DAY).map(lambda each: _EPOCH + each)),
    (
        spark.TimestampNTZType(),
        st.timedeltas(-_DAY, _DAY).map(lambda each: _EPOCH.replace(tzinfo=None) + each),
    ),
    (spark.DayTimeIntervalType(), st.timedeltas(-_DAY, _DAY)),
]


def orders(scene: Scene) -> str:
    """Make a partitioned table of 30 orders in a database of Spark's; return that."""
    database = scene.database()
    scene.sql(f"CREATE TABLE {database}.orders USING parquet PARTITIONED BY (part) AS {ROWS}")
    return database


def test_a_table_is_converted_verified_and_undone(scene: Scene) -> None:
    database = orders(scene)
    before = scene.sql(f"DESCRIBE TABLE EXTENDED {database}.orders").collect()
    with scene.run("convert") as run:
        plan = run.plan(
            include=[f"{database}.*"],
            namespace=[scene.target],
            find_vectors=True,
            sort_by=["id"],
            indices=[{"column": "id", "kind": "BTREE"}],
        )
        [namespace, table] = plan.to_do
        assert namespace.target == (scene.target,)
        assert table.rows == 30
        assert table.facts["vectors"] == {"vector": 2}
        assert table.facts["source"]["partitions"] == ["part"]
        assert scene.tables() == []
        record = run.execute(verify="checksums")
        assert record.state is State.DONE, failed(record)
        checks = record.items[f"{database}/orders"].checks
        assert {c.column for c in checks} == {"", "id", "number", "name", "vector", "part"}
        found = scene.dataset("orders").to_table()
        assert found.schema.field("vector").type == pa.list_(pa.field("item", pa.float32()), 2)
        assert found["id"].to_pylist() == list(range(30)), "they are sorted"
        expected = [row.asDict() for row in scene.spark.table(f"{database}.orders").collect()]
        assert rows_of(found) == sorted(expected, key=lambda row: row["id"])
        assert [i.name for i in scene.dataset("orders").describe_indices()] == ["id_idx"]
        assert record.items[f"{database}/orders"].facts["rows_written"] == 30
        for level in ("counts", "sample"):
            assert failed(run.execute(verify=level)) == []
        assert run.undo().state is State.UNDONE
    assert scene.tables() == []
    assert scene.files() == []
    after = scene.sql(f"DESCRIBE TABLE EXTENDED {database}.orders").collect()
    assert [r for r in after if r.col_name != "Last Access"] == [
        r for r in before if r.col_name != "Last Access"
    ]


@pytest.mark.spec("docs/how-to/migrate.md#other-formats-into-lance")
def test_tables_of_other_formats_are_converted(scene: Scene) -> None:
    """Some that Spark stores, and some that Hive stores; `test_forty_tables` has all."""
    database, of_spark, of_hive = scene.database(), ["csv"], ["avro", "orc"]
    plain = "SELECT id, concat('row ', id) AS name FROM range(5)"
    expected = {f"t_{each}": each for each in of_spark} | {f"h_{each}": each for each in of_hive}
    for using in of_spark:
        scene.sql(f"CREATE TABLE {database}.t_{using} USING {using} AS {plain}")
    for stored in of_hive:
        scene.sql(f"CREATE TABLE {database}.h_{stored} (id BIGINT, name STRING) STORED AS {stored}")
        scene.sql(f"INSERT INTO {database}.h_{stored} {plain}")
    scene.sql(f"CREATE VIEW {database}.a_view AS SELECT 1 AS one")
    with scene.run("convert") as run:
        plan = run.plan(include=[f"{database}.*"], namespace=[scene.target], name="{table}_lance")
        assert len(plan.to_do) == 1 + len(expected)
        assert f"1 views and Lance tables are skipped: {database}.a_view" in plan.notes
        formats = {item.source[-1]: item.facts["source"]["format"] for item in plan.to_do[1:]}
        assert formats == expected
        record = run.execute(verify="checksums")
        assert record.state is State.DONE, failed(record)
    for name in scene.tables():
        assert scene.dataset(name).count_rows() == 5, name
    assert len(scene.tables()) == len(expected)


@pytest.mark.spec("docs/how-to/migrate.md#other-formats-into-lance")
def test_directories_and_files_are_converted(scene: Scene) -> None:
    place = scene.directory / "files"
    frame = scene.sql("SELECT id, concat('row ', id) AS name FROM range(5)")
    for format in ("parquet", "csv", "json", "orc"):
        frame.write.format(format).options(header="true").save(str(place / format))
    paths: list[dict[str, Any]] = [
        {"path": str(place / each), "format": each, "table": each}
        for each in ("parquet", "json", "orc")
    ]
    options = {"header": "true", "inferSchema": "true"}
    paths.append(
        {"path": str(place / "csv"), "format": "csv", "table": "csv", "read_options": options}
    )
    paths.append({"path": str(place / "none"), "format": "parquet", "table": "none"})
    paths.append({"path": str(place / "none"), "format": "delta", "table": "delta"})
    paths[-1]["path"] = str(place / "delta")
    with scene.run("convert") as run:
        plan = run.plan(paths=paths, namespace=[scene.target])
        blocked = {item.source[0].rsplit("/", 1)[1]: item.blockers[0].text for item in plan.blocked}
        assert "does not exist" in blocked["none"], blocked
        assert "io.delta:delta-spark" in blocked["delta"], blocked
        record = run.execute(verify="checksums", skip_blocked=True)
        assert failed(record) == []
    assert scene.tables() == ["csv", "json", "orc", "parquet"]
    assert rows_of(scene.dataset("csv").to_table())[1] == {"id": 1, "name": "row 1"}


def test_what_does_not_fit_is_in_the_plan(scene: Scene) -> None:
    database = scene.database()
    scene.sql(
        f"CREATE TABLE {database}.bad USING parquet AS SELECT id, INTERVAL '1' MONTH AS months, "
        "array(CAST(1 AS FLOAT), CAST(id AS FLOAT)) AS lists FROM range(3)"
    )
    scene.sql(f"INSERT INTO {database}.bad VALUES (9, INTERVAL '2' MONTH, array(CAST(1 AS FLOAT)))")
    scene.sql(f"CREATE TABLE {database}.limited (name VARCHAR(3)) USING parquet")
    collated = "STRING COLLATE UTF8_LCASE"
    scene.sql(
        f"CREATE TABLE {database}.collated USING parquet AS SELECT CAST('Anna' AS {collated}) AS "
        f"name, array(CAST('Anna' AS {collated})) AS names, 'Anna' AS plain"
    )
    scene.sql(f"CREATE TABLE {database}.taken USING parquet AS SELECT 1 AS id")
    scene.sql(f"CREATE TABLE {database}.named USING parquet AS SELECT 1 AS `a.b`, 2 AS `c``d`")
    scene.sql(f"CREATE TABLE {database}.typed (id INT) USING parquet")
    scene.sql(f"INSERT INTO {database}.typed VALUES (1)")
    scene.sql(
        f"CREATE TABLE {database}.mistyped (id STRING) USING parquet "
        f"LOCATION '{scene.directory / 'raw' / 'typed'}'"
    )
    with scene.run("convert") as run:
        # In the same database the names are those of the sources.
        plan = run.plan(include=[f"{database}.none*"])
        assert (plan.items, plan.notes) == ((), ("Nothing was selected",))
        plan = run.plan(include=[f"{database}.taken"])
        assert "already used by" in plan.blocked[0].blockers[0].text
        plan = run.plan(include=[f"{database}.*"], namespace=[scene.target], find_vectors=True)
        bad, mistyped, named = plan.blocked
        assert "types of its columns" in mistyped.blockers[0].text
        assert [p.column for p in named.blockers] == ["a.b", "c`d"]
        assert [p.column for p in bad.blockers] == ["months"]
        assert any(p.column == "lists" and "1 to 2 numbers" in p.text for p in bad.problems)
        [limited] = [i for i in plan.to_do if i.source[-1] == "limited"]
        assert "without a limit" in limited.problems[0].text
        [found] = [i for i in plan.to_do if i.source[-1] == "collated"]
        assert [(p.column, p.text.split(":")[0]) for p in found.problems] == [
            ("name", "string collate UTF8_LCASE becomes string"),
            ("names", "array<string collate UTF8_LCASE> becomes array<string>"),
        ]
        run.plan(include=[f"{database}.collated"], namespace=[scene.target])
        assert failed(run.execute(verify="checksums")) == []
        plan = run.plan(
            include=[f"{database}.bad"], namespace=[scene.target], casts={"months": "string"}
        )
        assert plan.blocked == []
        assert failed(run.execute(verify="checksums")) == []
        plan = run.plan(
            include=[f"{database}.*"],
            namespace=[scene.target],
            name="{table}_2",
            casts={"months": "decimall(10,2)"},
        )
        [bad] = [item for item in plan.blocked if item.source[-1] == "bad"]
        assert "decimall" in bad.blockers[0].text.lower()
        todo = {item.source[-1] for item in plan.to_do}
        assert todo == {"collated", "limited", "taken", "typed"}
        plan = run.plan(include=[f"{database}.bad"], casts={"months": "string"}, name="{table}_3")
        assert plan.notes == ()
        scene.sql(f"CREATE TABLE {database}.v USING parquet AS SELECT array(1.5F, 2F) AS v")
        [hint] = run.plan(include=[f"{database}.v"], name="{table}_3").notes
        assert f"Column 'v' of '{database}.v' seems to hold vectors of 2: --vector v=2" in hint
    assert scene.dataset("bad").schema.field("months").type == pa.string()
    assert scene.dataset("collated").schema.field("names").type == pa.list_(pa.string())


def test_tables_that_spark_misreads_without_a_word_are_blocked(scene: Scene) -> None:
    database = scene.database()
    spark = scene.spark
    columns = "(id BIGINT, name STRING)"
    text = "ROW FORMAT DELIMITED FIELDS TERMINATED BY ',' STORED AS TEXTFILE"
    spark.sql(
        f"CREATE TABLE {database}.changed {columns} CLUSTERED BY (id) INTO 2 BUCKETS "
        "STORED AS ORC TBLPROPERTIES ('transactional' = 'true')"
    )
    for place, lines in (("header", "1"), ("footer", "2"), ("none", "0")):
        spark.sql(
            f"CREATE TABLE {database}.with_{place} {columns} {text} TBLPROPERTIES "
            f"('skip.{place.replace('none', 'header')}.line.count' = '{lines}')"
        )
    spark.sql(
        f"CREATE TABLE {database}.plain {columns} STORED AS PARQUET "
        "TBLPROPERTIES ('transactional' = 'false')"
    )
    _make_hudi_table(scene, database)
    with scene.run("convert") as run:
        plan = run.plan(include=[f"{database}.*"], namespace=[scene.target])
    texts = {item.source[-1]: item.blockers[0].text for item in plan.blocked}
    assert sorted(texts) == ["changed", "of_hudi", "with_footer", "with_header"]
    assert "transactional" in texts["changed"]
    assert "Hudi" in texts["of_hudi"]
    assert "skip.header.line.count=1" in texts["with_header"]
    assert "skip.footer.line.count=2" in texts["with_footer"]


def _make_hudi_table(scene: Scene, database: str) -> None:
    """Make an entry as Hudi's sync does for engines that are not Spark."""
    port = scene.place.port
    scene.sql(f"CREATE TABLE {database}.of_hudi (id BIGINT) STORED AS PARQUET")
    with raw_client(port) as client:
        table = client.get_table(database, "of_hudi")
        table.sd.inputFormat = "org.apache.hudi.hadoop.HoodieParquetInputFormat"
        client.alter_table(database, "of_hudi", table)


def test_files_that_spark_leaves_out_are_reported(scene: Scene) -> None:
    database = scene.database()
    spark = scene.spark
    raw = scene.directory / "raw"
    for name in ("whole", "union", "only_union"):
        spark.sql(f"CREATE TABLE {database}.{name} STORED AS PARQUET AS SELECT id FROM range(4)")
    for name in ("parts", "union_parts"):
        spark.sql(f"CREATE TABLE {database}.{name} (id BIGINT) PARTITIONED BY (part BIGINT) "
                  "STORED AS PARQUET")  # fmt: skip
        spark.sql(f"INSERT INTO {database}.{name} SELECT id, id % 2 AS part FROM range(4)")
    for place in (raw / "union", raw / "only_union", raw / "union_parts" / "part=1"):
        shutil.copytree(place, place / "HIVE_UNION_SUBDIR_1")
    for file in (raw / "only_union").glob("part-*"):
        file.unlink()
    for hidden in ("_temporary", ".hive-staging"):
        shutil.copytree(raw / "union" / "HIVE_UNION_SUBDIR_1", raw / "whole" / hidden)
    for number, names in enumerate(("2024/01", "2025/01/02", "part=1/v2"), 2):
        place = raw / "parts" / names
        shutil.copytree(raw / "parts" / "part=0", place)
        added = f"PARTITION (part = {number}) LOCATION '{place}'"
        spark.sql(f"ALTER TABLE {database}.parts ADD {added}")
    _add_partition_elsewhere(scene, database)
    with scene.run("convert") as run:
        plan = run.plan(include=[f"{database}.*"], namespace=[scene.target])
        [only_union] = plan.blocked
        assert (only_union.source[-1], only_union.rows) == ("only_union", 0)
        assert "Spark reads none of them" in only_union.blockers[0].text
        rows = {item.source[-1]: item.rows for item in plan.to_do[1:]}
        assert rows == {"whole": 4, "union": 4, "parts": 10, "union_parts": 4, "elsewhere": 2}
        warned = {
            item.source[-1]: "; ".join(each.text for each in item.problems)
            for item in plan.items
            if item.problems
        }
        assert set(warned) == {"union", "only_union", "union_parts", "elsewhere"}
        assert all("HIVE_UNION_SUBDIR_1/part-" in text for text in warned.values())
        paths: list[dict[str, Any]] = [
            {"path": str(raw / name), "format": "parquet", "table": name}
            for name in ("whole", "union")
        ]
        plan = run.plan(paths=paths, namespace=[scene.target])
        assert [i.target[-1] for i in plan.to_do if i.problems] == ["union"]
        paths[1]["read_options"] = {"recursiveFileLookup": "true"}
        plan = run.plan(paths=paths[1:], namespace=[scene.target])
        assert [(item.rows, item.problems) for item in plan.to_do[1:]] == [(8, ())]
        # Hive's own reader fails, where it does not take all.
        with set_conf(spark, "spark.sql.hive.convertMetastoreParquet", "false"):
            options = {"include": [f"{database}.union"], "namespace": [scene.target]}
            [item] = run.plan(**options).blocked
            assert "cannot be counted" in item.blockers[0].text
            [item] = run.plan(**options, count_rows=False).blocked
            assert "types of its columns" in item.blockers[0].text


def _add_partition_elsewhere(scene: Scene, database: str) -> None:
    """Make a table whose one partition is outside its directory, and has a sub-directory."""
    place = scene.directory / "elsewhere"
    shutil.copytree(scene.directory / "raw" / "parts" / "part=0", place)
    shutil.copytree(place, place / "HIVE_UNION_SUBDIR_1")
    name = f"{database}.elsewhere"
    scene.sql(f"CREATE TABLE {name} (id BIGINT) PARTITIONED BY (part BIGINT) STORED AS PARQUET")
    scene.sql(f"ALTER TABLE {name} ADD PARTITION (part = 0) LOCATION '{place}'")


def test_values_that_are_hard_to_compare_are_the_same(scene: Scene) -> None:
    database = scene.database()
    scene.sql(
        f"CREATE TABLE {database}.odd USING parquet AS SELECT * FROM VALUES "
        "(1, double('NaN'), map('a', 1, 'b', NULL), named_struct('x', 1, 'y', NULL), "
        "array('a', NULL)),"
        "(2, -0.0D, map('a', 2), named_struct('x', NULL, 'y', array(1.5D)), NULL),"
        "(3, NULL, NULL, NULL, array()) AS t(id, f, m, s, a)"
    )
    with scene.run("convert") as run:
        run.plan(include=[f"{database}.odd"], namespace=[scene.target])
        record = run.execute(verify="checksums")
        assert failed(record) == []
        assert failed(run.execute(verify="sample")) == []
    found = rows_of(scene.dataset("odd").to_table())
    assert math.isnan(found[0]["f"])
    assert found[0]["s"] == {"x": 1, "y": None}


def test_differences_are_found(scene: Scene) -> None:
    database = orders(scene)
    with scene.converting(database) as run:
        assert failed(run.execute()) == []
        scene.sql(
            f"INSERT OVERWRITE {database}.orders SELECT * FROM "
            f"(SELECT id + 1, number, name, vector, part FROM ({ROWS}))"
        )
        record = verify(run.type, run.endpoints, run.migration, Level.CHECKSUMS)
        assert record.state is State.DIFFERS
        checks = record.items[f"{database}/orders"].checks
        found = [(c.name, c.column) for c in checks if not c.ok]
        values = "values in the files"
        assert found == [("checksum", "id"), (values, "id"), (values, "")]
        record = verify(run.type, run.endpoints, run.migration, Level.SAMPLE)
        checks = record.items[f"{database}/orders"].checks
        assert [c.name for c in checks if not c.ok] == ["sample", values]


def test_order_indices_properties_and_files_are_as_asked_for(scene: Scene) -> None:
    database = scene.database()
    scene.sql(
        f"CREATE TABLE {database}.t USING parquet AS SELECT /*+ REPARTITION(4) */ "
        "(id * 7) % 50 AS ID, id % 3 AS part, map('a', id) AS m FROM range(50)"
    )
    scene.sql(f"CREATE TABLE {database}.empty (id BIGINT) USING parquet")
    options: dict[str, Any] = {
        "include": [f"{database}.*"],
        "namespace": [scene.target],
        "properties": {"team": "search"},
        "sort_by": ["id"],
    }
    kinds = [{"column": "id", "kind": "BTREE"}, {"column": "part", "kind": "BITMAP", "name": "p"}]
    with scene.run("convert") as run:
        with pytest.raises(InvalidInputError, match="two indices have the same name"):
            run.plan(**options, indices=[kinds[0], kinds[0]])
        plan = run.plan(**options, indices=[{"column": "m", "kind": "BTREE"}], vectors={"x": 2})
        assert {(i.source[-1], p.column) for i in plan.blocked for p in i.blockers} == {("t", "m")}
        assert "No table has the column 'x' of the option vectors" in plan.notes
        plan = run.plan(**options, data_storage_version="2.0")
        assert "no field encoding for 'm'" in plan.blocked[0].blockers[0].text
        run.plan(**options, indices=kinds, max_rows_per_file=20)
        record = run.execute(verify="checksums")
        assert failed(record) == []
        with scene.place.connect() as namespace:
            request = api.DescribeTableRequest(id=[scene.target, "t"])
            assert (namespace.describe_table(request).properties or {})["team"] == "search"
    found = scene.dataset("t")
    assert found.to_table()["ID"].to_pylist() == list(range(50))
    assert {each.name for each in found.describe_indices()} == {"ID_idx", "p"}
    assert max(each.count_rows() for each in found.get_fragments()) <= 20
    facts = record.items[f"{database}/t"].facts
    sizes = sum(each.stat().st_size for each in Path(found.uri, "data").iterdir())
    assert facts["rows_written"] == 50
    assert facts["bytes_after"] == facts["bytes_written"] == sizes
    assert facts["bytes_before"] > 0
    empty = record.items[f"{database}/empty"].facts
    assert empty["rows_written"] == empty["bytes_after"] == 0
    assert empty["index id_idx"] == "not built: there are no rows"
    assert scene.dataset("empty").schema.names == ["id"]


def test_the_catalog_holds_the_versions_where_it_is_to(scene: Scene) -> None:
    database = orders(scene)
    with scene.run("convert") as run, scene.place.connect() as namespace:
        properties = {"managed_by": "impl"}
        request = api.CreateNamespaceRequest(id=[scene.target], properties=properties)
        namespace.create_namespace(request)
        run.plan(include=[f"{database}.*"], namespace=[scene.target])
        assert failed(run.execute(verify="checksums")) == []
        described = namespace.describe_table(api.DescribeTableRequest(id=[scene.target, "orders"]))
        assert described.managed_versioning is True
        assert scene.dataset("orders").count_rows() == 30
        assert run.undo().state is State.UNDONE
    assert scene.tables() == []
    assert scene.files() == []


def test_tables_have_settings_of_their_own(scene: Scene) -> None:
    database = scene.database()
    rows = "SELECT id, id * 2 AS `a.b`, array(1F, 2F) AS v FROM range(30)"
    for name in ("one", "other"):
        scene.sql(f"CREATE TABLE {database}.{name} USING parquet AS {rows}")
    with scene.run("convert") as run:
        plan = run.plan(
            include=[f"{database}.*"],
            namespace=[scene.target],
            renames={"a.b": "b"},
            casts={"a.b": "string"},
            tables={
                f"{database}.ONE": {
                    "name": "first",
                    "renames": {"A.B": "c", "v": "vector"},
                    "vectors": {"vector": 2},
                    "sort_by": ["id"],
                    "max_rows_per_file": 10,
                }
            },
        )
        assert plan.blocked == []
        assert failed(run.execute(verify="checksums")) == []
        again = run.plan(include=[f"{database}.one"], name="{table}_2", renames={"v": "ID"})
        assert "'v' would have the name of column 'id'" in again.blocked[0].blockers[0].text
    first, other = scene.dataset("first"), scene.dataset("other")
    assert first.schema.names == ["id", "c", "vector"]
    assert first.schema.field("vector").type.list_size == 2
    assert max(each.count_rows() for each in first.get_fragments()) <= 10
    assert other.schema.names == ["id", "b", "v"]
    assert other.schema.field("b").type == pa.string()
    assert len(other.get_fragments()) < len(first.get_fragments())


# -- random tables, there and back -----------------------------------------------------------------


def _nested(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    return inner.map(_list_of) | inner.map(_map_of) | st.tuples(inner, inner).map(_struct_of)


def _list_of(kind: Kind) -> Kind:
    return spark.ArrayType(kind[0]), st.lists(st.none() | kind[1], max_size=3)


def _map_of(kind: Kind) -> Kind:
    values = st.dictionaries(st.text("abc", max_size=2), st.none() | kind[1], max_size=3)
    return spark.MapType(spark.StringType(), kind[0]), values


def _struct_of(two: tuple[Kind, Kind]) -> Kind:
    (one, some), (other, more) = two
    fields = spark.StructType().add("x", one).add("y Z", other)
    return fields, st.tuples(st.none() | some, st.none() | more)


_KINDS = st.recursive(st.sampled_from(_PLAIN), _nested, max_leaves=3)
_NAMES = st.text("aB1_ -,;(){}='\"%&+ä日", min_size=1, max_size=6).filter(str.strip)


@st.composite
def _tables(draw: st.DrawFn) -> Table:
    """Return columns of random names and types, after a key, and rows."""
    kinds = draw(st.lists(_KINDS, min_size=1, max_size=7))
    names = draw(
        st.lists(
            _NAMES.filter(lambda name: name.lower() != "key"),
            min_size=len(kinds),
            max_size=len(kinds),
            unique_by=str.lower,
        )
    )
    columns = spark.StructType().add("key", spark.IntegerType())
    for name, (kind, _) in zip(names, kinds, strict=True):
        columns = columns.add(name, kind)
    values = st.tuples(*[st.none() | strategy for _, strategy in kinds])
    rows = draw(st.lists(values, max_size=12))
    return columns, [(key, *row) for key, row in enumerate(rows)]


_EMPTY: Table = (
    spark.StructType()
    .add("key", spark.IntegerType())
    .add("lists", spark.ArrayType(spark.StringType()))
    .add("maps", spark.MapType(spark.StringType(), spark.DecimalType(9, 2))),
    [],
)
_HARD: Table = (
    spark.StructType()
    .add("key", spark.IntegerType())
    .add("number", spark.DoubleType())
    .add("numbers", spark.ArrayType(spark.FloatType()))
    .add("none", spark.ArrayType(spark.StructType().add("x", spark.BinaryType()))),
    [
        (0, math.nan, [math.nan, None, -0.0], None),
        (1, -0.0, [], None),
        (2, 0.0, None, []),
        (3, None, [math.inf], [None, (None,)]),
    ],
)


@pytest.mark.slow
def test_random_tables_are_the_same_row_by_row_both_ways(scene: Scene) -> None:
    """So many tables, each a dozen jobs of Spark's, beside those that are hard."""
    done = 0

    @settings(
        max_examples=EXAMPLES,
        deadline=None,  # as in the profile of pytest's process
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(_tables(), st.sampled_from(["UTC", "America/Los_Angeles", "Asia/Kolkata"]))
    @example(_EMPTY, "UTC")
    @example(_HARD, "Asia/Kolkata")
    def there_and_back(table: Table, zone: str) -> None:
        nonlocal done
        done += 1
        event(f"{len(table[1])} rows of {len(table[0].fields)} columns")
        with set_conf(scene.spark, "spark.sql.session.timeZone", zone):
            _there_and_back(scene, f"t{done}", table)

    scene.database()
    there_and_back()
    assert done >= EXAMPLES


def _there_and_back(scene: Scene, name: str, table: Table) -> None:
    """Convert a table of Spark's, export what it became, and compare all rows of all three."""
    columns, rows = table
    source, shown = f"{scene.prefix}_raw.{name}", (columns.simpleString(), rows)
    scene.spark.createDataFrame(rows, columns).write.saveAsTable(source)
    with scene.run("convert") as run:
        run.plan(include=[source], namespace=[scene.target])
        record = run.execute(verify="checksums")
        assert record.state is State.DONE, (*shown, failed(record))
    out = scene.directory / "out"
    with open_export(scene) as run:
        run.plan(include=[f"{scene.target}.{name}"], directory=str(out))
        record = run.execute()
        assert record.state is State.DONE, (*shown, failed(record))
    expected = [row.asDict(recursive=True) for row in scene.spark.table(source).collect()]
    assert len(expected) == len(rows)
    for found in (
        scene.dataset(name).to_table().to_pylist(),
        pq.read_table(out / scene.target / name, coerce_int96_timestamp_unit="us").to_pylist(),
    ):
        _require_same(columns, expected, found)


def _require_same(columns: spark.StructType, one: list[Any], other: list[Any]) -> None:
    assert len(one) == len(other)
    for row, its in zip(sorted(one, key=_key), sorted(other, key=_key), strict=True):
        assert _settled(row, columns) == _settled(its, columns), columns.simpleString()


def _key(row: dict[str, Any]) -> int:
    return int(row["key"])


# -- values --------------------------------------------------------------------------------------


def _settled(value: Any, kind: spark.DataType) -> Any:
    """Return what is the same for the same value, from Spark, from Lance and from Parquet."""
    if value is None:
        return None
    if isinstance(kind, spark.StructType):
        return {f.name: _settled(value[f.name], f.dataType) for f in kind.fields}
    if isinstance(kind, spark.ArrayType):
        return [_settled(each, kind.elementType) for each in value]
    if isinstance(kind, spark.MapType):
        return {key: _settled(each, kind.valueType) for key, each in dict(value).items()}
    settle = _SETTLED.get(type(kind))
    return value if settle is None else settle(value)


def _moment(value: datetime) -> float:
    """Moments of Spark and of Parquet come without a zone, and mean UTC: that is the machine's."""
    known = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
    return (known - _EPOCH) / timedelta(microseconds=1)


_SETTLED: dict[type[spark.DataType], Callable[[Any], Any]] = {
    spark.FloatType: lambda each: "nan" if math.isnan(each) else float(each).hex(),
    spark.DoubleType: lambda each: "nan" if math.isnan(each) else float(each).hex(),
    spark.BinaryType: bytes,
    spark.TimestampType: _moment,
    spark.DayTimeIntervalType: lambda each: (
        each if isinstance(each, int) else each // timedelta(microseconds=1)
    ),
}

"""The steps of the demo in order; each says what it does, shows the call, and checks the result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from lance_namespace import (
    DeregisterTableRequest,
    DescribeTableRequest,
    DropTableRequest,
    LanceNamespace,
    ListTablesRequest,
    RegisterTableRequest,
    RenameTableRequest,
)
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

import lance_bridge
from demo.spark_side import parquet_statement
from demo.spark_source import LANCE_SCHEMA
from demo.story import Story

ROWS = 5000
MORE_ROWS = 500
DATABASE = "shop"
PRODUCTS = "products"
PARQUET = f"{DATABASE}.{PRODUCTS}"
TABLE_ID = [DATABASE, "product_vectors"]
NEW_TABLE_ID = [DATABASE, "catalogue"]


@dataclass
class Demo:
    """What the steps share."""

    story: Story
    spark: SparkSession
    namespace: LanceNamespace
    uri: str

    def tables(self) -> list[str]:
        """Return the namespace's tables."""
        return self.namespace.list_tables(ListTablesRequest(id=[DATABASE])).tables

    def dataset(self, version: int | None = None) -> lance.LanceDataset:
        """Open the Lance table by its name."""
        return lance.dataset(namespace_client=self.namespace, table_id=TABLE_ID, version=version)


def make_parquet_table(story: Story, spark: SparkSession) -> None:
    """Create the table that exists before Lance is used."""
    story.step(
        "Create a Parquet table with Spark",
        f"It stands for the tables you have: {ROWS} products, each with an embedding.",
    )
    story.call(f'spark.sql("CREATE DATABASE {DATABASE}")')
    spark.sql(f"CREATE DATABASE {DATABASE}")
    story.call(f'spark.sql("""\n{parquet_statement(PARQUET, ROWS)}""")')
    spark.sql(parquet_statement(PARQUET, ROWS))
    story.check("rows in the Parquet table", spark.table(PARQUET).count(), ROWS)


def connect(story: Story, uri: str) -> LanceNamespace:
    """Open the namespace; the Parquet table is not one of its tables."""
    story.step("Connect to the metastore as a Lance namespace")
    story.call(f'ns = lance_bridge.connect("hive", {{"uri": "{uri}"}})')
    namespace = lance_bridge.connect("hive", {"uri": uri})
    story.result(namespace)
    story.call(f'ns.list_tables(ListTablesRequest(id=["{DATABASE}"])).tables')
    tables = namespace.list_tables(ListTablesRequest(id=[DATABASE])).tables
    story.check("Lance tables so far; the Parquet table is not one", tables, [])
    return namespace


def create(demo: Demo) -> None:
    """Create the Lance table, without rows."""
    demo.story.step(
        "Create an empty Lance table",
        "The columns are those of the Parquet table; the embedding gets a fixed length, so that "
        "it can be searched. The namespace decides where the table goes and adds it to Hive.",
    )
    demo.story.call(
        f"lance.write_dataset(schema.empty_table(), namespace_client=ns, table_id={TABLE_ID})"
    )
    written = lance.write_dataset(
        LANCE_SCHEMA.empty_table(), namespace_client=demo.namespace, table_id=TABLE_ID
    )
    demo.story.check("version after creating it", written.version, 1)


def fill_from_parquet(demo: Demo) -> None:
    """Copy the rows with Spark's executors."""
    demo.story.step(
        "Copy the rows with Spark",
        "The executors find the table by its name and write their rows as Arrow batches into "
        "separate fragments; one commit makes them version 2. No process holds all rows.",
    )
    options = {"uri": demo.uri, "table": ".".join(TABLE_ID)}
    demo.story.call(
        f'spark.table("{PARQUET}").write.format("lance_by_name").options(\n'
        f'    uri="{demo.uri}", table="{options["table"]}").mode("append").save()'
    )
    writer = demo.spark.table(PARQUET).write.format("lance_by_name").options(**options)
    writer.mode("append").save()
    dataset = demo.dataset()
    demo.story.check("rows in the Lance table", dataset.count_rows(), ROWS)
    demo.story.check("version after the copy", dataset.version, 2)


def list_both_ways(demo: Demo) -> None:
    """Show what each side sees."""
    demo.story.step("List the tables, as Lance and as Spark see them")
    demo.story.call(f'ns.list_tables(ListTablesRequest(id=["{DATABASE}"])).tables')
    demo.story.check("Lance tables", demo.tables(), [TABLE_ID[-1]])
    demo.story.call(f'spark.sql("SHOW TABLES IN {DATABASE}")')
    both = sorted([PRODUCTS, TABLE_ID[-1]])
    demo.story.check("tables in Spark", _spark_tables(demo.spark), both)


def describe(demo: Demo) -> str:
    """Describe the table, and return its location."""
    demo.story.step("Describe the Lance table")
    demo.story.call(
        f"ns.describe_table(DescribeTableRequest(id={TABLE_ID}, load_detailed_metadata=True))"
    )
    answer = demo.namespace.describe_table(
        DescribeTableRequest(id=TABLE_ID, load_detailed_metadata=True)
    )
    assert answer.var_schema is not None
    assert answer.stats is not None
    columns = ", ".join(
        f"{field.name} {_type_text(field.type)}" for field in answer.var_schema.fields
    )
    demo.story.result(f"location  {answer.location}")
    demo.story.result(f"columns   {columns}")
    demo.story.result(f"fragments {answer.stats.num_fragments}")
    demo.story.check("version", answer.version, 2)
    demo.story.check("columns", len(answer.var_schema.fields), len(LANCE_SCHEMA))
    return str(answer.location)


def search(demo: Demo) -> None:
    """Filter, and find nearest neighbours, with pylance."""
    demo.story.step(
        "Search it with pylance",
        "First a filter, then the rows whose embeddings are nearest to that of row 1234.",
    )
    demo.story.call(f"ds = lance.dataset(namespace_client=ns, table_id={TABLE_ID})")
    dataset = demo.dataset()
    condition = "category = 'lamp' AND price < 2.0"
    demo.story.call(f'ds.to_table(columns=["id", "price"], filter="{condition}")')
    found = dataset.to_table(columns=["id", "price"], filter=condition).num_rows
    in_parquet = demo.spark.table(PARQUET).where(condition).count()
    demo.story.check(
        "rows that match the filter, as many as in the Parquet table", found, in_parquet
    )
    demo.story.call(
        'vector = ds.to_table(columns=["embedding"], filter="id = 1234")["embedding"][0]\n'
        'ds.to_table(columns=["id", "title", "_distance"],\n'
        '            nearest={"column": "embedding", "q": vector, "k": 3})'
    )
    own = dataset.to_table(columns=["embedding"], filter="id = 1234")["embedding"][0].as_py()
    nearest = dataset.to_table(
        columns=["id", "title", "_distance"], nearest={"column": "embedding", "q": own, "k": 3}
    )
    for row in nearest.to_pylist():
        demo.story.result(f"{row['title']}, distance {row['_distance']:.3f}")
    demo.story.check("the row nearest to its own embedding", nearest["id"][0].as_py(), 1234)


def append_and_travel(demo: Demo) -> None:
    """Append rows, and read the version before."""
    demo.story.step("Append rows, and travel back in time")
    demo.story.call(
        f'lance.write_dataset(rows, namespace_client=ns, table_id={TABLE_ID}, mode="append")'
    )
    appended = lance.write_dataset(
        _more_rows(demo.dataset()),
        namespace_client=demo.namespace,
        table_id=TABLE_ID,
        mode="append",
    )
    demo.story.check("version after the append", appended.version, 3)
    demo.story.check("rows now", demo.dataset().count_rows(), ROWS + MORE_ROWS)
    demo.story.call(
        f"lance.dataset(namespace_client=ns, table_id={TABLE_ID}, version=2).count_rows()"
    )
    demo.story.check("rows in version 2", demo.dataset(version=2).count_rows(), ROWS)


def _more_rows(dataset: lance.LanceDataset) -> pa.Table:
    """Return copies of the first rows with new ids."""
    rows = dataset.to_table(limit=MORE_ROWS)
    ids = pa.array(range(ROWS, ROWS + MORE_ROWS), pa.int64())
    return rows.set_column(0, "id", ids).cast(LANCE_SCHEMA)


def read_in_spark(demo: Demo) -> None:
    """Read the table in Spark, and compare it with the Parquet table."""
    demo.story.step(
        "Read it back in Spark, and join it with the Parquet table",
        "Each executor opens the table by its name and reads its share of the fragments.",
    )
    demo.story.call(
        f'vectors = spark.read.format("lance_by_name").options(\n'
        f'    uri="{demo.uri}", table="{".".join(TABLE_ID)}").load()\n'
        f'vectors.join(spark.table("{PARQUET}"), "id", "left")  # and counts and sums of it'
    )
    options = {"uri": demo.uri, "table": ".".join(TABLE_ID)}
    vectors = demo.spark.read.format("lance_by_name").options(**options).load()
    row = _compare(vectors, demo.spark.table(PARQUET)).first()
    assert row is not None
    sums = demo.spark.sql(f"SELECT sum(price) FROM {PARQUET}").first()
    assert sums is not None
    demo.story.check("rows that Spark reads from Lance", row["all_rows"], ROWS + MORE_ROWS)
    demo.story.check("rows that are in both tables", row["joined"], ROWS)
    demo.story.check("sum of their prices, as in the Parquet table", row["total"], sums[0])
    demo.story.check("rows with an identical embedding in both", row["same"], ROWS)


def _compare(vectors: DataFrame, products: DataFrame) -> DataFrame:
    joined = vectors.alias("l").join(products.alias("p"), "id", "left")
    return joined.selectExpr(
        "count(*) AS all_rows",
        "count(p.title) AS joined",
        "sum(CASE WHEN p.title IS NOT NULL THEN l.price END) AS total",
        "count_if(l.embedding = p.embedding) AS same",
    )


def read_without_lance(demo: Demo) -> None:
    """Show that a Spark session without Lance handles the entry safely."""
    name = ".".join(TABLE_ID)
    demo.story.step(
        "Use the entry from a Spark session without Lance",
        "Spark's own Hive tables cannot read Lance files. It shows and describes the entry, and "
        "reading fails with an error rather than with wrong rows.",
    )
    demo.story.call(f'spark.sql("DESCRIBE EXTENDED {name}")')
    rows = {
        row["col_name"]: row["data_type"] for row in _sql(demo.spark, f"DESCRIBE EXTENDED {name}")
    }
    demo.story.check("type of the table in Spark", rows["Type"], "EXTERNAL")
    demo.story.call(f'spark.sql("SELECT * FROM {name}").collect()')
    try:
        garbage: Any = _sql(demo.spark, f"SELECT * FROM {name}")
    except Py4JJavaError as error:
        garbage = "an error"
        demo.story.result(str(error.java_exception.getMessage()))
    demo.story.check("what plain Spark gets", garbage, "an error")


def deregister_and_register(demo: Demo, location: str) -> None:
    """Remove the table from the catalog, and register it again."""
    demo.story.step(
        "Remove the table from the catalog, and register it again", "The files stay in place."
    )
    demo.story.call(f"ns.deregister_table(DeregisterTableRequest(id={TABLE_ID}))")
    demo.namespace.deregister_table(DeregisterTableRequest(id=TABLE_ID))
    demo.story.check("Lance tables", demo.tables(), [])
    demo.story.check("rows in the files", lance.dataset(location).count_rows(), ROWS + MORE_ROWS)
    demo.story.call(
        f'ns.register_table(RegisterTableRequest(id={TABLE_ID}, location="{location}"))'
    )
    demo.namespace.register_table(RegisterTableRequest(id=TABLE_ID, location=location))
    demo.story.check("rows by name again", demo.dataset().count_rows(), ROWS + MORE_ROWS)


def rename(demo: Demo, location: str) -> None:
    """Rename the table; its files stay."""
    demo.story.step("Rename it", "The entry moves, but no file.")
    new_name = NEW_TABLE_ID[-1]
    demo.story.call(
        f'ns.rename_table(RenameTableRequest(id={TABLE_ID}, new_table_name="{new_name}"))'
    )
    demo.namespace.rename_table(RenameTableRequest(id=TABLE_ID, new_table_name=new_name))
    demo.story.check("Lance tables", demo.tables(), [new_name])
    answer = demo.namespace.describe_table(DescribeTableRequest(id=NEW_TABLE_ID))
    demo.story.check("location", answer.location, location)


def drop(demo: Demo, location: str) -> None:
    """Drop the table; its files are deleted, and no others."""
    demo.story.step("Drop it", "This deletes the entry and the table's files, and nothing else.")
    demo.story.call(f"ns.drop_table(DropTableRequest(id={NEW_TABLE_ID}))")
    demo.namespace.drop_table(DropTableRequest(id=NEW_TABLE_ID))
    demo.story.check("Lance tables", demo.tables(), [])
    demo.story.check("whether its directory still exists", Path(location).exists(), False)
    demo.story.check("tables in Spark", _spark_tables(demo.spark), [PRODUCTS])
    demo.story.check("rows in the Parquet table", demo.spark.table(PARQUET).count(), ROWS)


def _spark_tables(spark: SparkSession) -> list[str]:
    return sorted(row["tableName"] for row in _sql(spark, f"SHOW TABLES IN {DATABASE}"))


def _sql(spark: SparkSession, statement: str) -> list[Any]:
    return list(spark.sql(statement).collect())


def _type_text(kind: Any) -> str:
    inner = f"<{kind.fields[0].type.type}, {kind.length}>" if kind.fields else ""
    return f"{kind.type}{inner}"

"""Statements on tables of other formats, whose results and plans do not depend on our catalog."""

from __future__ import annotations

import re
from typing import Any

CREATED = (
    "CREATE DATABASE {db}",
    "CREATE TABLE {db}.plain (id BIGINT, name STRING COMMENT 'Who') USING parquet COMMENT 'People'",
    "INSERT INTO {db}.plain VALUES (1, 'ada'), (2, 'bob')",
    "CREATE TABLE {db}.parts (id BIGINT, day STRING) USING orc PARTITIONED BY (day)",
    "INSERT INTO {db}.parts VALUES (1, 'mon'), (2, 'tue')",
    "CREATE TABLE {db}.serde (id INT, word STRING) ROW FORMAT DELIMITED FIELDS TERMINATED BY ','",
    "INSERT INTO {db}.serde VALUES (1, 'a')",
    "CREATE VIEW {db}.seen AS SELECT id, upper(name) AS name FROM {db}.plain",
)
READS = (
    "SELECT name FROM {db}.plain WHERE id > 1",
    "SELECT p.name, q.day FROM {db}.plain p JOIN {db}.parts q USING (id) ORDER BY 1",
    "SELECT count(*) FROM {db}.parts WHERE day = 'mon'",
    "SELECT * FROM {db}.serde",
    "SELECT * FROM {db}.seen ORDER BY id",
    "SELECT * FROM parquet.`{warehouse}/{db}.db/plain` ORDER BY id",
    "SHOW TABLES IN {db}",
    "SHOW TABLE EXTENDED IN {db} LIKE '*'",
    "SHOW VIEWS IN {db}",
    "SHOW PARTITIONS {db}.parts",
    "SHOW CREATE TABLE {db}.plain",
    "SHOW TBLPROPERTIES {db}.serde",
    "SHOW COLUMNS IN {db}.plain",
    "DESCRIBE EXTENDED {db}.plain",
    "DESCRIBE EXTENDED {db}.parts PARTITION (day = 'mon')",
    "DESCRIBE EXTENDED {db}.serde",
    "DESCRIBE EXTENDED {db}.seen",
    "DESCRIBE DATABASE EXTENDED {db}",
    "SELECT current_catalog(), current_database()",
)
CHANGES = (
    "INSERT OVERWRITE {db}.plain SELECT * FROM {db}.seen",
    "INSERT INTO {db}.parts PARTITION (day = 'wed') VALUES (3)",
    "ALTER TABLE {db}.plain ADD COLUMNS (age INT)",
    "ALTER TABLE {db}.plain SET TBLPROPERTIES (team = 'a')",
    "ALTER TABLE {db}.parts DROP PARTITION (day = 'mon')",
    "ALTER TABLE {db}.serde RENAME TO {db}.renamed",
    "ANALYZE TABLE {db}.plain COMPUTE STATISTICS",
    "MSCK REPAIR TABLE {db}.parts",
    "TRUNCATE TABLE {db}.renamed",
    "CREATE TABLE {db}.by_query USING parquet AS SELECT * FROM {db}.plain",
    "CREATE TABLE {db}.by_default AS SELECT 1 AS id",
    "CREATE TABLE {db}.alike LIKE {db}.plain",
    "CREATE TABLE IF NOT EXISTS {db}.plain (id INT) USING parquet",
    "CREATE FUNCTION {db}.f AS 'org.apache.hadoop.hive.ql.udf.UDFLength'",
    "SELECT {db}.f('four')",
    "SHOW USER FUNCTIONS IN {db} LIKE 'f'",
    "CACHE TABLE {db}.by_query",
    "UNCACHE TABLE {db}.by_query",
    "REFRESH TABLE {db}.plain",
    "DROP FUNCTION {db}.f",
    "DROP VIEW {db}.seen",
    "DROP TABLE {db}.by_default",
    "DROP TABLE {db}.by_query PURGE",
    "SELECT * FROM {db}.by_query",
    "DROP TABLE {db}.by_query",
    "REPLACE TABLE {db}.plain (id INT) USING parquet",
    "UPDATE {db}.plain SET id = 1",
    "DELETE FROM {db}.plain",
    "SELECT * FROM {db}.plain VERSION AS OF 1",
)


LAKES = (
    "CREATE DATABASE {db}",
    "CREATE TABLE {db}.t (id BIGINT, name STRING) USING {format} COMMENT 'Of a lake'",
    "INSERT INTO {db}.t VALUES (1, 'ada'), (2, 'bob')",
    "UPDATE {db}.t SET name = 'eve' WHERE id = 2",
    "MERGE INTO {db}.t t USING (SELECT 3L AS id) s ON t.id = s.id "
    "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
    "DELETE FROM {db}.t WHERE id = 1",
    "CREATE TABLE {db}.q USING {format} AS SELECT * FROM {db}.t",
    "CREATE OR REPLACE TABLE {db}.q USING {format} AS SELECT 7L AS id",
    "ALTER TABLE {db}.t ADD COLUMNS (age INT)",
    "SELECT * FROM {db}.t ORDER BY id",
    "SELECT * FROM {db}.q",
    "SHOW TABLES IN {db}",
    "CREATE TABLE {db}.p USING parquet AS SELECT * FROM {db}.t",
    "SELECT count(*) FROM {db}.p JOIN {db}.t USING (id)",
    "DROP TABLE {db}.q",
    "SELECT * FROM {db}.q",
)
MODES = ("append", "overwrite", "ignore", "errorifexists")


def run(spark: Any, database: str, warehouse: str) -> dict[str, list[str]]:
    """Run statements, and return the result of each: its rows or its error, and its plan."""
    found: dict[str, list[str]] = {}
    for statement in (*CREATED, *READS, *CHANGES, *READS):
        result = _result(spark, statement.format(db=database, warehouse=warehouse))
        found[f"{len(found)} {statement}"] = [_plain(each, database) for each in result]
    return {**found, **{f"frames {mode}": _frame(spark, database, mode) for mode in MODES}}


def lake(spark: Any, database: str, format: str) -> dict[str, list[str]]:
    """Run statements on tables of a lake's format, and return the rows or the error of each."""
    found = {}
    for statement in LAKES:
        result, _ = _result(spark, statement.format(db=database, format=format))
        found[statement] = [_plain(result, database)]
    lance = f"{database}.beside"
    if spark.conf.get("spark.sql.catalog.spark_catalog", "").startswith("org.lancebridge"):
        spark.sql(f"CREATE TABLE {lance} USING lance AS SELECT * FROM {database}.t")
        spark.sql(f"INSERT INTO {database}.t SELECT * FROM {lance}")
        joined = f"SELECT count(*) FROM {lance} JOIN {database}.t USING (id)"
        assert spark.sql(joined).collect()[0][0] == 2 * spark.table(lance).count()
        spark.sql(f"DROP TABLE {lance}")
    return found


def _frame(spark: Any, database: str, mode: str) -> list[str]:
    table = f"{database}.frame"
    try:
        spark.range(3).write.mode(mode).saveAsTable(table)
        spark.range(2).write.mode(mode).saveAsTable(f"{database}.{mode}")
        spark.range(2).write.insertInto(f"{database}.{mode}")
    except Exception as error:  # noqa: BLE001 - the error is the result
        return [_plain(str(error), database)]
    return [str(spark.table(name).count()) for name in (table, f"{database}.{mode}")]


def _result(spark: Any, statement: str) -> tuple[str, str]:
    try:
        frame = spark.sql(statement)
        rows = sorted(str(row) for row in frame.collect())
    except Exception as error:  # noqa: BLE001 - the error is the result
        return str(error).split("JVM stacktrace")[0], ""
    return "\n".join(rows), frame._jdf.queryExecution().toString()


def _plain(text: str, database: str) -> str:
    """Return a text without what differs from one run to the next."""
    for pattern, new in (
        (database, "db"),
        (r"(#|plan_id=|@|part-[0-9]+-)[0-9a-fA-F-]+", r"\1"),
        (r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9]{2} [0-9:]{8} \w+ 20[0-9]{2}", "TIME"),
        (r"(transient_lastDdlTime|last_modified_time|totalSize)[^0-9]+[0-9]+", r"\1"),
        (r"[0-9]+ bytes", "bytes"),
        (r"(V2|Lance)SessionCatalog", "SessionCatalog"),
        (r"Lambda\W[0-9]+/\w+", "Lambda"),
        (r"\[[0-9a-f]+(,[0-9a-f]+)+\]", "[ROW]"),
    ):
        text = re.sub(pattern, new, text)
    return text

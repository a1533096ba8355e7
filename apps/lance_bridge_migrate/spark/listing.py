"""List and describe the tables of a Spark catalog."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lance_namespace.errors import TableNotFoundError, TableVersionNotFoundError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from lance_bridge.errors import display, unsupported
from lance_bridge.names import parts_of, quoted

from ..selection import Selection, may_match
from .files import SKIPPING_OPTIONS
from .session import spark_errors
from .sources import (
    DELTA,
    ICEBERG,
    OWN_CATALOG,
    SourceTable,
    Statistics,
    pin_snapshot,
    requiring_package,
    session_catalog,
    table_identifier,
    with_schema,
)

_OWN_IMPLEMENTATION = f"spark.sql.catalog.{OWN_CATALOG}"
_TABLES_OF_A_CALL = 100
_SEPARATOR = "\x1e"
_DETAILS = "# Detailed Table Information"
_PARTITIONS = "# Partition Information"
_PARTITIONING = "# Partitioning"
_FILES = (("parquet", "parquet"), ("orc", "orc"), ("avro", "avro"), ("json", "json"),
          ("text", "csv"))  # fmt: skip
"""Substrings of the input format of Hive tables, with the format's name in Spark."""
_STORAGE_HANDLER = "storage_handler="
_HUDI = ("hoodie", "hudi")
"""Substrings of the names of Hudi's input formats."""
_TRANSACTIONAL = re.compile(r"\btransactional=true\b")
_LAST_CHANGE = re.compile(r"\btransient_lastDdlTime=(\d+)")
_SKIPPED_FILES = re.compile(rf"\b(?:{'|'.join(SKIPPING_OPTIONS).lower()})=true\b")
_SKIPPED_LINES = re.compile(r"\bskip\.(?:header|footer)\.line\.count=(?!0+\b)[^,\]]*")


def tables_in(spark: Any, catalog: str, selection: Selection) -> Iterator[tuple[str, ...]]:
    """Yield the names of the selected tables of a catalog, without views.

    Raises:
        InvalidInputError: (13) Spark has no such catalog.
        ServiceUnavailableError: (17)
    """
    for namespace in _namespaces(spark, catalog):
        if not may_match(namespace, selection):
            continue
        where = quoted((catalog, *namespace))
        with spark_errors(f"The tables of {where} cannot be listed"):
            rows = spark.sql(f"SHOW TABLES IN {where}").collect()
        # Spark lists temporary views in every namespace.
        names = [row["tableName"] for row in rows if not row["isTemporary"]]
        for name in sorted(names):
            if selection.selects((*namespace, name)):
                yield (*namespace, name)


def _namespaces(spark: Any, catalog: str, outer: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    where = quoted((catalog, *outer))
    with spark_errors(f"The namespaces of {where} cannot be listed"):
        rows = spark.sql(f"SHOW NAMESPACES IN {where}").collect()
    found = [(*outer, parts_of(row[0])[-1]) for row in rows]
    if catalog == OWN_CATALOG:
        return found
    return [each for one in found for each in (one, *_namespaces(spark, catalog, one))]


@dataclass(frozen=True)
class Description:
    """A catalog's description of a table.

    Attributes:
        details: The detailed table information of DESCRIBE TABLE EXTENDED.
        partitions: The partition columns.
    """

    details: Mapping[str, str]
    partitions: tuple[str, ...]


def describe_all(
    spark: Any, catalog: str, tables: Sequence[tuple[str, ...]]
) -> dict[tuple[str, ...], Description]:
    """Return the descriptions of many tables, with one metastore call per hundred tables.

    Tables missing in the result have to be described one by one: those of catalogs other than
    Spark's own, of Spark Connect, and of a call in which a table has columns unknown to Spark.
    """
    is_own = catalog == OWN_CATALOG and not spark.conf.get(_OWN_IMPLEMENTATION, "")
    if not is_own or getattr(spark, "_jvm", None) is None:
        return {}
    found: dict[tuple[str, ...], Description] = {}
    for database in sorted({names[:-1] for names in tables}):
        own = [names for names in tables if names[:-1] == database]
        for start in range(0, len(own), _TABLES_OF_A_CALL):
            with suppress(PySparkException, Py4JError):
                found |= _describe_many(spark, own[start : start + _TABLES_OF_A_CALL])
    return found


def _describe_many(
    spark: Any, tables: Sequence[tuple[str, ...]]
) -> dict[tuple[str, ...], Description]:
    names = [table_identifier(spark, each) for each in tables]
    wanted = spark._jvm.PythonUtils.toSeq(names)
    described = session_catalog(spark).getTablesByName(wanted)
    # Read Scala collections as strings, with one call each.
    found = {}
    for number in range(described.size()):
        table = described.apply(number)
        text = str(table.toLinkedHashMap().mkString(_SEPARATOR))
        parts = [each.partition(" -> ") for each in text.split(_SEPARATOR)]
        columns = str(table.partitionColumnNames().mkString(_SEPARATOR))
        key = (*tables[0][:-1], str(table.identifier().table()))
        found[key] = Description(
            {name: value for name, _, value in parts},
            tuple(columns.split(_SEPARATOR)) if columns else (),
        )
    return found


def describe(
    spark: Any,
    catalog: str,
    names: tuple[str, ...],
    description: Description | None = None,
) -> SourceTable | None:
    """Return a table without its schema, or None for a view or a Lance table.

    Args:
        description: A result of `describe_all`; by default Spark describes the table.

    Raises:
        TableNotFoundError: (4)
        InvalidInputError: (13) Spark cannot describe it.
        UnsupportedOperationError: (0) the session lacks the package for its format; or Spark would
            read other rows than Hive or Hudi do.
    """
    name = quoted((catalog, *names))
    shown = display(names)
    if description is None:
        with spark_errors(f"'{shown}' cannot be described"), requiring_package("", shown):
            rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
        description = Description(_details(rows), _partitions(rows))
    details = description.details
    properties = details.get("Table Properties", "").lower()
    if details.get("Type", "").upper() == "VIEW" or "table_type=lance" in properties:
        return None
    _require_read_whole(shown, details, properties)
    _require_no_skipped_files(shown, details)
    table = SourceTable(
        catalog=catalog,
        names=names,
        format=_format(details, properties),
        # Tables of a storage handler have no files, but may have a location.
        location="" if _STORAGE_HANDLER in properties else details.get("Location", ""),
        partitions=description.partitions,
        statistics=_statistics(details),
    )
    return pin_snapshot(spark, table)


def _statistics(details: Mapping[str, str]) -> Statistics:
    at = _LAST_CHANGE.search(details.get("Table Properties", ""))
    return Statistics.of(details.get("Statistics", ""), int(at[1]) if at else None)


def _details(rows: list[Any]) -> dict[str, str]:
    names = [row["col_name"] for row in rows]
    if _DETAILS not in names:
        return {}
    return {row["col_name"]: row["data_type"] for row in rows[names.index(_DETAILS) + 1 :]}


def _require_read_whole(name: str, details: Mapping[str, str], properties: str) -> None:
    """Raise UnsupportedOperation (0) for tables that Spark reads wrongly without an error.

    Spark ignores the delta directories of Hive transactions and Hudi, and reads lines that Hive
    skips.
    """
    if _format(details, properties) in (DELTA, ICEBERG):
        return
    if _TRANSACTIONAL.search(properties):
        raise unsupported(
            f"'{name}' is a transactional table of Hive's, whose changes Spark does not read: copy "
            "it to an external table with Hive (CREATE EXTERNAL TABLE … STORED AS PARQUET AS "
            "SELECT …), and convert that"
        )
    if details.get("Provider", "").lower() != "hive":
        return
    if any(word in details.get("InputFormat", "").lower() for word in _HUDI):
        raise unsupported(
            f"'{name}' is a Hudi table, of which Spark would also read outdated rows: write "
            "its latest state to a table of Parquet with Hudi, and convert that"
        )
    skipped = _SKIPPED_LINES.search(f"{properties} {details.get('Storage Properties', '')}".lower())
    if skipped:
        raise unsupported(
            f"Hive skips lines of '{name}' ({skipped[0]}), and Spark reads them as rows: convert "
            "its directory with the option paths (of CSV, with header), or copy it with Hive"
        )


def _require_no_skipped_files(name: str, details: Mapping[str, str]) -> None:
    """Raise UnsupportedOperation (0) for tables of which Spark skips files that it cannot read."""
    skipped = _SKIPPED_FILES.search(details.get("Storage Properties", "").lower())
    if skipped:
        raise unsupported(
            f"Spark leaves out rows of '{name}' without an error ({skipped[0]}): remove this "
            "option from the table, or convert its directory with the option paths"
        )


def _format(details: Mapping[str, str], properties: str) -> str:
    provider = details.get("Provider", "").lower()
    if "table_type=iceberg" in properties:
        return "iceberg"
    if provider != "hive":
        return provider
    files = f"{details.get('InputFormat', '')} {details.get('Serde Library', '')}".lower()
    return next((format for word, format in _FILES if word in files), "hive")


def _partitions(rows: list[Any]) -> tuple[str, ...]:
    """Return the partition columns, in the format of Spark's own or of other catalogs."""
    names = [row["col_name"] for row in rows]
    if _PARTITIONS in names:
        found = []
        for row in rows[names.index(_PARTITIONS) + 2 :]:  # after the header line
            if not row["col_name"]:
                break
            found.append(row["col_name"])
        return tuple(found)
    if _PARTITIONING in names:
        parts = [
            r for r in rows[names.index(_PARTITIONING) + 1 :] if r["col_name"].startswith("Part ")
        ]
        return tuple(row["data_type"] for row in parts)
    return ()


def describe_again(spark: Any, table: SourceTable) -> SourceTable:
    """Return the current description of a source at its pinned snapshot.

    Raises:
        TableNotFoundError: (4) the source or the snapshot no longer exists.
    """
    if not table.catalog:
        now = pin_snapshot(spark, table.model_copy(update={"columns": ""}))
    else:
        found = describe(spark, table.catalog, table.names)
        if found is None:
            raise TableNotFoundError(f"'{table.name}' is no longer a table that can be converted")
        now = found
    try:
        return with_schema(spark, now.model_copy(update={"snapshot": table.snapshot}))
    except TableVersionNotFoundError as error:
        raise TableNotFoundError(str(error)) from error

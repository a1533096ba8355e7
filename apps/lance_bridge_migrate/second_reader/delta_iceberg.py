"""The columns and the number of rows of a snapshot by the own metadata of Delta and Iceberg.

Of Delta, the metadata are the commits and checkpoints in ``_delta_log``; of Iceberg, the metadata
file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lance_bridge_spark.schemas import batch_schema

from ..spark.delta_iceberg import iceberg_metadata
from ..spark.sources import ICEBERG, SourceTable
from .storage import Storage, UnreachableError, reason

_UNKNOWN = pa.null()
"""The type of what Spark alone knows: it is not compared."""


@dataclass(frozen=True)
class Snapshot:
    """What the metadata says about a snapshot.

    Attributes:
        file: The file with the columns.
        columns: Those of the table now.
        rows: The number of rows; None if the metadata does not say it.
    """

    file: str
    columns: pa.Schema
    rows: int | None


def read_snapshot(session: Any, storage: Storage, source: SourceTable) -> Snapshot | None:
    """Return the snapshot that a source is pinned to; None if it has none.

    Raises:
        UnreachableError: The metadata cannot be read.
    """
    if source.snapshot is None:
        return None
    try:
        if source.format == ICEBERG:
            return _iceberg(session, storage, source)
        return _Delta(storage, source).snapshot()
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise UnreachableError(f"the metadata of {source.name}: {reason(error)}") from error


def _as_uri(location: str) -> str:
    return PurePosixPath(location).as_uri() if location.startswith("/") else location.rstrip("/")


# -- Delta -----------------------------------------------------------------------------------------


_LOG = "_delta_log"
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet")
_IN_CHECKPOINT = ["add.path", "add.stats", "add.deletionVector", "metaData.schemaString"]


class _Delta:
    """The actions of a log, up to a version."""

    def __init__(self, storage: Storage, source: SourceTable) -> None:
        assert source.snapshot is not None
        self._storage, self._version = storage, source.snapshot
        self._log = f"{_as_uri(source.location)}/{_LOG}"
        self._rows: dict[tuple[str, str], int | None] = {}
        self._columns, self._file = "", ""

    def snapshot(self) -> Snapshot:
        last, names = self._last_checkpoint()
        first = last + 1
        for name in names:
            self._add(self._in_checkpoint(name), name)
        for version in range(first, self._version + 1):
            name = f"{version:020d}.json"
            self._add(self._in_commit(name), name)
        counts = [*self._rows.values()]
        rows = None if None in counts else sum(each or 0 for each in counts)
        columns = batch_schema(StructType.fromJson(json.loads(self._columns)))
        return Snapshot(f"{self._log}/{self._file}", columns, rows)

    def _last_checkpoint(self) -> tuple[int, list[str]]:
        """Return the last checkpoint that is complete, or -1, and its files."""
        found: dict[int, list[tuple[str, int]]] = {}
        for each in self._storage.files_below(self._log):
            match = _CHECKPOINT.fullmatch(each.inside)
            if match and int(match[1]) <= self._version:
                found.setdefault(int(match[1]), []).append((each.inside, int(match[2] or 1)))
        whole = {v: parts for v, parts in found.items() if len(parts) == parts[0][1]}
        last = max(whole, default=-1)
        return last, sorted(name for name, _ in whole.get(last, ()))

    def _in_checkpoint(self, name: str) -> Iterator[dict[str, Any]]:
        with self._storage.open(f"{self._log}/{name}") as file:
            opened = pq.ParquetFile(pa.PythonFile(file, mode="r"))
            for batch in opened.iter_batches(columns=_IN_CHECKPOINT):
                yield from batch.to_pylist()

    def _in_commit(self, name: str) -> Iterator[dict[str, Any]]:
        with self._storage.open(f"{self._log}/{name}") as file:
            yield from (json.loads(line) for line in file if line.strip())

    def _add(self, actions: Iterable[dict[str, Any]], name: str) -> None:
        added = {}
        for each in actions:
            if each.get("metaData"):
                self._columns, self._file = each["metaData"]["schemaString"], name
            if each.get("remove"):
                self._rows.pop(_key(each["remove"]), None)
            if each.get("add"):
                added[_key(each["add"])] = _rows_in(each["add"])
        self._rows |= added


def _key(file: dict[str, Any]) -> tuple[str, str]:
    vector = file.get("deletionVector") or {}
    return file["path"], f"{vector.get('pathOrInlineDv', '')}@{vector.get('offset') or 0}"


def _rows_in(file: dict[str, Any]) -> int | None:
    rows = json.loads(file.get("stats") or "{}").get("numRecords")
    deleted = (file.get("deletionVector") or {}).get("cardinality", 0)
    return None if rows is None else int(rows) - int(deleted)


# -- Iceberg ---------------------------------------------------------------------------------------


_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_OF_ICEBERG = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "uuid": pa.string(),
    "binary": pa.binary(),
}


def _iceberg(session: Any, storage: Storage, source: SourceTable) -> Snapshot:
    file = _as_uri(_metadata_file(session, source))
    with storage.open(file) as opened:
        metadata = json.load(opened)
    [snapshot] = [e for e in metadata["snapshots"] if e["snapshot-id"] == source.snapshot]
    # Spark reads a snapshot with the columns that the table had when it was written.
    number = metadata["current-schema-id"]
    [schema] = [each for each in metadata["schemas"] if each["schema-id"] == number]
    found = snapshot.get("summary", {})
    deleted = [found.get(f"total-{kind}-deletes", "0") for kind in ("position", "equality")]
    # Deleted rows may be counted twice, and also after their files are gone.
    is_known = "total-records" in found and not any(map(int, deleted))
    rows = int(found["total-records"]) if is_known else None
    return Snapshot(file, pa.schema([*_iceberg_type(schema)]), rows)


def _metadata_file(session: Any, source: SourceTable) -> str:
    try:
        log = iceberg_metadata(session, source, "metadata_log_entries")
        found = log.orderBy(F.desc("timestamp"), F.desc("latest_sequence_number"))
        return str(found.select("file").head(1)[0][0])
    except (PySparkException, Py4JError) as error:
        raise UnreachableError(f"the metadata of {source.name}") from error


def _iceberg_type(of: Any) -> pa.DataType:
    if isinstance(of, str):
        found = _DECIMAL.fullmatch(of)
        if found:
            return pa.decimal128(int(found[1]), int(found[2]))
        return pa.binary() if of.startswith("fixed[") else _OF_ICEBERG.get(of, _UNKNOWN)
    if of["type"] == "list":
        return pa.list_(_iceberg_type(of["element"]))
    if of["type"] == "map":
        return pa.map_(_iceberg_type(of["key"]), _iceberg_type(of["value"]))
    return pa.struct([(each["name"], _iceberg_type(each["type"])) for each in of["fields"]])

"""Reading tables as DataFrames, by row ids and by versions, and writing them in every save mode.

Spark itself does not support the modes ``error`` and ``ignore`` for data sources in Python. A
`Snapshot` is one version of a table: searches and changes read it, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from lance_namespace.errors import (
    TableAlreadyExistsError,
    TableColumnNotFoundError,
)
from pyspark.sql.types import LongType, StructField, StructType

from lance_bridge import blobs
from lance_bridge.dataset import count_rows
from lance_bridge.dotted_names import find_name
from lance_bridge.errors import (
    LANCE_ERRORS,
    as_namespace_error,
    first_line,
    invalid,
    is_refusal,
)
from lance_bridge.requests import LATEST, Ref

from ..addresses import Access, address_of
from ..lookup import create_table, find_table
from ..schemas import (
    batch_schema,
    new_schema,
    nullable,
    require_distinct,
    require_writable,
    spark_schema,
)
from ..source import conversion
from ..source.options import FORMAT, SCAN_OPTION, Options, address_options, load
from ..time_travel import TIME_ZONE, to_micros, with_zone
from ..time_travel import version_at as find_version
from .filters import Condition, sql_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ..spark_tables import SparkTable

# -- reading ---------------------------------------------------------------------------------------


def read(
    spark: Any,
    table: str,
    *,
    columns: Sequence[str] | None = None,
    filter: str | Condition | None = None,
    limit: int | None = None,
    version: int | None = None,
    tag: str | None = None,
    branch: str | None = None,
    timestamp: datetime | str | None = None,
    with_row_id: bool = False,
    **options: Any,
) -> DataFrame:
    """Return rows of a table. Only the requested columns and rows are read.

    Args:
        spark: The session.
        table: ``catalog.namespace.table``, or a location.
        columns: The columns, in this order; all by default.
        filter: A condition in Lance's SQL, or one built from `col`.
        limit: The maximum number of rows.
        version: The version, from 1 on. At most one of version, tag and timestamp can be given.
        branch: The branch; main by default.
        timestamp: Read the version that was the latest at this time (UTC if it has no zone).
        with_row_id: Whether to add the column ``_rowid``, the ids for `take`.
        options: Other options of the data source, such as ``batch_size``.

    Raises:
        InvalidInputError: (13) no such catalog, a malformed name, or no Lance table.
        PySparkException: From the data source: a table, version or column does not exist, or an
            option is invalid.
    """
    given = {
        "columns": None if columns is None else json.dumps(list(columns)),
        "filter": sql_of(filter),
        "limit": limit,
        "version": version,
        "tag": tag,
        "branch": branch,
        "timestamp": timestamp.isoformat() if isinstance(timestamp, datetime) else timestamp,
        "with_row_id": with_row_id or None,
        **options,
    }
    return load(spark, address_of(spark, table), texts(given))


def texts(options: dict[str, Any]) -> dict[str, str]:
    """Return options as strings for the data source, without those that are None."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in options.items()
        if value is not None
    }


def count(
    spark: Any,
    table: str,
    filter: str | Condition | None = None,
    *,
    version: int | None = None,
    tag: str | None = None,
    branch: str | None = None,
) -> int:
    """Return the number of rows from the table's metadata, without a Spark job.

    With a filter, the driver reads the columns in it.

    Raises:
        InvalidInputError: (13) no such catalog, no Lance table, or an invalid filter.
        TableNotFoundError: (4)
        TableColumnNotFoundError: (12)
        TableVersionNotFoundError: (11)
        TableTagNotFoundError: (8)
        TableBranchNotFoundError: (22)
    """
    found = find_table(address_of(spark, table))
    ref = Ref.of(version, tag, branch)
    return count_rows(found, ref, sql_of(filter))


def take(
    spark: Any,
    table: str,
    row_ids: Sequence[int],
    *,
    columns: Sequence[str] | None = None,
    version: int | None = None,
) -> DataFrame:
    """Return the rows with the given ids, in the order of the ids. The driver reads them.

    The ids are those of ``with_row_id``. They are valid for one version, and in later versions only
    if the table has stable row ids and no SQL statement has rewritten the fragments of the rows.

    Raises:
        InvalidInputError: (13) no such catalog, no Lance table, or no row with an id.
        TableNotFoundError: (4)
        TableColumnNotFoundError: (12)
        TableVersionNotFoundError: (11)
        ServiceUnavailableError: (17)
    """
    for each in row_ids:
        if isinstance(each, bool) or not isinstance(each, int) or not 0 <= each < 2**63:
            raise invalid(f"A row id is a whole number from 0 on, not {each!r}")
    target = Snapshot.open(spark, table, Ref.of(version))
    names = [target.column(name) for name in columns or target.schema.names]
    schema = pa.schema([target.schema.field(name) for name in names])
    as_read = spark_schema(schema)
    rows = pa.Table.from_batches([], schema)
    if row_ids:
        rows = _take_by_ids(target, row_ids, names)
    expected = batch_schema(as_read)
    batches = [conversion.to_spark(batch, expected) for batch in rows.to_batches()]
    frame: DataFrame = spark.createDataFrame(
        pa.Table.from_batches(batches, schema=expected), schema=as_read
    )
    return frame


def _take_by_ids(target: Snapshot, row_ids: Sequence[int], names: Sequence[str]) -> pa.Table:
    what = f"Rows of table '{target.name}' could not be read by their ids"
    try:
        taken = blobs.take_rows(target.dataset, pa.array(row_ids, pa.uint64()), names)
        found = pa.table(taken)
    except LANCE_ERRORS as error:
        if is_refusal(error):
            raise invalid(f"{what}: {first_line(error)}") from error
        raise as_namespace_error(what, error) from error
    if found.num_rows != len(row_ids):
        missing = len(row_ids) - found.num_rows
        raise invalid(f"{what}: version {target.version} has no rows with {missing} of the ids")
    return found


# -- versions --------------------------------------------------------------------------------------


def versions(spark: Any, table: str, *, branch: str | None = None) -> DataFrame:
    """Return the versions of a table: ``version`` and ``timestamp``, oldest first.

    Raises:
        InvalidInputError: (13) no such catalog, or no Lance table.
        TableNotFoundError: (4)
        TableBranchNotFoundError: (22)
        InvalidTableStateError: (19) it is declared, and has no data yet.
    """
    found = find_table(address_of(spark, table)).versions(branch)
    rows = [(each["version"], each["timestamp"]) for each in found]
    frame: DataFrame = spark.createDataFrame(rows, "version bigint, timestamp timestamp")
    return frame


def version_at(spark: Any, table: str, timestamp: datetime) -> int:
    """Return the version that was the latest at a point in time.

    Args:
        timestamp: In the session's time zone if it has none.

    Raises:
        TableNotFoundError: (4)
        TableVersionNotFoundError: (11) the table had no version at that time.
        InvalidInputError: (13) no such catalog, or no Lance table.
    """
    moment = with_zone(timestamp, spark.conf.get(TIME_ZONE))
    target = Snapshot.open(spark, table, LATEST)
    return find_version(target.dataset, to_micros(moment), target.name)


def restore(spark: Any, table: str, version: int | None = None, *, tag: str | None = None) -> int:
    """Restore the state of a version or a tag as the latest version, and return that version.

    Raises:
        InvalidInputError: (13) neither or both are given, no such catalog, or no Lance table.
        TableNotFoundError: (4)
        TableVersionNotFoundError: (11)
        TableTagNotFoundError: (8)
        ConcurrentModificationError: (14) another writer committed concurrently.
    """
    if (version is None) == (tag is None):
        raise invalid("restore needs a version or a tag, and not both")
    ref = Ref.of(version, tag)
    target = Snapshot.open(spark, table, ref, write=True)
    with target.table.committing(target.dataset, f"{ref} was not restored"):
        target.dataset.restore()  # type: ignore[no-untyped-call]  # pylance gives it no types
    return target.version


# -- writing ---------------------------------------------------------------------------------------

_MODES = ("append", "overwrite", "error", "errorifexists", "ignore")


def write(df: DataFrame, table: str, mode: str = "append", **options: Any) -> None:
    """Write the rows of a DataFrame to a table, which is created if it is missing.

    Args:
        df: A DataFrame with the table's columns, by name and in any order.
        table: ``catalog.namespace.table``, or a location.
        mode: ``append``; ``overwrite``, which keeps the table's schema unless the option
            ``overwrite_schema`` is true; ``error`` (or ``errorifexists``), which fails if the
            table exists; ``ignore``, which does nothing if it exists. If two writers create the
            table concurrently in these last two modes, one succeeds. If writing the rows then
            fails, the empty table remains.
        options: Options of the data source, such as ``max_rows_per_file``, or
            ``**{"vector.embedding": 768}``.

    Raises:
        InvalidInputError: (13) no such mode or catalog, or a malformed name.
        TableAlreadyExistsError: (5) the mode is ``error``, and the table exists.
        NamespaceNotFoundError: (1)
        PySparkException: From the data source: columns do not fit, or options are invalid.
    """
    if mode not in _MODES:
        raise invalid(f"mode must be one of {', '.join(_MODES)}, not {mode!r}")
    address = address_of(df.sparkSession, table)
    given = texts(options)
    if mode not in ("append", "overwrite"):
        writing = Options(given).writing()
        if writing.branch is not None:
            raise invalid(
                f"Option 'branch' cannot be used with mode {mode}: a new table has no branch"
            )
        try:
            create_table(address, new_schema(nullable(df.schema), writing.vectors))
        except TableAlreadyExistsError:
            if mode == "ignore":
                return
            raise
        mode = "append"
    df.write.format(FORMAT).options(**address_options(address), **given).mode(mode).save()


# -- one version -----------------------------------------------------------------------------------

_ALL = re.compile(r"(?:^|[(.,])\s*\*")
"""A star that means all columns, and not a multiplication."""


@dataclass(frozen=True)
class Snapshot:
    """One version of a table. Used on the driver only: tasks get its `access`."""

    spark: Any
    table: SparkTable
    dataset: lance.LanceDataset

    @classmethod
    def open(cls, spark: Any, name: str, ref: Ref = LATEST, *, write: bool = False) -> Snapshot:
        """Open a table by its name or location.

        Raises:
            InvalidInputError: (13) no such catalog, a malformed name, or no Lance table.
            TableNotFoundError: (4)
            TableVersionNotFoundError: (11)
            TableTagNotFoundError: (8)
            TableBranchNotFoundError: (22)
            InvalidTableStateError: (19) it is declared, and has no data yet.
            ServiceUnavailableError: (17)
        """
        table = find_table(address_of(spark, name))
        return cls(spark, table, table.open(ref, write=write))

    @property
    def name(self) -> str:
        """The table's name in messages."""
        return self.table.address.name

    @property
    def version(self) -> int:
        return int(self.dataset.version)

    @cached_property
    def schema(self) -> pa.Schema:
        """The table's schema in Lance."""
        return self.dataset.schema

    @cached_property
    def types(self) -> StructType:
        """The table's schema in Spark."""
        return spark_schema(self.schema)

    def access(self, *, write: bool = False) -> Access:
        """Return what tasks need to open this version."""
        return self.table.access(self.dataset, write=write)

    def require_changeable(self, *, rewrites: bool = True) -> None:
        """Check that a change by Spark's expressions changes only the columns that it names.

        Args:
            rewrites: Whether the change writes rows, and does not only delete some.

        Raises:
            InvalidInputError: (13)
        """
        require_distinct(self.spark, self.schema, self.name)
        if rewrites:
            require_writable(self.schema.names, self.name)

    def column(self, name: str) -> str:
        """Return the table's column for a name; case matters only if columns differ only by case.

        Raises:
            TableColumnNotFoundError: (12)
            InvalidInputError: (13) it may mean several.
        """
        names = self.schema.names
        found = find_name(name, names)
        if found is not None:
            return found
        raise TableColumnNotFoundError(
            f"Table '{self.name}' has no column '{name}': it has {', '.join(names)}"
        )

    def columns_in(self, *expressions: str | None) -> list[str]:
        """Return a superset of the columns that Spark expressions read.

        A column is included if its name occurs anywhere, even in a string literal.
        """
        text = " ".join(each for each in expressions if each is not None)
        if _ALL.search(text):
            return list(self.schema.names)
        folded = text.lower()
        return [each for each in self.schema.names if each.replace("`", "``").lower() in folded]

    def scan(self, columns: Iterable[str], row_keys: Sequence[str] = ()) -> DataFrame:
        """Return columns of this version, followed by `row_keys` (row id or address)."""
        wanted = set(columns)
        fields = [each for each in self.types.fields if each.name in wanted]
        fields += [StructField(key, LongType(), nullable=False) for key in row_keys]
        scan = {SCAN_OPTION: json.dumps({"version": self.version})}
        return load(self.spark, self.table.address, scan, StructType(fields))

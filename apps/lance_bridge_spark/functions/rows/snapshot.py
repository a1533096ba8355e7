"""A table at the version that a change reads, and its rows as a DataFrame."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from lance_namespace.errors import TableColumnNotFoundError
from pyspark.sql.types import LongType, StructField, StructType

from lance_bridge.names import find_name
from lance_bridge.requests import LATEST, Ref

from ...addresses import Access, address_of
from ...lookup import find_table
from ...source import column_names, requests
from ...source.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ...spark_tables import SparkTable

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
        column_names.require_distinct(self.spark, self.schema, self.name)
        if rewrites:
            column_names.require_writable(self.schema.names, self.name)

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
        scan = {requests.SCAN: json.dumps({"version": self.version})}
        return requests.load(self.spark, self.table.address, scan, StructType(fields))

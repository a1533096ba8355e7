"""The metadata tables of a table in SQL: ``SELECT * FROM prod.sales.orders.versions``.

They are read-only, and their rows are read on the driver when a query is planned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa

from lance_bridge.catalog import Path
from lance_bridge.dataset import list_branches, list_indices, list_tags, list_transactions
from lance_bridge.errors import display, invalid, translate_lance_errors, unsupported
from lance_bridge.paging import PageRequest
from lance_bridge.requests import LATEST, Ref

from ..addresses import CatalogAddress
from ..schemas import COMMENT, schema_to_json
from ..spark_tables import SparkTable

Args = Mapping[str, Any]
Answer = dict[str, Any]
Row = Sequence[Any]

# -- their rows ------------------------------------------------------------------------------------


def _versions(table: SparkTable) -> Iterator[Row]:
    for each in table.versions():
        counts = {key: int(value) for key, value in each["metadata"].items()}
        yield (
            each["version"],
            each["timestamp"],
            counts.get("total_rows"),
            counts.get("total_deletion_file_rows"),
            counts.get("total_fragments"),
            counts.get("total_data_files"),
            counts.get("total_files_size"),
        )


def _fragments(table: SparkTable) -> Iterator[Row]:
    dataset = table.open()
    with translate_lance_errors(f"The fragments of table '{table.name}' could not be read"):
        for each in dataset.get_fragments():
            rows = each.count_rows()
            files = each.metadata.files
            sizes = [file.file_size_bytes for file in files if file.file_size_bytes is not None]
            size = sum(sizes) if len(sizes) == len(files) else None
            yield each.fragment_id, rows, each.physical_rows - rows, len(files), size


def _indices(table: SparkTable) -> Iterator[Row]:
    found, _ = list_indices(table, LATEST, PageRequest("", None, None))
    for each in found:
        yield (
            each.index_name,
            each.columns,
            each.index_type,
            each.index_version,
            each.num_indexed_rows,
            each.num_unindexed_rows,
            each.num_segments,
            each.size_bytes,
            each.created_at,
        )


def _tags(table: SparkTable) -> Iterator[Row]:
    for name, each in sorted(list_tags(table).items()):
        yield name, each.version, each.branch


def _branches(table: SparkTable) -> Iterator[Row]:
    for name, each in sorted(list_branches(table).items()):
        version = int(table.open(Ref.of(branch=name)).version)
        created = datetime.fromtimestamp(each.create_at, timezone.utc)
        yield name, version, each.parent_branch, each.parent_version, created


def _transactions(table: SparkTable) -> Iterator[Row]:
    for each in list_transactions(table):
        properties = list(each.properties.items())
        yield each.version, each.read_version, each.operation, each.uuid, properties


# -- the tables ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MetadataTable:
    """A metadata table: its columns, and the function that reads its rows."""

    columns: pa.Schema
    read: Callable[[SparkTable], Iterator[Row]]


def _columns(**described: tuple[pa.DataType, str]) -> pa.Schema:
    """Return a schema from the type and the comment of each column."""
    return pa.schema(
        [
            pa.field(name, dtype, metadata={COMMENT: comment})
            for name, (dtype, comment) in described.items()
        ]
    )


_NUMBER = pa.int64()
_TEXT = pa.string()
_TIME = pa.timestamp("us", tz="UTC")

TABLES: Mapping[str, MetadataTable] = {
    "branches": MetadataTable(
        _columns(
            name=(_TEXT, "The name"),
            version=(_NUMBER, "The latest version of the branch"),
            parent_branch=(_TEXT, "The branch that it was created from; null for main"),
            parent_version=(_NUMBER, "The version that it was created from"),
            created_at=(_TIME, "When it was created"),
        ),
        _branches,
    ),
    "fragments": MetadataTable(
        _columns(
            id=(_NUMBER, "The fragment's id, the high bits of _rowaddr"),
            rows=(_NUMBER, "Rows without deleted ones"),
            deleted_rows=(_NUMBER, "Rows that are marked as deleted"),
            files=(_NUMBER, "Data files"),
            bytes=(_NUMBER, "Size of the data files; null if a writer did not record it"),
        ),
        _fragments,
    ),
    "indices": MetadataTable(
        _columns(
            name=(_TEXT, "The name"),
            columns=(pa.list_(_TEXT), "The paths of the columns"),
            type=(_TEXT, "The type, as for the procedure create_index"),
            version=(_NUMBER, "The version of the index format"),
            rows_indexed=(_NUMBER, "Rows that the index covers"),
            rows_unindexed=(_NUMBER, "Rows that queries read without the index"),
            segments=(_NUMBER, "Parts of the index"),
            bytes=(_NUMBER, "Size of its files, if known"),
            created_at=(_TIME, "When its oldest part was built"),
        ),
        _indices,
    ),
    "tags": MetadataTable(
        _columns(
            name=(_TEXT, "The name"),
            version=(_NUMBER, "The version that it points to"),
            branch=(_TEXT, "The branch of that version; null for main"),
        ),
        _tags,
    ),
    "transactions": MetadataTable(
        _columns(
            version=(_NUMBER, "The version that the transaction made"),
            read_version=(_NUMBER, "The version that its writer read"),
            operation=(_TEXT, "What it did, such as Append; null if it is not recorded"),
            uuid=(_TEXT, "Its identifier; null if it is not recorded"),
            properties=(pa.map_(_TEXT, _TEXT), "Properties that its writer recorded"),
        ),
        _transactions,
    ),
    "versions": MetadataTable(
        _columns(
            version=(_NUMBER, "The version's number"),
            timestamp=(_TIME, "When it was committed"),
            rows=(_NUMBER, "Rows without deleted ones"),
            deleted_rows=(_NUMBER, "Rows that are marked as deleted"),
            fragments=(_NUMBER, "Fragments"),
            files=(_NUMBER, "Data files"),
            bytes=(_NUMBER, "Size of the data files"),
        ),
        _versions,
    ),
}


# -- their names -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class MetadataName:
    """The name of a metadata table: that of its table, and one of `TABLES` in lower case."""

    table: Path
    name: str

    @property
    def text(self) -> str:
        """The name in messages."""
        return display((*self.table, self.name))


def parse(catalog: CatalogAddress, path: Sequence[str]) -> MetadataName | None:
    """Return the name of a metadata table, which has one part more than that of a table, or None.

    The number of parts decides, so that a metadata table never hides a table.
    """
    if len(path) != catalog.connect().capabilities.levels + 2:
        return None
    return MetadataName(tuple(path[:-1]), path[-1].lower())


def describe(name: MetadataName, args: Args) -> Answer:
    """Return ``{metadata, schema}``, where ``metadata`` is the name of the metadata table.

    Raises:
        InvalidInputError: (13) there is no such metadata table, or a version is chosen.
    """
    found = _find(name)
    if args.get("version") is not None or args.get("timestamp_us") is not None:
        raise invalid(
            f"Metadata table '{name.text}' describes its table as it is now: leave out VERSION AS "
            "OF and TIMESTAMP AS OF"
        )
    return {"metadata": name.name, "schema": schema_to_json(found.columns)}


def read(name: MetadataName, table: SparkTable) -> pa.Table:
    """Return the rows of a metadata table. Raises what the operation of the namespace raises."""
    found = _find(name)
    rows = list(found.read(table))
    columns: list[Any] = list(zip(*rows, strict=True)) or [[] for _ in found.columns]
    arrays = [
        pa.array(values, field.type) for values, field in zip(columns, found.columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=found.columns)


def refuse_change(catalog: CatalogAddress, path: Sequence[str]) -> None:
    """Raise Unsupported (0) if a table to create, change or drop is a metadata table."""
    name = parse(catalog, path)
    if name is not None and name.name in TABLES:
        raise unsupported(
            f"'{name.text}' is a metadata table, which is read only: change table "
            f"'{display(name.table)}'"
        )


def _find(name: MetadataName) -> MetadataTable:
    if name.name not in TABLES:
        raise invalid(
            f"Table '{display(name.table)}' has no metadata table '{name.name[:60]}': it has "
            f"{', '.join(TABLES)}"
        )
    return TABLES[name.name]

"""The indices of a table: create, list, describe and drop."""

from __future__ import annotations

import json
from typing import Any

import lance
import pyarrow as pa
from lance.indices import IndexConfig
from lance_namespace import CreateTableIndexRequest, DescribeTableIndexStatsResponse
from lance_namespace.errors import TableIndexAlreadyExistsError, TableIndexNotFoundError
from lance_namespace_urllib3_client.models import IndexContent

from .. import locations
from ..errors import invalid, require_text, translate_lance_errors
from ..paging import PageRequest
from ..requests import ExtendedIndexRequest, Ref
from ..table import Table, transaction_id
from . import index_types, paths
from .expressions import truncate
from .paths import Column

_SYSTEM = "__lance"
"""Prefix of the names of Lance's internal indices."""


def describe_indices(dataset: lance.LanceDataset) -> list[Any]:
    """Return a table's ``lance.indices.IndexDescription``s, without Lance's internal ones."""
    return [each for each in dataset.describe_indices() if not each.name.startswith(_SYSTEM)]


def create(
    table: Table,
    ref: Ref,
    request: CreateTableIndexRequest,
    *,
    only_scalar: bool = False,
) -> str | None:
    """Build an index and return the identifier of its transaction. It is complete on return.

    The default name is `paths.default_index_name`.
    Source: CreateTableIndex, CreateTableScalarIndex.

    Raises:
        TableIndexAlreadyExistsError: (7) an index has the name, and is not to be replaced or is on
            another column.
        TableColumnNotFoundError: (12)
        InvalidInputError: (13) the type is unknown or does not fit the column, or an option is not
            one of the type or is refused by Lance.
        ConcurrentModificationError: (14)
    """
    index_type = index_types.parse_index_type(request.index_type)
    if only_scalar and index_type.is_vector:
        raise invalid(f"{index_type.name} is not a scalar index: use CreateTableIndex")
    dataset = table.open(ref, write=True)
    column = paths.find_column(dataset, table, request.column)
    field = column.field.to_arrow()
    if not index_type.fits(field):
        raise invalid(
            f"{index_type.name} is for {index_type.needs}; '{column.path}' is {field.type}"
        )
    _require_outside_lists(dataset, column)
    options = index_types.index_options(request, index_type, field)
    replaces = isinstance(request, ExtendedIndexRequest) and request.replace
    name = _check_name(request.name, paths.default_index_name(column.path))
    _require_free_name(dataset, table, name, column if replaces else None)
    build: Any = dataset.create_index if index_type.is_vector else dataset.create_scalar_index
    # pylance knows this type only by its configuration.
    kind = IndexConfig("fm", {}) if index_type.name == "FM" else index_type.name
    with table.committing(dataset, f"no index was built on column '{column.path}'"):
        build(column.path, kind, name=name, replace=replaces, **options)
    return transaction_id(dataset, table)


def _require_outside_lists(dataset: lance.LanceDataset, column: Column) -> None:
    """Refuse a field inside a list: Lance builds no index on it, and does not say why."""
    for end in range(1, len(column.segments)):
        above = paths.canonical(column.segments[:end])
        parent: Any = dataset.lance_schema.field(above)
        if not pa.types.is_struct(parent.to_arrow().type):
            raise invalid(
                f"'{column.path}' is inside '{above}', which is not a struct: an index "
                "can be on a column or on a field of structs"
            )


def _check_name(given: str | None, default: str) -> str:
    name = default if given is None else given
    require_text("The index name", name)
    if not name or "\0" in name or name.startswith(_SYSTEM):
        # Another index with the name of an internal one makes the table unusable.
        raise invalid(
            f"{name[:60]!r} cannot be an index's name: it is empty, has a NUL or begins with "
            f"'{_SYSTEM}'"
        )
    if locations.is_path(name):
        raise invalid(f"{name[:60]!r} cannot be an index's name: it is a path")
    return name


def _require_free_name(
    dataset: lance.LanceDataset, table: Table, name: str, replaced: Column | None
) -> None:
    """Check that no index has a name, except an index on the column that is to be replaced."""
    for each in describe_indices(dataset):
        if each.name == name and (replaced is None or each.field_names != [replaced.path]):
            raise TableIndexAlreadyExistsError(
                f"Table '{table.name}' already has an index '{name}': drop it first, or "
                "choose another name"
            )


def list_indices(
    table: Table, ref: Ref, page: PageRequest
) -> tuple[list[IndexContent], str | None]:
    """Return one page of a table's indices by name, and the token of the next page."""
    dataset = table.open(ref)
    with translate_lance_errors(f"The indices of table '{table.name}' could not be read"):
        found = {each.name: each for each in describe_indices(dataset)}
        names, token = page.cut_names(list(found))
        rows = dataset.count_rows() if names else 0
        return [_to_index_content(found[name], rows) for name in names], token


def _to_index_content(index: Any, rows: int) -> IndexContent:
    segments = index.segments
    created = [each.created_at for each in segments if each.created_at is not None]
    return IndexContent(
        index_name=index.name,
        index_uuid=segments[0].uuid,
        columns=list(index.field_names),
        status="SUCCEEDED",
        index_type=index_types.to_request_name(index.index_type),
        type_url=index.type_url,
        num_indexed_rows=index.num_rows_indexed,
        num_unindexed_rows=_count_unindexed(index, rows),
        size_bytes=index.total_size_bytes,
        num_segments=len(segments),
        created_at=min(created, default=None),
        index_version=segments[0].index_version,
        index_details=json.dumps(index.details),
    )


def count_unindexed(dataset: lance.LanceDataset) -> int:
    """Return the number of rows that an index lacks, of the index that lacks most."""
    found = describe_indices(dataset)
    rows = dataset.count_rows() if found else 0
    return max((_count_unindexed(each, rows) for each in found), default=0)


def _count_unindexed(index: Any, rows: int) -> int:
    return max(rows - int(index.num_rows_indexed), 0)


def describe_stats(table: Table, ref: Ref, name: str | None) -> DescribeTableIndexStatsResponse:
    """Return the statistics of an index, without loading it. Source: DescribeTableIndexStats.

    Raises:
        TableIndexNotFoundError: (6)
        InvalidInputError: (13) no index is named.
    """
    named = _require_name(name)
    dataset = table.open(ref)
    with translate_lance_errors(f"The indices of table '{table.name}' could not be read"):
        index = _find(dataset, table, named)
        distance = (index.details or {}).get("metric_type")
        return DescribeTableIndexStatsResponse(
            distance_type=distance.lower() if distance else None,
            index_type=index_types.to_request_name(index.index_type),
            num_indexed_rows=index.num_rows_indexed,
            num_unindexed_rows=_count_unindexed(index, dataset.count_rows()),
            num_indices=len(index.segments),
        )


def drop(table: Table, ref: Ref, name: str | None) -> str | None:
    """Drop an index and return the transaction's identifier. Source: DropTableIndex.

    Raises:
        TableIndexNotFoundError: (6)
        InvalidInputError: (13) no index is named.
        ConcurrentModificationError: (14)
    """
    named = _require_name(name)
    dataset = table.open(ref, write=True)
    _find(dataset, table, named)
    with table.committing(dataset, f"index '{named}' was not dropped"):
        dataset.drop_index(named)
    return transaction_id(dataset, table)


def _require_name(name: str | None) -> str:
    if name is None:
        raise invalid("The request has no index_name")
    return name


def _find(dataset: lance.LanceDataset, table: Table, name: str) -> Any:
    for index in describe_indices(dataset):
        if index.name == name:
            return index
    raise TableIndexNotFoundError(f"Table '{table.name}' has no index '{truncate(name, 120)}'")

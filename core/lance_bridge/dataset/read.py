"""Reading facts about a table: its description, the number of its rows, and its statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from lance_namespace import DescribeTableRequest, DescribeTableResponse, GetTableStatsResponse
from lance_namespace_urllib3_client.models import FragmentStats, FragmentSummary, TableBasicStats

from .. import locations
from ..arrow_types import schema_to_json
from ..errors import translate_lance_errors
from ..requests import LATEST, Ref
from ..storage.lance_format import parse_origin, parse_timestamp
from ..table import Table
from ..transaction_versions import manifest_message
from . import SMALL_FRAGMENT, expressions
from .batch_sizes import columns_read, scan_limits
from .indices import describe_indices


def describe(table: Table, request: DescribeTableRequest) -> DescribeTableResponse:
    """Return the response to DescribeTable for a loaded table.

    The storage is read only if the request needs it: for ``version``, ``tag``, ``branch``,
    ``load_detailed_metadata`` and ``check_declared``. A table without data has no details.

    Raises:
        InvalidInputError: (13) a tag together with a version or a branch.
        TableVersionNotFoundError: (11) ``version`` does not exist.
        TableTagNotFoundError: (8)
        TableBranchNotFoundError: (22)
    """
    ref = Ref.of(request.version, request.tag, request.branch)
    response = DescribeTableResponse(
        location=table.uri,
        table_uri=locations.table_uri(table.location) if request.with_table_uri else None,
        storage_options=table.answer_options(vend=request.vend_credentials, write=None),
        properties=table.properties,
        managed_versioning=True if table.managed is not None or table.manager else None,
    )
    detailed = bool(request.load_detailed_metadata)
    if detailed:
        response.table, response.namespace = table.path[-1], list(table.path[:-1])
    if detailed or request.check_declared:
        response.is_only_declared = table.is_declared(vend=request.vend_credentials)
    if ref != LATEST or (detailed and not response.is_only_declared):
        _add_details(table, request, response, ref)
    return response


def _add_details(
    table: Table,
    request: DescribeTableRequest,
    response: DescribeTableResponse,
    ref: Ref,
) -> None:
    dataset = table.open(ref, vend=request.vend_credentials)
    if not request.load_detailed_metadata:
        return
    with translate_lance_errors(f"Table '{table.name}' could not be read"):
        counts = dataset.stats.dataset_stats()
        metadata = dataset.metadata
    response.version = int(dataset.version)
    response.var_schema = schema_to_json(dataset.schema)
    response.metadata = dict(metadata)
    response.stats = TableBasicStats(
        num_deleted_rows=counts["num_deleted_rows"], num_fragments=counts["num_fragments"]
    )


def count_rows(table: Table, ref: Ref, predicate: str | None) -> int:
    """Return the number of rows, or of those for which ``predicate`` (SQL) holds.

    Source: CountTableRows.

    Raises:
        InvalidInputError: (13) the predicate is not one expression of SQL, or fails on a row.
        TableColumnNotFoundError: (12) it names a column that does not exist.
        InvalidTableStateError: (19) the table holds no data yet.
        TableVersionNotFoundError: (11)
        TableBranchNotFoundError: (22)
    """
    dataset = table.open(ref)
    name = table.name
    if predicate is not None:
        expressions.check_predicate(dataset, name, predicate)
    with expressions.translate_query_errors(f"Rows of table '{name}' could not be counted"):
        if predicate is None:
            return int(dataset.count_rows())
        limits = scan_limits(dataset, columns_read(dataset.schema.names, [], predicate))
        if not limits:
            return int(dataset.count_rows(filter=predicate))
        scanner = dataset.scanner(columns=[], with_row_id=True, filter=predicate, **limits)
        return int(scanner.count_rows())


def table_stats(table: Table, ref: Ref) -> GetTableStatsResponse:
    """Return the response to GetTableStats.

    Deleted rows are not counted, though files hold them until a compaction. The size is that of
    the columns' data, without indices, deletions, manifests and earlier versions.
    """
    return table_statistics(table, ref).response


@dataclass(frozen=True)
class TableStatistics:
    """The statistics of a table, and of its columns."""

    response: GetTableStatsResponse
    sizes: dict[str, int]
    """The size of the data of each top-level column, in bytes."""
    schema: pa.Schema


def table_statistics(table: Table, ref: Ref) -> TableStatistics:
    """Return the statistics of `table_stats`, and those of each column."""
    dataset = table.open(ref)
    with translate_lance_errors(f"The statistics of table '{table.name}' could not be read"):
        columns: Any = dataset.stats.data_stats().fields
        lengths = [int(each.metadata.num_rows) for each in dataset.get_fragments()]
        response = GetTableStatsResponse(
            total_bytes=sum(int(column.bytes_on_disk) for column in columns),
            num_rows=sum(lengths),
            num_indices=len(describe_indices(dataset)),
            fragment_stats=FragmentStats(
                num_fragments=len(lengths),
                num_small_fragments=sum(length < SMALL_FRAGMENT for length in lengths),
                lengths=summarize_lengths(lengths),
            ),
        )
    by_field = {int(each.id): int(each.bytes_on_disk) for each in columns}
    fields = dataset.lance_schema.fields()
    sizes = {each.name(): sum(by_field.get(n, 0) for n in _field_ids(each)) for each in fields}
    return TableStatistics(response, sizes, dataset.schema)


def _field_ids(field: Any) -> Iterator[int]:
    """Yield the identifiers of a field of Lance and of those in it."""
    yield field.id()
    for each in field.children():
        yield from _field_ids(each)


def summarize_lengths(lengths: Sequence[int]) -> FragmentSummary:
    """Return the distribution of fragments' lengths, in rows; all zero without fragments.

    A percentile is the length of a fragment, not interpolated.
    """
    ordered = sorted(lengths) or [0]

    def percentile(share: int) -> int:
        return ordered[(len(ordered) - 1) * share // 100]

    return FragmentSummary(
        min=ordered[0],
        max=ordered[-1],
        mean=sum(ordered) // len(ordered),
        p25=percentile(25),
        p50=percentile(50),
        p75=percentile(75),
        p99=percentile(99),
    )


# -- facts of a manifest ---------------------------------------------------------------------------


@dataclass(frozen=True)
class VersionSummary:
    """What the manifest of a version says, without reading any other file."""

    version: int
    changed_millis: int | None
    """When the version was made, in milliseconds since 1970; None if its writer did not say."""
    rows: int
    """Without deleted rows."""
    size: int | None
    """The size of the data files in bytes; None if an old writer did not store it."""
    fragments: int
    indices: int


def version_key(table: Table, dataset: Any) -> tuple[str, int, str]:
    """Return what distinguishes a version from all others, also from those of replaced tables."""
    transaction, _ = parse_origin(manifest_message(dataset))
    return table.uri, int(dataset.version), transaction


def summarize_version(table: Table, dataset: Any) -> VersionSummary:
    """Return the summary of an open version of a table.

    Raises:
        LanceNamespaceError: its indices cannot be read.
    """
    with translate_lance_errors(f"The manifest of table '{table.name}' could not be read"):
        fragments = [each.metadata for each in dataset.get_fragments()]
        sizes = [file.file_size_bytes for each in fragments for file in each.files]
        return VersionSummary(
            int(dataset.version),
            parse_timestamp(manifest_message(dataset)),
            sum(each.num_rows for each in fragments),
            None if None in sizes else sum(sizes),
            len(fragments),
            len(describe_indices(dataset)),
        )

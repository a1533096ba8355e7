"""Statistics of a table: its size, its rows, and how they spread over fragments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lance
from lance_namespace import GetTableStatsResponse
from lance_namespace_urllib3_client.models import FragmentStats, FragmentSummary

from ..lance_errors import translate_lance_errors
from ..ref import Ref
from ..table import Table
from .indices import described
from .sizes import SMALL_FRAGMENT


def table_stats(table: Table, ref: Ref) -> GetTableStatsResponse:
    """Answer GetTableStats.

    Rows that are deleted do not count, though they are in the files until a compaction. The bytes
    are those of the columns' data, without indices, deletions, manifests and earlier versions.
    """
    dataset = table.open(ref)
    with translate_lance_errors(f"The statistics of table '{table.name}' could not be read"):
        lengths = [int(each.metadata.num_rows) for each in dataset.get_fragments()]
        return GetTableStatsResponse(
            total_bytes=_data_bytes(dataset),
            num_rows=sum(lengths),
            num_indices=len(described(dataset)),
            fragment_stats=FragmentStats(
                num_fragments=len(lengths),
                num_small_fragments=sum(length < SMALL_FRAGMENT for length in lengths),
                lengths=summary(lengths),
            ),
        )


def _data_bytes(dataset: lance.LanceDataset) -> int:
    columns: Any = dataset.stats.data_stats().fields
    return sum(int(column.bytes_on_disk) for column in columns)


def summary(lengths: Sequence[int]) -> FragmentSummary:
    """Return the spread of fragments' lengths, in rows; all zero where there are none.

    A percentile is a length that is there: the one at or below that share of the way from the
    shortest to the longest.
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

"""A search by vector and by text in one: two searches whose ranks are fused.

The specification says that both may be in a request, and not what comes out. This does what LanceDB
does: reciprocal rank fusion, where a row scores 1 / (60 + rank) in each search that finds it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pyarrow as pa

from .projection import DISTANCE, RELEVANCE, ROW_ID, SCORE

NAME = "Reciprocal rank fusion of two searches"

ADDED = (DISTANCE, SCORE, RELEVANCE, ROW_ID)
"""The columns at the end of the answer; the last only where it is asked for."""

CONSTANT = 60
"""Of the formula; ranks begin at 0. Source: LanceDB's default reranker."""


def ranked(searches: Sequence[Sequence[int]]) -> list[tuple[int, float]]:
    """Return row ids with their scores, best first; equal scores in the order they are met.

    Args:
        searches: The row ids that each search found, best first.
    """
    scores: dict[int, float] = defaultdict(float)
    for found in searches:
        for rank, row in enumerate(found):
            scores[row] += 1 / (CONSTANT + rank)
    return sorted(scores.items(), key=lambda item: -item[1])


def fuse(by_vector: pa.Table, by_text: pa.Table, limit: int, offset: int) -> pa.Table:
    """Return the rows that either search found, once each, with all their scores.

    Args:
        by_vector: Rows with ``_distance`` and ``_rowid``, nearest first.
        by_text: Rows with the same columns, but ``_score`` instead of ``_distance``.
    """
    distances = _column(by_vector, DISTANCE)
    scores = _column(by_text, SCORE)
    best = ranked([list(distances), list(scores)])[offset : offset + limit]
    rows = pa.concat_tables(
        [by_vector.drop_columns([DISTANCE]), by_text.drop_columns([SCORE])],
        promote_options="default",
    ).unify_dictionaries()
    places = {row: i for i, row in reversed(list(enumerate(rows.column(ROW_ID).to_pylist())))}
    kept = rows.take(pa.array([places[row] for row, _ in best], pa.int64()))
    ids = kept.column(ROW_ID)
    kept = kept.drop_columns([ROW_ID])
    for name, values in (
        (DISTANCE, [distances.get(row) for row, _ in best]),
        (SCORE, [scores.get(row) for row, _ in best]),
        (RELEVANCE, [score for _, score in best]),
    ):
        kept = kept.append_column(name, pa.array(values, pa.float32()))
    return kept.append_column(ROW_ID, ids)


def _column(table: pa.Table, name: str) -> dict[int, float]:
    """Return a column's values by row id, in the order of the rows."""
    ids, values = table.column(ROW_ID).to_pylist(), table.column(name).to_pylist()
    return dict(zip(ids, values, strict=True))

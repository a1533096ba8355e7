"""What the tests of changed rows share: small tables in files, and a MERGE in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

Row = dict[str, Any]

SCHEMA = pa.schema([("k", pa.float64()), ("v", pa.int64()), ("s", pa.string())])


def made(
    directory: Path,
    rows: Sequence[Row],
    *,
    schema: pa.Schema = SCHEMA,
    rows_per_file: int = 3,
    **more: Any,
) -> str:
    """Return the location of a new table in several fragments."""
    place = str(directory / "table.lance")
    table = pa.Table.from_pylist(list(rows), schema=schema)
    lance.write_dataset(table, place, max_rows_per_file=rows_per_file, **more)
    return place


def numbered(directory: Path, count: int = 10, **more: Any) -> str:
    """Return the location of a table with ``k`` from 0 on, ``v`` ten times that, and a text."""
    return made(
        directory, [{"k": float(i), "v": i * 10, "s": f"s{i}"} for i in range(count)], **more
    )


def rows_of(place: str, version: int | None = None) -> list[Row]:
    """Return the rows of a table, in an order of their values alone."""
    found: list[Row] = lance.dataset(place, version=version).to_table().to_pylist()
    return ordered(found)


def ordered(rows: Sequence[Row]) -> list[Row]:
    """Return rows in an order of their values alone, in which NaN is equal to NaN."""
    plain = ({name: _plain(value) for name, value in row.items()} for row in rows)
    return sorted(plain, key=lambda row: repr(sorted(row.items(), key=lambda item: item[0])))


def _plain(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def version_of(place: str) -> int:
    return int(lance.dataset(place).version)


# -- MERGE in plain Python -------------------------------------------------------------------------


def key_of(value: float | None) -> Any:
    """Return what Spark compares two numbers by; None for null, which is equal to nothing."""
    if value is None:
        return None
    return "NaN" if math.isnan(value) else value + 0.0


class DoubledMatchError(Exception):
    """A row of the target matches several of the source."""


def merged(
    target: Sequence[Row],
    source: Sequence[Row],
    *,
    matched: Callable[[Row, Row], Row | None],
    inserted: Callable[[Row], Row] | None,
    unmatched: Callable[[Row], Row | None],
) -> list[Row]:
    """Return the rows of a table after a MERGE by ``k``; a step returns None to delete."""
    by_key: Mapping[Any, list[Row]] = _grouped(source)
    kept: list[Row | None] = []
    met: set[Any] = set()
    for row in target:
        key = key_of(row["k"])
        matches = by_key.get(key, []) if key is not None else []
        if len(matches) > 1:
            raise DoubledMatchError
        met.update({key} if matches else ())
        kept.append(matched(row, matches[0]) if matches else unmatched(row))
    if inserted is not None:
        kept += [inserted(r) for r in source if key_of(r["k"]) is None or key_of(r["k"]) not in met]
    return [row for row in kept if row is not None]


def _grouped(source: Sequence[Row]) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    for row in source:
        found.setdefault(key_of(row["k"]), []).append(row)
    return found

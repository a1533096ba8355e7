"""What migrations into a catalog share: planned entries, their steps, and their verification.

Verification compares Lance datasets: schema, number of rows, and values of some or all rows. Of
blobs, the bytes are compared: a scan without further arguments reads descriptions of them only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, NamespaceNotFoundError
from pydantic import Field

from lance_bridge import blobs, locations
from lance_bridge.catalog import Path
from lance_bridge.dataset import READ_AHEAD, batch_rows, row_bytes
from lance_bridge.entry import TableEntry
from lance_bridge.errors import display, translate_lance_errors
from lance_bridge.records import check_properties
from lance_bridge.tables import Tables

from .. import Level
from ..migration import ItemFacts, StepContext
from ..plan import Facts, Item, Problem, blocker, blockers_in, warning
from ..record import Check
from ..targets import (
    AFTER,
    MANAGING,
    entries_of_names,
    entry_facts,
    load_own_table,
    missing_namespaces,
)

_THREADS = 8
"""Locations that are read at once."""
NO_DATA = "It is declared and has no data yet"


class EntryFacts(ItemFacts):
    """The facts about a table that gets an entry.

    Attributes:
        location: Its existing location, or "" if a step allocates one.
        properties: The properties of its entry that callers see.
        managed: Whether the catalog will manage its versions.
    """

    location: str = ""
    properties: dict[str, str] = Field(default_factory=dict)
    managed: bool = False


@dataclass(frozen=True)
class Candidate:
    """A table that should get an entry.

    Attributes:
        source: Its identifier in the source.
        target: Its identifier in the catalog, not validated yet.
        facts: The facts, not validated yet.
        fingerprint: See `Item`; likewise nothing_to_do, rows and bytes.
        hints: Notes for the plan.
    """

    source: Path
    target: Path
    facts: EntryFacts
    fingerprint: str = ""
    nothing_to_do: str = ""
    problems: tuple[Problem, ...] = ()
    rows: int | None = None
    bytes: int | None = None
    hints: tuple[str, ...] = ()


def plan_items(
    tables: Tables, candidates: Iterable[Candidate], *, make_namespaces: bool
) -> list[Item]:
    """Return the items of a plan: missing namespaces and the tables.

    Args:
        make_namespaces: Whether to create missing namespaces; otherwise their tables are blocked.
    """
    planned = [_plan_table(tables, each) for each in candidates]
    wanted = {item.target for item in planned if item.is_to_do}
    missing = missing_namespaces(tables.connection, wanted)
    absent = {item.target for item in missing}
    parents = {path[:-1] for path in wanted} - absent
    existing = entries_of_names(tables, {path for path in wanted if path[:-1] in parents})
    managing = {path for path in parents if _manages_versions(tables, path)}
    if not make_namespaces:
        planned = [_require_namespace(item, absent) for item in planned]
    planned = [_compare_with_entry(item, existing.get(item.target)) for item in planned]
    with ThreadPoolExecutor(_THREADS) as threads:
        planned = list(threads.map(partial(_require_unmanaged, tables), planned))
    for number, item in enumerate(planned):
        if item.target[:-1] in managing:
            facts = {**item.facts, "managed": True}
            planned[number] = item.model_copy(update={"facts": facts})
    return [*missing, *planned] if make_namespaces else planned


def _plan_table(tables: Tables, found: Candidate) -> Item:
    """Return the item of a table, with the problems of its names, location and properties."""
    problems = list(found.problems)
    target, location = found.target, found.facts.location
    if not blockers_in(problems):
        try:
            target = tables.path_of(found.target)
            location = locations.check(location) if location else ""
        except InvalidInputError as error:
            problems.append(blocker(str(error)))
    properties, refused = _check_properties(found.facts.properties)
    facts = found.facts.model_copy(update={"location": location, "properties": properties})
    return Item(
        source=found.source,
        target=target,
        facts=facts.to_json(),
        fingerprint=found.fingerprint,
        nothing_to_do=found.nothing_to_do,
        problems=(*problems, *refused),
        rows=found.rows,
        bytes=found.bytes,
    )


def _check_properties(given: Mapping[str, str]) -> tuple[dict[str, str], list[Problem]]:
    kept: dict[str, str] = {}
    problems = []
    for key, value in given.items():
        try:
            kept.update(check_properties({key: value}))
        except InvalidInputError as error:
            problems.append(warning(f"A property is left out: {error}"))
    return kept, problems


def _require_namespace(item: Item, absent: set[Path]) -> Item:
    outer = [item.target[:depth] for depth in range(1, len(item.target))]
    missing = [path for path in outer if path in absent]
    if not missing or not item.is_to_do:
        return item
    text = f"Namespace '{display(missing[0])}' does not exist: create it, or let the migration"
    return item.with_problems(blocker(f"{text} create it"))


def _manages_versions(tables: Tables, namespace: Path) -> bool:
    """Return whether the catalog manages the versions of new tables in a namespace."""
    with suppress(NamespaceNotFoundError):
        return tables.wants_management((*namespace, ""))
    return False


def _compare_with_entry(item: Item, entry: TableEntry | None) -> Item:
    """Return the item, blocked or with nothing to do if its name already has an entry."""
    if entry is None or not item.is_to_do:
        return item
    if not entry.record.is_readable:
        text = "The name is already used by an entry that exists and cannot be read"
        return item.with_problems(blocker(text))
    location = item.facts["location"] and locations.key(item.facts["location"])
    is_lance = entry.record.is_lance
    if is_lance and entry.location and locations.key(entry.location) == location:
        return item.model_copy(update={"nothing_to_do": "It has an entry for that location"})
    found = f"a Lance table at {entry.location}" if is_lance else entry.describe_type()
    return item.with_problems(blocker(f"The name is already used by {found}"))


def _require_unmanaged(tables: Tables, item: Item) -> Item:
    """Return the item, blocked if another entry manages the versions at its location."""
    location = item.facts["location"]
    if not item.is_to_do or not location:
        return item
    try:
        manager = tables.find_manager(item.target, location)
    except LanceNamespaceError as error:
        return item.with_problems(blocker(str(error)))
    text = (
        f"Its versions are managed by {manager}. Return them to the storage with `lance-bridge "
        "managed end`, or register an entry that only reads with `lance-bridge table register "
        "--force`"
    )
    return item.with_problems(blocker(text)) if manager else item


def manage_versions(work: StepContext) -> Facts:
    """Make the catalog manage the versions of the table."""
    work.note(**{MANAGING: True})
    return {AFTER: entry_facts(load_own_table(work).manage()), MANAGING: False}


# -- comparing datasets ----------------------------------------------------------------------------


_SAMPLE = 100
_BATCH = 4096
_ROW_ID = "_rowid"
Sizes = np.ndarray[Any, Any]
"""The bytes of rows."""


def compare(
    source: lance.LanceDataset, target: lance.LanceDataset, level: Level
) -> Iterator[Check]:
    """Compare two datasets, whose rows must be in the same order.

    Values are compared by column: at level `SAMPLE` those of evenly spaced rows, at `CHECKSUMS`
    those of all rows.

    Raises:
        ServiceUnavailableError: (17) one of them cannot be read.
    """
    if not level.includes(Level.COUNTS):
        return
    with translate_lance_errors(f"{source.uri} and {target.uri} could not be compared"):
        schemas, is_same = (str(source.schema), str(target.schema)), source.schema == target.schema
        yield Check(name="schema", ok=is_same, expected=schemas[0], found=schemas[1])
        rows, found = source.count_rows(), target.count_rows()
        yield Check(name="rows", ok=rows == found, expected=rows, found=found)
        if rows != found or schemas[0] != schemas[1]:
            return
        if level.includes(Level.CHECKSUMS):
            most = min(map(rows_per_batch, (source, target)))
            pair = (read_all(source, most), read_all(target, most))
            yield from compare_values("values", *pair, source.schema.names)
        elif level.includes(Level.SAMPLE):
            chosen = sample_row_numbers(rows)
            sizes = sizes_of(source, chosen) + sizes_of(target, chosen)
            pair = (read_rows(source, chosen, sizes), read_rows(target, chosen, sizes))
            yield from compare_values("sample", *pair, source.schema.names)


def sample_row_numbers(rows: int) -> list[int]:
    """Return evenly spaced row numbers, including the first and the last."""
    count = min(rows, _SAMPLE)
    return [] if not count else sorted({i * (rows - 1) // max(count - 1, 1) for i in range(count)})


def rows_per_batch(dataset: lance.LanceDataset) -> int:
    """Return how many rows a batch may have, so that it fits in memory."""
    with_blobs = _with_blobs(dataset)
    most = blobs.batch_rows(dataset, with_blobs, _BATCH) if with_blobs else _BATCH
    return batch_rows(dataset, most_rows=most)


def read_all(dataset: lance.LanceDataset, rows: int) -> Iterator[pa.RecordBatch]:
    """Return all rows in their order, with the bytes of blobs, in batches of so many rows."""
    arguments = blobs.scan_arguments(dataset.schema, dataset.schema.names)
    if rows < _BATCH:
        arguments["io_buffer_size"] = READ_AHEAD
    scanner = dataset.scanner(
        batch_size=rows, strict_batch_size=True, scan_in_order=True, **arguments
    )
    return iter(scanner.to_batches())


def sizes_of(dataset: lance.LanceDataset, numbers: list[int]) -> Sizes:
    """Return the bytes of some rows: of blobs in top-level columns exactly."""
    with_blobs = _with_blobs(dataset)
    sizes = np.full(len(numbers), row_bytes(dataset), np.int64)
    for column in dataset.take(numbers, columns=with_blobs).columns if with_blobs else ():
        found = blobs.row_sizes([column.combine_chunks()])
        sizes += blobs.UNKNOWN_SIZE if found is None else found
    return sizes


def read_rows(dataset: lance.LanceDataset, numbers: list[int], sizes: Sizes) -> Iterator[pa.Table]:
    """Yield rows by their numbers, with the bytes of blobs, in tables that fit in memory.

    Args:
        sizes: The bytes of each of the rows.
    """
    names = dataset.schema.names
    if not _with_blobs(dataset):
        for start, length in blobs.slices(sizes, len(numbers)):
            yield dataset.take(numbers[start : start + length])
        return
    ids = dataset.take(numbers, columns=[_ROW_ID]).column(_ROW_ID).combine_chunks()
    for start, length in blobs.slices(sizes, len(numbers)):
        taken = blobs.take_rows(dataset, ids.slice(start, length), names)
        yield pa.table({name: taken[name] for name in names})


def _with_blobs(dataset: lance.LanceDataset) -> list[str]:
    return blobs.columns_with_blobs(dataset.schema, dataset.schema.names)


def compare_values(
    name: str,
    source: Iterator[pa.RecordBatch | pa.Table],
    target: Iterator[pa.RecordBatch | pa.Table],
    columns: Sequence[str],
) -> Iterator[Check]:
    """Compare rows by column; the batches of both must have the same sizes."""
    differing: dict[str, int] = {}
    read = 0
    for one, other in zip_longest(source, target):
        for column in columns:
            if one is None or other is None or not _is_same(one[column], other[column]):
                differing.setdefault(column, read)
        read += one.num_rows if one is not None else 0
    for column in columns:
        at = differing.get(column)
        found = None if at is None else f"a difference in the batch from row {at} on"
        yield Check(name=name, column=column, ok=at is None, found=found)


def _is_same(one: pa.Array | pa.ChunkedArray, other: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether two columns of the same type, or of blobs and bytes, have the same values.

    Unlike in pyarrow's own comparison, NaN is equal to NaN, also in lists, structs and maps.
    """
    if one.equals(other):
        return True
    one, other = _plain(one), _plain(other)
    if one.equals(other):
        return True
    return bool(one.is_valid().equals(other.is_valid())) and _have_same_parts(one, other)


def _have_same_parts(one: pa.Array, other: pa.Array) -> bool:
    if pa.types.is_floating(one.type):
        nan = (pc.is_nan(one), pc.is_nan(other))
        return bool(nan[0].equals(nan[1]) and _without_nan(one).equals(_without_nan(other)))
    if pa.types.is_struct(one.type):
        return all(map(_is_same, one.flatten(), other.flatten()))
    if _is_list(one.type):
        lengths = (pc.list_value_length(one), pc.list_value_length(other))
        return bool(lengths[0].equals(lengths[1])) and _is_same(one.flatten(), other.flatten())
    return False


def _plain(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return values as one array of a type whose parts can be compared."""
    if isinstance(values, pa.ChunkedArray):
        return _plain(values.combine_chunks())
    if blobs.is_blob_type(values.type):
        return values.storage.flatten()[values.type.storage_type.get_field_index("data")]
    if isinstance(values, pa.ExtensionArray):
        return _plain(values.storage)
    if pa.types.is_dictionary(values.type):
        return _plain(values.dictionary_decode())
    if pa.types.is_map(values.type):
        entry = pa.struct([values.type.key_field, values.type.item_field])
        return values.cast(pa.list_(entry))
    # Not every function has a variant for float16.
    return values.cast(pa.float32()) if pa.types.is_float16(values.type) else values


def _without_nan(values: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_nan(values), pa.scalar(0.0, values.type), values)


def _is_list(of: pa.DataType) -> bool:
    checks = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(check(of) for check in checks)

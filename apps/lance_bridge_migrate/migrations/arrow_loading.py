"""Plan, load and verify a table from files that this process reads with pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import lance
import pyarrow as pa

from lance_bridge.errors import LanceNamespaceError, invalid, translate_lance_errors
from lance_bridge.lance_datasets import find_commit
from lance_bridge.names import first_names
from lance_bridge.records import ENTRY_ID
from lance_bridge.requests import Ref
from lance_bridge_spark.addresses import TableAddress
from lance_bridge_spark.lookup import find_table
from lance_bridge_spark.source.arrays import ToLance
from lance_bridge_spark.source.commit import Commit
from lance_bridge_spark.source.writer import Target

from ..arrow_files import FORMATS, ArrowFiles
from ..journal import Check
from ..levels import Level
from ..migration import Work
from ..plan import blockers_in, warning
from ..spark import checksums, schema
from ..spark.writing import Loaded, rows_added
from ..targets import MARK, load_own_table
from .convert_options import (
    ArrowFacts,
    ConvertOptions,
    PathSource,
    index_problems,
    indices_on,
)
from .registration import Candidate
from .verification import (
    batch_rows,
    compare_values,
    read_all,
    read_rows,
    sample_row_numbers,
    sizes_of,
)

_ROWS = 1024
"""The most rows that are compared at once."""
_NAMED = 5
_FOR_SPARK = ("casts", "find_vectors")


def advice(source: PathSource) -> str:
    """Return which columns need pyarrow if Spark cannot read a path, and the option; or ""."""
    if source.format not in FORMATS or source.read_options:
        return ""
    try:
        columns = ArrowFiles.at_path(source.path, source.format, {}).schema
    except LanceNamespaceError:
        return ""
    found = [f"{each.name} ({each.type})" for each in columns if not _is_in_spark(each.type)]
    if not found:
        return ""
    return (
        f". Spark has no type for {first_names(found, _NAMED)}: have pyarrow read it (--reader "
        "pyarrow, or reader: pyarrow of the path)"
    )


def _is_in_spark(of: pa.DataType) -> bool:
    if isinstance(of, pa.BaseExtensionType):
        return not isinstance(of, pa.UuidType) and _is_in_spark(of.storage_type)
    if pa.types.is_decimal(of):
        return bool(of.precision <= 38)
    if pa.types.is_timestamp(of):
        return bool(of.unit != "ns")
    if pa.types.is_time(of) or pa.types.is_float16(of) or pa.types.is_duration(of):
        return False
    return all(_is_in_spark(of.field(number).type) for number in range(of.num_fields))


def candidate(files: ArrowFiles, target: tuple[str, ...], options: ConvertOptions) -> Candidate:
    """Return a table to convert.

    Raises:
        InvalidInputError: (13) an option needs Spark, or the columns cannot be read.
        ServiceUnavailableError: (17)
    """
    given = [name for name in _FOR_SPARK if getattr(options, name)]
    if given:
        raise invalid(f"The option {given[0]} needs Spark: {files.path} is read with pyarrow")
    facts = ArrowFacts(
        arrow_files=files,
        properties=options.properties,
        renames=options.renames,
        max_rows_per_file=options.max_rows_per_file,
        vectors=options.vectors,
        bytes_before=files.bytes,
    )
    columns = facts.schema_of_table
    indices = indices_on(options.indices, columns.names)
    facts = facts.model_copy(
        update={"indices": tuple(each for each in indices if each.column in columns.names)}
    )
    problems = [*files.problems(), *schema.problems_in_lance(columns, options.data_storage_version)]
    if not blockers_in(problems):
        problems += index_problems(indices, columns)
    if options.sort_by:
        problems.append(warning("It is not sorted: pyarrow reads the files in their order"))
    return Candidate(
        source=(files.path,),
        target=target,
        facts=facts,
        fingerprint=files.fingerprint(),
        problems=tuple(problems),
        rows=files.count_rows() if options.count_rows else None,
        bytes=files.bytes,
    )


def append_files(
    facts: ArrowFacts,
    address: TableAddress,
    *,
    version: int,
    transaction: str,
    mark: str,
    options: Mapping[str, Any],
) -> Loaded:
    """Append the rows of files to a table in one commit, unless that was done already.

    Raises:
        InvalidInputError: (13) values that the table cannot hold, or a file that cannot be read.
        ConcurrentModificationError: (14) another writer has written to the table.
        LanceNamespaceError: What finding, opening and committing raises.
    """
    table = find_table(address)
    dataset = table.open(Ref(version=version), write=True)
    made = find_commit(dataset, lambda each: each.uuid == transaction, version)
    if made is not None:
        return Loaded(made, rows_added(address, made))
    access = table.access_version(version, write=True)
    target = Target.appending(access, dataset.schema, options)
    written = replace(target, names=_names(facts)).write(facts.arrow_files.batches())
    if not written.fragments:
        return Loaded(version, 0)
    commit = Commit(
        address,
        access.location,
        version,
        transaction,
        properties={MARK: mark},
        alone=True,
        entry=table.record.properties.get(ENTRY_ID),
    )
    return Loaded(commit.run(written.fragments, lance.LanceOperation.Append), written.rows)


def _names(facts: ArrowFacts) -> dict[str, str]:
    """Return the name in the files of each column of the table."""
    return dict(zip(facts.schema_of_table.names, facts.arrow_files.schema.names, strict=True))


# -- verifying -------------------------------------------------------------------------------------


def checks(work: Work, facts: ArrowFacts, level: Level) -> Iterator[Check]:
    """Compare the files with the version that the migration wrote."""
    files, columns = facts.arrow_files, facts.schema_of_table
    dataset = load_own_table(work).open(Ref(version=int(work.facts["version"])))
    yield checksums.schema_check(columns, dataset.schema)
    rows, found = files.count_rows(), dataset.count_rows()
    yield Check(name="rows", ok=rows == found, expected=rows, found=found)
    if rows != found or not level.includes(Level.SAMPLE):
        return
    size = min(_ROWS, batch_rows(dataset))
    source = _of_size(ToLance(files.batches(), columns, _names(facts)), size)
    if level.includes(Level.CHECKSUMS):
        with translate_lance_errors(f"The rows of {dataset.uri} could not be compared"):
            target = _of_size(read_all(dataset, size), size)
            yield from compare_values("values", source, target, columns.names)
        return
    chosen = sample_row_numbers(rows)
    with translate_lance_errors(f"Rows of {dataset.uri} could not be read"):
        taken = pa.concat_tables(read_rows(dataset, chosen, sizes_of(dataset, chosen)))
    yield from compare_values("sample", iter([_take(source, chosen)]), iter([taken]), columns.names)


def _of_size(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """Yield the same rows in tables of so many rows, but for the last one."""
    left: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        left.append(batch)
        count += batch.num_rows
        if count < size:
            continue
        whole = pa.Table.from_batches(left)
        for start in range(0, count - count % size, size):
            yield whole.slice(start, size)
        left = whole.slice(count - count % size).to_batches()
        count %= size
    if count:
        yield pa.Table.from_batches(left)


def _take(tables: Iterator[pa.Table], numbers: list[int]) -> pa.Table:
    """Return the rows of some numbers, which are in order."""
    found, start = [], 0
    for table in tables:
        inside = [each - start for each in numbers if start <= each < start + table.num_rows]
        found.append(table.take(inside))
        start += table.num_rows
    return pa.concat_tables(found)

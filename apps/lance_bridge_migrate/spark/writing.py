"""Write rows from Spark into a Lance table exactly once, with its schema, and compare them.

The identifier of a write's transaction is derived from the migration's mark, so that any process
can detect that the write was committed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import lance
import pyarrow as pa
from lance_namespace.errors import InvalidInputError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark
from pyspark.sql.types import StructType

from lance_bridge import blobs
from lance_bridge.dataset import Rows
from lance_bridge.dotted_names import by_name, same_names
from lance_bridge.errors import LANCE_ERRORS, first_line, invalid, translate_lance_errors
from lance_bridge.requests import Ref
from lance_bridge.transaction_versions import find_commit
from lance_bridge_spark.rows import (
    APPEND,
    RESULTS_DDL,
    Job,
    TableAddress,
    Target,
    TransactionSpec,
    Write,
    WriteOptions,
    Written,
    find_table,
    fragments_of,
    load,
    to_spark,
    unpack,
    write_rows,
)
from lance_bridge_spark.schemas import ROW_ID, batch_schema, new_schema, nullable, spark_schema

from ..plan import Problem, blocker, blockers_in, warning
from ..record import Check
from ..targets import MARK
from .session import become_active, col, spark_errors

FIRST_ROWS = 20
"""The number of rows that a plan reads to check that they can be read."""
_COLLATED = "lance_bridge.collated"
"""The key in a column's metadata for its type in the source, if it has a collation."""


def schema_for(columns: spark.StructType, vectors: Mapping[str, int]) -> pa.Schema:
    """Return the schema of the Lance table. Raises InvalidInput (13): an unsupported type."""
    return new_schema(nullable(columns), vectors)


def column_problems(
    columns: spark.StructType, vectors: Mapping[str, int], storage_version: str | None = None
) -> list[Problem]:
    """Return problems of columns that Lance does not support or changes.

    Args:
        storage_version: The version of the files; None for Lance's default.
    """
    found: list[Problem] = []
    vectors = by_name(vectors, columns.names)
    for field in columns.fields:
        found += _name_problems(field.name) or _type_problems(field, vectors)
        found += _type_warnings(field)
    if blockers_in(found):
        return found
    return found + problems_in_lance(schema_for(columns, vectors), storage_version)


def _name_problems(name: str) -> list[Problem]:
    bad = [character for character in (".", "`", "\0") if character in name]
    text = "in its name: rename it in the source, or with --rename-column"
    return [blocker(f"Lance cannot write to a column with {bad[0]!r} {text}", name)] if bad else []


def _type_problems(field: spark.StructField, vectors: Mapping[str, int]) -> list[Problem]:
    try:
        given = {k: v for k, v in vectors.items() if k == field.name}
        schema_for(spark.StructType([field]), given)
    except InvalidInputError as error:
        return [blocker(f"{error}, with the option casts", field.name)]
    return []


def _type_warnings(field: spark.StructField) -> Iterable[Problem]:
    declared = (field.metadata or {}).get("__CHAR_VARCHAR_TYPE_STRING")
    data_type = declared or field.dataType.typeName()
    if str(data_type).lower().startswith(("char", "varchar")):
        yield warning(f"{data_type} becomes a string without a limit to its length", field.name)
    collated = (field.metadata or {}).get(_COLLATED)
    if collated:
        text = f"{collated} becomes {field.dataType.simpleString()}: Lance compares bytes, so that"
        yield warning(f"{text} a query may find fewer rows than with the collation", field.name)


def problems_in_lance(schema: pa.Schema, storage_version: str | None) -> list[Problem]:
    """Return the error of Lance, if any, on writing a row of nulls to a table in memory."""
    if storage_version in ("legacy", "0.1"):
        return [blocker(f"Files of version {storage_version} cannot be mixed with later ones")]
    try:
        row = pa.Table.from_arrays([pa.nulls(1, each.type) for each in schema], schema=schema)
        rows = Rows.from_data(row)
        rows.require_storable()
        options: dict[str, Any] = {"data_storage_version": storage_version}
        lance.write_dataset(rows.reader(), "memory://plan", **options)
    except InvalidInputError as error:
        return [blocker(str(error))]
    except LANCE_ERRORS as error:
        return [blocker(f"Lance does not accept these columns: {first_line(error)}")]
    return []


# -- rows and vectors ----------------------------------------------------------------------------


def count_rows(
    frame: DataFrame, name: str, *, find_vectors: bool
) -> tuple[int, dict[str, int], list[Problem]]:
    """Return the number of rows, the lengths of vector columns, and problems, in one pass.

    A column of lists of float or double contains vectors if all lists have the same length and no
    null elements.
    """
    columns = _candidates(frame.schema) if find_vectors else []
    parts = [F.count(F.lit(1)).alias("rows")]
    for number, column in enumerate(columns):
        value = col(column)
        # Depending on the session's settings, the size of a null list is -1.
        size = F.when(value.isNotNull(), F.size(value))
        has_gap = (F.size(F.array_compact(value)) != size).cast("int")
        parts += [
            F.min(size).alias(f"least{number}"),
            F.max(size).alias(f"most{number}"),
            F.max(has_gap).alias(f"gap{number}"),
        ]
    with spark_errors(f"The rows of '{name}' cannot be counted"):
        found = frame.agg(*parts).collect()[0]
    sizes: dict[str, int] = {}
    problems = []
    for number, column in enumerate(columns):
        least, most, gap = (found[f"{what}{number}"] for what in ("least", "most", "gap"))
        if most and least == most and not gap:
            sizes[column] = int(most)
        elif most:
            why = "some numbers are null" if gap else f"they have {least} to {most} numbers"
            problems.append(warning(f"Its lists are not vectors of one length: {why}", column))
    return int(found["rows"]), sizes, problems


def check_first_rows(frame: DataFrame, name: str) -> None:
    """Read some rows, because only reading detects files with other types than the table's.

    An example is a Parquet file with integers in a column that the table declares as text. Does
    nothing with Spark Connect.

    Raises:
        InvalidInputError: (13)
        ServiceUnavailableError: (17)
    """
    java_frame = getattr(frame.limit(FIRST_ROWS), "_jdf", None)
    if java_frame is None:
        return
    with spark_errors(f"The rows of '{name}' cannot be read with the types of its columns"):
        java_frame.collect()


def vector_hints(frame: DataFrame, vectors: Mapping[str, int], name: str) -> list[str]:
    """Return hints about possible vector columns, whose first lists all have the same length.

    Args:
        vectors: The columns that are known to be vectors.
    """
    known = by_name(vectors, frame.columns)
    columns = [each for each in _candidates(frame.schema) if each not in known]
    if not columns:
        return []
    first = frame.select(*map(col, columns)).limit(FIRST_ROWS)
    _, found, _ = count_rows(first, name, find_vectors=True)
    return [
        f"Column '{column}' of '{name}' seems to hold vectors of {length}: --vector "
        f"{column}={length}, or --find-vectors to look through all rows"
        for column, length in found.items()
    ]


def _candidates(columns: spark.StructType) -> list[str]:
    return [
        field.name
        for field in columns.fields
        if isinstance(field.dataType, spark.ArrayType)
        and isinstance(field.dataType.elementType, (spark.FloatType, spark.DoubleType))
    ]


def _cast(frame: DataFrame, casts: Mapping[str, str]) -> DataFrame:
    """Return a frame with some columns cast to other types, and no other collations.

    Raises InvalidInput (13).
    """
    wanted = by_name(casts, frame.columns)
    failure = "The option casts cannot be applied" if casts else "The columns cannot be read"
    # Spark parses the name of a type when the cast is created.
    with spark_errors(failure):
        chosen, is_same = list[Any](), True
        for field in frame.schema.fields:
            column = col(field.name)
            data_type, stored = wanted.get(field.name), _without_collations(field.dataType)
            if data_type is not None:
                column = column.cast(data_type).alias(field.name)
            elif stored != field.dataType:
                # Lance has none, so that Spark would compare source and table differently.
                noted = {**(field.metadata or {}), _COLLATED: field.dataType.simpleString()}
                column = column.cast(stored).alias(field.name, metadata=noted)
            is_same = is_same and data_type is None and stored == field.dataType
            chosen.append(column)
        return frame if is_same else frame.select(*chosen)


def _without_collations(data_type: spark.DataType) -> spark.DataType:
    """Return a type with strings that have no collation, at any depth."""
    if isinstance(data_type, spark.StringType):
        return spark.StringType()
    if isinstance(data_type, spark.ArrayType):
        element = _without_collations(data_type.elementType)
        return spark.ArrayType(element, data_type.containsNull)
    if isinstance(data_type, spark.MapType):
        key, value = map(_without_collations, (data_type.keyType, data_type.valueType))
        return spark.MapType(key, value, data_type.valueContainsNull)
    if isinstance(data_type, spark.StructType):
        return spark.StructType(
            [
                spark.StructField(f.name, _without_collations(f.dataType), f.nullable, f.metadata)
                for f in data_type.fields
            ]
        )
    return data_type


def renamed(names: Sequence[str], renames: Mapping[str, str]) -> list[str]:
    """Return column names after the renames.

    Raises:
        InvalidInputError: (13) a name may mean several columns, or two columns would have one.
    """
    new = by_name(renames, names)
    for old, name in new.items():
        others = [new.get(each, each) for each in names if each != old]
        if same_names(name, others):
            raise invalid(
                f"With the option renames, '{old}' would have the name of column "
                f"'{same_names(name, others)[0]}'"
            )
    return [new.get(name, name) for name in names]


def as_target(frame: DataFrame, casts: Mapping[str, str], renames: Mapping[str, str]) -> DataFrame:
    """Return the rows of a source with the types and names of the target."""
    found = _cast(frame, casts)
    return found.toDF(*renamed(found.columns, renames)) if renames else found


def schema_from_json(text: str) -> spark.StructType:
    """Return a schema parsed from JSON."""
    return spark.StructType.fromJson(json.loads(text))


# -- rows ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loaded:
    """The version and the number of rows of a write."""

    version: int
    rows: int


def once(mark: str, step: str) -> TransactionSpec:
    """Return the transaction of one step, after which other writers' versions are conflicts."""
    identifier = uuid.uuid5(uuid.NAMESPACE_URL, f"lance-bridge:{mark}/{step}")
    return TransactionSpec(str(identifier), {MARK: mark}, alone=True)


def append(
    frame: DataFrame,
    address: TableAddress,
    version: int,
    transaction: TransactionSpec,
    options: Mapping[str, Any],
) -> Loaded:
    """Append the rows of a DataFrame to a table in one commit, unless that was done already.

    Without rows, nothing is committed, and the given version is returned.

    Args:
        version: The version to append to; later versions are searched for the transaction.
        options: The fields of `WriteOptions`.

    Raises:
        TableSchemaValidationError: (20) the columns do not fit the table.
        InvalidInputError: (13) values that the table cannot hold.
        ConcurrentModificationError: (14) another writer has written to the table.
        LanceNamespaceError: What finding, opening and committing raises.
    """
    dataset = find_table(address).open()
    made = find_commit(dataset, lambda each: each.uuid == transaction.uuid, version)
    if made is not None:
        return Loaded(made, rows_added(address, made))
    write = Write(APPEND, version=version, guard=transaction.alone, may_create=False)
    job = Job(address, frame.schema, write, WriteOptions(**options))
    noted = dict(transaction.properties)
    job.commit = replace(job.commit, uuid=transaction.uuid, properties=noted)
    written = _run(frame, job.target, f"The rows for '{address.name}' are not written")
    fragments = fragments_of(written)
    if not fragments:
        return Loaded(version, 0)
    made = job.commit.run(fragments, job.operation)
    return Loaded(made, sum(each.rows for each in written))


def bytes_of(dataset: lance.LanceDataset) -> int:
    """Return the size of a version's data files, as far as its manifest contains it."""
    files = [file for each in dataset.get_fragments() for file in each.metadata.files]
    return sum(int(file.file_size_bytes or 0) for file in files)


def rows_added(address: TableAddress, version: int) -> int:
    """Return how many rows a version has more than the one before it."""
    table = find_table(address)
    with translate_lance_errors(f"The rows of '{address.name}' could not be counted"):
        after = table.open(Ref(version=version)).count_rows()
        return int(after - table.open(Ref(version=version - 1)).count_rows())


def _run(frame: DataFrame, target: Target, what: str) -> list[Written]:
    """Write the rows in Spark tasks. Only the results that tasks returned count."""
    # PySpark looks up columns by unquoted names, which fails for some column names.
    plain = {name: f"c{number}" for number, name in enumerate(frame.columns)}
    names = {column: plain[name] for column, name in target.names.items()}
    task = partial(write_rows, replace(target, names=names))
    with spark_errors(what):
        rows = frame.toDF(*plain.values()).mapInArrow(task, RESULTS_DDL).collect()
    return [unpack(row) for row in rows]


def read_back(spark: Any, address: TableAddress, version: int) -> DataFrame:
    """Return the rows of a table's version as a DataFrame."""
    become_active(spark)
    with spark_errors(f"'{address.name}' cannot be read"):
        return load(spark, address, {"version": str(version)})


def _rows_of(spark: Any, dataset: lance.LanceDataset, row_numbers: list[int]) -> DataFrame:
    """Return some rows of a dataset, by their row numbers, as a DataFrame."""
    shown: StructType = spark_schema(dataset.schema)
    expected = batch_schema(shown)
    with translate_lance_errors(f"Rows of {dataset.uri} could not be read"):
        ids = dataset.take(row_numbers, columns=[ROW_ID]).column(ROW_ID).combine_chunks()
        taken = pa.table(blobs.take_rows(dataset, ids, dataset.schema.names))
    batches = [to_spark(batch, expected) for batch in taken.to_batches()]
    rows = pa.Table.from_batches(batches, schema=expected)
    frame: DataFrame = spark.createDataFrame(rows, schema=shown)
    return frame


# -- checksums -------------------------------------------------------------------------------------


_UPPER_BITS = 28
_HASH = "__row"
_BATCH_COLUMNS = 100
"""The maximum number of columns in one aggregate; Spark cannot compile code for more."""


def _parts(value: Column, data_type: spark.DataType) -> list[Column]:
    if isinstance(data_type, spark.ArrayType):
        if isinstance(data_type.elementType, spark.NumericType):
            return [value, F.size(value)]
        return [_marked_list(value, data_type.elementType), F.size(value)]
    if isinstance(data_type, spark.MapType):
        entry = spark.StructType().add("key", data_type.keyType).add("value", data_type.valueType)
        return [_marked_list(F.map_entries(value), entry), F.size(value)]
    if isinstance(data_type, spark.StructType):
        fields = [_marked(value.getField(each.name), each.dataType) for each in data_type.fields]
        return [part for each in fields for part in each]
    return [value]


def _marked_list(value: Column, data_type: spark.DataType) -> Column:
    return F.transform(value, lambda each: F.xxhash64(*_marked(each, data_type)))


def _marked(value: Column, data_type: spark.DataType) -> list[Column]:
    return [value.isNull(), *_parts(value, data_type)]


def checksums(frame: DataFrame, what: str) -> dict[str, Any]:
    """Return the checksum of each column, and the number of rows under the key "".

    Raises:
        ServiceUnavailableError: (17) it cannot be read.
        InvalidInputError: (13)
    """
    found: dict[str, Any] = {}
    fields = frame.schema.fields
    for start in range(0, max(len(fields), 1), _BATCH_COLUMNS):
        some = fields[start : start + _BATCH_COLUMNS]
        with spark_errors(f"The checksums of {what} cannot be computed"):
            row = frame.agg(F.count(F.lit(1)), *_aggregates(some)).collect()[0]
        found[""] = row[0]
        for number, field in enumerate(some):
            found[field.name] = [row[1 + 3 * number + part] for part in range(3)]
    return found


def _aggregates(fields: list[spark.StructField]) -> Iterator[Column]:
    for field in fields:
        column = col(field.name)
        value = F.when(column.isNotNull(), F.xxhash64(*_parts(column, field.dataType)))
        yield F.count(column)
        yield F.bit_xor(value)
        yield F.sum(F.shiftrightunsigned(value, 64 - _UPPER_BITS))


def compare_checksums(source: DataFrame, target: DataFrame) -> Iterator[Check]:
    """Compare the number of rows and, by column, all values."""
    expected = checksums(source, "the source")
    found = checksums(target.select(*map(col, source.columns)), "the target")
    yield Check(name="rows", ok=expected[""] == found[""], expected=expected[""], found=found[""])
    for column in source.columns:
        one, other = expected[column], found.get(column)
        yield Check(name="checksum", column=column, ok=one == other, expected=one, found=other)


def compare_sample(source: DataFrame, target: lance.LanceDataset, row_numbers: list[int]) -> Check:
    """Search the source for some rows of the target, by the hash of all columns."""
    sample = _rows_of(source.sparkSession, target, row_numbers)
    with spark_errors("A sample of the rows cannot be compared"):
        rows = _row_hashes(sample.select(*map(col, source.columns))).collect()
        wanted = {row[0] for row in rows}
        there = _row_hashes(source).where(F.col(_HASH).isin(*wanted)).distinct().count()
    return Check(name="sample", ok=there == len(wanted), expected=len(wanted), found=there)


def _row_hashes(frame: DataFrame) -> DataFrame:
    parts = [part for f in frame.schema.fields for part in _marked(col(f.name), f.dataType)]
    return frame.select(F.xxhash64(*parts).alias(_HASH))


def schema_check(expected: pa.Schema, found: pa.Schema) -> Check:
    """Compare the planned schema with the actual one, ignoring metadata."""
    same = expected.remove_metadata().equals(found.remove_metadata())
    texts = [json.dumps({f.name: str(f.type) for f in each}) for each in (expected, found)]
    return Check(name="schema", ok=same, expected=texts[0], found=texts[1])

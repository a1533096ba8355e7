"""Map Spark's schema to that of a Lance table: types, names, and vector lengths."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import lance
import pyarrow as pa
from lance_namespace.errors import InvalidInputError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from lance_bridge.dataset import Rows
from lance_bridge.errors import LANCE_ERRORS, first_line, invalid
from lance_bridge.names import by_name, quoted, same_names
from lance_bridge_spark.schemas import new_schema, nullable

from ..plan import Problem, blocker, blockers_in, warning
from .session import spark_errors

_NUMBERS = (spark.FloatType, spark.DoubleType)
FIRST_ROWS = 20
"""The number of rows that a plan reads to check that they can be read."""
_TEXTS = ("char", "varchar")
_COLLATED = "lance_bridge.collated"
"""The key in a column's metadata for its type in the source, if it has a collation."""
_NOT_IN_NAMES = (".", "`", "\0")
_FIRST_FILES = ("legacy", "0.1")


def schema_for(columns: spark.StructType, vectors: Mapping[str, int]) -> pa.Schema:
    """Return the schema of the Lance table. Raises InvalidInput (13): an unsupported type."""
    return new_schema(nullable(columns), vectors)


def problems_of(
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
    bad = [character for character in _NOT_IN_NAMES if character in name]
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
    data_type = (field.metadata or {}).get(
        "__CHAR_VARCHAR_TYPE_STRING"
    ) or field.dataType.typeName()
    if str(data_type).lower().startswith(_TEXTS):
        yield warning(f"{data_type} becomes a string without a limit to its length", field.name)
    collated = (field.metadata or {}).get(_COLLATED)
    if collated:
        text = f"{collated} becomes {field.dataType.simpleString()}: Lance compares bytes, so that"
        yield warning(f"{text} a query may find fewer rows than with the collation", field.name)


def problems_in_lance(schema: pa.Schema, storage_version: str | None) -> list[Problem]:
    """Return the error of Lance, if any, on writing a row of nulls to a table in memory."""
    if storage_version in _FIRST_FILES:
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


def count(
    frame: DataFrame, name: str, *, find_vectors: bool
) -> tuple[int, dict[str, int], list[Problem]]:
    """Return the number of rows, the lengths of vector columns, and problems, in one pass.

    A column of lists of float or double contains vectors if all lists have the same length and no
    null elements.
    """
    columns = _candidates(frame.schema) if find_vectors else []
    parts = [F.count(F.lit(1)).alias("rows")]
    for number, column in enumerate(columns):
        value = F.col(quoted((column,)))
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
    first = frame.select(*[F.col(quoted((each,))) for each in columns]).limit(FIRST_ROWS)
    _, found, _ = count(first, name, find_vectors=True)
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
        and isinstance(field.dataType.elementType, _NUMBERS)
    ]


def cast(frame: DataFrame, casts: Mapping[str, str]) -> DataFrame:
    """Return a frame with some columns cast to other types, and no other collations.

    Raises InvalidInput (13).
    """
    wanted = by_name(casts, frame.columns)
    failure = "The option casts cannot be applied" if casts else "The columns cannot be read"
    # Spark parses the name of a type when the cast is created.
    with spark_errors(failure):
        chosen, is_same = list[Any](), True
        for field in frame.schema.fields:
            column = F.col(quoted((field.name,)))
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


def rename(frame: DataFrame, renames: Mapping[str, str]) -> DataFrame:
    """Return a frame with some columns renamed. Raises InvalidInput (13)."""
    if not renames:
        return frame
    return frame.toDF(*renamed(frame.columns, renames))


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
    return rename(cast(frame, casts), renames)


def sort(frame: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return a frame sorted by columns, if there are any."""
    return frame.orderBy(*[F.col(quoted((name,))) for name in by]) if by else frame


def from_json(text: str) -> spark.StructType:
    """Return a schema parsed from JSON."""
    return spark.StructType.fromJson(json.loads(text))

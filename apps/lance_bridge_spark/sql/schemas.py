"""Conversion of columns between Spark and Lance: types and metadata.

A column's comment is its field's metadata ``comment`` on both sides. Spark reads a vector as an
array with its length in the metadata, so that a table created from a query keeps its vectors.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import lance
import pyarrow as pa
from lance.fragment import FragmentMetadata
from lance_namespace.errors import LanceNamespaceError
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    StringType,
    StructField,
    StructType,
    VarcharType,
)

from lance_bridge import blobs, locations
from lance_bridge.catalog import Path
from lance_bridge.dataset import FIRST_VERSION, not_written
from lance_bridge.errors import (
    LANCE_ERRORS,
    OutcomeUnknownError,
    display,
    invalid,
    table_already_exists,
    translate_lance_errors,
    unsupported,
)
from lance_bridge.records import check_properties
from lance_bridge.storage import RESERVED_FILE, VersionDirectory
from lance_bridge.table import Table
from lance_bridge.tables import Tables
from lance_bridge.types import columns_of

from ..source import schema_compat, stored_types, types
from ..source.options import whole_number
from ..source.types import COMMENT

# -- schemas ---------------------------------------------------------------------------------------


TYPE = "spark.type"
"""The key in a column's metadata for ``char(n)`` and ``varchar(n)``; Spark checks the lengths."""
_LENGTH_CHECKED = "__CHAR_VARCHAR_TYPE_STRING"
"""Spark's own key for string columns whose lengths it checks."""
_COLLATIONS = "__COLLATIONS"
"""Spark's own key for the collations of a column's strings."""
VECTOR = "vector."
"""The table property ``'vector.v' = '16'`` makes column ``v`` vectors of 16 elements."""

Json = dict[str, Any]


def to_spark(schema: pa.Schema) -> str:
    """Return the JSON text of the ``StructType`` for Spark."""
    struct = types.spark_schema(schema).jsonValue()
    return json.dumps(_add_metadata(struct, list(schema)))


def _add_metadata(struct: Any, fields: list[pa.Field]) -> Any:
    """Return the JSON of a struct with the metadata of its fields, at every depth."""
    pairs = zip(struct["fields"], fields, strict=True)
    return {**struct, "fields": [_add_field_metadata(each, field) for each, field in pairs]}


def _add_field_metadata(spark_json: Json, field: pa.Field) -> Json:
    metadata: Json = {}
    comment = (field.metadata or {}).get(COMMENT.encode())
    if comment is not None:
        metadata[COMMENT] = comment.decode(errors="replace")
    metadata |= stored_types.metadata_of(field, types.read_type)
    exact = (field.metadata or {}).get(TYPE.encode())
    if exact is not None:
        metadata[_LENGTH_CHECKED] = exact.decode(errors="replace")
    return {
        **spark_json,
        "type": _add_type_metadata(spark_json["type"], field.type),
        "metadata": metadata,
    }


def _add_type_metadata(spark_json: Any, dtype: pa.DataType) -> Any:
    if not isinstance(spark_json, dict):
        return spark_json
    if pa.types.is_struct(dtype):
        return _add_metadata(spark_json, [dtype.field(i) for i in range(dtype.num_fields)])
    if spark_json.get("type") == "array":
        return {
            **spark_json,
            "elementType": _add_type_metadata(spark_json["elementType"], dtype.value_type),
        }
    return spark_json


def converted_columns(schema: pa.Schema) -> list[str]:
    """Return the columns whose values in Spark differ from the stored ones, at any depth.

    A type that differs only in layout, such as ``large_string``, is not converted.
    """
    return [f.name for f in schema if blobs.has_blobs(f) or _is_converted(f.type)]


def _is_converted(dtype: pa.DataType) -> bool:
    if isinstance(dtype, pa.BaseExtensionType):
        return True
    if pa.types.is_map(dtype):
        return _is_converted(dtype.key_type) or _is_converted(dtype.item_type)
    if pa.types.is_nested(dtype):
        return any(_is_converted(dtype.field(i).type) for i in range(dtype.num_fields))
    if pa.types.is_duration(dtype):
        return True  # its literals differ between Lance and Spark
    return bool(types.read_type(dtype) != dtype and not any(same(dtype) for same in _SAME_VALUES))


_SAME_VALUES = (
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
)


def to_arrow(text: str, properties: Mapping[str, str] | None = None) -> pa.Schema:
    """Return the Arrow schema of a table with these columns.

    Args:
        text: The JSON text of a ``StructType``.
        properties: The table's properties, which may declare columns as vectors.

    Raises:
        InvalidInputError: (13) a type that Lance does not have, or an invalid vector.
    """
    parsed = json.loads(text)
    _refuse_collations_of_lengths(parsed)
    struct = StructType.fromJson(parsed)
    schema = schema_compat.new_schema(_without_lengths(struct), _vectors(properties or {}))
    return pa.schema([_with_metadata(field, struct[field.name]) for field in schema])


def to_arrow_type(text: str) -> pa.DataType:
    """Return the Arrow type for the JSON text of a type of Spark.

    Raises:
        InvalidInputError: (13) Lance has no such type.
    """
    spark_json = {"name": "value", "type": json.loads(text), "nullable": True, "metadata": {}}
    return to_arrow(json.dumps({"type": "struct", "fields": [spark_json]})).field(0).type


def length_in(text: str) -> str | None:
    """Return ``varchar(10)`` or ``char(3)`` if that is the JSON text of a type, or None."""
    spark_json = json.loads(text)
    return (
        spark_json
        if isinstance(spark_json, str) and spark_json.startswith(("char(", "varchar("))
        else None
    )


def _vectors(properties: Mapping[str, str]) -> dict[str, int]:
    return {
        key.removeprefix(VECTOR): whole_number(f"Property '{key}'", value)
        for key, value in properties.items()
        if key.startswith(VECTOR)
    }


def _without_lengths(struct: StructType) -> StructType:
    """Return the columns with ``char(n)`` and ``varchar(n)`` as strings: Arrow lacks them."""
    return StructType(
        [
            StructField(each.name, StringType(), each.nullable, each.metadata)
            if isinstance(each.dataType, CharType | VarcharType)
            else each
            for each in struct.fields
        ]
    )


def _refuse_collations_of_lengths(struct: Json) -> None:
    """Raise InvalidInput (13) for a ``char(n)`` with a collation, which PySpark's type loses."""
    for each in struct["fields"]:
        type_json = json.dumps(each["type"])
        has_collation = _COLLATIONS in (each.get("metadata") or {}) or " collate " in type_json
        if has_collation and "char(" in type_json:
            raise types.collation_error(each["name"], type_json.strip('"'))


def _with_metadata(field: pa.Field, spark: StructField) -> pa.Field:
    """Return a column with the lengths of strings and the comments of fields as metadata."""
    metadata = dict(field.metadata or {})
    if isinstance(spark.dataType, CharType | VarcharType):
        metadata[TYPE.encode()] = spark.dataType.simpleString().encode()
    dtype = _add_comments(field.type, spark.dataType)
    return field.with_type(dtype).with_metadata(metadata or None)


def _add_comments(dtype: pa.DataType, spark: DataType) -> pa.DataType:
    if isinstance(spark, StructType) and pa.types.is_struct(dtype):
        children = [dtype.field(i) for i in range(dtype.num_fields)]
        return pa.struct([_add_comment(child, spark[child.name]) for child in children])
    if isinstance(spark, ArrayType) and pa.types.is_list(dtype):
        inner = dtype.value_field
        return pa.list_(inner.with_type(_add_comments(inner.type, spark.elementType)))
    return dtype


def _add_comment(field: pa.Field, spark: StructField) -> pa.Field:
    comment = (spark.metadata or {}).get(COMMENT)
    dtype = _add_comments(field.type, spark.dataType)
    metadata = {**(field.metadata or {}), **({COMMENT: comment} if comment else {})}
    return field.with_type(dtype).with_metadata(metadata or None)


# -- columns of entries ----------------------------------------------------------------------------


logger = logging.getLogger(__name__)

_HINT = "latest_version_hint.json"
"""The file that Lance writes beside a manifest."""


@dataclass(frozen=True)
class Data:
    """The data and location of version 1 of a new table."""

    location: str
    schema: pa.Schema
    fragments: Sequence[str] = ()
    """In JSON; their files exist at the location already."""
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    """Identifies the transaction, so that it is recognised after a lost reply."""
    is_own_location: bool = False
    """Whether no other writer can use the location."""

    def metadata(self) -> list[FragmentMetadata]:
        return [FragmentMetadata.from_json(each) for each in self.fragments]


def publish_new(tables: Tables, definition: Definition, data: Data) -> Table:
    """Commit version 1, then add the entry; if that fails, delete the data.

    Raises:
        TableAlreadyExistsError: (5) the name is taken, or a dataset exists at the location.
        NamespaceNotFoundError: (1)
        InvalidInputError: (13)
        UnsupportedOperationError: (0) the catalog should manage the table, and cannot.
        OutcomeUnknownError: (17) the entry may exist; the data is kept.
        ServiceUnavailableError: (17) the storage did not accept the data.
    """
    path, properties = definition.path, definition.properties
    tables.wants_management(path, properties)  # raises before anything is written
    new = tables.at(path, data.location)
    had_reservation = (
        not data.is_own_location and new.files(write=True).head(RESERVED_FILE) is not None
    )
    _commit_first(new, data)
    try:
        return tables.add(path, data.location, properties, columns=columns_of(data.schema))
    except OutcomeUnknownError:
        raise
    except LanceNamespaceError:
        _remove_dataset(new, data, [] if had_reservation else [RESERVED_FILE])
        raise


def _commit_first(table: Table, data: Data) -> None:
    """Commit version 1 and no later one. Raise 5 if the version exists, or 17."""
    location = table.location
    options = table.storage_options(write=True)
    transaction = lance.Transaction(
        read_version=0,
        operation=lance.LanceOperation.Overwrite(data.schema, data.metadata()),
        uuid=data.uuid,
    )
    try:
        lance.LanceDataset.commit(
            locations.for_lance(location), transaction, max_retries=0, storage_options=options
        )
    except LANCE_ERRORS as error:
        if not table.storage(write=True).has_dataset(location):
            raise not_written(table, error, "No table was made") from error
        if not _is_first(table, data, options):
            raise table_already_exists(
                table.path, f"there is a Lance table at {location}"
            ) from error


def _is_first(table: Table, data: Data, options: dict[str, str] | None) -> bool:
    """Return whether this transaction made version 1: its reply may have been lost."""
    location = table.uri
    with translate_lance_errors(f"Version 1 of '{table.name}' could not be read at {location}"):
        dataset = lance.dataset(location, version=FIRST_VERSION, storage_options=options)
        transaction = dataset.read_transaction(FIRST_VERSION)
    return transaction is not None and transaction.uuid == data.uuid


def _remove_dataset(table: Table, data: Data, reservations: Sequence[str]) -> None:
    """Delete a dataset that was created here and has no entry.

    At a location that other writers may use, delete only the files written here.
    """
    try:
        if data.is_own_location:
            table.storage(write=True).delete_table(data.location)
            return
        files = table.files(write=True)
        directory = VersionDirectory(files)
        made = directory.list()
        if [each.version for each in made] != [FIRST_VERSION]:
            logger.warning(
                "%s has been written to concurrently: its version 1 is kept", data.location
            )
            return
        versions = [directory.within(name) for name in (made[0].name, _HINT)]
        transaction = f"_transactions/0-{data.uuid}.txn"
        files.remove([*versions, transaction, *reservations, *_data_files(data.metadata())])
    except LanceNamespaceError as error:
        logger.warning("files of '%s' remain at %s: %s", table.name, table.record.location, error)


def remove_files(table: Table, fragments: Sequence[str]) -> None:
    """Delete the data files of fragments that no version has."""
    paths = _data_files([FragmentMetadata.from_json(each) for each in fragments])
    if not paths:
        return
    try:
        table.files(write=True).remove(paths)
    except LanceNamespaceError as error:
        logger.warning("files of '%s' remain at %s: %s", table.name, table.record.location, error)


def _data_files(fragments: Sequence[FragmentMetadata]) -> list[str]:
    return [f"data/{file.path}" for each in fragments for file in each.files]


_PROVIDER = "provider"
LANCE = "lance"
_LOCATION = "location"
_EXTERNAL = "external"
_SPARKS_OWN = frozenset({_PROVIDER, _LOCATION, _EXTERNAL, "owner", "is_managed_location"})
"""Keys that Spark passes with the properties; the catalog tracks the owners of its tables."""


@dataclass(frozen=True)
class Definition:
    """The definition of a new table. ``properties`` are the user's, including ``comment``."""

    path: Path
    struct: str
    """The JSON text of its ``StructType``."""
    properties: Mapping[str, str] = field(default_factory=dict)
    location: str | None = None
    """The requested location; None leaves the choice to the catalog."""

    @classmethod
    def of(cls, path: Path, args: Mapping[str, Any]) -> Definition:
        """Return the definition in a call's arguments.

        Raises:
            InvalidInputError: (13) a provider other than ``lance``, a bad location or property.
            UnsupportedOperationError: (0) an external table.
        """
        given: Mapping[str, str] = args.get("properties") or {}
        _check_provider(path, given.get(_PROVIDER) or LANCE)
        if given.get(_EXTERNAL, "false").lower() == "true":
            raise unsupported(
                f"Table '{display(path)}' cannot be EXTERNAL: DROP TABLE deletes the data of every "
                "Lance table. Leave EXTERNAL out"
            )
        location = given.get(_LOCATION)
        own = {key: value for key, value in given.items() if key not in _SPARKS_OWN}
        check_properties(own)
        place = None if location is None else locations.check(location)
        return cls(path, args["schema"], own, place)

    @property
    def has_columns(self) -> bool:
        return bool(json.loads(self.struct).get("fields"))

    def schema(self) -> pa.Schema:
        """Return the table's Arrow schema. Raises InvalidInput (13) as `to_arrow` does."""
        return to_arrow(self.struct, self.properties)


def _check_provider(path: Path, provider: str) -> None:
    if provider.lower() != LANCE:
        raise invalid(
            f"Table '{display(path)}' cannot be of {provider[:60]!r}: this catalog makes Lance "
            "tables only. Leave USING out or write USING lance; from a DataFrame, write "
            ".format('lance') before saveAsTable, whose default is another"
        )

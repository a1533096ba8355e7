"""Read the numbers of rows and the types from the footers of Parquet and ORC files.

This replaces two Spark jobs per table: a plan of a thousand tables would spend most of its time on
starting jobs. The types of all read files are compared, because a later file may have a type that
Spark cannot read as the declared one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from ..plan import Problem, warning
from ..second_reader.file_schemas import FileSchemas
from .session import java_class, spark_errors
from .sources import SourceTable

_FORMATS = ("parquet", "orc")
_SOURCES = "org.apache.spark.sql.execution.datasources"
MAX_FILES = 100
"""The maximum number of footers to read per table."""


@dataclass(frozen=True)
class Footers:
    """The content of the footers of some files.

    Attributes:
        files: The number of files of the table.
        files_read: The number of files whose footers were read.
        rows: The number of rows of the files that were read.
        schemas: One file of each distinct schema, with the schema as Spark converts it.
    """

    files: int
    files_read: int
    rows: int
    schemas: Mapping[str, spark.StructType]

    @property
    def is_complete(self) -> bool:
        return self.files_read == self.files


def read(
    session: Any, table: SourceTable, frame: DataFrame, known: FileSchemas | None = None
) -> Footers | None:
    """Read the footers of a table's files, or of an evenly spaced sample.

    If the second reader has read the footers of all files, one file of each schema is enough.

    Returns None if they cannot be read: for other formats, Spark Connect, damaged files, and tables
    whose files Spark does not list.
    """
    if table.format not in _FORMATS or getattr(session, "_jvm", None) is None:
        return None
    try:
        files = [*known.schemas] if known is not None else sorted(frame.inputFiles())
        if not files:
            return None
        chosen = _sample(files)
        reader = _Reader(session, table.format)
        rows, schemas = 0, dict[str, tuple[str, spark.StructType]]()
        for file in chosen:
            count, text, found = reader.read(file)
            rows += count
            if text not in schemas:
                schemas[text] = (file, reader.schema_of(found))
    except (PySparkException, Py4JError):
        return None
    if known is not None and known.rows is not None:
        read_of = known.files if len(chosen) == len(files) else len(chosen)
        return Footers(known.files, read_of, known.rows, dict(schemas.values()))
    return Footers(len(files), len(chosen), rows, dict(schemas.values()))


def _sample(files: Sequence[str]) -> list[str]:
    if len(files) <= MAX_FILES:
        return list(files)
    last = len(files) - 1
    return [files[number * last // (MAX_FILES - 1)] for number in range(MAX_FILES)]


class _Reader:
    """Reads footers with Spark's own Java libraries."""

    def __init__(self, session: Any, format: str) -> None:
        self._session = session
        state = session._jsparkSession.sessionState()
        self._conf = state.newHadoopConf()
        self._sql_conf = state.conf()
        self.read = self._parquet if format == "parquet" else self._orc
        self._is_parquet = format == "parquet"

    def _class(self, name: str) -> Any:
        return java_class(self._session, name)

    def _parquet(self, file: str) -> tuple[int, str, Any]:
        inputs = self._class("org.apache.parquet.hadoop.util.HadoopInputFile")
        source = inputs.fromPath(path_of(self._session, file), self._conf)
        reader = self._class("org.apache.parquet.hadoop.ParquetFileReader").open(source)
        try:
            schema = reader.getFileMetaData().getSchema()
            return int(reader.getRecordCount()), str(schema.toString()), schema
        finally:
            reader.close()

    def _orc(self, file: str) -> tuple[int, str, Any]:
        orc = self._class("org.apache.orc.OrcFile")
        reader = orc.createReader(path_of(self._session, file), orc.readerOptions(self._conf))
        try:
            schema = reader.getSchema()
            return int(reader.getNumberOfRows()), str(schema.toString()), schema
        finally:
            reader.close()

    def schema_of(self, found: Any) -> spark.StructType:
        if self._is_parquet:
            converter = self._class(f"{_SOURCES}.parquet.ParquetToSparkSchemaConverter")
            made = converter(self._sql_conf).convert(found)
        else:
            made = self._class(f"{_SOURCES}.orc.OrcUtils").toCatalystSchema(found)
        return spark.StructType.fromJson(json.loads(made.json()))


def path_of(session: Any, uri: str) -> Any:
    """Return Hadoop's path for a percent-encoded URI."""
    return java_class(session, "org.apache.hadoop.fs.Path")(
        java_class(session, "java.net.URI")(uri)
    )


def check_types(
    session: Any, table: SourceTable, columns: spark.StructType, footers: Footers
) -> Iterator[Problem]:
    """Check that a table's files can be read with its types; warn if only a sample was checked.

    If a type differs in a file, Spark reads a row of the file, because it can widen some types.

    Args:
        columns: The schema with which Spark reads the table.

    Raises:
        InvalidInputError: (13) a file cannot be read; the message names it.
        ServiceUnavailableError: (17)
    """
    declared = {field.name.lower(): _type(field) for field in columns.fields}
    for file, found in footers.schemas.items():
        names = {field.name.lower(): _type(field) for field in found.fields}
        common = set(names) & set(declared)
        # Without common names, columns may be matched by position, as in ORC files of Hive.
        if not common or any(names[name] != declared[name] for name in common):
            _read_one(session, table, columns, file)
    if not footers.is_complete:
        yield warning(
            f"The types of {footers.files_read} of its {footers.files:,} files were compared with "
            "those of its columns"
        )


def _type(field: spark.StructField) -> str:
    return field.dataType.simpleString().lower()


def _read_one(session: Any, table: SourceTable, columns: spark.StructType, file: str) -> None:
    partitions = {name.lower() for name in table.partitions}
    kept = [field for field in columns.fields if field.name.lower() not in partitions]
    with spark_errors(
        f"The rows of '{table.name}' cannot be read with the types of its columns ({file})"
    ):
        reader = session.read.schema(spark.StructType(kept)).format(table.format)
        reader.load(str(path_of(session, file).toString())).limit(1)._jdf.collect()

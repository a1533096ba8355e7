"""The data source `lance`, Spark's entry point for reads, writes and streams."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import lance
import pyspark.sql.datasource as spark_datasource
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from lance_bridge.dataset import SCAN_BYTES, check_predicate
from lance_bridge.errors import invalid, unsupported
from lance_bridge.requests import Ref

from ..addresses import Access, CatalogAddress, TableAddress, catalogs_in
from ..lookup import find_table
from ..time_travel import TIME_ZONE, to_micros, version_at
from . import conversion
from .memory import scan_memory
from .options import (
    APPEND,
    FORMAT,
    OVERWRITE,
    STAGE,
    Options,
    ReadOptions,
    Scan,
    Search,
    Write,
    WriteOptions,
    scan_of,
    search_of,
    write_of,
)
from .reading import LanceReader, Reading
from .streams import LanceStreamReader, LanceStreamWriter, Limit, Stream
from .worker_calls import spark_call
from .writer import Job, LanceWriter, StagedWriter

if TYPE_CHECKING:
    from ..spark_tables import SparkTable


class LanceSource(DataSource):
    """Reads and writes Lance tables, by name or location."""

    catalogs: ClassVar[Mapping[str, CatalogAddress]] = {}
    """The session's catalogs by name; `with_catalogs` returns a source with them."""

    memory: int = SCAN_BYTES
    """About how many bytes the scan of a task may hold."""

    zone: str | None = None
    """The session's time zone, if known."""

    loaded: SparkTable | None = None
    """The table to read, if the statement has loaded it already."""

    _pinned: tuple[Access, Search | None] | None = None
    """The version whose schema was read; the rows are read from the same version."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """Return the table's columns as Spark types."""
        with spark_call():
            options = self._options()
            read = options.reading()
            dataset, access, search = self._open(options, read, Scan())
            self._pinned = access, search
            return conversion.read_schema(dataset.schema, access.address.name, read, search)

    # -- reading -----------------------------------------------------------------------------------

    def reader(self, schema: StructType) -> LanceReader:
        with spark_call():
            options = self._options()
            read = options.reading()
            scan = scan_of(self.options)
            if self._pinned is not None and scan is None:
                access, search = self._pinned
                dataset = access.open()
            else:
                dataset, access, search = self._open(options, read, scan or Scan())
            name = access.address.name
            if scan is None or scan.aggregate is None:
                conversion.check_readable(schema, dataset.schema, name, search)
            if read.filter is not None:
                check_predicate(dataset, name, read.filter, "Option 'filter'")
            reading = Reading(access, schema, scan or Scan(), read, search, memory=self.memory)
            return LanceReader(reading, dataset)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        with spark_call():
            options = self._options()
            read = options.reading()
            stream = Stream(options.address(), options, read)
            reading, dataset = stream.reading(schema, read)
            conversion.check_readable(schema, dataset.schema, stream.address.name, None)
            if read.filter is not None:
                check_predicate(dataset, stream.address.name, read.filter, "Option 'filter'")
            return _stream_reader(stream, replace(reading, memory=self.memory))

    def _open(
        self, options: Options, read: ReadOptions, scan: Scan
    ) -> tuple[lance.LanceDataset, Access, Search | None]:
        branch = scan.branch or read.branch
        version = scan.version or read.version
        if self.loaded is not None and version is not None:
            access = self.loaded.access_version(version, branch=branch)
            dataset = access.open()
            return dataset, access, search_of(options, self.loaded, dataset)
        table = find_table(options.address())
        if read.timestamp is not None and scan.version is None:
            moment = to_micros(read.timestamp)
            version = version_at(table.open(Ref.of(branch=branch)), moment, table.address.name)
        dataset = table.open(Ref.of(version, read.tag, branch))
        found = search_of(options, table, dataset)
        return dataset, table.access(dataset, branch=branch), found

    # -- writing -----------------------------------------------------------------------------------

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        with spark_call():
            address, write, writing = self._parse_write(overwrite)
            if write.mode == STAGE:
                return StagedWriter(address, schema, write, writing)
            return LanceWriter(Job(address, schema, write, writing))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        with spark_call():
            address, write, writing = self._parse_write(overwrite)
            # The entry may change while a stream runs: each batch loads it again.
            return LanceStreamWriter(address, schema, replace(write, entry=None), writing)

    def _parse_write(self, overwrite: bool) -> tuple[TableAddress, Write, WriteOptions]:
        options = self._options()
        writing = options.writing()
        mode = OVERWRITE if overwrite else APPEND
        asked = write_of(self.options) or Write(mode)
        if writing.branch is not None:
            if asked.mode not in (APPEND, OVERWRITE):
                raise invalid("Option 'branch' is for rows that are appended or overwritten")
            asked = replace(asked, branch=writing.branch)
        return options.address(), asked, writing

    def _options(self) -> Options:
        return Options(self.options, self.catalogs, self.zone)


def with_catalogs(
    catalogs: Mapping[str, CatalogAddress], memory: int = SCAN_BYTES, zone: str | None = None
) -> type[LanceSource]:
    """Return the source with a session's catalogs, for registration in that session.

    Args:
        memory: About how many bytes the scan of a task may hold.
        zone: The session's time zone.
    """
    known = {"catalogs": dict(catalogs), "memory": memory, "zone": zone}
    return type("LanceSource", (LanceSource,), known)


def with_settings(settings: str) -> type[LanceSource]:
    """Return the source with what a session's settings say: catalogs, memory and time zone.

    The class `SessionCatalogs` of the jar calls it by name.

    Args:
        settings: A JSON object.
    """
    given = json.loads(settings)
    return with_catalogs(catalogs_in(given), scan_memory(given), given.get(TIME_ZONE))


def _stream_reader(stream: Stream, reading: Reading) -> DataSourceStreamReader:
    """Return a reader of a stream, with rate limits if this version of Spark supports them."""
    if hasattr(spark_datasource, "ReadLimit"):
        from .stream_read_limits import RateLimitedReader  # noqa: PLC0415 - what it imports is not in 4.1

        return RateLimitedReader(stream, reading)
    if stream.limit != Limit():
        raise unsupported(
            "Options max_rows_per_batch and max_fragments_per_batch need Spark 4.2 or later: "
            "earlier releases have no admission control for data sources in Python"
        )
    return LanceStreamReader(stream, reading)

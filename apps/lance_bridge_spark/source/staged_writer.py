"""Writing the rows of a stage, a table that a query is creating or replacing.

Tasks write to the stage's location, and the driver's writer saves the fragments' JSON in a file
there. The SQL catalog creates the stage, and commits or aborts it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lance_bridge import locations
from lance_bridge.errors import invalid

from ..addresses import Access, CatalogAddress, TableAddress
from . import schema_compat
from .options import WriteOptions
from .requests import Write
from .worker_calls import spark_call
from .writer import Target, fragments_of

if TYPE_CHECKING:
    from lance_bridge.table import Table


@dataclass(frozen=True)
class Stage:
    """A table that is being created or replaced. Spark passes it as JSON; it contains no secret."""

    uuid: str
    """Identifies the transaction, and names the file with the fragments."""
    table: tuple[str, ...]
    location: str
    struct: str
    """The JSON text of the new ``StructType``."""
    columns: str
    """The Arrow schema of the rows, serialized as IPC, in base64."""
    properties: Mapping[str, str]
    replaces: int = 0
    """The version that the query replaces; 0 for a new table."""
    is_own_location: bool = False
    """Whether no other writer can use the location."""

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Stage:
        """Return the stage that `to_json` wrote."""
        return cls(**{**fields, "table": tuple(fields["table"])})

    def to_json(self) -> dict[str, Any]:
        """Return the stage as JSON objects."""
        return {**asdict(self), "table": list(self.table)}

    @property
    def write_mode(self) -> str:
        """The mode for ``lance.fragment.write_fragments``."""
        return "overwrite" if self.replaces else "create"

    def schema(self) -> pa.Schema:
        """Return the schema of the rows to write."""
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.columns)))

    @property
    def file(self) -> str:
        """The path of the file with the fragments, relative to the location."""
        return f"_transactions/{self.uuid}.staged.json"


@dataclass(frozen=True)
class StagedAccess(Access):
    """What a task needs to write to a location that is not a table yet."""

    stage: Stage | None = None

    def fetch_storage_options(self) -> dict[str, str] | None:
        catalog, stage = self.address.catalog, self.stage
        if catalog is None or stage is None or stage.replaces:
            return super().fetch_storage_options()
        # The catalog has no entry yet to request credentials for.
        return dict(access(catalog, stage).storage)


def access(catalog: CatalogAddress, stage: Stage) -> Access:
    """Return what tasks need to write the stage's rows."""
    return StagedAccess(
        TableAddress(catalog, stage.table),
        locations.for_lance(stage.location),
        stage.replaces,
        write=True,
        storage=table_of(catalog, stage).storage_options(write=True) or {},
        stage=stage,
    )


def keep(catalog: CatalogAddress, stage: Stage, fragments: Sequence[str]) -> None:
    """Save the fragments (in JSON) that all tasks have written. Safe to repeat.

    Raises:
        ServiceUnavailableError: (17)
    """
    place = locations.for_lance(stage.location)
    if locations.is_local(place):
        # Without rows, no task has created the directory.
        Path(place).mkdir(parents=True, exist_ok=True)
    files = table_of(catalog, stage).files(write=True)
    files.put_over(stage.file, json.dumps(list(fragments)).encode())


def kept_fragments(catalog: CatalogAddress, stage: Stage) -> list[str] | None:
    """Return the fragments (in JSON) that `keep` saved, or None."""
    content = table_of(catalog, stage).files(write=True).read(stage.file)
    return None if content is None else [str(each) for each in json.loads(content)]


def table_of(catalog: CatalogAddress, stage: Stage) -> Table:
    """Return a table at the stage's location, without a call to the catalog."""
    return catalog.connect().tables.at(stage.table, stage.location)


class StagedWriter(DataSourceArrowWriter):
    """Writes files at a stage's location, and saves the list of their fragments there."""

    def __init__(
        self, address: TableAddress, schema: StructType, write: Write, options: WriteOptions
    ) -> None:
        """Prepare the write of a stage's rows. No table is loaded.

        Raises:
            InvalidInputError: (13) there is no stage or no catalog.
            TableSchemaValidationError: (20)
        """
        if write.stage is None or address.catalog is None:
            raise invalid("A staged write needs the stage and its catalog")
        self._catalog = address.catalog
        self._stage = Stage.from_json(write.stage)
        stored = self._stage.schema()
        place = access(self._catalog, self._stage)
        self._target = Target(
            place,
            place.location,
            stored.serialize().to_pybytes(),
            schema_compat.match_columns(schema, stored, address.name),
            self._stage.write_mode,
            options.for_lance(),
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with spark_call():
            return self._target.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Save the fragments for the commit of the stage."""
        with spark_call():
            keep(self._catalog, self._stage, fragments_of(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave the files to `abort_staged`, or to the clean-up."""

"""Where a table is, in a form that travels to executors, and how to open it on either side.

The driver finds the table through its namespace and decides on a version. Executors get an
`Access`: the location, that version and the storage options, so that a task makes no catalog call
unless its credentials would run out under it. What only the driver needs is in `found_tables`, and
imported when it is called: it takes a worker longer than a small task.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from lance_namespace import DescribeTableRequest, DescribeTableResponse, LanceNamespace

from lance_bridge.credentials import EXPIRES_AT
from lance_bridge.errors import display
from lance_bridge.lance_errors import translate_lance_errors

if TYPE_CHECKING:
    from lance_bridge.namespace import LanceBridgeNamespace
    from lance_bridge.records import TableRecord

    from .found_tables import SparkTable

_LEAST_SECONDS = 300.0
"""Credentials that end sooner than this are fetched anew by the task that gets them."""
_INDEX_BYTES, _METADATA_BYTES = 256 << 20, 128 << 20
"""The most that a worker keeps of indices, and of what else is not rows."""


@dataclass(frozen=True)
class CatalogAddress:
    """A catalog and how to connect to it; its properties may hold secrets, and are never shown."""

    name: str
    """What messages call it, and what `connect` is given where there is no ``impl``."""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Those of the catalog, ``impl`` among them, or what is given besides a configured one's."""

    def connect(self) -> LanceBridgeNamespace:
        """Return the namespace; one per process for equal addresses.

        Raises:
            InvalidInputError: (13) no such catalog, or bad properties.
            UnsupportedOperationError: (0) an extra is missing, or it is no catalog of ours.
        """
        from . import found_tables  # noqa: PLC0415 - see the top of this file

        return found_tables.connect(self)


@dataclass(frozen=True)
class TableAddress:
    """A table's name in a catalog, or a location; ``storage`` goes with a location only."""

    catalog: CatalogAddress | None = None
    path: tuple[str, ...] = ()
    location: str = ""
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """What messages call it."""
        if self.catalog is None:
            return self.location
        return f"{self.catalog.name}.{display(self.path)}"

    def find(self, entry: TableRecord | None = None) -> SparkTable:
        """Return the table on the driver, with the one catalog call that this takes.

        Args:
            entry: The table's entry, where it has been loaded before; saves the call.

        Raises:
            TableNotFoundError: (4)
            NamespaceNotFoundError: (1)
            InvalidInputError: (13) it is not a Lance table.
            InvalidTableStateError: (19) its entry has no location.
        """
        from . import found_tables  # noqa: PLC0415 - see the top of this file

        return found_tables.find(self, entry)

    def create(self, schema: pa.Schema, properties: Mapping[str, str] | None = None) -> None:
        """Create the table, empty. Of several creators one gets it; the others' rows go on top.

        Raises:
            TableAlreadyExistsError: (5)
            NamespaceNotFoundError: (1)
            InvalidInputError: (13)
        """
        from . import found_tables  # noqa: PLC0415 - see the top of this file

        found_tables.create(self, schema, properties)


@dataclass(frozen=True)
class Access:
    """What a task needs to open one version of a table. Pickles, with the credentials."""

    address: TableAddress
    location: str
    """As pylance spells it."""
    version: int
    branch: str | None = None
    write: bool = False
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    def open(self) -> lance.LanceDataset:
        """Open the version; with new credentials where those at hand would end too soon.

        Raises:
            ServiceUnavailableError: (17)
        """
        options, renewal = self.storage_options(), self.renewal()
        on_main = self.version if self.branch is None else None
        with translate_lance_errors(
            f"Table '{self.address.name}' at {self.location} could not be opened"
        ):
            dataset = lance.LanceDataset(
                self.location,
                version=on_main,
                storage_options=options,
                session=_session(),
                **renewal,
            )
            if self.branch is None:
                return dataset
            return dataset.checkout_version((self.branch, self.version))

    def storage_options(self) -> dict[str, str] | None:
        """Return options that last for a while, or None for none."""
        expires = self.storage.get(EXPIRES_AT)
        if expires is None or int(expires) / 1000 - time.time() > _LEAST_SECONDS:
            return dict(self.storage) or None
        return self.renewed()

    def renewed(self) -> dict[str, str] | None:
        """Return new options from the catalog, or None for none."""
        return self.address.find().storage_options(write=self.write)

    def renewal(self) -> dict[str, Any]:
        """Return the arguments by which pylance asks for new options before the old ones end."""
        if EXPIRES_AT not in self.storage:
            return {}
        return {"namespace_client": _Renewal(self), "table_id": [self.location]}


@lru_cache(maxsize=1)
def _session() -> Any:
    """Return what the tasks of a process share: what they have read of indices and manifests."""
    # pylance's types do not know its Session by that name.
    make: Any = vars(lance)["Session"]
    return make(index_cache_size_bytes=_INDEX_BYTES, metadata_cache_size_bytes=_METADATA_BYTES)


class _Renewal(LanceNamespace):
    """Answers what pylance asks a namespace while it reads or writes one table."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def namespace_id(self) -> str:
        """Return what this is about."""
        return self._access.location

    def describe_table(self, request: DescribeTableRequest) -> DescribeTableResponse:  # noqa: ARG002 - one table
        """Answer with new storage options."""
        options = self._access.renewed()
        return DescribeTableResponse(location=self._access.location, storage_options=options)

"""LanceBridgeNamespace: every operation of the Lance namespace, over any catalog.

The operations are in `operations`; this module has what makes them a namespace object: properties,
connections, equality and pickling.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from . import config as configuration
from . import location as locations
from .catalog import Capabilities, Catalog
from .connection import Connection
from .names import written
from .operations.compute import ComputeOperations
from .operations.data import DataOperations
from .operations.entries import EntryOperations
from .operations.indices import IndexOperations
from .operations.management import ManagementOperations
from .operations.queries import QueryOperations
from .operations.schema import SchemaOperations
from .operations.transactions import TransactionOperations
from .operations.versions import VersionOperations
from .operations.writes import WriteOperations
from .pickling import explain_missing_secrets
from .required_methods import require_methods
from .tables.collection import Tables

NamespaceT = TypeVar("NamespaceT", bound="LanceBridgeNamespace")


class LanceBridgeNamespace(
    EntryOperations,
    DataOperations,
    WriteOperations,
    QueryOperations,
    SchemaOperations,
    IndexOperations,
    VersionOperations,
    TransactionOperations,
    ManagementOperations,
    ComputeOperations,
):
    """A Lance namespace made out of a catalog. Safe to share between threads.

    A subclass names its ``impl`` and ``config_type`` and opens its catalog. The constructor takes
    the catalog's properties as keywords and makes no call; it raises InvalidInput (13) for bad
    properties, and TypeError where the catalog lacks a method that its capabilities promise.
    Pickling carries the properties, without the secret ones unless the property
    ``pickle.secrets`` is true; the other side reconnects.
    """

    impl: ClassVar[str]
    config_type: ClassVar[type[configuration.CatalogConfig]]
    configured_name: str | None = None
    """The name by which the configuration file has it. Its pickle reads that name's variables."""
    _left_out: tuple[str, ...] = ()
    """Keys of the secrets that were not in the pickle from which this was loaded."""

    def __init__(self, **properties: str) -> None:
        config = configuration.load(self.config_type, self.impl, properties)
        if config.root is not None:
            locations.check(locations.join(config.root, "database.db"))
        self._properties = dict(properties)
        self._open(config)

    def _open(self, config: configuration.CatalogConfig) -> None:
        catalog = self.open_catalog(config)
        require_methods(catalog)
        self.connection = Connection(catalog, config)
        self.tables = Tables(self.connection)
        _ = self.connection.default_namespace  # refuses one that the catalog cannot have

    @abstractmethod
    def open_catalog(self, config: Any) -> Catalog:
        """Return the catalog for a checked configuration, without calling it.

        Args:
            config: An instance of `config_type`.
        """

    @property
    def capabilities(self) -> Capabilities:
        """What the catalog is and can do."""
        return self.connection.capabilities

    @property
    def catalog(self) -> Catalog:
        """The adapter that this works with. `close` closes its connections, too."""
        return self.connection.catalog

    # -- life ------------------------------------------------------------------------------------

    def namespace_id(self) -> str:
        """Return what this is connected to; equal for equal connections, without secrets."""
        config = self.connection.config
        parts = [self.connection.catalog.describe_connection()]
        if config.root:
            parts.append(f"root={config.root}")
        if self.connection.default_namespace:
            parts.append(f"default-namespace={written(self.connection.default_namespace)}")
        return f"{self.impl}({', '.join(parts)})"

    def __repr__(self) -> str:
        if "connection" not in self.__dict__:
            # Debuggers and reporters of errors show one whose constructor has failed, too.
            return f"<{type(self).__name__}, not connected>"
        return f"<{type(self).__name__} {self.namespace_id()}>"

    def close(self) -> None:
        """Let go of connections. The namespace may be used again: it reconnects."""
        self.connection.catalog.close()

    def __enter__(self: NamespaceT) -> NamespaceT:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __copy__(self: NamespaceT) -> NamespaceT:
        """Return another namespace of the same properties, with connections of its own.

        A copy stays in this process. It has the secrets, which a pickle leaves out.
        """
        made = object.__new__(type(self))
        made.__dict__.update(
            {k: v for k, v in self.__dict__.items() if k not in ("connection", "tables")}
        )
        made._properties = dict(self._properties)
        made._open(self.connection.config)
        return made

    def __deepcopy__(self: NamespaceT, memo: dict[int, Any]) -> NamespaceT:
        made = memo[id(self)] = self.__copy__()
        return made

    def __reduce__(self) -> tuple[Callable[..., LanceBridgeNamespace], tuple[Any, ...]]:
        carried = dict(self._properties)
        if not self.connection.config.pickle_secrets:
            carried = {k: v for k, v in carried.items() if not self.config_type.is_secret(k)}
        left_out = {*self.connection.config.secrets(), *self._left_out} - carried.keys()
        return _reconnect, (type(self), carried, self.configured_name, tuple(sorted(left_out)))


def _reconnect(
    kind: type[LanceBridgeNamespace],
    properties: dict[str, str],
    name: str | None,
    left_out: tuple[str, ...] = (),
) -> LanceBridgeNamespace:
    found = configuration.environment(kind.config_type, name) if name is not None else {}
    names = [name, kind.impl] if name is not None else [kind.impl]
    with explain_missing_secrets(names, left_out):
        namespace = kind(**{**found, **properties})
    namespace.configured_name = name
    namespace._left_out = left_out
    return namespace

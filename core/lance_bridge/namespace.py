"""LanceBridgeNamespace: every operation of the Lance namespace, over any catalog.

The operations are in `operations`. This module adds what a namespace object needs: properties,
connections, equality and pickling. A pickle names the secrets that it omits, never their values.
The process that loads it reads them from its environment, works without them, or fails with an
error that says what is missing.
"""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, ClassVar, TypeVar

from lance_namespace.errors import InvalidInputError

from . import config as configuration
from . import locations
from .catalog import PORT_VERSION, Capabilities, Catalog, Path
from .connection import Connection
from .credentials.sources import describe_credentials
from .dotted_names import written
from .errors import invalid
from .operations.data import (
    ComputeOperations,
    DataOperations,
    IndexOperations,
    QueryOperations,
    SchemaOperations,
)
from .operations.entries import EntryOperations
from .operations.versions import ManagementOperations, TransactionOperations, VersionOperations
from .requests import parse_namespace
from .tables.collection import Tables

logger = logging.getLogger(__name__)

NamespaceT = TypeVar("NamespaceT", bound="LanceBridgeNamespace")


class LanceBridgeNamespace(
    EntryOperations,
    DataOperations,
    QueryOperations,
    SchemaOperations,
    IndexOperations,
    VersionOperations,
    ManagementOperations,
    TransactionOperations,
    ComputeOperations,
):
    """A Lance namespace made out of a catalog. Safe to share between threads.

    A subclass names its ``impl`` and ``config_type`` and opens its catalog. The constructor takes
    the catalog's properties as keywords and makes no call; it raises InvalidInput (13) for bad
    properties, and TypeError if the catalog lacks a method that its capabilities promise, or is
    written for another version of the port. A pickle contains the properties, without the secret
    ones unless the property ``pickle.secrets`` is true; loading it reconnects.
    """

    impl: ClassVar[str]
    config_type: ClassVar[type[configuration.CatalogConfig]]
    configured_name: str | None = None
    """Its name in the configuration file. Loading a pickle reads that name's variables."""
    _left_out: tuple[str, ...] = ()
    """Keys of the secrets that were missing in the pickle from which this was loaded."""

    def __init__(self, **properties: str) -> None:
        config = configuration.load(self.config_type, self.impl, properties)
        if config.root is not None:
            locations.check(locations.join(config.root, "database.db"))
        self._properties = dict(properties)
        self._open(config)

    def _open(self, config: configuration.CatalogConfig) -> None:
        catalog = self.open_catalog(config)
        _require_port_version(catalog)
        _require_methods(catalog)
        self.connection = Connection(catalog, config)
        self.tables = Tables(self.connection)
        _ = self.connection.default_namespace  # refuses one that the catalog cannot have
        _ = self.connection.credentials  # refuses properties that do not fit

    @abstractmethod
    def open_catalog(self, config: Any) -> Catalog:
        """Return the catalog for a validated configuration, without calling it.

        Args:
            config: An instance of `config_type`.
        """

    @property
    def properties(self) -> dict[str, str]:
        """The properties that the caller gave, with their secrets; a copy."""
        return dict(self._properties)

    @property
    def capabilities(self) -> Capabilities:
        """What the catalog is and can do."""
        return self.connection.capabilities

    @property
    def catalog(self) -> Catalog:
        """The adapter. `close` closes its connections, too."""
        return self.connection.catalog

    def table_path(self, names: Sequence[str] | None) -> Path:
        """Return the path of the table that an identifier names in this namespace.

        The default namespace is added, and case is folded if the catalog folds it: identifiers of
        one table give one path. Raises InvalidInput (13).
        """
        return self.tables.path_of(names)

    def namespace_path(self, names: Sequence[str] | None, *, of_tables: bool = False) -> Path:
        """Return the path of the namespace that an identifier names, like `table_path`.

        Args:
            of_tables: Whether its tables are listed; the root is then the default namespace.

        Raises InvalidInput (13).
        """
        if of_tables:
            return self.connection.table_namespace_path(names)
        return parse_namespace(names, self.capabilities)

    # -- life --------------------------------------------------------------------------------------

    def namespace_id(self) -> str:
        """Return an identifier of the connection, with a digest of its credentials but no secrets.

        In one session of Lance, namespaces with equal ids share a table's store and credentials.
        """
        config = self.connection.config
        parts = self._address()
        credentials = describe_credentials(self.connection.catalog, config)
        if credentials:
            parts.append(f"credentials={credentials}")
        if config.credentials_write:
            parts.append("credentials.write")
        return f"{self.impl}({', '.join(parts)})"

    def describe_connection(self) -> str:
        """Return a description of the connection that does not depend on its credentials."""
        return f"{self.impl}({', '.join(self._address())})"

    def _address(self) -> list[str]:
        config = self.connection.config
        parts = [self.connection.catalog.describe_connection()]
        if config.root:
            parts.append(f"root={config.root}")
        if self.connection.default_namespace:
            parts.append(f"default-namespace={written(self.connection.default_namespace)}")
        return parts

    def __repr__(self) -> str:
        if "connection" not in self.__dict__:
            # Debuggers and error reporters also print an object whose constructor failed.
            return f"<{type(self).__name__}, not connected>"
        return f"<{type(self).__name__} {self.namespace_id()}>"

    def close(self) -> None:
        """Close connections. The namespace may be used again: it reconnects."""
        self.connection.catalog.close()

    def __enter__(self: NamespaceT) -> NamespaceT:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __copy__(self: NamespaceT) -> NamespaceT:
        """Return another namespace with the same properties and separate connections.

        Unlike a pickle, a copy has the secrets: it stays in this process.
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
    cls: type[LanceBridgeNamespace],
    properties: dict[str, str],
    name: str | None,
    left_out: tuple[str, ...] = (),
) -> LanceBridgeNamespace:
    found = configuration.environment(cls.config_type, name) if name is not None else {}
    names = [name, cls.impl] if name is not None else [cls.impl]
    missing = _missing_secrets(cls.config_type, names, left_out)
    try:
        namespace = cls(**{**found, **properties})
    except InvalidInputError as error:
        if not missing:
            raise
        raise invalid(f"{error}. {_advice(cls.config_type, names[0], missing)}") from None
    missing = [key for key in missing if key not in namespace.connection.config.sourced]
    if missing:
        warn_once(_advice(cls.config_type, names[0], missing))
    namespace.configured_name = name
    namespace._left_out = left_out
    return namespace


def _missing_secrets(
    config: type[configuration.CatalogConfig], names: Sequence[str], left_out: Iterable[str]
) -> list[str]:
    """Return the keys of secrets that are missing in the environment.

    Args:
        names: The names of the catalog under which the environment may have its properties.
        left_out: Keys of the secret properties that the pickle does not carry.
    """
    return [
        key
        for key in left_out
        if not configuration.has_variable(config, key)
        or not any(configuration.variable_of(name, key) in os.environ for name in names)
    ]


def _advice(config: type[configuration.CatalogConfig], name: str, missing: Sequence[str]) -> str:
    """Return advice on where to set secrets that a pickle of the catalog ``name`` omitted."""
    variables = [key for key in missing if configuration.has_variable(config, key)]
    others = [key for key in missing if key not in variables]
    spelled = ", ".join(f"${configuration.variable_of(name, key)}" for key in variables)
    ways = [
        *([f"set in the environment of this process: {spelled}"] if variables else []),
        *([f"set in the file that secrets.file names: {', '.join(others)}"] if others else []),
    ]
    return (
        f"The namespace was pickled without its secrets ({', '.join(missing)}), and this process "
        "has none in its environment. Either connect with the property pickle.secrets=true before "
        f"pickling, which carries those that were given as properties, or {' and '.join(ways)}"
    )


@cache
def warn_once(text: str) -> None:
    """Log a warning once per process."""
    logger.warning("%s", text)


def _require_port_version(catalog: Catalog) -> None:
    """Raise TypeError if a catalog is written for another version of the port."""
    if catalog.port_version != PORT_VERSION:
        raise TypeError(
            f"{type(catalog).__name__} is written for version {catalog.port_version} of "
            f"lance_bridge.Catalog, and this is version {PORT_VERSION}: install releases that fit"
        )


_REASON = "give the reason why it cannot as Capabilities."
_INSTEAD = {
    "rename_table": f"{_REASON}no_rename",
    "copy_table": f"{_REASON}no_rename",
    "commit_guard": f"{_REASON}no_managed_tables",
    "partition_locations": "leave Capabilities.has_partitions False",
    "scan_hidden_tables": "leave Capabilities.hides_tables False",
}
"""What to do in place of implementing a method."""


def _require_methods(catalog: Catalog) -> None:
    """Check that a catalog's class overrides each method that its capabilities promise.

    Called when a namespace is created over the catalog. Otherwise the missing method would be
    noticed in the middle of an operation, after an entry was created.

    Raises:
        TypeError: a method is missing. Python raises it if a class lacks an abstract method. No
            Lance error fits: they are about a request or a property that the caller can correct,
            and this is a bug in the class.
    """
    capabilities = catalog.capabilities
    can_rename = not capabilities.no_rename
    promised = {
        "rename_table": can_rename and not capabilities.renames_by_copy,
        "copy_table": can_rename and capabilities.renames_by_copy,
        "commit_guard": not (capabilities.no_managed_tables or capabilities.no_alter),
        "partition_locations": capabilities.has_partitions,
        "scan_hidden_tables": capabilities.hides_tables,
    }
    for method, is_promised in promised.items():
        if is_promised and not _overrides(catalog, method):
            raise TypeError(
                f"{type(catalog).__name__} must implement {method}: its capabilities promise that "
                f"it can. Else {_INSTEAD[method]}"
            )
    if _overrides(catalog, "load_ownership") != _overrides(catalog, "alter_ownership"):
        raise TypeError(
            f"{type(catalog).__name__} must implement both load_ownership and alter_ownership, or "
            "neither"
        )


def _overrides(catalog: Catalog, method: str) -> bool:
    return getattr(type(catalog), method) is not getattr(Catalog, method)

"""Addresses of tables that can be sent to executors, and how a task opens a table.

The driver finds the table (`lookup`) and chooses a version. Executors get an `Access`: the
location, that version and the storage options, so that a task calls the catalog only if its
credentials are about to expire. What connects to a catalog is imported lazily: importing it takes
a worker longer than a small task.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import lance
from lance_namespace import DescribeTableRequest, DescribeTableResponse, LanceNamespace

from lance_bridge.config import environment, named_catalogs
from lance_bridge.credentials import EXPIRES_AT
from lance_bridge.dotted_names import parts_of
from lance_bridge.errors import display, invalid, translate_lance_errors

if TYPE_CHECKING:
    from lance_bridge.namespace import LanceBridgeNamespace

CATALOG_SETTINGS = "spark.sql.catalog."
CATALOG_CLASS = "org.lancebridge.spark.LanceCatalog"
"""The class of the SQL catalog; a catalog of another class is not ours."""
SESSION_CATALOG = "spark_catalog"
SESSION_CATALOG_CLASS = "org.lancebridge.spark.LanceSessionCatalog"
"""The class of Spark's session catalog if it has Lance tables; it completes its own settings."""
_OURS = "lance."
"""What settings of the session catalog begin with that are not its delegate's."""
_DELEGATE = "delegate"
"""The one of these that names another class, and is no property of a catalog."""
LEFT_OUT = "left_out"
"""The property that names the secrets that a catalog of an earlier session was registered with.

A session whose own settings have these secrets does not need it.
"""
_LEAST_SECONDS = 300.0
"""A task fetches new credentials if those it gets expire sooner than this."""
_INDEX_BYTES, _METADATA_BYTES = 256 << 20, 128 << 20
"""Maximum sizes of a worker's caches of indices and of other metadata."""


@dataclass(frozen=True)
class CatalogAddress:
    """A catalog and how to connect to it; its properties may hold secrets and are never shown."""

    name: str
    """Its name in messages, and what `connect` gets if ``impl`` is not set."""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The catalog's properties with ``impl``, or those that override a configured catalog's."""

    def connect(self) -> LanceBridgeNamespace:
        """Return the namespace; equal addresses share one per process.

        Raises:
            InvalidInputError: (13) no such catalog, bad properties, or pylance's own namespace.
            UnsupportedOperationError: (0) an extra is missing.
        """
        from lance_bridge.registry import require_lance_bridge  # noqa: PLC0415 - see the top

        missing = missing_secrets(self.properties)
        if missing:
            raise invalid(
                f"Catalog '{self.name}' was registered in an earlier session with secrets "
                f"({', '.join(missing)}), which this one does not have: call "
                "lance_bridge_spark.register(spark)"
            )
        namespace = _connect_once(self.name, tuple(sorted(self.properties.items())))
        return require_lance_bridge(namespace, self.name, "Give Spark the location of its table")


def missing_secrets(properties: Mapping[str, str]) -> list[str]:
    """Return the secrets that a catalog was registered with, and that its properties lack."""
    keys = (key.strip() for key in properties.get(LEFT_OUT, "").split(","))
    return [key for key in keys if key and key not in properties]


@lru_cache(maxsize=32)
def _connect_once(name: str, items: tuple[tuple[str, str], ...]) -> LanceNamespace:
    from lance_bridge.namespace import LanceBridgeNamespace  # noqa: PLC0415 - see the top
    from lance_bridge.registry import connect, implementation  # noqa: PLC0415

    properties = dict(items)
    impl = properties.pop("impl", None)
    if impl is None:
        return connect(name, properties)
    cls = implementation(impl)  # a class, or a catalog of the configuration file
    if issubclass(cls, LanceBridgeNamespace):
        properties = {**environment(cls.config_type, name), **properties}
    return connect(impl, properties)


@dataclass(frozen=True)
class TableAddress:
    """A table's name in a catalog, or a location; ``storage`` is for a location only."""

    catalog: CatalogAddress | None = None
    path: tuple[str, ...] = ()
    location: str = ""
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The table's name in messages."""
        if self.catalog is None:
            return self.location
        return f"{self.catalog.name}.{display(self.path)}"

    def vend(self, *, write: bool) -> dict[str, str] | None:
        """Return storage options of the table from the catalog, or None if there are none."""
        if self.catalog is None:
            return dict(self.storage) or None
        tables = self.catalog.connect().tables
        return tables.load(tables.path_of(self.path)).storage_options(write=write)


@dataclass(frozen=True)
class Access:
    """What a task needs to open one version of a table. Pickles, with the credentials."""

    address: TableAddress
    location: str
    """In pylance's spelling."""
    version: int
    branch: str | None = None
    write: bool = False
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    def open(self) -> lance.LanceDataset:
        """Open the version, with new credentials if the current ones expire soon.

        Raises:
            ServiceUnavailableError: (17)
        """
        options, arguments = self.storage_options(), self.renewal_arguments()
        on_main = self.version if self.branch is None else None
        with translate_lance_errors(
            f"Table '{self.address.name}' at {self.location} could not be opened"
        ):
            dataset = lance.LanceDataset(
                self.location,
                version=on_main,
                storage_options=options,
                session=_session(),
                **arguments,
            )
            if self.branch is None:
                return dataset
            return dataset.checkout_version((self.branch, self.version))

    def storage_options(self) -> dict[str, str] | None:
        """Return options that do not expire soon, or None if there are none."""
        expires = self.storage.get(EXPIRES_AT)
        if expires is None or int(expires) / 1000 - time.time() > _LEAST_SECONDS:
            return dict(self.storage) or None
        return self.fetch_storage_options()

    def fetch_storage_options(self) -> dict[str, str] | None:
        """Return new options from the catalog, or None if there are none."""
        return self.address.vend(write=self.write)

    def renewal_arguments(self) -> dict[str, Any]:
        """Return the arguments by which pylance requests new options before the old ones expire."""
        if EXPIRES_AT not in self.storage:
            return {}
        return {"namespace_client": _RenewalNamespace(self), "table_id": [self.location]}


@lru_cache(maxsize=1)
def _session() -> Any:
    """Return the caches of indices and manifests that all tasks of a process share."""
    # pylance's type stubs lack Session.
    make: Any = vars(lance)["Session"]
    return make(index_cache_size_bytes=_INDEX_BYTES, metadata_cache_size_bytes=_METADATA_BYTES)


class _RenewalNamespace(LanceNamespace):
    """The namespace that pylance calls for new options while it reads or writes one table."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def namespace_id(self) -> str:
        """Return the key by which a pylance session shares a table's store.

        It contains the location, a hash of the catalog's connection, and the requested access. The
        hash distinguishes connections of one process without a call, and reveals no secret.
        """
        catalog = self._access.address.catalog
        given = "" if catalog is None else (catalog.name, *sorted(catalog.properties.items()))
        right = "write" if self._access.write else "read"
        return f"{self._access.location}#{hash(given)}#{right}"

    def describe_table(self, request: DescribeTableRequest) -> DescribeTableResponse:  # noqa: ARG002 - one table
        """Return the location with new storage options."""
        options = self._access.fetch_storage_options()
        return DescribeTableResponse(location=self._access.location, storage_options=options)


# -- names in Spark -------------------------------------------------------------------------------

REGISTERED: dict[str, CatalogAddress] = {}
"""The catalogs that classic sessions of this process have registered, by name."""


HIDDEN: dict[str, dict[str, str]] = {}
"""Settings of registered catalogs by session of Spark Connect, which its server does not return.

It returns none whose name looks like that of a secret, not even to the session that set it.
"""


def is_remote(spark: Any) -> bool:
    """Return whether a session is that of a Spark Connect client."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def catalogs_of(spark: Any) -> dict[str, CatalogAddress]:
    """Return our catalogs that a session's settings declare, by name."""
    found = catalogs_in(settings_of(spark))
    if SESSION_CATALOG in found and "impl" not in found[SESSION_CATALOG].properties:
        # Spark loads its catalog when it is used, and that sets the address of the metastore.
        spark.sql(f"SHOW NAMESPACES IN {SESSION_CATALOG} LIKE ''")
        found = catalogs_in(settings_of(spark))
    return found


def settings_of(spark: Any) -> dict[str, str]:
    """Return the settings of a session, with those of `HIDDEN`."""
    found = dict(spark.conf.getAll)
    return {**found, **HIDDEN.get(spark.session_id, {})} if is_remote(spark) else found


def catalogs_in(settings: Mapping[str, str]) -> dict[str, CatalogAddress]:
    """Return our catalogs that settings declare, by name.

    A catalog is ours if ``spark.sql.catalog.<name>`` is the class of the SQL catalog, or of the
    session catalog, or if ``spark.sql.catalog.<name>.impl`` is set without a class. Its properties
    are the settings with the prefix ``spark.sql.catalog.<name>.``, or that with ``lance.`` for the
    session catalog.
    """
    found: dict[str, dict[str, str]] = {}
    for key, value in settings.items():
        if key.startswith(CATALOG_SETTINGS):
            name, _, rest = key.removeprefix(CATALOG_SETTINGS).partition(".")
            properties = found.setdefault(name, {})
            if name == SESSION_CATALOG:
                rest = rest.removeprefix(_OURS) if rest.startswith(_OURS) else ""
            if rest and (name, rest) != (SESSION_CATALOG, _DELEGATE):
                properties[rest] = value
    for properties in found.values():
        if not missing_secrets(properties):
            properties.pop(LEFT_OUT, None)
    classes = {name: settings.get(CATALOG_SETTINGS + name) for name in found}
    return {
        name: CatalogAddress(name, properties)
        for name, properties in found.items()
        if classes[name] in (CATALOG_CLASS, SESSION_CATALOG_CLASS)
        or (classes[name] is None and "impl" in properties)
    }


def setting(catalog: str, key: str) -> str:
    """Return the setting of a property of a catalog."""
    return f"{CATALOG_SETTINGS}{catalog}.{_OURS if catalog == SESSION_CATALOG else ''}{key}"


def address_of(spark: Any, table: str) -> TableAddress:
    """Return the address of a table, given as ``catalog.db.table`` or a location (with a slash).

    The catalog is looked up in the session's settings, then in the configuration file. Without a
    catalog, ``db.table`` is in the session catalog, if that has Lance tables.

    Raises:
        InvalidInputError: (13) the catalog is unknown, or the name is malformed.
    """
    if "/" in table:
        return TableAddress(location=table)
    known = catalogs_of(spark)
    name, *path = with_session_catalog(parts_of(table), known)
    if not path:
        raise invalid(
            f"'{table}' names no catalog: write catalog.namespace.table, or a location with a slash"
        )
    return TableAddress(find_catalog(name, known), tuple(path))


def with_session_catalog(parts: list[str], known: Mapping[str, CatalogAddress]) -> list[str]:
    """Return the parts of a name, with the session catalog before ``db.table`` if that is ours."""
    if SESSION_CATALOG not in known or len(parts) != 2 or parts[0] in {*known, *named_catalogs()}:
        return parts
    return [SESSION_CATALOG, *parts]


def find_catalog(name: str, known: Mapping[str, CatalogAddress]) -> CatalogAddress:
    """Return a catalog of a session, or of the configuration file.

    Args:
        known: The session's catalogs, by name.

    Raises:
        InvalidInputError: (13) there is no such catalog.
    """
    if name in known:
        return known[name]
    configured = named_catalogs()
    if name in configured:
        return CatalogAddress(name)
    if name in REGISTERED:
        raise invalid(
            f"Catalog '{name}' was registered in another session, and this one began earlier: call "
            "lance_bridge_spark.register(spark) for this one, too"
        )
    choices = ", ".join(sorted({*known, *configured})) or "none"
    raise invalid(
        f"There is no catalog '{name}' in this session: call lance_bridge_spark.register(spark) if "
        "another session of this program has registered it, or else lance_bridge_spark.register("
        f"spark, {{'{name}': {{'impl': …}}}}) with its properties, or add it to the configuration "
        f"file; known catalogs: {choices}"
    )

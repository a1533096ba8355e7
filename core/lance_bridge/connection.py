"""Connection: what all operations share of one catalog.

That is its configuration, credentials for its tables' storage, and who may repeat a declaration.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from lance_namespace.errors import InvalidInputError, NamespaceNotFoundError, TableNotFoundError

from . import dotted_names
from .catalog import (
    IMPLEMENTATION,
    MANAGED_BY,
    RESERVED_PREFIX,
    Capabilities,
    Catalog,
    Path,
    TableRecord,
)
from .config import CatalogConfig
from .credentials import CALLER, VendedCredentials
from .errors import display, invalid, unsupported
from .forks import restart_in_children
from .records import (
    ENTRY_ID,
    FLAGS,
    FOREIGN_COMMITS,
    RETENTION,
    ForeignCommits,
    parse_flag,
    parse_retention,
)
from .requests import parse_table_namespace
from .secret_renewal import SecretRenewal
from .storage.manifests import BaseLocations


@dataclass(frozen=True)
class Connection:
    """The catalog and configuration that all operations of one namespace share."""

    catalog: Catalog
    config: CatalogConfig
    secrets: SecretRenewal[CatalogConfig] = field(init=False, compare=False, repr=False)
    """Has the configuration with the current secrets, such as those of `storage.*`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "secrets", self.config.renewal)

    @property
    def capabilities(self) -> Capabilities:
        return self.catalog.capabilities

    @cached_property
    def default_namespace(self) -> Path:
        """The namespace of tables identified by a single name; empty for none.

        Raises:
            InvalidInputError: (13) the property `default-namespace` is not valid for this catalog.
        """
        text = self.config.default_namespace
        if text is None:
            return ()
        try:
            return parse_table_namespace(dotted_names.parts_of(text), self.capabilities)
        except InvalidInputError as error:
            raise invalid(f"Property 'default-namespace': {error}") from error

    @property
    def named_namespaces(self) -> tuple[Path, ...]:
        """The namespaces to read even if the catalog does not list them: the default one."""
        return (self.default_namespace,) if self.default_namespace else ()

    def table_namespace_path(self, parts: Sequence[str] | None) -> Path:
        """Return the path of the namespace whose tables a request names. Raises InvalidInput."""
        return parse_table_namespace(parts, self.capabilities, self.default_namespace)

    def find_table(self, path: Path) -> TableRecord | None:
        """Return any entry, or None if it or its namespace does not exist."""
        try:
            return self.catalog.load_table(path)
        except (TableNotFoundError, NamespaceNotFoundError):
            return None

    def require_manageable(self, what: str) -> None:
        """Raise UnsupportedOperation (0) if the catalog cannot hold versions of ``what``."""
        reason = self.capabilities.no_managed_tables or self.capabilities.no_alter
        if reason:
            raise unsupported(f"{what} cannot be managed by the catalog: {reason}")

    def check_namespace_management(self, path: Path, properties: Mapping[str, str]) -> None:
        """Check the properties that say how the versions of a namespace's new tables are managed.

        Raises:
            UnsupportedOperationError: (0) the catalog should hold them, and cannot.
            InvalidInputError: (13) `FOREIGN_COMMITS`, `RETENTION` or one of `FLAGS` has an unknown
                value.
        """
        if properties.get(MANAGED_BY, "").lower() == IMPLEMENTATION:
            self.require_manageable(f"Tables of namespace '{display(path)}'")
        if FOREIGN_COMMITS in properties:
            ForeignCommits.parse(properties[FOREIGN_COMMITS])
        for key in FLAGS:
            if key in properties:
                parse_flag(key, properties[key])
        if RETENTION in properties:
            parse_retention(properties[RETENTION])

    @cached_property
    def credentials(self) -> VendedCredentials:
        return VendedCredentials(self.catalog, self.config, self.named_namespaces)

    @cached_property
    def base_locations(self) -> BaseLocations:
        return BaseLocations()

    @cached_property
    def declarations(self) -> Declarations:
        return Declarations(self.config.declare_grace)


# -- declarations ----------------------------------------------------------------------------------
# A declaration may be repeated by the Python thread that made it, and by any client once it is old.
# A writer declares a table before it writes, and pylance's ``mode="create"`` declares it again when
# a failed write is retried. But Lance lets two writers that both create a dataset overwrite each
# other, so a declaration must block other writers while its creator may still be writing.

DECLARED_AT = RESERVED_PREFIX + "declared_at"
"""When an entry was declared: milliseconds since 1970, by the clock of the client."""

RESERVED = RESERVED_PREFIX + "reserved"
"""Set if a file reserved the location when the entry was added. Writing data does not remove that
file: a location with neither the file nor a version has lost what was there."""


def now() -> str:
    """Return the current time in the format of `DECLARED_AT`."""
    return str(time.time_ns() // 1_000_000)


class _Thread(threading.local):
    """An object of each thread. Unlike the thread's number, it is not used again."""

    def __init__(self) -> None:
        self.token = object()


_thread = _Thread()


def _caller() -> object | None:
    """Return an object of the calling thread, or None if that does not identify the caller.

    LanceDB calls from a pool of threads that Python did not start, and a server runs the requests
    of many clients on a few threads: two writers can use the same thread.
    """
    is_foreign = isinstance(threading.current_thread(), threading._DummyThread)
    return None if is_foreign or CALLER.get() is not None else _thread.token


class Declarations:
    """The recent declarations of one namespace object. ``grace`` is in seconds.

    A forked child has none: it must not repeat a declaration of its parent.
    """

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self.restart_in_child()
        restart_in_children(self)

    def restart_in_child(self) -> None:
        """Implement `Restartable`."""
        self._made: dict[str, tuple[object | None, float]] = {}
        self._lock = threading.Lock()

    def remember(self, record: TableRecord) -> None:
        """Record a declaration of this thread, before the catalog is called."""
        moment = time.monotonic()
        with self._lock:
            self._made = {k: v for k, v in self._made.items() if moment - v[1] <= self.grace}
            self._made[record.properties[ENTRY_ID]] = (_caller(), moment)

    def may_repeat(self, record: TableRecord) -> bool:
        """Return whether this thread may take over a declaration that has no data."""
        maker = self._made.get(record.properties.get(ENTRY_ID, ""))
        if maker is not None and maker[0] is not None and maker[0] == _caller():
            return True
        return self.age(record) > self.grace

    def age(self, record: TableRecord) -> float:
        """Return the seconds since the declaration; infinite if its time is unknown."""
        try:
            declared = int(record.properties.get(DECLARED_AT, "0"))
        except ValueError:
            return float("inf")
        return time.time() - declared / 1000

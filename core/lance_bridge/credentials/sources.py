"""Where a table's credentials come from: the vendor, checks before each request, and a cache."""

from __future__ import annotations

import difflib
import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache, partial

from lance_namespace.errors import InvalidInputError, PermissionDeniedError, ServiceUnavailableError
from pydantic import ValidationError

from .. import locations
from ..catalog import Catalog, Path, TableRecord
from ..config import VENDOR_PREFIX, CatalogConfig, problems_of
from ..errors import display, invalid
from ..forks import restart_in_children
from ..records import TableCredentials
from ..storage_options import authentication
from .scope import Roots, SharingCheck, StoragePrefix, parse_root, storage_prefix
from .vendor_interface import Caller, Grant, Vendor, find_vendor

_NONE = "none"
_CATALOGS_SECONDS = 3600.0
"""The assumed maximum lifetime of a catalog's credentials."""
_MOST_LOCATIONS = 4096
_ALLOWED_ROOTS = f"{VENDOR_PREFIX}allowed_roots"


@dataclass(frozen=True)
class _Source:
    """A configured vendor, or None to vend no credentials."""

    vendor: Vendor | None
    roots: Roots
    prefix: StoragePrefix | None = None
    """The vendor is for tables inside it; None: for all tables that match no other prefix."""


class VendedCredentials:
    """Credentials for the tables of one catalog: its own, or those of the configured vendors.

    Safe to share between threads.
    """

    def __init__(
        self, catalog: Catalog, config: CatalogConfig, named: Collection[Path] = ()
    ) -> None:
        """Check the properties ``credentials.*``. Makes no call.

        Args:
            named: Namespaces to read even if the catalog does not list them.

        Raises:
            InvalidInputError: (13) one is missing, unknown or wrong.
            UnsupportedOperationError: (0) a vendor's extra is not installed.
        """
        self._catalog = catalog
        # Cached by location: an operation needs it several times, and it never changes.
        self._source = lru_cache(_MOST_LOCATIONS)(partial(_find_source, _create_sources(config)))
        self._sharing = SharingCheck(
            catalog,
            everywhere=config.credentials_check != "namespace",
            partitions=config.credentials_check != "entries",
            root=config.root,
            named=named,
        )
        self._cache = CredentialCache()

    def is_configured(self, location: str) -> bool:
        """Return whether the properties configure a vendor, or none, for a location."""
        return self._source(location) is not None

    def of(
        self, record: TableRecord, *, write: bool, caller: Caller | None = None, own: bool = True
    ) -> Mapping[str, str]:
        """Return the storage options for a table's location; empty if none are vended.

        Args:
            caller: The principal they are for; None for this process, or its one user.
            own: Whether this process uses them, which may commit versions that a catalog holds.

        Raises what `Vendor.vend` and `Catalog.vend_credentials` raise, and:
            PermissionDeniedError: (15) the location is inside no allowed root.
            InvalidInputError: (13) no vendor is set for its store, or it is not a valid location.
            InvalidTableStateError: (19) it overlaps another table's.
        """
        source = self._source(record.location or "")
        # It determines the whole grant, which is made only if it is needed.
        key: tuple[Hashable, ...] = (record.path, record.location, record.identity, write)
        if source is None:
            return self._cache.get(
                key,
                lambda: self._catalog.vend_credentials(record, write=write) or {},
                most_seconds=_CATALOGS_SECONDS,
            )
        vendor = source.vendor
        if vendor is None:
            return {}
        governed = write and not own and record.is_managed
        principal = caller.principal if caller is not None else None

        def vend() -> Mapping[str, str]:
            directory = _require_allowed(record, source)
            grant = Grant(
                directory.store,
                directory.bucket,
                directory.prefix,
                record.path,
                write,
                governed=governed,
                principal=principal,
                account=directory.account,
            )
            return self._vend(vendor, record, grant)

        return self._cache.get(
            (*key, governed, principal), vend, most_seconds=vendor.options.duration_seconds
        )

    def _vend(self, vendor: Vendor, record: TableRecord, grant: Grant) -> Mapping[str, str]:
        name = display(record.path)
        if vendor.stores is not None and grant.store not in vendor.stores:
            raise invalid(
                f"Table '{name}' is on {grant.store}://, for which no vendor is set: set "
                "credentials.<name>.vendor and credentials.<name>.prefix"
            )
        # This process, and its callers without a server, can read all tables anyway.
        self._sharing.refuse_shared(record, chosen=grant.principal is not None)
        options = vendor.vend(grant)
        if EXPIRES_AT in options and int(options[EXPIRES_AT]) <= time.time() * 1000:
            raise ServiceUnavailableError(
                f"The credentials for table '{name}' have expired already: the clock of this "
                "machine, or of the service that made them, is wrong"
            )
        return limit_refresh_offset(options, vendor.options.duration_seconds)


def _find_source(sources: Sequence[_Source], location: str) -> _Source | None:
    if not sources or not location or locations.is_local(location):
        return None
    key = locations.key(location)
    return next((each for each in sources if _serves(each, key, location)), None)


def _serves(source: _Source, key: tuple[str, ...], location: str) -> bool:
    """Return whether a source is for a location in any spelling, which is checked later."""
    prefix = source.prefix
    if prefix is None:
        return True
    if prefix.account not in (None, location.partition("@")[2].partition(".")[0]):
        return False
    own = (prefix.store, prefix.bucket, *prefix.segments)
    return key[: len(own)] == own


def _require_allowed(record: TableRecord, source: _Source) -> StoragePrefix:
    found = storage_prefix(record.location or "")
    if source.roots.contain(found) and (source.prefix is None or source.prefix.contains(found)):
        return found
    raise PermissionDeniedError(
        f"No credentials for table '{display(record.path)}': its location {record.location} is "
        f"inside no root of '{_ALLOWED_ROOTS}'"
    )


# -- properties ------------------------------------------------------------------------------------


def describe_credentials(catalog: Catalog, config: CatalogConfig) -> str:
    """Return a digest that differs between connections with different credentials, or "".

    The digest reveals no secret.
    """
    facts = [
        [config.vendor, config.allowed_roots] if config.vendor else [],
        sorted(config.vendor_options.items()),
        sorted(authentication(config.storage).items()),
        catalog.describe_login(),
    ]
    if not any(facts):
        return ""
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]


def _create_sources(config: CatalogConfig) -> list[_Source]:
    """Return the configured vendors, the one with the deepest prefix first.

    Raises what `VendedCredentials` does.
    """
    common: dict[str, str] = {}
    named: dict[str, dict[str, str]] = {}
    for key, value in config.vendor_options.items():
        name, dot, option = key.partition(".")
        (named.setdefault(name, {}) if dot else common)[option or name] = value
    given = [each for each in (config.allowed_roots or "").split(",") if each.strip()]
    roots = _parse_roots(_ALLOWED_ROOTS, given)
    found = [
        _create_prefixed_source(f"{VENDOR_PREFIX}{name}.", options, config, roots)
        for name, options in sorted(named.items())
    ]
    if config.vendor is not None:
        if config.vendor != _NONE and not roots.prefixes:
            if not config.root or locations.is_local(config.root):
                raise invalid(
                    f"Property '{_ALLOWED_ROOTS}' is required with {VENDOR_PREFIX}vendor="
                    f"{config.vendor}, as 'root' is not set to a directory of an object store: "
                    "it says where the tables are that credentials may be for"
                )
            roots = _parse_roots("root", [config.root])
        found.append(_Source(_create_vendor(VENDOR_PREFIX, config.vendor, common, config), roots))
    return sorted(
        found, key=lambda each: len(each.prefix.segments) if each.prefix else -1, reverse=True
    )


def _create_prefixed_source(
    start: str, given: Mapping[str, str], config: CatalogConfig, allowed: Roots
) -> _Source:
    options = dict(given)
    for required in ("vendor", "prefix"):
        if required not in options:
            raise invalid(f"Property '{start}{required}' is required with the others of '{start}*'")
    [prefix] = _parse_roots(f"{start}prefix", [options.pop("prefix")]).prefixes
    vendor = _create_vendor(start, options.pop("vendor"), options, config)
    return _Source(vendor, allowed if allowed.prefixes else Roots((prefix,)), prefix)


def _parse_roots(key: str, texts: list[str]) -> Roots:
    try:
        return Roots(tuple(parse_root(each) for each in texts))
    except InvalidInputError as error:
        raise invalid(f"Property '{key}': {error}") from error


def _create_vendor(
    start: str, name: str, given: Mapping[str, str], config: CatalogConfig
) -> Vendor | None:
    if name == _NONE:
        if given:
            raise invalid(f"Property '{start}{min(given)}' has no effect with {start}vendor=none")
        return None
    vendor = find_vendor(name)
    known = vendor.options_type.model_fields
    for option in given:
        if option not in known:
            near = difflib.get_close_matches(option, known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known properties: {', '.join(known)}"
            raise invalid(f"Vendor '{name}' has no property '{start}{option}': {hint}")
    try:
        return vendor(vendor.options_type.model_validate(dict(given)), config.storage)
    except ValidationError as error:
        raise invalid(problems_of(error, start)) from None
    except ValueError as error:
        raise invalid(f"{start}vendor={name}: {error}") from error


# -- how long credentials are valid ----------------------------------------------------------------

EXPIRES_AT = "expires_at_millis"
"""The storage option with the expiry time of the others (milliseconds since 1970)."""
REFRESH_OFFSET = "refresh_offset_millis"
"""The storage option that says how long before that time a client requests new ones."""

_LONGEST_OFFSET = 300.0
_MOST = 4096


def expiring_options(options: Mapping[str, str], expires: float) -> TableCredentials:
    """Return a table's credentials with their expiry time (seconds since 1970).

    Clients refresh them when a quarter of their lifetime is left, or five minutes if that is
    shorter. `CredentialCache` replaces credentials after half of their lifetime, so that clients
    then always get newer ones.
    """
    offset = min(_LONGEST_OFFSET, max(expires - time.time(), 0.0) / 4)
    times = {EXPIRES_AT: str(int(expires * 1000)), REFRESH_OFFSET: str(int(offset * 1000))}
    return TableCredentials({**options, **times})


def remaining_seconds(options: Mapping[str, str]) -> float:
    """Return how long options are valid, by this machine's clock; 0 without an expiry time."""
    if EXPIRES_AT not in options:
        return 0.0
    return max(int(options[EXPIRES_AT]) / 1000 - time.time(), 0.0)


def limit_refresh_offset(options: Mapping[str, str], most_seconds: float) -> Mapping[str, str]:
    """Return options with a refresh offset of at most a quarter of ``most_seconds``.

    If this machine's clock is behind, the lifetime seems longer: clients would refresh them before
    `CredentialCache` has newer ones.
    """
    most = int(most_seconds / 4 * 1000)
    if int(options.get(REFRESH_OFFSET, 0)) <= most:
        return options
    return TableCredentials({**options, REFRESH_OFFSET: str(most)})


@dataclass(frozen=True)
class _Entry:
    """Credentials, and when to renew them, by both clocks of this machine.

    The wall clock may be set back, and the monotonic clock may stop while the machine sleeps.
    """

    options: Mapping[str, str] = field(repr=False)
    until: float
    until_monotonic: float

    @classmethod
    def valid_for(cls, options: Mapping[str, str], seconds: float) -> _Entry:
        return cls(options, time.time() + seconds, time.monotonic() + seconds)

    def is_valid(self) -> bool:
        return time.time() < self.until and time.monotonic() < self.until_monotonic


class CredentialCache:
    """Keeps credentials for half of their lifetime. Safe to share between threads.

    A forked child has the credentials that its parent has cached, and requests its own later.

    The lifetime is measured by this machine's clock, which may be behind, so the caller passes an
    upper limit.

    Options without an expiry time are not kept, nor are failures.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self.restart_in_child()
        restart_in_children(self)

    def restart_in_child(self) -> None:
        """Implement `Restartable`."""
        self._lock = threading.Lock()
        self._requests: dict[Hashable, Future[Mapping[str, str]]] = {}

    def get(
        self, key: Hashable, vend: Callable[[], Mapping[str, str]], *, most_seconds: float
    ) -> Mapping[str, str]:
        """Return the options for a key; one request serves all callers that need new ones.

        Args:
            most_seconds: The maximum lifetime, whatever the clocks say.

        Raises the errors of ``vend``, in all callers that waited for it, and ValueError if the
        expiry time is not an integer.
        """
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and entry.is_valid():
                self._entries.move_to_end(key)
                return entry.options
            request = self._requests.get(key)
            if request is None:
                mine = self._requests[key] = Future()
        if request is not None:
            return request.result()
        return self._vend(key, vend, mine, most_seconds)

    def _vend(
        self,
        key: Hashable,
        vend: Callable[[], Mapping[str, str]],
        request: Future[Mapping[str, str]],
        most_seconds: float,
    ) -> Mapping[str, str]:
        try:
            options = vend()
            life = min(remaining_seconds(options), most_seconds)
        except BaseException as error:
            with self._lock:
                self._requests.pop(key, None)
            # An interrupt, such as Ctrl-C, is for this thread only.
            request.set_exception(error if isinstance(error, Exception) else _interrupted())
            raise
        with self._lock:
            self._requests.pop(key, None)
            if life > 0:
                self._entries[key] = _Entry.valid_for(options, life / 2)
                self._entries.move_to_end(key)
                if len(self._entries) > _MOST:
                    self._entries.popitem(last=False)
        request.set_result(options)
        return options


def _interrupted() -> ServiceUnavailableError:
    return ServiceUnavailableError("The request for credentials was interrupted: retry")

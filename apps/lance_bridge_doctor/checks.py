"""Checks of catalogs, gateways, clocks and tables: what is wrong, and what to do about it."""

from __future__ import annotations

import http.client
import json
import logging
import re
import shlex
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from lance_namespace import ListNamespacesRequest
from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableNotFoundError,
    ThrottlingError,
    UnauthenticatedError,
    UnsupportedOperationError,
)

from lance_bridge import locations
from lance_bridge.catalog import IMPLEMENTATION, LATEST, MANAGED_BY, STORAGE
from lance_bridge.config import STORAGE_PREFIX, CatalogConfig
from lance_bridge.connection import DECLARED_AT
from lance_bridge.dotted_names import written
from lance_bridge.entry import TableEntry
from lance_bridge.errors import BrokenNameError, invalid, reason_in
from lance_bridge.extras import MissingExtraError
from lance_bridge.managed import OutOfBand
from lance_bridge.managed_state import State
from lance_bridge.namespace import LanceBridgeNamespace
from lance_bridge.storage import RESERVED_FILE, DataState, Presence, VersionDirectory
from lance_bridge.table import Table
from lance_bridge.tables import Tables
from lance_bridge_federated.children import HEADERS

from .findings import PROGRAM, Commands, Finding, Kind

# -- reachability ----------------------------------------------------------------------------------


_ADDRESSES = ("uri", "host", "endpoint", "region")
"""Properties with the address of a catalog."""
_IDENTITIES = ("access_key_id", "client_id", "auth.username")
"""Properties that belong to a secret."""
_PROPERTY = re.compile(r"property '([^']+)'")
_STORAGE_SECRETS = {
    "s3": ("aws_access_key_id", "aws_secret_access_key"),
    "gs": ("google_service_account",),
    "az": ("azure_storage_account_name", "azure_storage_account_key"),
}


def properties_finding(error: LanceNamespaceError, commands: Commands) -> Finding:
    """Return the problem of properties with which no namespace could be created, without a call.

    If the implementation is unknown, so are the secret properties: no value is repeated.
    """
    kind, command = Kind.CONFIGURATION, f"{PROGRAM} catalogs list"
    named = _PROPERTY.search(str(error))
    if isinstance(error, MissingExtraError):
        kind, command = Kind.MISSING_EXTRA, error.command
    elif named is not None and not isinstance(error, UnsupportedOperationError):
        is_unknown = f"has no {named[0]}" in str(error)
        command = commands.unset(named[1]) if is_unknown else commands.set(named[1])
    return Finding(kind, commands.catalog, str(error), command)


def check_catalog(namespace: LanceBridgeNamespace, commands: Commands) -> Finding | None:
    """Return a finding if the smallest call to the catalog fails."""
    try:
        namespace.list_namespaces(ListNamespacesRequest(limit=1))
    except LanceNamespaceError as error:
        return _catalog_finding(error, namespace, commands)
    return None


def _catalog_finding(
    error: LanceNamespaceError, namespace: LanceBridgeNamespace, commands: Commands
) -> Finding:
    declared = list(namespace.config_type.declared())
    kind, command = Kind.CATALOG, commands.on_catalog("catalogs test")
    if isinstance(error, MissingExtraError):
        kind, command = Kind.MISSING_EXTRA, error.command
    elif isinstance(error, UnauthenticatedError | PermissionDeniedError):
        kind = Kind.REFUSED
        secret = [each.key for each in declared if each.secret]
        used = [key for key in (*_IDENTITIES, *secret) if key in namespace.properties]
        command = commands.set(*(used or secret[:1]))
    elif isinstance(error, ServiceUnavailableError):
        kind = Kind.UNREACHABLE
        keys = [each.key for each in declared]
        command = commands.set(next((key for key in _ADDRESSES if key in keys), keys[0]))
    elif isinstance(error, InvalidInputError):
        kind = Kind.CONFIGURATION
    elif isinstance(error, ThrottlingError):
        command = commands.on_catalog("doctor")
    return Finding(kind, commands.catalog, str(error), command)


def storage_finding(
    error: LanceNamespaceError, location: str, commands: Commands, subject: str = ""
) -> Finding:
    """Return a finding that the storage of a subject or a location could not be read."""
    scheme = locations.key(location)[0]
    if scheme == "file" and isinstance(error, PermissionDeniedError):
        command = f"chmod -R u+rwX {shlex.quote(locations.for_lance(location))}"
    elif scheme == "file":  # the disk or the mount failed: check again when it works
        command = commands.on_catalog("doctor")
    elif isinstance(error, UnauthenticatedError | PermissionDeniedError):
        keys = _STORAGE_SECRETS.get(scheme, ())
        command = commands.set(*(STORAGE_PREFIX + key for key in keys))
    else:
        prefix = {"gs": "google", "az": "azure_storage"}.get(scheme, "aws")
        command = commands.set(f"{STORAGE_PREFIX}{prefix}_endpoint")
    return Finding(Kind.STORAGE, subject or location, str(error), command)


# -- clocks ----------------------------------------------------------------------------------------


TOLERANCE = 30.0
"""Seconds by which clocks may differ. AWS accepts a signature within 300."""
FIX = "sudo timedatectl set-ntp true"
_CLOCK_SECONDS = 5.0

logger = logging.getLogger(__name__)


def check_servers(config: CatalogConfig) -> Iterator[Finding]:
    """Yield a finding for each server of a configuration whose clock differs.

    Only servers with an HTTP address are checked; one that does not respond is skipped.
    """
    for origin in sorted(_origins(config)):
        yield from check_clock(origin, origin)


def check_clock(origin: str, name: str) -> Iterator[Finding]:
    """Yield a finding if the clock of a server differs. Args: name: Of the server."""
    skew = _measure_skew(origin)
    if skew is not None and abs(skew) > TOLERANCE:
        text = f"Its clock is {_format_skew(skew)} this machine's: one of them is wrong"
        yield Finding(Kind.CLOCK_SKEW, name, text, FIX)


def _measure_skew(origin: str) -> float | None:
    """Return by how many seconds a server's clock is ahead; None if it is unknown."""
    parts = urlsplit(origin)
    is_secure = parts.scheme == "https"
    connect = http.client.HTTPSConnection if is_secure else http.client.HTTPConnection
    connection = connect(parts.netloc, timeout=_CLOCK_SECONDS)
    try:
        started = time.time()
        connection.request("HEAD", "/")
        date = connection.getresponse().getheader("Date")
        middle = (started + time.time()) / 2
    except (OSError, http.client.HTTPException, ssl.SSLError) as error:
        logger.info("the clock of %s is unknown: %s", origin, error)
        return None
    finally:
        connection.close()
    try:
        # A date has no fractions of a second: on average it is half a second behind.
        return parsedate_to_datetime(date or "").timestamp() + 0.5 - middle
    except ValueError:
        return None


def check_entry(entry: TableEntry, now: float) -> Iterator[Finding]:
    """Yield a finding if an entry has a time in the future."""
    times, state = [entry.record.properties.get(DECLARED_AT, "")], entry.managed
    if state is not None and state.held is not None:
        times.append(str(state.held))
    ahead = max((int(each) / 1000 - now for each in times if each.isdecimal()), default=0.0)
    if ahead > TOLERANCE:
        text = (
            f"Its entry was written at a time that is {_format_skew(ahead)} this machine's: the "
            "writer's clock, or this one, is wrong"
        )
        yield Finding(Kind.CLOCK_SKEW, entry.name, text, FIX)


def _origins(config: CatalogConfig) -> set[str]:
    texts = [value for value in vars(config).values() if isinstance(value, str)]
    texts += [value for key, value in config.storage.items() if "endpoint" in key.lower()]
    return {
        f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        for parts in map(urlsplit, texts)
        if parts.scheme in ("http", "https") and parts.netloc
    }


def _format_skew(seconds: float) -> str:
    return f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'}"


# -- gateways --------------------------------------------------------------------------------------


_GATEWAY_SECONDS = 10.0
_LONGEST = 1 << 20
_OK = "OK"
_KINDS = {
    "NO_ANSWER": Kind.UNREACHABLE,
    "SERVICE_UNAVAILABLE": Kind.UNREACHABLE,
    "UNAUTHENTICATED": Kind.REFUSED,
}
_ADVICE = {
    Kind.UNREACHABLE: (
        "Start the catalog's server, or correct its address in the gateway's configuration; the "
        "gateway tries it again every half second"
    ),
    Kind.REFUSED: "Correct the catalog's credentials in the gateway's configuration",
    Kind.CATALOG: "The gateway's log, and `lance-bridge serve --check` on its machine, say more",
}
_NO_CREDENTIALS = (
    "With credentials that may see the catalog, such as -p header.x-api-key=…, the gateway says "
    "since when, and why"
)


def check_gateway(properties: Mapping[str, str], commands: Commands) -> tuple[list[Finding], int]:
    """Return the problems of a gateway's catalogs, and the number of catalogs.

    Args:
        properties: Those of pylance's namespace ``rest``.

    Raises:
        InvalidInputError: (13) it has no `/readyz` with catalogs: it is another server.
    """
    uri = properties.get("uri", "")
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        text = "property 'uri' is required: the http:// or https:// address of the gateway"
        return [Finding(Kind.CONFIGURATION, commands.catalog, text, commands.set("uri"))], 0
    origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    address = origin + parts.path.rstrip("/")
    try:
        content = _read_state(address, properties)
    except (OSError, http.client.HTTPException) as error:
        reason = reason_in(getattr(error, "strerror", None) or error) or type(error).__name__
        text = f"The gateway at {address} does not respond: {reason}. Start it, or correct uri"
        return [Finding(Kind.UNREACHABLE, commands.catalog, text, commands.set("uri"))], 0
    states = content.get("catalogs")
    if content.get("status") == "stopping":
        text = f"The gateway at {address} is stopping"
        again = commands.on_catalog("doctor")
        return [Finding(Kind.UNREACHABLE, commands.catalog, text, again)], 0
    if not isinstance(states, dict):
        raise invalid(
            f"'{commands.catalog}' is no gateway of lance-bridge: {address}/readyz does not list "
            "catalogs. The doctor needs a gateway, or one of lance-bridge's own catalogs"
        )
    found = [*check_clock(origin, address), *_states(states, content.get("problems"), commands)]
    return found, len(states)


def _states(states: Mapping[str, Any], problems: Any, commands: Commands) -> Iterator[Finding]:
    """Yield a finding for each catalog that does not respond."""
    known = problems if isinstance(problems, dict) else {}
    for name, state in states.items():
        if state == _OK:
            continue
        kind = _KINDS.get(str(state), Kind.CATALOG)
        problem = known.get(name)
        if isinstance(problem, dict):
            since, error = problem.get("since"), str(problem.get("error")).rstrip(".")
            text = f"It has not responded to the gateway since {since}: {error}. {_ADVICE[kind]}"
        else:
            text = (
                f"It does not respond to the gateway: {state}. {_ADVICE[kind]}. {_NO_CREDENTIALS}"
            )
        yield Finding(kind, name, text, commands.on_catalog("doctor"))


def _read_state(address: str, properties: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the content of `/readyz`; nothing if it is not JSON.

    Raises:
        OSError, http.client.HTTPException: the server does not respond.
    """
    parts = urlsplit(address)
    if parts.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            parts.netloc, timeout=_GATEWAY_SECONDS, context=_tls(properties)
        )
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=_GATEWAY_SECONDS)
    headers = {
        key.partition(".")[2]: value for key, value in properties.items() if key.startswith(HEADERS)
    }
    try:
        connection.request("GET", f"{parts.path}/readyz", headers=headers)
        content = json.loads(connection.getresponse().read(_LONGEST))
    except ValueError:
        return {}
    finally:
        connection.close()
    return content if isinstance(content, dict) else {}


def _tls(properties: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=properties.get("tls.ssl_ca_cert"))
    if properties.get("tls.assert_hostname", "true").lower() == "false":
        context.check_hostname = False
    if "tls.cert_file" in properties:
        context.load_cert_chain(properties["tls.cert_file"], properties.get("tls.key_file"))
    return context


# -- tables ----------------------------------------------------------------------------------------


_MANAGERS = (STORAGE, "catalog", IMPLEMENTATION)
"""Values of `managed_by`; ``catalog`` is another implementation's value for storage."""
_OWNED = "MANAGED"
"""The prefix of table types whose files the catalog may delete."""
_AGED = timedelta(days=3)
"""Lance's clean-up deletes files that no version names once they are 7 days old."""
_RISK = (
    "Decide soon: a clean-up by the table's location, such as LanceDB's optimize(), reads only "
    "versions, and deletes data that is older than 7 days"
)


@dataclass(frozen=True)
class TableChecks:
    """Checks the location, entry and files of tables; changes nothing. ``idle`` is in seconds.

    Leftovers of a crash are reported only after that time without changes: a first write, which has
    no version until it ends, looks the same.
    """

    tables: Tables
    commands: Commands
    idle: float

    def check(self, entries: Sequence[TableEntry]) -> list[Finding]:
        """Return the problems of a table; a broken name has more than one entry."""
        first, *others = entries
        return self._check_broken_name(entries) if others else self._check_table(first)

    def _check_broken_name(self, entries: Sequence[TableEntry]) -> list[Finding]:
        try:
            self.tables.load_entry(entries[0].path)
        except (TableNotFoundError, NamespaceNotFoundError):
            return []  # dropped concurrently
        except LanceNamespaceError as error:
            each_at = "; ".join(f"{e.record.identity} at {e.record.location}" for e in entries)
            message = f"{error}. The entries are {each_at}"
            return [broken_name(written(entries[0].path), message, error, self.commands)]
        return []  # it was changed while it was listed

    def _check_table(self, entry: TableEntry) -> list[Finding]:
        if entry.record.link_to:
            return []  # the target is checked itself
        found = self._check_entry(entry)
        return found if found and self._still_exists(entry) else []

    def _still_exists(self, entry: TableEntry) -> bool:
        """Return whether the table has not been dropped since its entry was read."""
        try:
            found = self.tables.load_entry(entry.path)
            return found.record.identity == entry.record.identity
        except (TableNotFoundError, NamespaceNotFoundError):
            return False
        except LanceNamespaceError:
            return True

    def _check_entry(self, entry: TableEntry) -> list[Finding]:
        if not entry.location:
            message = "Its entry has no location"
            return [self._finding(Kind.LOCATION_GONE, entry, message, "table deregister")]
        try:
            found = [
                *check_entry(entry, time.time()),
                *self._check_ownership(entry),
                *self._check_fields(entry),
            ]
        except InvalidTableStateError as error:
            return [self._inconsistent(entry, str(error))]
        try:
            return [*found, *self._check_storage(Table.of(entry))]
        except LanceNamespaceError as error:
            name = written(entry.path)
            return [*found, storage_finding(error, entry.location, self.commands, name)]

    # -- the entry -------------------------------------------------------------------------------

    def _check_ownership(self, entry: TableEntry) -> Iterator[Finding]:
        record, state = entry.record, entry.managed
        manager = record.properties.get(MANAGED_BY, STORAGE).lower()
        is_others = manager == IMPLEMENTATION and state is None and not entry.manager
        if manager not in _MANAGERS or is_others:
            yield self._inconsistent(
                entry,
                f"Its entry has {MANAGED_BY}={manager}, but no version that lance-bridge "
                "committed: nothing can be written through this catalog",
            )
        elif state is None and LATEST in record.properties:
            message = (
                f"Its entry has its latest version, as for a table that the catalog manages, but "
                f"{MANAGED_BY}={manager}: commits bypass the catalog"
            )
            yield self._finding(Kind.INCONSISTENT_ENTRY, entry, message, "managed begin")
        if record.entry_type.upper().startswith(_OWNED):
            yield self._inconsistent(
                entry,
                f"The catalog has it as {record.entry_type}: "
                "dropping it elsewhere deletes its files",
            )

    def _check_fields(self, entry: TableEntry) -> Iterator[Finding]:
        """Yield a finding for fields that other tools refuse, if the catalog can change them."""
        if not entry.record.problems or self.tables.connection.capabilities.no_alter:
            return
        message = (
            f"Its entry has {', '.join(entry.record.problems)}: other tools may refuse it, or fail "
            "to list its namespace"
        )
        yield self._finding(Kind.INCOMPLETE_ENTRY, entry, message, "table refresh-entry")

    def _inconsistent(self, entry: TableEntry, message: str) -> Finding:
        """Return a finding that a new entry for the same data fixes."""
        found = self._finding(Kind.INCONSISTENT_ENTRY, entry, message, "table deregister")
        register = self.commands.on_catalog("table register", found.subject, entry.uri)
        return replace(found, command=f"{found.command} && {register}")

    def _finding(
        self, kind: Kind, entry: TableEntry, message: str, command: str, *arguments: str
    ) -> Finding:
        """Return a finding of a table, which is the first argument of the command."""
        name = written(entry.path)
        return Finding(kind, name, message, self.commands.on_catalog(command, name, *arguments))

    # -- storage ---------------------------------------------------------------------------------

    def _check_storage(self, table: Table) -> Iterator[Finding]:
        found = table.presence()
        if found.error is not None:
            raise found.error
        if found.state is DataState.MISSING:
            message = f"Its data is missing: there is no version at {table.uri}, {found.reason}"
            yield self._finding(Kind.LOCATION_GONE, table, message, "table deregister")
            return
        problems = [*self._check_manager(table)]
        if table.managed is not None and not problems:
            problems += self._check_versions(table, table.managed)
        yield from problems
        if found.state is DataState.PRESENT and not problems:
            yield from self._check_columns(table)
        if found.state is not DataState.PRESENT and not problems:
            yield from self._check_unwritten(table, found)

    def _check_manager(self, table: Table) -> Iterator[Finding]:
        """Yield a finding if another entry manages the versions, or did when this one was added."""
        other = table.other_manager()
        if table.manager and not other:
            yield self._inconsistent(
                table, f"It only reads, because its versions were managed by {table.manager}"
            )
        if other is None or table.manager:
            return
        message = (
            f"Its versions are managed by {other}: this entry writes nothing, and what pylance or "
            "LanceDB write through it bypasses that one"
        )
        if other.id:
            yield self._finding(Kind.MANAGED_ELSEWHERE, table, message, "table deregister")
        else:
            message = f"Its versions were managed by {other}: it lacks those committed since"
            yield self._finding(Kind.MANAGED_ELSEWHERE, table, message, "managed begin", "--force")

    def _check_columns(self, table: Table) -> Iterator[Finding]:
        problem = table.find_outdated_columns()
        if problem:
            yield self._finding(
                Kind.OUTDATED_COLUMNS, table, f"Its entry {problem}", "table refresh-entry"
            )

    def _check_unwritten(self, table: Table, found: Presence) -> Iterator[Finding]:
        files = table.files().list("")
        idle = min(
            [self.tables.connection.declarations.age(table.record)]
            + [time.time() - meta["last_modified"].timestamp() for meta in files]
        )
        if idle < self.idle:
            return
        if found.state is DataState.UNDECIDED:
            message = (
                f"There is no version at {table.uri}, and nothing says whether there ever was one: "
                "it was never written, or its data was deleted"
            )
            yield self._finding(Kind.DECLARED_ONLY, table, message, "table deregister")
            return
        count = sum(meta["path"] != RESERVED_FILE for meta in files)
        what = f"has {count} files but no version" if count else "was never written"
        message = (
            f"It is declared and {what} at {table.uri}, for {_format_age(idle)}: its writer failed"
        )
        yield self._finding(
            Kind.DECLARED_ONLY, table, message, "table drop", "--if-only-declared", "--yes"
        )

    def _check_versions(self, table: Table, state: State) -> Iterator[Finding]:
        directory = VersionDirectory(table.files())
        staged = directory.within(state.staged) if state.staged else ""
        has_final = directory.find(state.version) is not None
        has_version = has_final or (staged and directory.files.head(staged))
        found = table.out_of_band_versions()
        if state.version and not has_version:
            yield self._version_gone(table, state, found)
        elif found.versions or found.quarantined:
            yield self._out_of_band(table, found, state)
        elif staged and not has_final and _is_aged(table):
            message = (
                f"The manifest of version {state.version} has no final name yet: its writer died. "
                f"{_RISK}"
            )
            yield self._finding(Kind.UNPROTECTED_DATA, table, message, "table versions")

    def _version_gone(self, table: Table, state: State, found: OutOfBand) -> Finding:
        message = f"Version {state.version}, the latest by its entry, is gone"
        later = {each.version for each in found.versions}
        later |= {each for each in found.quarantined_versions if each and each > state.version}
        if later:
            message = f"{message}; version {max(later)} is there, without the catalog"
            return self._finding(Kind.INCONSISTENT_ENTRY, table, message, "managed adopt")
        message = f"{message}, and only older ones are there: restore its manifest from a backup"
        again = self.commands.on_catalog("doctor")
        return Finding(Kind.INCONSISTENT_ENTRY, written(table.path), message, again)

    def _out_of_band(self, table: Table, found: OutOfBand, state: State) -> Finding:
        later = [each for each in found.quarantined_versions if each and each > state.version]
        can_adopt = bool(found.versions or later)
        versions = ", ".join(str(each.version) for each in found.versions)
        what = f"versions {versions}" if versions else f"{len(found.quarantined)} quarantined"
        writers = f" by {', '.join(found.writers)}" if found.writers else ""
        message = f"Not visible, because committed without the catalog{writers}: {what}"
        if found.unique:
            message += f". Nothing else has the rows of {', '.join(found.unique)}"
        elif can_adopt:
            discard = self.commands.on_catalog("managed discard", written(table.path), "--yes")
            message += f". To delete them instead: {discard}"
        fix = ["managed adopt"] if can_adopt else ["managed discard", "--yes"]
        if found.unique and not can_adopt:
            fix = ["managed adopt", "--append"]
        kind = Kind.OUT_OF_BAND
        if _is_aged(table):
            kind, message = Kind.UNPROTECTED_DATA, f"{message}. {_RISK}"
        return self._finding(kind, table, message, *fix)


def _is_aged(table: Table) -> bool:
    """Return whether data that a clean-up by path may delete is old enough to say so."""
    since = table.unprotected_since()
    return since is not None and time.time() - since > _AGED.total_seconds()


def broken_name(name: str, message: str, error: LanceNamespaceError, commands: Commands) -> Finding:
    """Return a finding for a name with several entries, and how to keep others from breaking."""
    remedy = error.remedy if isinstance(error, BrokenNameError) else ""
    text = f"{message}. {remedy}" if remedy else message
    return Finding(Kind.BROKEN_NAME, name, text, commands.on_catalog("doctor"))


def _format_age(seconds: float) -> str:
    if seconds == float("inf"):
        return "an unknown time"
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds:.0f} s"

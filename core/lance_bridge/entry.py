"""TableEntry: the entry of a table in the catalog, Lance's or not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar

from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableBranchNotFoundError,
    TableNotFoundError,
)

from . import locations
from .catalog import LATEST, MANAGED_BY, TABLE_TYPE, Path, TableCredentials, TableRecord
from .connection import DECLARED_AT, RESERVED, Connection
from .credentials import CALLER
from .errors import (
    ManagedElsewhereError,
    NotLanceError,
    NotManagedError,
    OutcomeUnknownError,
    concurrent_modification,
    display,
    invalid,
    retry_after_readback,
    table_not_found,
    unsupported,
)
from .managed_state import State, parse_state, with_state
from .records import (
    ENTRY_ID,
    FOREIGN_COMMITS,
    MANAGER,
    PUBLISH_COLUMNS,
    ForeignCommits,
    check_key,
    check_properties,
    replace_visible,
    visible_properties,
)
from .storage import (
    MAIN,
    Claims,
    Presence,
    TableFiles,
    TableStorage,
    VersionDirectory,
    find_presence,
)
from .storage.manifests import Scheme
from .storage_options import sanitize_options, without_authentication

if TYPE_CHECKING:
    from typing_extensions import Self

EntryT = TypeVar("EntryT", bound="TableEntry")

_ATTEMPTS = 3


class TableReplacedError(ConcurrentModificationError):
    """Another table has the name of a table that was written (code 14).

    Args:
        found: The entry of that table.
    """

    def __init__(self, message: str, found: TableRecord) -> None:
        super().__init__(message)
        self.found = found


@dataclass(frozen=True)
class TableEntry:
    """An entry as the catalog had it when it was loaded."""

    connection: Connection
    record: TableRecord

    @property
    def path(self) -> Path:
        return self.record.path

    @cached_property
    def name(self) -> str:
        """The full name, for messages."""
        return display(self.record.path)

    @property
    def location(self) -> str:
        """The location in the catalog's spelling; empty if the entry has none."""
        return self.record.location or ""

    @cached_property
    def uri(self) -> str:
        """The location in Lance's spelling, with a scheme that Lance opens."""
        return locations.for_lance(self.location)

    @property
    def properties(self) -> dict[str, str]:
        """The properties that users see, without those that lance-bridge keeps for itself."""
        return visible_properties(self.record.properties)

    @property
    def entry_id(self) -> str | None:
        """The id that lance-bridge gave the entry when it created it, if it did."""
        return self.record.properties.get(ENTRY_ID)

    def describe_type(self) -> str:
        """Return what the catalog calls the entry, and its format if known, for messages."""
        if self.record.is_dropped:
            return "a dropped table: take it back under another name, or purge it"
        kind = f"an entry of type {self.record.entry_type or 'unknown'}"
        known = "" if self.record.is_lance else self.record.format
        return f"{kind} ({known})" if known else kind

    def require_lance(self) -> None:
        """Raise NotLance (13) if the entry is not a Lance table."""
        if self.record.is_lance:
            return
        if self.record.is_dropped:
            raise table_not_found(self.path, "It was dropped, and can be taken back: undrop it")
        error = NotLanceError(f"'{self.name}' is not a Lance table but {self.describe_type()}")
        error.path, error.format = self.path, self.record.format
        raise error

    def with_record(self, record: TableRecord) -> Self:
        """Return the same table with another record."""
        return replace(self, record=record)

    # -- the catalog -------------------------------------------------------------------------------

    def reloaded(self) -> Self:
        """Return the table with its entry reloaded.

        Raises:
            TableNotFoundError: (4) it was dropped concurrently.
            ConcurrentModificationError: (14) another table now has the name.
        """
        found = self.with_record(self.connection.catalog.load_table(self.path))
        if found.entry_id != self.entry_id:
            raise concurrent_modification(self.path)
        return found

    def reread_after_commit(self, version: int) -> Self:
        """Return the table with its entry reloaded, after a commit to its storage.

        Raises:
            TableNotFoundError: (4) the entry is gone.
            TableReplacedError: (14) another table has the name, or it has another location.
            OutcomeUnknownError: (17) the entry cannot be read.
        """
        what = f"Version {version} of table '{self.name}'"
        try:
            found = self.with_record(self.connection.catalog.load_table(self.path))
        except (TableNotFoundError, NamespaceNotFoundError) as error:
            raise TableNotFoundError(
                f"Table '{self.name}' was dropped, deregistered or renamed while it was written. "
                f"If it was dropped, files of this write may remain at {self.location}; otherwise "
                f"the write is version {version} of the files there"
            ) from error
        except LanceNamespaceError as error:
            raise OutcomeUnknownError(
                f"{what} is in its files at {self.location}, and whether it is part of the table "
                f"is not known, because the entry could not be read again: {error}"
            ) from error
        if not _is_same_table(found.record, self.record):
            raise TableReplacedError(
                f"Another table has the name '{self.name}', or it has another location, since it "
                f"was opened to be written. Files of this write may remain at {self.location}; "
                "reload the table and retry",
                found.record,
            )
        return found

    def refreshed(self) -> Self:
        """Return `reloaded` if commits may have changed the entry, else itself."""
        return self.reloaded() if self._changes_with_commits else self

    @property
    def _changes_with_commits(self) -> bool:
        return self.managed is not None or PUBLISH_COLUMNS in self.record.properties

    def is_in_catalog(self) -> bool:
        """Return whether the catalog has this very entry under its name."""
        found = self.connection.find_table(self.path)
        return found is not None and _identity(found) == _identity(self.record)

    def remove(self) -> bool:
        """Remove the entry but no file; read back after a lost reply.

        Returns:
            Whether the catalog confirmed it. False: the entry is gone, but after a lost reply, and
            another client may have renamed it.
        """

        def drop() -> bool:
            self.connection.catalog.drop_table(self.record)
            return True

        return retry_after_readback(drop, lambda: not self.is_in_catalog()) is True

    def set_properties(self, properties: Mapping[str, str]) -> Self:
        """Replace the user's properties; concurrent commits to the table do not conflict.

        Raises:
            UnsupportedOperationError: (0) the catalog cannot change entries.
            InvalidInputError: (13) the entry is a link.
            ConcurrentModificationError: (14) other clients keep changing the entry.
        """
        return self._change_properties(lambda _: properties)

    def add_properties(self, properties: Mapping[str, str]) -> Self:
        """Add to the user's properties, or replace some. Raises as `set_properties`."""
        return self._change_properties(lambda present: {**present, **properties})

    def change_properties(self, updates: Mapping[str, str], removals: Collection[str]) -> Self:
        """Set and remove some of the user's properties; the others stay.

        Raises:
            InvalidInputError: (13) a key or value that `check_properties` refuses, or a property
                that marks Lance tables. The rest as `set_properties`.
        """
        wanted = check_properties(updates)
        for key in [*removals, *(updates.keys() - wanted.keys())]:
            check_key(key)
            if key.lower() in (TABLE_TYPE, MANAGED_BY):
                raise invalid(f"Property '{key}' marks Lance tables and cannot be set or removed")
        return self._change_properties(lambda present: {**present, **wanted}, removals)

    def _change_properties(
        self,
        change: Callable[[Mapping[str, str]], Mapping[str, str]],
        removals: Collection[str] = (),
    ) -> Self:
        table = self
        for _ in range(_ATTEMPTS):
            table = table.refreshed()
            try:
                return table._set_properties(change(table.properties), removals)
            except ConcurrentModificationError:
                if not table._changes_with_commits:
                    raise
        raise concurrent_modification(self.path)

    def _set_properties(self, properties: Mapping[str, str], removals: Collection[str]) -> Self:
        replaced = replace_visible(self.record.properties, properties)
        wanted = {key: value for key, value in replaced.items() if key not in removals}
        if wanted == dict(self.record.properties):
            return self
        self.require_alterable("Properties of")
        changed = self.with_record(self.record.with_properties(wanted))
        catalog = self.connection.catalog
        retry_after_readback(
            lambda: catalog.alter_table(changed.record),
            lambda: dict(catalog.load_table(self.path).properties) == wanted,
        )
        return changed

    def refresh_entry(self) -> Self:
        """Correct what other tools may refuse in the entry; return it as the catalog has it then.

        It is not written if there is nothing to correct. Location, properties and data stay.

        Raises:
            InvalidInputError: (13) it is not a Lance table, or a link.
            UnsupportedOperationError: (0) the catalog cannot change entries.
            ConcurrentModificationError: (14) other clients keep changing the entry.
            TableNotFoundError: (4) it was dropped concurrently.
        """
        self.require_lance()
        catalog = self.connection.catalog
        for _ in range(_ATTEMPTS):
            table = self.reloaded()  # some catalogs cannot compare, and would undo later changes
            if not table.record.problems:
                return table
            table.require_alterable("The entry of")
            with suppress(ConcurrentModificationError):
                retry_after_readback(
                    partial(catalog.alter_table, table.record),
                    lambda: not catalog.load_table(self.path).problems,
                )
                return self.reloaded()
        raise concurrent_modification(self.path)

    def require_settable(self, properties: Mapping[str, str]) -> None:
        """Check that `set_properties` would be possible, before anything else is changed.

        Raises:
            UnsupportedOperationError: (0) the catalog cannot change entries.
            InvalidInputError: (13) the entry is a link.
        """
        if replace_visible(self.record.properties, properties) != dict(self.record.properties):
            self.require_alterable("Properties of")

    def require_alterable(self, what: str) -> None:
        """Raise as `require_settable` if the entry cannot change; ``what`` begins the message."""
        if self.connection.capabilities.no_alter:
            reason = self.connection.capabilities.no_alter
            raise unsupported(f"{what} '{self.name}' cannot change: {reason}")
        if self.record.link_to:
            raise invalid(
                f"{what} '{self.name}' cannot change: it is a link to {self.record.link_to}"
            )

    # -- versions that the catalog holds -----------------------------------------------------------

    @cached_property
    def managed(self) -> State | None:
        """The state of an implementation-managed table; None for any other table.

        Raises:
            InvalidTableStateError: (19) the entry has it in an unknown form.
        """
        return parse_state(self.record) if self.record.is_managed else None

    def managed_state(self) -> State:
        """Return the state of an implementation-managed table.

        Raises:
            NotManagedError: (13) its storage, or another implementation, manages the table.
            InvalidTableStateError: (19) as `managed`.
        """
        if self.managed is None:
            owner = "another implementation" if self.record.is_managed else "its storage"
            raise NotManagedError(
                f"The versions of table '{self.name}' are managed by {owner}, not by its catalog"
            )
        return self.managed

    @property
    def manager(self) -> str:
        """The entry that manages the versions, for people, if this is one that only reads."""
        return self.record.properties.get(MANAGER, "")

    @property
    def foreign_commits(self) -> ForeignCommits:
        """How versions that bypassed the catalog are handled.

        Raises:
            InvalidTableStateError: (19) the entry has an unknown value.
        """
        value = self.record.properties.get(FOREIGN_COMMITS, ForeignCommits.HIDE.value)
        try:
            return ForeignCommits.parse(value)
        except InvalidInputError as error:
            raise InvalidTableStateError(
                f"Table '{self.name}' accepts no commit: {error}"
            ) from error

    def with_state(self, state: State) -> Self:
        """Return the table with another state in its record."""
        return self.with_record(with_state(self.record, state))

    def require_own_versions(self) -> None:
        """Check that neither another entry nor another implementation holds the table's versions.

        Raises:
            ManagedElsewhereError: (19) another entry does.
            UnsupportedOperationError: (0) another implementation does.
        """
        if self.manager:
            raise ManagedElsewhereError(
                f"Table '{self.name}' can only be read through this entry: the versions at "
                f"{self.uri} are managed by {self.manager}. Write through that entry. If it no "
                "longer exists, make this one the manager with `lance-bridge managed begin --force`"
            )
        if self.record.is_managed and LATEST not in self.record.properties:
            raise unsupported(
                f"The versions of table '{self.name}' are managed by another implementation "
                f"({MANAGED_BY}={self.record.properties[MANAGED_BY]}), and only that can change "
                "them"
            )

    def require_main_branch(self, branch: str | None) -> None:
        """Check that a request names the one branch that an implementation-managed table has.

        Raises:
            TableBranchNotFoundError: (22)
        """
        if branch not in (None, MAIN):
            raise TableBranchNotFoundError(
                f"Table '{self.name}' has no branch {branch[:60]!r}: its versions are managed by "
                f"its catalog, and all on '{MAIN}'"
            )

    # -- storage -----------------------------------------------------------------------------------

    def storage(self, *, vend: bool | None = None, write: bool = False) -> TableStorage:
        """Return the object store at the location; arguments as of `storage_options`."""
        return TableStorage(self.storage_options(vend=vend, write=write) or {})

    def presence(
        self,
        *,
        vend: bool | None = None,
        storage: TableStorage | None = None,
        state: State | None = None,
    ) -> Presence:
        """Return whether the table's data exists, and how that is known; never raises for storage.

        Args:
            vend: As of `storage_options`.
            storage: The object store at the location, if it is at hand.
            state: The state of a managed table, if it is newer than the entry's.
        """
        state = self.managed if state is None else state
        properties = self.record.properties
        claims = Claims(
            version=None if state is None else state.version,
            staged="" if state is None else state.staged,
            was_reserved=RESERVED in properties,
            is_registered=ENTRY_ID in properties and DECLARED_AT not in properties,
            has_directory=self.connection.capabilities.makes_directories,
        )
        try:
            return find_presence(storage or self.storage(vend=vend), self.location, claims)
        except LanceNamespaceError as error:
            return Presence.unreachable(error)

    def files(self, *, write: bool = False) -> TableFiles:
        """Return the files at the location, with the rights to read them or to write."""
        return TableFiles(self.storage(write=write), self.location)

    def latest_in_storage(self) -> int:
        """Return the latest version at the location, or 0; Lance commits on top of it.

        Raises:
            InvalidTableStateError: (19) no catalog can hold its versions: it has branches, or
                manifests of the first naming scheme.
        """
        files = self.files(write=True)
        if files.list("tree") or files.list("_refs/branches"):
            raise InvalidTableStateError(
                f"Table '{self.name}' has branches, which its catalog cannot hold: delete them "
                "first"
            )
        latest = VersionDirectory(files).latest()
        if latest is None:
            return 0
        if latest.scheme is not Scheme.V2:
            raise InvalidTableStateError(
                f"The manifests of table '{self.name}' are named in scheme "
                f"{latest.scheme.value}: rename them first, with migrate_manifest_paths_v2 of "
                "pylance"
            )
        return latest.version

    def storage_options(
        self, *, vend: bool | None = None, write: bool = False
    ) -> dict[str, str] | None:
        """Return the options with which this process accesses the location, or None for none.

        Args:
            vend: False: do not request temporary credentials.
            write: Whether to request credentials to write, instead of to read.
        """
        options: Mapping[str, str] = self.connection.secrets.config.storage
        vended: Mapping[str, str] = {}
        if vend is not False and self._is_remote:
            vended = self.connection.credentials.of(self.record, write=write)
        if isinstance(vended, TableCredentials):
            options = without_authentication(options)
        return {**options, **vended} or None

    @property
    def _is_remote(self) -> bool:
        return bool(self.location) and not locations.is_local(self.location)

    def answer_options(self, *, vend: bool | None, write: bool | None) -> dict[str, str] | None:
        """Return the storage options for an operation's response, or None for none.

        Args:
            vend: False leaves all credentials out, also those of the configuration: the client
                brings its own. A local location needs none.
            write: Whether the client writes; None if the request does not say.
        """
        config, is_remote = self.connection.config, self._is_remote
        is_configured = is_remote and self.connection.credentials.is_configured(self.location)
        vended = self._vend_to_client(write) if vend is not False and is_remote else {}
        options = config.answered(self.connection.secrets.config.storage)
        if isinstance(vended, TableCredentials):
            options = without_authentication(options)
        else:
            vended = config.answered(vended)
        if options and (vend is False or is_configured or not is_remote):
            options = sanitize_options(options)
        return {**options, **vended} or None

    def _vend_to_client(self, write: bool | None) -> Mapping[str, str]:
        """Return credentials for a client, with the rights that its request and its principal have.

        If the request does not say whether it writes, the property ``credentials.write`` decides. A
        gateway's principal must also be allowed to write; with a configured vendor, that suffices.
        """
        credentials, caller = self.connection.credentials, CALLER.get()
        if caller is None:
            write = self.connection.config.credentials_write if write is None else write
            return credentials.of(self.record, write=write, own=False)
        if write is None:
            may_write = (
                credentials.is_configured(self.location) or self.connection.config.credentials_write
            )
            write = may_write and caller.allows(True)
        if not caller.allows(write):
            return {}
        return credentials.of(self.record, write=write, caller=caller, own=False)


def load_entry(connection: Connection, path: Path) -> TableEntry:
    """Return any entry, Lance's or not.

    Raises:
        TableNotFoundError: (4) the namespace exists, and the table does not.
        NamespaceNotFoundError: (1) the namespace does not exist.
    """
    try:
        return TableEntry(connection, connection.catalog.load_table(path))
    except TableNotFoundError as error:
        connection.catalog.load_namespace(path[:-1])
        raise table_not_found(path) from error


def _is_same_table(found: TableRecord, before: TableRecord) -> bool:
    places = {locations.key(each.location or "/") for each in (found, before)}
    return len(places) == 1 and _identity(found) == _identity(before)


def _identity(record: TableRecord) -> object:
    own = record.properties.get(ENTRY_ID)
    return own or (record.identity, locations.key(record.location or "/"))

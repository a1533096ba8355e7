"""Table: a Lance table that was found in the catalog, and its dataset."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import lance
from lance.commit import CommitConflictError
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    LanceNamespaceError,
    TableBranchNotFoundError,
    TableTagNotFoundError,
    TableVersionNotFoundError,
)

from . import locations
from .arrow_types import columns_of
from .credentials import CALLER, PRINCIPAL
from .entry import TableEntry, TableReplacedError
from .errors import (
    LANCE_ERRORS,
    STORAGE_ERROR,
    TOO_MANY_WRITERS,
    TableDataMissingError,
    TableNotWrittenError,
    as_namespace_error,
    concurrent_modification,
    first_line,
    has_panicked,
    invalid,
    is_input_error,
    panics_as_errors,
    releases_as_conflicts,
    translate_lance_errors,
)
from .managed import OutOfBand, conversion, mark, out_of_band
from .managed.batches import latest_state
from .managed.commits import TableView
from .managed.conversion import LateCommit, Made, remove_from_new_table, require_part
from .managed.mark import Mark
from .managed_state import RELEASED
from .records import PUBLISH_COLUMNS, PUBLISHED, Published, TableRecord
from .requests import LATEST, Ref
from .storage import DataState, Presence, TableStorage
from .transaction_versions import CHANGES, latest_version, transaction_at

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger(__name__)

_PUBLISH_ATTEMPTS, _PUBLISH_PAUSE = 6, 0.1
"""The maximum number of attempts, and by how many seconds the longest wait grows each time."""

_METADATA_CACHE_BYTES = 32 << 20
"""The size of a dataset's metadata cache. Lance's default of 1 GiB would keep each version that
other writers commit before an append succeeds, in each appending thread."""

ON_OPEN: ContextVar[Callable[[], object]] = ContextVar("lance_bridge_on_open", default=lambda: None)
"""Called when this thread has what the catalog says of a table, and begins to read its storage."""


class RowSource(Protocol):
    """Rows that Lance reads while it changes a table."""

    @property
    def failure(self) -> BaseException | None:
        """The error that the rows' own reader raised."""


@dataclass(frozen=True)
class Table(TableEntry):
    """A Lance table as its entry in the catalog was when it was loaded.

    `of` has checked that the entry is Lance's and has a location.
    """

    @classmethod
    def of(cls, entry: TableEntry) -> Table:
        """Return the table of an entry.

        Raises:
            InvalidInputError: (13) the entry is not a Lance table.
            InvalidTableStateError: (19) the entry has no location.
        """
        entry.require_lance()
        if not entry.location:
            raise InvalidTableStateError(
                f"Table '{entry.name}' has no location: deregister it, and register it with one"
            )
        return cls(entry.connection, entry.record)

    def is_declared(self, *, vend: bool | None = None) -> bool:
        """Return True if the table has no version, and is not known to have lost any.

        The catalog alone says it of a table whose versions it holds.

        Args:
            vend: False: do not request temporary credentials from the catalog.

        Raises:
            InvalidTableStateError: (19) its data is missing.
            ServiceUnavailableError: (17) or another error of the storage.
        """
        if self.managed is not None:
            return latest_state(self).version == 0
        error = self._absence_error(self.presence(vend=vend))
        if error is None or isinstance(error, TableNotWrittenError):
            return error is not None
        raise error

    def require_data(self) -> None:
        """Check that there is data.

        Raises:
            TableNotWrittenError: (19) the table has none, and takes its first write.
            InvalidTableStateError: (19) its data is missing.
            ServiceUnavailableError: (17) or another error of the storage.
        """
        error = self._absence_error(self._latest_presence())
        if error is not None:
            raise error

    def require_not_missing(self) -> Presence:
        """Return whether the data exists; raise InvalidTableState (19) if it is missing."""
        found = self._latest_presence()
        if found.state is DataState.MISSING:
            raise self._missing_data_error(found.reason)
        return found

    def _latest_presence(self) -> Presence:
        return self.presence(state=None if self.managed is None else latest_state(self))

    def _absence_error(self, found: Presence, ref: Ref = LATEST) -> LanceNamespaceError | None:
        """Return the error that says why there is no data to read; None if there is."""
        if found.state is DataState.PRESENT:
            return None
        if found.error is not None:
            return found.error
        if found.state is DataState.MISSING:
            return self._missing_data_error(found.reason)
        if ref.version is not None:
            return self._no_version_error(ref)
        if found.state is DataState.DECLARED:
            message = "is declared and has no data yet: write to it first"
        else:
            message = (
                f"has no data yet, or lost it: there is no version at {self.uri}, and nothing says "
                "whether there ever was one. Restore the files there, if there were any, or write "
                "to it first"
            )
        return TableNotWrittenError(f"Table '{self.name}' {message}")

    def _missing_data_error(self, reason: str) -> LanceNamespaceError:
        try:
            self.reloaded()
        except LanceNamespaceError as error:
            return error  # such as: it was dropped concurrently, with its files
        return TableDataMissingError(
            f"The data of table '{self.name}' is missing: there is no version at {self.uri}, "
            f"{reason}. Restore the files there, or deregister or drop the table and create it "
            "again"
        )

    # -- the dataset -------------------------------------------------------------------------------

    def open(
        self, ref: Ref = LATEST, *, vend: bool | None = None, write: bool = False
    ) -> lance.LanceDataset:
        """Open the dataset at a version, a tag or a branch, or at its latest version.

        Args:
            vend: False: do not request temporary credentials from the catalog.
            write: Whether the dataset will be written to; its credentials then allow that.

        Raises:
            InvalidTableStateError: (19) the table is declared and holds no data yet.
            TableVersionNotFoundError: (11) there is no such version.
            TableTagNotFoundError: (8)
            TableBranchNotFoundError: (22)
            ServiceUnavailableError: (17) the storage does not respond.
            UnsupportedOperationError: (0) another implementation manages the versions, and
                ``write`` is True.
        """
        if write:
            self.require_own_versions()
            mark.require_manager(self)
        dataset = self._open(ref, vend=vend, write=write)
        changes = CHANGES.get()
        if changes is not None:
            changes.read = int(dataset.version)
        return dataset

    def _open(self, ref: Ref, *, vend: bool | None, write: bool) -> lance.LanceDataset:
        options = self.storage_options(vend=vend, write=write)
        ON_OPEN.get()()
        if locations.is_supported(self.uri) and not locations.is_local(self.uri):
            # Lance waits for minutes for an unresponsive store. This call has a timeout.
            TableStorage(options or {}).is_occupied(self.uri)
        if self.managed is not None:
            clear = out_of_band.clear_next_version if write else out_of_band.adopt_if_allowed
            with releases_as_conflicts():
                return clear(self)._open_managed(ref, options, write=write)
        on_main = ref.version if ref.branch is None else None
        try:
            with panics_as_errors():
                dataset = lance.dataset(
                    self.uri,
                    version=on_main if ref.tag is None else ref.tag,
                    storage_options=options,
                    metadata_cache_size_bytes=_METADATA_CACHE_BYTES,
                )
                if ref.branch is not None:
                    dataset = dataset.checkout_version((ref.branch, ref.version))
        except LANCE_ERRORS as error:
            raise self._explain_open_failure(ref, options, error) from error
        return dataset

    def _open_managed(
        self, ref: Ref, options: dict[str, str] | None, *, write: bool
    ) -> lance.LanceDataset:
        """Open a version that the catalog holds; commits go through the catalog, too."""
        state = latest_state(self)
        self.require_main_branch(ref.branch)
        if state.version == 0:
            found = self.presence(storage=TableStorage(options or {}), state=state)
            absence = self._absence_error(found, ref)
            if absence is not None:
                raise absence
        if (ref.version or 0) > state.version:
            raise self._no_version_error(ref)
        view = TableView(self, write)
        version = ref.version or state.version
        if ref.tag is not None:
            version = self._find_tag(self._open_version(view, state.version, options), ref.tag)
        return self._open_version(view, version, options)

    def _open_version(
        self, view: TableView, version: int, options: dict[str, str] | None
    ) -> lance.LanceDataset:
        try:
            with panics_as_errors():
                return lance.LanceDataset(
                    self.uri,
                    version=version,
                    storage_options=options,
                    metadata_cache_size_bytes=_METADATA_CACHE_BYTES,
                    namespace_client=view,
                    table_id=list(self.path),
                    namespace_client_managed_versioning=True,
                )
        except LANCE_ERRORS as error:
            storage = TableStorage(options or {})
            found = self.presence(storage=storage, state=latest_state(self))
            absence = self._absence_error(found)
            if absence is not None:
                raise absence from error
            raise_view_failure(view, error)
            raise self._open_error(error) from error

    def _find_tag(self, dataset: lance.LanceDataset, tag: str) -> int:
        with translate_lance_errors(f"The tags of table '{self.name}' could not be read"):
            found = dataset.tags.list().get(tag)
        if found is None:
            raise TableTagNotFoundError(f"Table '{self.name}' has no tag '{tag}'")
        return int(found["version"])

    def _explain_open_failure(
        self, ref: Ref, options: dict[str, str] | None, error: Exception
    ) -> LanceNamespaceError:
        """Return the error that says, from the storage, why the dataset could not be opened."""
        if not locations.is_supported(self.uri):
            return self._open_error(error)
        found = self.presence(storage=TableStorage(options or {}))
        absence = self._absence_error(found, ref)
        if absence is not None:
            return absence
        if ref != LATEST:
            with translate_lance_errors(f"Table '{self.name}' at {self.uri}"):
                latest = lance.dataset(self.uri, storage_options=options)
                if ref.tag is not None and ref.tag not in latest.tags.list():
                    return TableTagNotFoundError(f"Table '{self.name}' has no tag '{ref.tag}'")
                if ref.branch is not None and ref.branch not in latest.branches.list():
                    return TableBranchNotFoundError(
                        f"Table '{self.name}' has no branch '{ref.branch}'"
                    )
                if ref.branch is not None:
                    latest = latest.checkout_version((ref.branch, None))
                known = {each["version"] for each in latest.versions()}
            if ref.version is not None and ref.version not in known:
                return self._no_version_error(ref)
        return self._open_error(error)

    def _open_error(self, error: Exception) -> LanceNamespaceError:
        return as_namespace_error(f"Table '{self.name}' at {self.uri} could not be opened", error)

    def _no_version_error(self, ref: Ref) -> TableVersionNotFoundError:
        return TableVersionNotFoundError(f"Table '{self.name}' has no {ref}")

    # -- versions that the catalog holds -----------------------------------------------------------

    def manage(self, *, force: bool = False) -> Self:
        """Have the catalog hold the versions from now on; return the updated table.

        The versions in the storage become the table's. A write of this library that began before
        becomes part of the table, or fails. Other writers that opened the table before continue to
        write to the storage, and those versions are not shown: stop these writers first.

        Args:
            force: Whether to take the versions from another entry that manages them. It then only
                reads, if it is in this catalog; if not, it keeps showing its latest version, and
                its writes are refused.

        Raises:
            UnsupportedOperationError: (0) the catalog cannot, or another implementation manages it.
            ManagedElsewhereError: (19) another entry manages them.
            InvalidInputError: (13) its namespace has a wrong value of `FOREIGN_COMMITS`.
            InvalidTableStateError: (19) as `latest_in_storage`; or its data is missing.
            ConcurrentModificationError: (14) other clients keep changing the entry.
            TableNotFoundError: (4) the table was dropped concurrently.
        """
        if self.managed is None:
            self.require_not_missing()  # else the entry would say that it never had data
        return conversion.begin(self, force=force)

    def release(self, holder: str = "") -> Self:
        """Return the versions to the storage; return the updated table.

        Args:
            holder: The id of a holder that may continue after it died; see `compare_and_set.held`.

        Raises:
            InvalidInputError: (13) its storage manages the table already.
            InvalidTableStateError: (19) some versions were never committed: adopt or discard them
                first.
            ConcurrentModificationError: (14) another client commits.
        """
        return conversion.end(self, holder)

    def finish_latest(self) -> None:
        """Give the latest version its final name; log a warning if that fails."""
        conversion.finish_latest(self)

    @contextmanager
    def finished_for_removal(self) -> Iterator[Self]:
        """Keep other writers from committing while the entry is removed; yield the updated table.

        Ends the batch that it is part of, and gives its latest version the final name.

        Raises:
            ConcurrentModificationError: (14) other clients keep committing.
            ServiceUnavailableError: (17) or another error of the storage, of this table or of the
                one that has the record of the batch: a version would be lost with the entry.
        """
        with conversion.finished_for_removal(self) as finished:
            yield finished

    def other_manager(self) -> Mark | None:
        """Return the mark of another entry that manages the versions at the location, if any.

        Its id is empty if another entry managed them after this one, and no longer does.

        Raises:
            ManagedElsewhereError: (19) the mark that says so cannot be read.
            LanceNamespaceError: the storage or the catalog cannot be read.
        """
        return mark.other_manager(self)

    def out_of_band_versions(self) -> OutOfBand:
        """Return the versions that were not committed through the catalog.

        Raises:
            InvalidInputError: (13) its storage manages the table.
        """
        return out_of_band.inspect(self)

    def unprotected_since(self) -> float | None:
        """Return since when a clean-up by the location has threatened rows, or None.

        That is the time, in seconds since 1970, at which the oldest data file was written that is
        named only by a quarantined or staged manifest; or the latest version, if later ones
        bypassed the catalog.
        """
        return out_of_band.unprotected_since(self)

    # -- commits -----------------------------------------------------------------------------------

    def commit_arguments(self) -> dict[str, Any]:
        """Return arguments of `lance.LanceDataset.commit` for a commit through the catalog."""
        if self.managed is None:
            return {}
        return {
            "namespace_client": TableView(self, write=True),
            "table_id": list(self.path),
            "namespace_client_managed_versioning": True,
        }

    @contextmanager
    def committing(
        self,
        dataset: lance.LanceDataset,
        what: str = "it is not changed",
        rows: RowSource | None = None,
        check_input: Callable[[], None] | None = None,
        latest: int | None = None,
    ) -> Iterator[None]:
        """Translate errors that pylance raises in a change; nothing is committed then.

        After a success, the dataset's version is passed to `note_commit`.

        Args:
            what: What did not happen, for the middle of the message.
            rows: The rows that the change reads; an error of their reader is raised unchanged.
            check_input: Called after a failure; raises if the input does not fit the table.
            latest: The latest version before the change, if the dataset is at an earlier one.

        Raises:
            LanceNamespaceError: an error of the catalog that manages the table's versions.
            InvalidInputError: (13) Lance refuses the request or the rows.
            ConcurrentModificationError: (14) another writer's commit came first and does not fit.
            ServiceUnavailableError: (17) the storage failed.
            InternalError: (18) Lance panicked.
            TableNotFoundError: (4), OutcomeUnknownError: (17) as `require_part`.
        """
        before = int(dataset.version)
        try:
            with panics_as_errors():
                yield
        except CommitConflictError as error:
            raise concurrent_modification(self.path) from error
        except LANCE_ERRORS as error:
            if rows is not None and rows.failure is not None:
                raise rows.failure from None
            raise_view_failure(getattr(dataset, "_namespace_client", None), error)
            if check_input is not None:
                check_input()
            message = f"Table '{self.name}': {what}"
            if is_input_error(error):
                raise invalid(f"{message}: {first_line(error)}") from error
            if not has_panicked(error) and self._was_overtaken(dataset, latest or before, error):
                raise concurrent_modification(self.path) from error
            raise as_namespace_error(message, error) from error
        self.note_commit(before, int(dataset.version), dataset)

    def note_commit(
        self,
        read: int,
        after: int,
        made: Made = "",
        branch: str | None = None,
    ) -> None:
        """Check that a commit counts, record it if commits are recorded, and publish columns.

        Every operation that commits with pylance passes here.

        Args:
            read: The version that it was made from.
            after: The version that it created, or ``read`` if none.
            made: As of `require_part`, if a version was created.
            branch: As of `require_part`.

        Raises:
            LanceNamespaceError: what `require_part` raises; nothing is recorded.
        """
        if after > read:
            self.require_part(after, made, branch)
        changes = CHANGES.get()
        if changes is not None:
            changes.add(self.path, read, after)
        if after > read:
            self.publish_after_commit()

    def require_part(self, version: int, made: Made, branch: str | None = None) -> None:
        """Check that a version that was committed to the storage is part of the table now.

        It is if the entry, read again, leaves the versions to the storage, or has this version. The
        version becomes the next one in the catalog if it can; see `LateCommit`. Nothing is to be
        checked if the catalog held the versions before, since it then decides each commit.

        Args:
            made: The dataset at the version, the identifier of its transaction, or its manifest.
            branch: The branch that it was made on; a dataset knows its own.

        Raises:
            TableNotFoundError: (4) the table was dropped or deregistered while it was written.
            ConcurrentModificationError: (14) it was made managed, or replaced, and does not have
                the version.
            OutcomeUnknownError: (17) whether it has the version is not known.
        """
        if self.managed is not None:
            return
        try:
            now = self.reread_after_commit(version)
        except TableReplacedError as error:
            commit = LateCommit.of(version, made, branch)
            remove_from_new_table(self, error.found, commit)
            raise
        before, after = (each.record.properties.get(RELEASED) for each in (self, now))
        if now.record.is_managed or before != after:  # its catalog holds the versions, or did
            require_part(now, LateCommit.of(version, made, branch))

    # -- columns in the entry ----------------------------------------------------------------------

    def publish_after_commit(self) -> None:
        """Publish columns if the entry has them, and log a failure: the commit stays made."""
        if not self.publishes:
            return
        try:
            self._write_columns()
        except Exception as error:  # noqa: BLE001 - nothing may look as if the commit failed
            logger.warning(
                "The entry of table '%s' still has the columns of an earlier version; lance-bridge "
                "doctor finds it: %s",
                self.name,
                first_line(error),
            )

    def find_outdated_columns(self) -> str:
        """Return how published columns differ from the data, for people; "" if they do not.

        Raises:
            LanceNamespaceError: the data cannot be read.
        """
        record = self.record
        if not self.publishes:
            is_left = has_columns(record) and self._can_publish
            return "has columns, though it should have none" if is_left else ""
        dataset = self._open(LATEST, vend=None, write=False)
        known = _published_version(record)
        if known != dataset.version:
            which = "no columns" if known is None else f"the columns of version {known}"
            return f"has {which}, and the latest version is {dataset.version}"
        found = len(list(self.connection.catalog.load_columns(self.path)))
        wanted = len(dataset.schema)
        return "" if found == wanted else f"has {found} columns, and the table has {wanted}"

    def refresh_entry(self) -> Self:
        """Do the same as `TableEntry.refresh_entry`, and correct published columns.

        Raises:
            LanceNamespaceError: the data cannot be read.
        """
        table = super().refresh_entry()
        has_data = not table.publishes or table._latest_presence().state is DataState.PRESENT
        is_outdated = has_data and table.find_outdated_columns()
        if not is_outdated:
            return table
        table._write_columns(is_forced=True)
        return table.reloaded()

    @property
    def publishes(self) -> bool:
        """Whether commits write the table's columns into its entry."""
        wanted = self.record.properties.get(PUBLISH_COLUMNS, "")
        return self._can_publish and wanted.lower() == "true"

    @property
    def _can_publish(self) -> bool:
        return self.connection.catalog.capabilities.publishes_columns and not self.record.link_to

    def _write_columns(self, *, is_forced: bool = False) -> None:
        """Write the columns of the latest version into the entry, or remove them if it has none.

        Args:
            is_forced: Whether to write them even if the entry has those of that version.
        """
        catalog = self.connection.catalog
        for attempt in range(_PUBLISH_ATTEMPTS):
            time.sleep(random.uniform(0, attempt * _PUBLISH_PAUSE))  # let other writers finish
            table = self.reloaded()
            if table.publishes:
                dataset = table._open(LATEST, vend=None, write=False)
                is_known = _published_version(table.record) == dataset.version
                if is_known and not is_forced:
                    return  # a writer that committed later has published it
                record = _with_data_of(table.record, dataset)
            elif has_columns(table.record):
                record = table.record.with_published(Published(), {})
            else:
                return
            with suppress(ConcurrentModificationError):
                catalog.alter_table(record)
                return
        raise concurrent_modification(self.path)

    def _was_overtaken(self, dataset: lance.LanceDataset, before: int, error: Exception) -> bool:
        if TOO_MANY_WRITERS in str(error):
            return True
        return STORAGE_ERROR not in str(error) and latest_version(dataset) > before


def raise_view_failure(view: Any, error: Exception) -> None:
    """Raise the catalog's error that a view of the table passed to pylance, if any."""
    if isinstance(view, TableView) and view.failure is not None:
        raise view.failure from error


def transaction_properties() -> dict[str, str]:
    """Return the properties of a transaction that name its principal, if any."""
    caller = CALLER.get()
    return {} if caller is None else {PRINCIPAL: caller.principal}


def transaction_id(dataset: lance.LanceDataset, table: Table) -> str | None:
    """Return the identifier of the transaction that created the dataset's version.

    None if it is not recorded or cannot be read: that version is committed all the same.
    """
    try:
        with panics_as_errors():
            transaction = transaction_at(dataset, dataset.version)
    except LANCE_ERRORS as error:
        logger.warning(
            "The transaction of version %s of table '%s' could not be read: %s",
            dataset.version,
            table.name,
            first_line(error),
        )
        return None
    return (str(transaction.uuid) or None) if transaction is not None else None


# -- published columns -----------------------------------------------------------------------------
# What an entry says of its table's data, for tools that read only entries: data catalogs, consoles
# and DESCRIBE.

_MAX_FRAGMENTS = 10_000
"""The size of a table with more fragments is not published: it takes seconds to add up."""


def has_columns(record: TableRecord) -> bool:
    """Return whether columns were published, and not removed since."""
    return PUBLISHED in record.properties


def _published_version(record: TableRecord) -> int | None:
    """Return the version whose columns the entry has; None if it has none."""
    value = record.properties.get(PUBLISHED, "")
    return int(value) if value.isdecimal() else None


def _with_data_of(record: TableRecord, dataset: lance.LanceDataset) -> TableRecord:
    """Return the record to write: with the columns, rows and size of a dataset's version.

    Raises:
        InvalidTableStateError: (19), ServiceUnavailableError: (17) or another error of Lance.
    """
    with translate_lance_errors(f"The data at {dataset.uri} could not be read"):
        stats = dataset.stats.dataset_stats()
        published = Published(columns_of(dataset.schema), int(dataset.count_rows()), None)
        if stats["num_fragments"] <= _MAX_FRAGMENTS:
            published = Published(published.columns, published.rows, _size_of(dataset))
    return record.with_published(published, {PUBLISHED: str(dataset.version)})


def _size_of(dataset: lance.LanceDataset) -> int | None:
    """Return the size of the data files, in bytes; None if a manifest leaves one out."""
    files = [each for fragment in dataset.get_fragments() for each in fragment.metadata.files]
    sizes = [each.file_size_bytes for each in files if each.file_size_bytes is not None]
    return sum(sizes) if len(sizes) == len(files) else None

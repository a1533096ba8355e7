"""Opening a table's dataset, and telling its failures apart by looking, not by their text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import lance
from lance_namespace.errors import (
    InternalError,
    InvalidTableStateError,
    LanceNamespaceError,
    ServiceUnavailableError,
    TableBranchNotFoundError,
    TableTagNotFoundError,
    TableVersionNotFoundError,
)

from .. import location as locations
from ..bridge import Bridge
from ..catalog import TableRecord
from ..entries.tables import is_only_declared
from ..errors import display, invalid, is_panic
from ..managed import foreign
from ..managed.state import own_state, require_main, require_own, state_of
from ..managed.view import TableView
from ..storage import TableStorage
from .history.manifests import MAIN

LANCE_FAILURES = (OSError, ValueError, RuntimeError, NotImplementedError, OverflowError)
"""What pylance raises for anything that goes wrong in its Rust half."""


class LancePanicError(RuntimeError):
    """A panic of Lance's Rust code, as one of `LANCE_FAILURES`."""


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Raise a panic as an error, so that it is handled where Lance's errors are.

    PyO3 raises a BaseException, whose type cannot be named in an ``except``.
    """
    try:
        yield
    except BaseException as error:
        if not is_panic(error):
            raise
        raise LancePanicError(str(error)) from error


@dataclass(frozen=True)
class Ref:
    """Which state of a table is meant: a version, a tag, or the latest; of main, or of a branch."""

    version: int | None = None
    tag: str | None = None
    branch: str | None = None

    @classmethod
    def of(
        cls, version: int | None = None, tag: str | None = None, branch: str | None = None
    ) -> Ref:
        """Return what a request names.

        Raises:
            InvalidInputError: (13) a tag together with a version or branch, or a bad version.
        """
        if tag is not None and (branch is not None or version is not None):
            raise invalid("`tag` cannot be used together with `version` or `branch`")
        if version is not None and version < 1:
            raise invalid(f"version must be 1 or more, not {version}")
        return cls(version, tag, None if branch in (None, MAIN) else branch)

    def __str__(self) -> str:
        """Return what a message calls it."""
        if self.tag is not None:
            return f"tag '{self.tag}'"
        of_branch = f" of branch '{self.branch}'" if self.branch else ""
        return f"version {self.version or 'latest'}{of_branch}"


LATEST = Ref()


def open_dataset(
    bridge: Bridge,
    record: TableRecord,
    ref: Ref = LATEST,
    *,
    vend: bool | None = None,
    write: bool = False,
) -> lance.LanceDataset:
    """Open a table at a version, a tag or a branch, or at its latest version.

    Args:
        vend: False keeps the catalog from being asked for temporary credentials.
        write: Whether the dataset is to be written to; its credentials then allow that.

    Raises:
        InvalidTableStateError: (19) the table is declared and holds no data yet.
        TableVersionNotFoundError: (11) there is no such version.
        TableTagNotFoundError: (8)
        TableBranchNotFoundError: (22)
        ServiceUnavailableError: (17) the storage does not answer.
        UnsupportedOperationError: (0) another implementation manages the versions, and the dataset
            is to be written to.
    """
    if write:
        require_own(record)
    place = locations.for_lance(record.location or "")
    options = bridge.storage_options(record, vend=vend, write=write)
    if not locations.is_local(place):
        # Lance waits for minutes for a store that never answers. This look ends in time.
        TableStorage(options or {}).is_occupied(place)
    if state_of(record) is not None:
        record = foreign.make_room(bridge, record) if write else record
        return _open_managed(TableView(bridge, record, write), ref, options)
    on_main = ref.version if ref.branch is None else None
    try:
        with panics_as_errors():
            dataset = lance.dataset(place, version=ref.tag or on_main, storage_options=options)
            if ref.branch is not None:
                dataset = dataset.checkout_version((ref.branch, ref.version))
    except LANCE_FAILURES as error:
        raise _why_not(bridge, record, ref, options, error) from error
    return dataset


def _open_managed(view: TableView, ref: Ref, options: dict[str, str] | None) -> lance.LanceDataset:
    """Open a table whose versions the catalog holds, at one of those; its commits go there, too."""
    record, name = view.record, display(view.record.path)
    state = own_state(record)
    require_main(record, ref.branch)
    if state.version == 0:
        raise _no_version(name, ref) if ref.version else _only_declared(name)
    if (ref.version or 0) > state.version:
        raise _no_version(name, ref)
    version = ref.version or state.version
    if ref.tag is not None:
        version = _tagged(_open_version(view, state.version, options), name, ref.tag)
    return _open_version(view, version, options)


def _open_version(
    view: TableView, version: int, options: dict[str, str] | None
) -> lance.LanceDataset:
    record = view.record
    place = locations.for_lance(record.location or "")
    try:
        with panics_as_errors():
            return lance.LanceDataset(
                place,
                version=version,
                storage_options=options,
                namespace_client=view,
                table_id=list(record.path),
                namespace_client_managed_versioning=True,
            )
    except LANCE_FAILURES as error:
        if view.failure is not None:
            raise view.failure from error
        name = display(record.path)
        raise failure(f"Table '{name}' at {place} could not be opened", error) from error


def _tagged(dataset: lance.LanceDataset, name: str, tag: str) -> int:
    with translated(f"The tags of table '{name}' could not be read"):
        found = dataset.tags.list().get(tag)
    if found is None:
        raise TableTagNotFoundError(f"Table '{name}' has no tag '{tag}'")
    return int(found["version"])


def raise_what_catalog_said(dataset: lance.LanceDataset, error: Exception) -> None:
    """Raise what the catalog refused while pylance committed through it, if it did."""
    raise_failure_of(getattr(dataset, "_namespace_client", None), error)


def raise_failure_of(view: Any, error: Exception) -> None:
    """Raise what the catalog refused while a view of the table was asked, if it did."""
    if isinstance(view, TableView) and view.failure is not None:
        raise view.failure from error


def commits_through(bridge: Bridge, record: TableRecord) -> dict[str, Any]:
    """Return the arguments of `lance.LanceDataset.commit` that have the right place commit."""
    if state_of(record) is None:
        return {}
    return {
        "namespace_client": TableView(bridge, record, write=True),
        "table_id": list(record.path),
        "namespace_client_managed_versioning": True,
    }


def _why_not(
    bridge: Bridge,
    record: TableRecord,
    ref: Ref,
    options: dict[str, str] | None,
    error: Exception,
) -> LanceNamespaceError:
    """Find out by looking why a dataset could not be opened."""
    name = display(record.path)
    place = locations.for_lance(record.location or "")
    if is_only_declared(bridge, record):
        if ref.version is not None:
            return _no_version(name, ref)
        return _only_declared(name)
    if ref != LATEST:
        with translated(f"Table '{name}' at {place}"):
            latest = lance.dataset(place, storage_options=options)
            if ref.tag is not None and ref.tag not in latest.tags.list():
                return TableTagNotFoundError(f"Table '{name}' has no tag '{ref.tag}'")
            if ref.branch is not None and ref.branch not in latest.branches.list():
                return TableBranchNotFoundError(f"Table '{name}' has no branch '{ref.branch}'")
            if ref.branch is not None:
                latest = latest.checkout_version((ref.branch, None))
            known = {each["version"] for each in latest.versions()}
        if ref.version is not None and ref.version not in known:
            return _no_version(name, ref)
    return failure(f"Table '{name}' at {place} could not be opened", error)


def _only_declared(name: str) -> InvalidTableStateError:
    return InvalidTableStateError(
        f"Table '{name}' is declared and holds no data yet: write to it first"
    )


def _no_version(name: str, ref: Ref) -> TableVersionNotFoundError:
    return TableVersionNotFoundError(f"Table '{name}' has no {ref}")


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn a failure of storage inside pylance into ServiceUnavailable (17), a panic into 18."""
    try:
        with panics_as_errors():
            yield
    except LANCE_FAILURES as error:
        raise failure(what, error) from error


def failure(what: str, error: Exception, hint: str = "") -> LanceNamespaceError:
    """Return what it means that Lance failed: code 18 for a panic, and else 17, for storage.

    Args:
        hint: What to add where storage failed, such as that it can be tried again.
    """
    if has_panicked(error):
        return InternalError(f"{what}: Lance panicked: {brief(error)}")
    return ServiceUnavailableError(f"{what}: {brief(error)}{hint}")


def has_panicked(error: Exception) -> bool:
    """Return whether Lance panicked: in the caller's thread, or in a task, whose error says so."""
    text = str(error)
    return (
        isinstance(error, LancePanicError)
        or "panicked with message" in text
        or "JoinError::Panic" in text
    )


def brief(error: BaseException | str) -> str:
    """Return the first line of what pylance said, without the places in its source."""
    first_line = str(error).split("\n", 1)[0]
    return re.split(r", (?:location: )?(?=/|\S+\.rs:\d)", first_line, maxsplit=1)[0][:300]

"""Tags of a table: list, look up, create, move and delete."""

from __future__ import annotations

import json
from dataclasses import dataclass

import lance
from lance_namespace.errors import (
    InvalidTableStateError,
    LanceNamespaceError,
    ServiceUnavailableError,
    TableTagAlreadyExistsError,
    TableTagNotFoundError,
    TableVersionNotFoundError,
)
from lance_namespace_urllib3_client.models import TagContents

from ...bridge import Bridge
from ...catalog import TableRecord
from ...errors import display
from ..dataset import (
    LANCE_FAILURES,
    Ref,
    failure,
    open_dataset,
    panics_as_errors,
    translated,
)
from .manifests import TableFiles
from .references import check_tag_name, tags_of
from .versions import directory_of


@dataclass(frozen=True)
class Tagged:
    """What a tag points to; ``branch`` is None for main."""

    version: int
    branch: str | None = None

    @property
    def pair(self) -> tuple[str | None, int]:
        """How pylance takes it."""
        return self.branch, self.version


def list_all(bridge: Bridge, record: TableRecord) -> dict[str, TagContents]:
    """Return all tags; none where the table holds no data yet."""
    try:
        dataset = open_dataset(bridge, record)
    except InvalidTableStateError:
        return {}
    return {
        name: TagContents(
            branch=tag["branch"], version=tag["version"], manifestSize=tag["manifest_size"]
        )
        for name, tag in tags_of(dataset).items()
    }


def get(bridge: Bridge, record: TableRecord, name: str) -> Tagged:
    """Return what a tag points to.

    Raises:
        TableTagNotFoundError: (8)
        InvalidInputError: (13) no tag can have the name.
    """
    found = _read(bridge, record, check_tag_name(name))
    if found is None:
        raise _not_found(record, name)
    return found


def create(bridge: Bridge, record: TableRecord, name: str, ref: Ref) -> None:
    """Tag a version. Of several creators of one tag, one wins.

    Raises:
        TableTagAlreadyExistsError: (9)
        TableVersionNotFoundError: (11)
        TableBranchNotFoundError: (22)
        InvalidInputError: (13) no tag can have the name.
    """
    check_tag_name(name)
    dataset, wanted = _target(bridge, record, ref)
    if _read(bridge, record, name) is not None:
        raise _already_exists(record, name)
    try:
        with panics_as_errors():
            dataset.tags.create(name, wanted.pair)
    except LANCE_FAILURES as error:
        if _read(bridge, record, name) is not None:
            raise _already_exists(record, name) from error
        raise _failed(bridge, record, ref, f"Tag '{name}' could not be created", error) from error
    if not _is_there(bridge, record, wanted):
        with translated(f"Tag '{name}' points to a version that was deleted: delete it"):
            dataset.tags.delete(name)
        raise _gone(record, ref)


def update(bridge: Bridge, record: TableRecord, name: str, ref: Ref) -> None:
    """Let a tag point to another version.

    Raises:
        TableTagNotFoundError: (8)
        TableVersionNotFoundError: (11) the tag stays as it was.
        TableBranchNotFoundError: (22)
        InvalidInputError: (13) no tag can have the name.
    """
    before = get(bridge, record, name)
    dataset, wanted = _target(bridge, record, ref)
    try:
        with panics_as_errors():
            dataset.tags.update(name, wanted.pair)
    except LANCE_FAILURES as error:
        if _read(bridge, record, name) is None:
            raise _not_found(record, name) from error
        raise _failed(bridge, record, ref, f"Tag '{name}' could not be moved", error) from error
    if not _is_there(bridge, record, wanted):
        with translated(f"Tag '{name}' points to a version that was deleted: move it back"):
            dataset.tags.update(name, before.pair)
        raise _gone(record, ref)


def delete(bridge: Bridge, record: TableRecord, name: str) -> None:
    """Delete a tag; its version stays.

    Raises:
        TableTagNotFoundError: (8)
        InvalidInputError: (13) no tag can have the name.
    """
    get(bridge, record, name)
    dataset = open_dataset(bridge, record, write=True)
    try:
        with panics_as_errors():
            dataset.tags.delete(name)
    except LANCE_FAILURES as error:
        if _read(bridge, record, name) is None:
            raise _not_found(record, name) from error
        what = f"Tag '{name}' of '{display(record.path)}' could not be deleted"
        raise failure(what, error) from error


def _target(bridge: Bridge, record: TableRecord, ref: Ref) -> tuple[lance.LanceDataset, Tagged]:
    """Open the version that is to be tagged. Raises 11, 19, 22."""
    dataset = open_dataset(bridge, record, ref, write=True)
    return dataset, Tagged(dataset.version, ref.branch)


def _read(bridge: Bridge, record: TableRecord, name: str) -> Tagged | None:
    """Return what a tag points to, from its one file, or None where there is no such tag."""
    files = TableFiles(bridge.storage(record), record.location or "")
    content = files.read(f"_refs/tags/{name}.json")
    if content is None:
        return None
    what = f"Tag '{name}' of '{display(record.path)}' could not be read"
    with translated(what):
        found = json.loads(content)
    try:
        return Tagged(int(found["version"]), found.get("branch"))
    except (AttributeError, KeyError, TypeError) as error:
        raise ServiceUnavailableError(f"{what}: its file is not Lance's") from error


def _is_there(bridge: Bridge, record: TableRecord, tagged: Tagged) -> bool:
    """Look once more for a tagged version: somebody may have deleted it before it was tagged."""
    directory = directory_of(bridge, record, tagged.branch)
    return directory.find(tagged.version) is not None


def _failed(
    bridge: Bridge, record: TableRecord, ref: Ref, what: str, error: Exception
) -> LanceNamespaceError:
    """Raise 11 or 22 where the version is gone, else return the error to raise."""
    open_dataset(bridge, record, ref, write=True)
    return failure(f"{what} on '{display(record.path)}'", error)


def _gone(record: TableRecord, ref: Ref) -> TableVersionNotFoundError:
    return TableVersionNotFoundError(
        f"Table '{display(record.path)}' has no {ref} any more: it was deleted meanwhile"
    )


def _already_exists(record: TableRecord, name: str) -> TableTagAlreadyExistsError:
    return TableTagAlreadyExistsError(
        f"Table '{display(record.path)}' already has a tag '{name}': update it to move it"
    )


def _not_found(record: TableRecord, name: str) -> TableTagNotFoundError:
    return TableTagNotFoundError(f"Table '{display(record.path)}' has no tag '{name}'")

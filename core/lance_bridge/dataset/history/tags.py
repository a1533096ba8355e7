"""Tags of a table: list, look up, create, move and delete."""

from __future__ import annotations

import json
from dataclasses import dataclass

import lance
from lance_namespace.errors import (
    LanceNamespaceError,
    ServiceUnavailableError,
    TableTagAlreadyExistsError,
    TableTagNotFoundError,
    TableVersionNotFoundError,
)
from lance_namespace_urllib3_client.models import TagContents

from ...errors import (
    LANCE_ERRORS,
    TableNotWrittenError,
    as_namespace_error,
    panics_as_errors,
    translate_lance_errors,
)
from ...requests import Ref
from ...table import Table
from .versions import check_tag_name, directory_of, tags_of


@dataclass(frozen=True)
class Tagged:
    """The version that a tag points to; ``branch`` is None for main."""

    version: int
    branch: str | None = None

    @property
    def pair(self) -> tuple[str | None, int]:
        """The form that pylance takes."""
        return self.branch, self.version


def list_all(table: Table) -> dict[str, TagContents]:
    """Return all tags; none if the table has no data yet."""
    try:
        dataset = table.open()
    except TableNotWrittenError:
        return {}
    return {
        name: TagContents(
            branch=tag["branch"], version=tag["version"], manifestSize=tag["manifest_size"]
        )
        for name, tag in tags_of(dataset).items()
    }


def get(table: Table, name: str) -> Tagged:
    """Return the version that a tag points to.

    Raises:
        TableTagNotFoundError: (8)
        InvalidInputError: (13) the name is not valid.
    """
    found = _read(table, check_tag_name(name))
    if found is None:
        raise _not_found(table, name)
    return found


def create(table: Table, name: str, ref: Ref) -> None:
    """Tag a version. Only one concurrent creator of a tag succeeds.

    Raises:
        TableTagAlreadyExistsError: (9)
        TableVersionNotFoundError: (11)
        TableBranchNotFoundError: (22)
        InvalidInputError: (13) the name is not valid.
    """
    check_tag_name(name)
    dataset, wanted = _target(table, ref)
    if _read(table, name) is not None:
        raise _already_exists(table, name)
    try:
        with panics_as_errors():
            dataset.tags.create(name, wanted.pair)
    except LANCE_ERRORS as error:
        if _read(table, name) is not None:
            raise _already_exists(table, name) from error
        raise _to_tag_error(table, ref, f"Tag '{name}' could not be created", error) from error
    if not _exists(table, wanted):
        with translate_lance_errors(
            f"Tag '{name}' points to a version that was deleted: delete it"
        ):
            dataset.tags.delete(name)
        raise _version_deleted(table, ref)


def update(table: Table, name: str, ref: Ref) -> None:
    """Move a tag to another version.

    Raises:
        TableTagNotFoundError: (8)
        TableVersionNotFoundError: (11) the tag is unchanged.
        TableBranchNotFoundError: (22)
        InvalidInputError: (13) the name is not valid.
    """
    before = get(table, name)
    dataset, wanted = _target(table, ref)
    try:
        with panics_as_errors():
            dataset.tags.update(name, wanted.pair)
    except LANCE_ERRORS as error:
        if _read(table, name) is None:
            raise _not_found(table, name) from error
        raise _to_tag_error(table, ref, f"Tag '{name}' could not be moved", error) from error
    if not _exists(table, wanted):
        with translate_lance_errors(
            f"Tag '{name}' points to a version that was deleted: move it back"
        ):
            dataset.tags.update(name, before.pair)
        raise _version_deleted(table, ref)


def delete(table: Table, name: str) -> None:
    """Delete a tag and keep its version.

    Raises:
        TableTagNotFoundError: (8)
        InvalidInputError: (13) the name is not valid.
    """
    get(table, name)
    dataset = table.open(write=True)
    try:
        with panics_as_errors():
            dataset.tags.delete(name)
    except LANCE_ERRORS as error:
        if _read(table, name) is None:
            raise _not_found(table, name) from error
        what = f"Tag '{name}' of '{table.name}' could not be deleted"
        raise as_namespace_error(what, error) from error


def _target(table: Table, ref: Ref) -> tuple[lance.LanceDataset, Tagged]:
    """Open the version to tag. Raises what `Table.open` raises."""
    dataset = table.open(ref, write=True)
    return dataset, Tagged(dataset.version, ref.branch)


def _read(table: Table, name: str) -> Tagged | None:
    """Return the version that a tag points to, read from the tag's file, or None without a file."""
    files = table.files()
    content = files.read(f"_refs/tags/{name}.json")
    if content is None:
        return None
    what = f"Tag '{name}' of '{table.name}' could not be read"
    with translate_lance_errors(what):
        found = json.loads(content)
    try:
        return Tagged(int(found["version"]), found.get("branch"))
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ServiceUnavailableError(f"{what}: its file is not a tag of Lance") from error


def _exists(table: Table, tagged: Tagged) -> bool:
    """Return whether a tagged version exists: it may have been deleted before it was tagged."""
    directory = directory_of(table, tagged.branch)
    return directory.find(tagged.version) is not None


def _to_tag_error(table: Table, ref: Ref, what: str, error: Exception) -> LanceNamespaceError:
    """Raise TableVersionNotFound or TableBranchNotFound, or return the error for another cause."""
    table.open(ref, write=True)
    return as_namespace_error(f"{what} on '{table.name}'", error)


def _version_deleted(table: Table, ref: Ref) -> TableVersionNotFoundError:
    return TableVersionNotFoundError(
        f"Table '{table.name}' no longer has {ref}: it was deleted concurrently"
    )


def _already_exists(table: Table, name: str) -> TableTagAlreadyExistsError:
    return TableTagAlreadyExistsError(
        f"Table '{table.name}' already has a tag '{name}': move it with UpdateTableTag"
    )


def _not_found(table: Table, name: str) -> TableTagNotFoundError:
    return TableTagNotFoundError(f"Table '{table.name}' has no tag '{name}'")

"""Which tables a directory holds, as Lance's directory namespace lays them out.

Version 1 is a directory ``<name>.lance`` for each table. Version 2 is a manifest: a Lance table
``__manifest`` with a row for each table and namespace, whose tables may lie anywhere below the
root. Directories of both kinds are mixed ones. Source: Lance Directory Namespace spec, and what
pylance writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import lance
import obstore
from lance_namespace.errors import InvalidTableStateError

from lance_bridge import location as locations
from lance_bridge.lance_errors import LANCE_ERRORS
from lance_bridge.storage import store_errors
from lance_bridge.table_files import RESERVED_FILE

from ..ends import Directory

MANIFEST = "__manifest"
DELIMITER = "$"
"""Joins the names of an identifier in the manifest."""
_DEREGISTERED_FILE = ".lance-deregistered"
_SUFFIX = ".lance"
_THREADS = 16


@dataclass(frozen=True)
class Found:
    """One table of a directory.

    Attributes:
        names: As the directory has them: those of its namespaces, and its own.
        location: Where it lies, in the spelling for Lance.
        properties: Those that the manifest has.
        has_data: Whether it has a version.
        is_reserved: Whether its place is kept for a table that was declared.
        problem: Why it cannot be a table of a catalog, or "".
    """

    names: tuple[str, ...]
    location: str
    properties: Mapping[str, str] = field(default_factory=dict)
    has_data: bool = True
    is_reserved: bool = False
    problem: str = ""


def tables_in(directory: Directory) -> list[Found]:
    """Return all tables of a directory, sorted by their names.

    What was deregistered there is left out. A table that both the manifest and the listing know is
    there once, as the manifest has it.

    Raises:
        InvalidTableStateError: (19) the manifest cannot be read as one.
        ServiceUnavailableError: (17) the storage does not answer.
    """
    named = list(_in_manifest(directory))
    known = {locations.key(each.location) for each in named}
    listed = (each for each in _listed(directory) if locations.key(each.location) not in known)
    with ThreadPoolExecutor(_THREADS) as pool:
        looked = pool.map(lambda each: _looked_at(directory, each), [*named, *listed])
        return sorted((each for each in looked if each is not None), key=lambda each: each.names)


def has_data(directory: Directory, location: str) -> bool:
    """Return whether a table with a version is at a location."""
    return directory.storage.has_dataset(location)


def _listed(directory: Directory) -> Iterator[Found]:
    for name in _children(directory, directory.root)[0]:
        if name.endswith(_SUFFIX) and name != _SUFFIX:
            yield Found((name.removesuffix(_SUFFIX),), locations.join(directory.root, name))


def _looked_at(directory: Directory, found: Found) -> Found | None:
    """Return what is at a table's place; None where it was deregistered."""
    if found.problem:
        return found
    directories, files = _children(directory, found.location)
    if _DEREGISTERED_FILE in files:
        return None
    has_versions = "_versions" in directories and directory.storage.has_dataset(found.location)
    return Found(
        found.names,
        found.location,
        found.properties,
        has_data=has_versions,
        is_reserved=RESERVED_FILE in files,
    )


def _children(directory: Directory, location: str) -> tuple[list[str], list[str]]:
    """Return the names of the directories and of the files at a location; none where it is not."""
    with store_errors(location):
        if locations.is_local(location):
            return _local_children(FilePath(locations.for_lance(location)))
        answer = obstore.list_with_delimiter(directory.storage.store_at(location))
        directories = [path.rstrip("/").rsplit("/", 1)[-1] for path in answer["common_prefixes"]]
        return directories, [meta["path"].rsplit("/", 1)[-1] for meta in answer["objects"]]


def _local_children(place: FilePath) -> tuple[list[str], list[str]]:
    try:
        children = list(place.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    directories = [each.name for each in children if each.is_dir()]
    return directories, [each.name for each in children if not each.is_dir()]


def _in_manifest(directory: Directory) -> Iterator[Found]:
    place = locations.join(directory.root, MANIFEST)
    if not directory.storage.has_dataset(place):
        return
    columns = ["object_id", "object_type", "location", "metadata"]
    try:
        manifest = lance.dataset(place, storage_options=directory.storage.options or None)
        rows = manifest.to_table(columns=columns).to_pylist()
    except LANCE_ERRORS as error:
        raise InvalidTableStateError(
            f"{place} is not the manifest of a directory of tables, or cannot be read: "
            f"{str(error)[:200]}"
        ) from error
    yield from (_of_row(directory, row) for row in rows if row["object_type"] == "table")


def _of_row(directory: Directory, row: Mapping[str, Any]) -> Found:
    names = tuple(row["object_id"].split(DELIMITER))
    place = row["location"]
    if not place:
        return Found(names, "", problem="The directory's manifest has no location for it")
    is_relative = "://" not in place and not place.startswith("/")
    full = locations.join(directory.root, place) if is_relative else place
    return Found(names, locations.for_lance(full), _properties(row["metadata"]))


def _properties(metadata: str | None) -> dict[str, str]:
    try:
        found = json.loads(metadata or "{}")
    except ValueError:
        return {}
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}

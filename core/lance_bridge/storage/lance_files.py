"""Which files in a table's location are Lance's: a pure decision on their paths and manifests.

A file is the table's own if its name is one that Lance gives (of a data file, a manifest, …), in
the directory where Lance puts it, or if a manifest of the table names it. Everything else is
foreign: files of another format, links, and Lance datasets inside the location that are not a
branch of the table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote

from lance_namespace.errors import InvalidTableStateError

from .manifest_content import parse_manifest

RESERVED_FILE = ".lance-reserved"
"""Marks a location as used by a table without data, as pylance's directory namespace does."""

VERSIONS = "_versions"
"""The directory of the main branch's manifests."""

MARK_FILE = f"{VERSIONS}/.manager.json"
"""Says which entry of which catalog manages the versions of an implementation-managed table."""

BATCH_RECORD = ".record.batch.json"
BATCH_OUTCOME = ".outcome.batch.json"
"""The endings of a batch's files. Vendors of credentials for governed tables let no client write or
delete ``*.batch.json``; no other file of a table has such a name."""

_THREADS = 16
LARGEST_VERSION = 2**64 - 1
V2_DIGITS = 20
DATA = "data"
DELETIONS = "_deletions"

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_DATA_NAME = rf"(?:[01]{{24}}[0-9a-f]{{26}}|{_UUID})"
"""A UUID; later releases write its first bytes in binary, for stores that shard by prefix."""
_TEMPORARY = r"\.tmp[0-9A-Za-z]{6}"
"""The name of a file that a killed writer leaves on local storage."""
_DATASET_FILES = (
    rf"data/(?:overlay-)?{_DATA_NAME}\.lance",
    rf"data/{_DATA_NAME}/[01]{{32}}\.blob",
    r"_versions/(?:\d+|d\d+)\.manifest",
    rf"_versions/(?:\d+|d\d+)\.manifest-{_UUID}",
    rf"_versions/\.tmp_(?:\d+|d\d+)\.manifest_{_UUID}",
    r"_versions/\d+\.manifest-foreign(?:-[0-9a-f]{16})?",  # quarantined by this library
    r"_versions/latest_version_hint\.json",
    re.escape(MARK_FILE),
    r"_latest\.manifest",
    r"_deletions/\d+-\d+-\d+\.(?:arrow|bin)",
    rf"_transactions/\d+-{_UUID}\.txn",
    rf"_transactions/{_UUID}\.(?:staged|(?:record|outcome)\.batch)\.json",  # this library's own
    rf"_indices/{_UUID}(?:-[a-z]+)?/(?:partial_[0-9A-Za-z_-]+/)?[0-9A-Za-z_-]+\.(?:idx|lance)",
    r"_computed/[0-9a-f]{64}\.sig",  # LanceDB's
    rf"(?:data|_versions|_deletions|_transactions|_indices/{_UUID})/{_TEMPORARY}",
)
_STAGED_UPLOAD = r"(?:#\d+)?"
"""The suffix of files that an interrupted upload leaves on local storage."""
_SHARD = rf"_mem_wal/{_UUID}"
_GENERATION = rf"{_SHARD}/[0-9a-f]+_gen_\d+"
_NAMED = re.compile(
    rf"(?:(?:{_GENERATION}/|_blobs/)?(?:{'|'.join(_DATASET_FILES)})"
    rf"|{_SHARD}/manifest/(?:version_hint\.json|[01]{{64}}\.binpb)"
    rf"|{_SHARD}/wal/[01]{{64}}\.arrow"
    rf"|{_GENERATION}/bloom_filter\.bin"
    rf"|{_GENERATION}/_pk_index/[0-9A-Za-z_-]+\.lance"
    r"|_blobs/[0-9A-Za-z_-]+\.blob"
    rf"|{re.escape(RESERVED_FILE)}){_STAGED_UPLOAD}"
)
_REFERENCE = re.compile(r"_refs/(tags|branches)/([^/]+)\.json")
_MANIFEST = re.compile(r"(?:tree/(?P<branch>.+)/)?_versions/(?P<digits>\d+)\.manifest")
_DETACHED = re.compile(r"_versions/d\d+\.manifest")
_REFERENCE_FIELDS = {"tags": "version", "branches": "parentVersion"}
_DIRECTORY = re.compile(
    rf"(?:tree/(?:.+/)?)?(?:data(?:/{_DATA_NAME})?|_versions|_deletions|_transactions|_computed"
    rf"|_indices(?:/{_UUID})?|_blobs|_mem_wal)|tree(?:/.+)?|_refs(?:/tags|/branches)?"
)

Read = Callable[[str], bytes]
"""Returns a file's content by its path in the location."""


@dataclass(frozen=True)
class LocationFiles:
    """The files of a location, divided into a table's own and other ones."""

    own: tuple[tuple[str, ...], ...]
    """The paths in groups, in the order in which the groups must be deleted.

    Files that identify other files as the table's come last, so that an interrupted deletion can be
    repeated: tags and branches, then manifests. Records of batches come first: without its record,
    a slow client can no longer commit a batch, whatever the outcome file says.
    """
    others: tuple[str, ...]


def divide(location: str, paths: Iterable[str], read: Read, others: Iterable[str]) -> LocationFiles:
    """Divide the files of a location into a table's own and other ones.

    Reads the latest manifest of the table and of each branch, and each tag and branch. Other
    manifests are read only if a data directory has a file whose name is not Lance's: one of them
    may name it.

    Args:
        location: For messages.
        paths: The paths of all regular files, relative to the location.
        read: Reads one of them; called from several threads.
        others: Paths of everything but regular files, such as links to directories.

    Raises:
        InvalidTableStateError: (19) a required manifest cannot be read.
    """
    found = _Files(location, sorted(paths), read)
    references = found.references()
    branches = found.branches(references.values())
    own, unknown = set(references), []
    for path in found.paths:
        branch, inside = _split(path, branches)
        if _NAMED.fullmatch(inside) and not (branch and inside == RESERVED_FILE):
            own.add(path)
        elif path not in references:
            unknown.append(path)
    own |= found.find_data_files(unknown, branches)
    groups: tuple[list[str], ...] = ([], [], [], [], [])
    for path in sorted(own, key=_version_and_path):
        groups[_rank(path)].append(path)
    foreign = [*(path for path in unknown if path not in own), *others]
    return LocationFiles(tuple(map(tuple, groups)), tuple(sorted(foreign)))


def is_manifest(path: str) -> bool:
    """Return True for a version of the table, or of one of its branches."""
    return _MANIFEST.fullmatch(path) is not None


def is_lance_directory(path: str) -> bool:
    """Return True for a directory that Lance makes: it is removed if it is empty."""
    return _DIRECTORY.fullmatch(path) is not None


@dataclass(frozen=True)
class _Version:
    number: int
    path: str
    is_v2: bool


class _Files:
    """The files of one location, and the references between them."""

    def __init__(self, location: str, paths: Sequence[str], read: Read) -> None:
        self.paths = paths
        self._location = location
        self._read = read
        self._versions: dict[str, list[_Version]] = {}  # by branch; "" is main
        for path in paths:
            match = _MANIFEST.fullmatch(path)
            if match is not None:
                versions = self._versions.setdefault(match["branch"] or "", [])
                versions.append(_version_of(path, match["digits"]))

    def references(self) -> dict[str, str]:
        """Return the paths of tags and branches, each with the branch's name, or "" for a tag.

        Raises:
            InvalidTableStateError: (19) the latest version cannot be read.
        """
        if "" in self._versions:
            self._require_readable("")
        paths = [path for path in self.paths if _REFERENCE.fullmatch(path)]
        with ThreadPoolExecutor(_THREADS) as threads:
            contents = list(threads.map(self._read, paths))
        named = zip(paths, map(_branch_of_reference, paths, contents), strict=True)
        return {path: name for path, name in named if name is not None}

    def branches(self, referred: Iterable[str]) -> list[str]:
        """Return the branches whose directories are the table's, the longest names first.

        A branch without a reference, because its creation or deletion was interrupted, is the
        table's if its latest manifest names it.

        Raises:
            InvalidTableStateError: (19) the latest version of one that is referred to cannot be
                read.
        """
        known = {name for name in referred if name}
        for name in known & self._versions.keys():
            self._require_readable(name)
        for name in self._versions.keys() - known - {""}:
            latest = max(self._versions[name], key=lambda each: each.number)
            with suppress(ValueError):
                if parse_manifest(self._read(latest.path)).branch == name:
                    known.add(name)
        return sorted(known, key=len, reverse=True)

    def find_data_files(self, unknown: Sequence[str], branches: Sequence[str]) -> set[str]:
        """Return the files with unknown names that any version names as data files.

        Raises:
            InvalidTableStateError: (19) a version cannot be read.
        """
        relative = {path: _split(path, branches)[1] for path in unknown}
        asked = {
            path: name.removeprefix(f"{DATA}/")
            for path, name in relative.items()
            if name.startswith(f"{DATA}/")
        }
        if not asked:
            return set()
        manifests = [each.path for name in ("", *branches) for each in self._versions.get(name, ())]
        manifests += [path for path in self.paths if _DETACHED.fullmatch(_split(path, branches)[1])]
        with ThreadPoolExecutor(_THREADS) as threads:
            names = {name for each in threads.map(self._read_names, manifests) for name in each}
        return {path for path, name in asked.items() if name in names}

    def _read_names(self, path: str) -> frozenset[str]:
        try:
            return parse_manifest(self._read(path)).data_files
        except ValueError as error:
            raise self._unreadable_error(path, error) from error

    def _require_readable(self, branch: str) -> None:
        versions = self._versions[branch]
        latest = max(versions, key=lambda each: each.number)
        if len({each.is_v2 for each in versions}) > 1:
            raise self._unreadable_error(latest.path, "manifests are named in two schemes")
        try:
            version = parse_manifest(self._read(latest.path)).version
        except ValueError as error:
            raise self._unreadable_error(latest.path, error) from error
        if version != latest.number:
            raise self._unreadable_error(latest.path, f"it is of version {version}")

    def _unreadable_error(self, path: str, reason: object) -> InvalidTableStateError:
        return InvalidTableStateError(
            f"Which files at {self._location} are the table's is unknown, because its manifest "
            f"{path} cannot be read ({reason}). Restore the manifest, or deregister the table, "
            "which keeps all files"
        )


def _version_of(path: str, digits: str) -> _Version:
    is_v2 = len(digits) == V2_DIGITS
    return _Version(LARGEST_VERSION - int(digits) if is_v2 else int(digits), path, is_v2)


def _branch_of_reference(path: str, data: bytes) -> str | None:
    """Return the branch that a file refers to, "" for a tag's, or None for a foreign file."""
    match = _REFERENCE.fullmatch(path)
    if match is None:
        return None
    directory, name = match.groups()
    try:
        fields = json.loads(data)
    except ValueError:
        return None
    wanted = (_REFERENCE_FIELDS[directory], "manifestSize")
    if not isinstance(fields, dict) or not all(isinstance(fields.get(k), int) for k in wanted):
        return None
    return unquote(name) if directory == "branches" else ""


def _split(path: str, branches: Sequence[str]) -> tuple[str, str]:
    """Return the branch of a path, "" for main, and the path relative to its directory."""
    for name in branches:
        directory = f"tree/{name}/"
        if path.startswith(directory):
            return name, path.removeprefix(directory)
    return "", path


def _version_and_path(path: str) -> tuple[int, str]:
    match = _MANIFEST.fullmatch(path)
    return (_version_of(path, match["digits"]).number if match else 0, path)


def _rank(path: str) -> int:
    if path.startswith("_versions/"):
        return 4
    if "/_versions/" in path and path.startswith("tree/"):
        return 3
    if path.startswith("_refs/"):
        return 2
    return 0 if path.endswith(BATCH_RECORD) else 1

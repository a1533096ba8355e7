"""Files of the Lance table format: their names, which are a table's own, and what manifests say.

A file is the table's own if its name is one that Lance gives (of a data file, a manifest, …), in
the directory where Lance puts it, or if a manifest of the table names it. Everything else is
foreign: files of another format, links, and Lance datasets inside the location that are not a
branch of the table.

Source of what is read in manifests: the Lance table format, messages ``Manifest`` and
``Transaction``. The last 16 bytes of a manifest are the position of the message, the format's
version and a magic word; the message, in Protobuf, begins with its length. Only the fields that are
needed here are read, in any version of the format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote

from lance_namespace.errors import InvalidTableStateError

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


# -- contents of manifests and transactions --------------------------------------------------------

_MAGIC = b"LANC"
_FOOTER = 16
_LENGTH = 4

# Manifest
_FRAGMENT, _VERSION, _INDICES, _TIMESTAMP, _TRANSACTION_FILE, _WRITER = 2, 3, 6, 7, 12, 13
_BASE_PATH, _BRANCH = 18, 20
# DataFragment and DeletionFile
_FRAGMENT_ID, _DATA_FILE, _DELETION_FILE, _PHYSICAL_ROWS = 1, 2, 3, 4
_READ_VERSION, _DELETION_ID, _DELETED_ROWS = 2, 3, 4
# DataFile, WriterVersion and BasePath
_FILE_PATH, _LIBRARY, _LIBRARY_VERSION, _BASE_PATH_TEXT = 1, 1, 2, 4
# Timestamp, of Protobuf itself
_SECONDS, _NANOS = 1, 2
# Transaction, Transaction.Rewrite with its groups, and Transaction.Restore
_APPEND, _REWRITE, _RESTORE = 100, 104, 106
_GROUP, _OLD, _NEW, _RESTORED = 3, 1, 2, 1

Field = tuple[int, int | bytes]
"""The number and the value of a field: an integer, or the bytes of a text or a message."""


@dataclass(frozen=True)
class Fragment:
    """Some rows of a version, in one or several data files, each with some of the columns.

    Attributes:
        id: The number of the fragment in its version.
        data_files: Paths of data files, relative to the directory ``data`` that each is in.
        deletion_file: The name, without its ending, of the file that says which rows are deleted;
            empty if none are.
        rows: The number of rows that are not deleted; an old writer of Lance did not store it.
        deleted: The number of rows that are deleted, and still in the data files.
    """

    id: int
    data_files: frozenset[str]
    deletion_file: str
    rows: int
    deleted: int = 0


@dataclass(frozen=True)
class ManifestContent:
    """The fields that are read from a manifest."""

    version: int
    branch: str
    """The branch that it is a version of; empty for main."""
    fragments: tuple[Fragment, ...]
    base_paths: tuple[str, ...]
    """Locations of other tables, or directories, with some of its files, if it is a clone."""
    transaction_file: str = ""
    """The file name of its transaction, which begins with the version that was read."""
    writer: str = ""
    """The library that wrote it, and its version: ``lance 14.0.2``."""
    has_indices: bool = False
    """Whether the table has indices, Lance's internal ones included."""

    @cached_property
    def data_files(self) -> frozenset[str]:
        """Paths of data files, relative to the directory ``data`` that each of them is in."""
        return frozenset(name for each in self.fragments for name in each.data_files)


@dataclass(frozen=True)
class Rewrite:
    """Data files whose rows are in other data files since a compaction; no row has changed."""

    old: frozenset[str]
    new: frozenset[str]


@dataclass(frozen=True)
class TransactionContent:
    """The fields that are read from a transaction."""

    is_append: bool
    restored: int | None
    """The version that it restores, if it restores one."""
    rewrites: tuple[Rewrite, ...] = ()
    """What it moves, if it is a compaction."""


def parse_manifest(data: bytes) -> ManifestContent:
    """Parse a manifest.

    Raises:
        ValueError: It is not a manifest, or is truncated.
    """
    version, branch, transaction, writer, has_indices = 0, "", "", "", False
    fragments: list[Fragment] = []
    bases: list[str] = []
    for number, value in _fields(_message(data)):
        if isinstance(value, int):
            version = value if number == _VERSION else version
            has_indices = has_indices or number == _INDICES
        elif number == _BRANCH:
            branch = value.decode()
        elif number == _FRAGMENT:
            fragments.append(_parse_fragment(value))
        elif number == _BASE_PATH:
            bases += _texts(value, _BASE_PATH_TEXT)
        elif number == _TRANSACTION_FILE:
            transaction = value.decode()
        elif number == _WRITER:
            writer = " ".join([*_texts(value, _LIBRARY), *_texts(value, _LIBRARY_VERSION)])
    return ManifestContent(
        version, branch, tuple(fragments), tuple(bases), transaction, writer, has_indices
    )


def _parse_fragment(message: bytes) -> Fragment:
    number, rows, deleted, deletion_file = 0, 0, 0, ""
    files: set[str] = set()
    for field, value in _fields(message):
        if isinstance(value, int):
            number = value if field == _FRAGMENT_ID else number
            rows = value if field == _PHYSICAL_ROWS else rows
        elif field == _DATA_FILE:
            files.update(_texts(value, _FILE_PATH))
        elif field == _DELETION_FILE:
            found = {key: each for key, each in _fields(value) if isinstance(each, int)}
            deletion_file = f"{found.get(_READ_VERSION, 0)}-{found.get(_DELETION_ID, 0)}"
            deleted = found.get(_DELETED_ROWS, 0)
    name = f"{number}-{deletion_file}" if deletion_file else ""
    return Fragment(number, frozenset(files), name, max(rows - deleted, 0), deleted)


def parse_origin(message: bytes) -> tuple[str, str]:
    """Return the file name of the transaction that made a manifest, and its branch ("" for main).

    Args:
        message: The message of a manifest alone, as pylance has it in memory.

    Raises:
        ValueError: It is not a message.
    """
    found = {number: value for number, value in _fields(message) if isinstance(value, bytes)}
    return found.get(_TRANSACTION_FILE, b"").decode(), found.get(_BRANCH, b"").decode()


def parse_timestamp(message: bytes) -> int | None:
    """Return when a version was made, in milliseconds since 1970; None if its writer did not say.

    Args:
        message: The message of a manifest alone, as pylance has it in memory.

    Raises:
        ValueError: It is not a message.
    """
    made = dict(_fields(message)).get(_TIMESTAMP)
    if not isinstance(made, bytes):
        return None
    parts = {number: value for number, value in _fields(made) if isinstance(value, int)}
    return parts.get(_SECONDS, 0) * 1000 + parts.get(_NANOS, 0) // 1_000_000


def parse_transaction(data: bytes) -> TransactionContent:
    """Parse a transaction's file. Raises ValueError for anything else."""
    operations = {number: value for number, value in _fields(data) if number >= _APPEND}
    restore = operations.get(_RESTORE)
    restored = dict(_fields(restore)).get(_RESTORED) if isinstance(restore, bytes) else None
    return TransactionContent(
        _APPEND in operations,
        restored if isinstance(restored, int) else None,
        tuple(_rewrites(operations.get(_REWRITE))),
    )


def _rewrites(operation: int | bytes | None) -> Iterator[Rewrite]:
    for number, group in _fields(operation) if isinstance(operation, bytes) else ():
        if number == _GROUP and isinstance(group, bytes):
            parts = {_OLD: set[str](), _NEW: set[str]()}
            for part, fragment in _fields(group):
                if part in parts and isinstance(fragment, bytes):
                    parts[part] |= _parse_fragment(fragment).data_files
            yield Rewrite(frozenset(parts[_OLD]), frozenset(parts[_NEW]))


def version_inside(data: bytes) -> int | None:
    """Return the version in a manifest's content, or None if it is not a manifest."""
    try:
        fields = _fields(_message(data))
        found = (value for number, value in fields if number == _VERSION)
        return next((value for value in found if isinstance(value, int)), 0)
    except ValueError:
        return None


def _message(data: bytes) -> bytes:
    if len(data) < _FOOTER or not data.endswith(_MAGIC):
        raise ValueError("it does not end as a manifest does")
    start = int.from_bytes(data[-_FOOTER : -_FOOTER + 8], "little") + _LENGTH
    end = start + int.from_bytes(data[start - _LENGTH : start], "little")
    if end > len(data) - _FOOTER:
        raise ValueError("it is truncated")
    return data[start:end]


def _texts(message: bytes, wanted: int) -> Iterator[str]:
    for number, value in _fields(message):
        if number == wanted and isinstance(value, bytes):
            yield value.decode()


def _fields(message: bytes) -> Iterator[Field]:
    """Yield the fields of a message. Raises ValueError if it is cut off."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, wire_type = key >> 3, key & 7
        if wire_type == 0:
            value, at = _varint(message, at)
            yield number, value
        elif wire_type == 2:
            length, at = _varint(message, at)
            yield number, message[at : at + length]
            at += length
        elif wire_type in (1, 5):
            at += 8 if wire_type == 1 else 4
        else:
            raise ValueError("it is not a Protobuf message")
    if at > len(message):
        raise ValueError("it is truncated")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message):
            raise ValueError("it is truncated")
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at

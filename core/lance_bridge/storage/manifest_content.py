"""The content of a manifest of Lance: its version, its writer, and the files that it names.

Source: the Lance table format, messages ``Manifest`` and ``Transaction``. The last 16 bytes of a
manifest are the position of the message, the format's version and a magic word; the message, in
Protobuf, begins with its length. Only the fields that are needed here are read, in any version of
the format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

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

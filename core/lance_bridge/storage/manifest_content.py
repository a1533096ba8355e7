"""The content of a manifest of Lance: its version, its writer, and the files that it names.

Source: the Lance table format, messages ``Manifest`` and ``Transaction``. The last 16 bytes of a
manifest are the position of the message, the format's version and a magic word; the message, in
Protobuf, begins with its length. Only the fields that are needed here are read, in any version of
the format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_MAGIC = b"LANC"
_FOOTER = 16
_LENGTH = 4

# Manifest
_FRAGMENT, _VERSION, _TRANSACTION_FILE, _WRITER, _BASE_PATH, _BRANCH = 2, 3, 12, 13, 18, 20
# DataFragment, DataFile, WriterVersion and BasePath
_DATA_FILE, _FILE_PATH, _LIBRARY, _LIBRARY_VERSION, _BASE_PATH_TEXT = 2, 1, 1, 2, 4
# Transaction and Transaction.Restore
_APPEND, _RESTORE, _RESTORED = 100, 106, 1

Field = tuple[int, int | bytes]
"""The number and the value of a field: an integer, or the bytes of a text or a message."""


@dataclass(frozen=True)
class ManifestContent:
    """The fields that are read from a manifest."""

    version: int
    branch: str
    """The branch that it is a version of; empty for main."""
    data_files: frozenset[str]
    """Paths of data files, relative to the directory ``data`` that each of them is in."""
    base_paths: tuple[str, ...]
    """Locations of other tables, or directories, with some of its files, if it is a clone."""
    transaction_file: str = ""
    """The file name of its transaction, which begins with the version that was read."""
    writer: str = ""
    """The library that wrote it, and its version: ``lance 14.0.2``."""


@dataclass(frozen=True)
class TransactionContent:
    """The fields that are read from a transaction."""

    is_append: bool
    restored: int | None
    """The version that it restores, if it restores one."""


def parse_manifest(data: bytes) -> ManifestContent:
    """Parse a manifest.

    Raises:
        ValueError: It is not a manifest, or is truncated.
    """
    version, branch, transaction, writer = 0, "", "", ""
    files: set[str] = set()
    bases: list[str] = []
    for number, value in _fields(_message(data)):
        if isinstance(value, int):
            version = value if number == _VERSION else version
        elif number == _BRANCH:
            branch = value.decode()
        elif number == _FRAGMENT:
            files.update(_texts_of_parts(value, _DATA_FILE, _FILE_PATH))
        elif number == _BASE_PATH:
            bases += _texts(value, _BASE_PATH_TEXT)
        elif number == _TRANSACTION_FILE:
            transaction = value.decode()
        elif number == _WRITER:
            writer = " ".join([*_texts(value, _LIBRARY), *_texts(value, _LIBRARY_VERSION)])
    return ManifestContent(version, branch, frozenset(files), tuple(bases), transaction, writer)


def parse_transaction(data: bytes) -> TransactionContent:
    """Parse a transaction's file. Raises ValueError for anything else."""
    operations = {number: value for number, value in _fields(data) if number >= _APPEND}
    restore = operations.get(_RESTORE)
    restored = dict(_fields(restore)).get(_RESTORED) if isinstance(restore, bytes) else None
    return TransactionContent(
        _APPEND in operations, restored if isinstance(restored, int) else None
    )


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


def _texts_of_parts(message: bytes, part: int, text: int) -> Iterator[str]:
    for number, value in _fields(message):
        if number == part and isinstance(value, bytes):
            yield from _texts(value, text)


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

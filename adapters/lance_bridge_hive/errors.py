"""Translates errors of a metastore to those of the Lance namespace.

Hive has few error types, and the meaning of most depends on the call that raised them. `catalog.py`
handles those; this module translates all others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    LanceNamespaceError,
    PermissionDeniedError,
    UnsupportedOperationError,
)
from thrift.Thrift import TApplicationException, TException

from lance_bridge.errors import invalid, reason_in

_NO_FILE_SYSTEM = re.compile(r"No FileSystem for scheme:? ?\"?(\w+)")
_REFUSED = re.compile(r"permission denied|AccessControlException|not authorized", re.I)
_BAD_INPUT = re.compile(
    # Locations that are no valid path or host, or where no directory can be created.
    r"managed warehouse|is not a directory or unable to create one|ParentNotDirectoryException"
    r"|FileAlreadyExistsException|Unable to create database path|Failed to create external path"
    r"|Can not create a Path from|URISyntaxException|UnknownHostException|Wrong FS:"
    # Properties of tables in Hive's own format.
    r"|ACID compliant format",
    re.I,
)
_PARAMETERS_NOT_STORED = re.compile(r"\bTABLE_PARAMS\b|too long|truncation", re.I)
_ALWAYS_STORED = 4000
"""The length of a parameter's value that every database schema of Hive can store."""
_VANISHED_ROW = re.compile(
    # DataNucleus, if another transaction deleted the row of an object after a query found it:
    # releases 4 and 5 (Hive up to 4.0), release 6, and class names, which any release may print.
    r"No such database row"
    r"|Object with id \".*\" not found|No such object (?:for id|\(identity)"
    r"|(?:JDO|Nucleus)ObjectNotFoundException"
)
_CONFLICT = re.compile(
    # Conflicts of two transactions in PostgreSQL, MySQL, Oracle and Derby.
    r"deadlock|lock wait timeout|lock could not be obtained|could not serialize"
    r"|duplicate (?:key|entry)|unique constraint",
    re.I,
)
_BAD_REQUEST = {"InvalidObjectException", "InvalidInputException", "InvalidOperationException"}


def name_of(error: BaseException) -> str:
    """Return the Thrift name of an error, whose class differs between the bindings."""
    return type(error).__name__


def is_a(error: BaseException, *names: str) -> bool:
    """Return True if an error has one of these Thrift names."""
    return name_of(error) in names


def text_of(error: BaseException) -> str:
    """Return the reason in the metastore's message."""
    return reason_in(_whole_text(error))


def _whole_text(error: BaseException) -> str:
    return str(getattr(error, "message", None) or error).strip()


def is_vanished_row(error: BaseException) -> bool:
    """Return True if another transaction deleted a row that the metastore was reading."""
    return is_a(error, "MetaException") and bool(_VANISHED_ROW.search(_whole_text(error)))


@contextmanager
def map_errors(errors: Mapping[str, LanceNamespaceError]) -> Iterator[None]:
    """Raise the errors that errors of the metastore mean for this call; others pass.

    Args:
        errors: What to raise, by the Thrift name of the metastore's error.
    """
    try:
        yield
    except TException as error:
        meant = errors.get(name_of(error))
        if meant is None:
            raise
        raise meant from error


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Translate every Thrift error to one of the library.

    Args:
        what: The action, with its object: "create table 'db.t'".
    """
    try:
        yield
    except TApplicationException as error:
        if error.type == TApplicationException.UNKNOWN_METHOD:
            raise UnsupportedOperationError(
                f"The metastore lacks a call that is required to {what}: {text_of(error)}"
            ) from error
        raise InternalError(f"The metastore failed to {what}: {text_of(error)}") from error
    except TException as error:
        raise _classify(error, what) from error


def _classify(error: TException, what: str) -> Exception:
    text = text_of(error)
    scheme = _NO_FILE_SYSTEM.search(text)
    if scheme:
        return UnsupportedOperationError(
            f"The metastore cannot {what}: it has no file system for '{scheme[1]}://'. Its "
            f"administrator must add the Hadoop connector for {scheme[1]} to its class path"
        )
    if _REFUSED.search(text):
        return PermissionDeniedError(f"The metastore refused to {what}: {text}")
    is_conflict = is_a(error, "MetaException") and _CONFLICT.search(_whole_text(error))
    if is_vanished_row(error) or is_conflict:
        return ConcurrentModificationError(
            f"The metastore could not {what}: its entries were modified concurrently; "
            f"reload them and retry ({text})"
        )
    if name_of(error) in _BAD_REQUEST or _BAD_INPUT.search(_whole_text(error)):
        return invalid(f"The metastore cannot {what}: {text}")
    return InternalError(f"The metastore failed to {what}: {name_of(error)}: {text}")


def refuse_long_values(error: TException, parameters: Mapping[str, str]) -> None:
    """Raise InvalidInputError if a value was too long for the metastore's own database.

    The limit depends on the release and the database, so only a failure reveals it.
    """
    longest = max(parameters, key=lambda key: len(parameters[key]), default=None)
    if longest is None or len(parameters[longest]) <= _ALWAYS_STORED:
        return
    if _PARAMETERS_NOT_STORED.search(_whole_text(error)):
        raise invalid(
            f"The value of property {longest[:60]!r} has {len(parameters[longest])} characters, "
            f"which is more than the metastore can store"
        ) from error

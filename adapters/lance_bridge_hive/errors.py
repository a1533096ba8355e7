"""Translates errors of a metastore to those of the Lance namespace.

Hive uses its few error types loosely: most of them have a meaning only together with the call that
raised them. `catalog.py` handles those; all others are translated here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import hmsclient.genthrift.hive_metastore.ttypes as hms_types
from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    TableNotFoundError,
    UnsupportedOperationError,
)
from thrift.Thrift import TApplicationException, TException

from lance_bridge.catalog import Catalog, Path
from lance_bridge.errors import invalid

T = TypeVar("T")

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
_SURE_TO_FIT = 4000
"""Characters of a parameter's value that every database schema of Hive can hold."""
_VANISHED_ROW = re.compile(
    # DataNucleus, on an object whose row another transaction deleted after a query had found it:
    # releases 4 and 5 (Hive up to 4.0), release 6, and any of them that names classes.
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
    """Return the Thrift name of an error, which is a class in each set of bindings."""
    return type(error).__name__


def is_a(error: BaseException, *names: str) -> bool:
    """Return True if an error has one of these Thrift names."""
    return name_of(error) in names


def text_of(error: BaseException) -> str:
    """Return the first line of the metastore's message."""
    return _whole_text(error).split("\n", 1)[0][:300]


def _whole_text(error: BaseException) -> str:
    return str(getattr(error, "message", None) or error).strip()


def is_vanished_row(error: BaseException) -> bool:
    """Return True if another transaction deleted a row that the metastore was reading."""
    return is_a(error, "MetaException") and bool(_VANISHED_ROW.search(_whole_text(error)))


@contextmanager
def map_errors(errors: Mapping[str, LanceNamespaceError]) -> Iterator[None]:
    """Raise what an error of the metastore means together with the call; others pass.

    Args:
        errors: By the Thrift names of the metastore's errors.
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
        raise _classified(error, what) from error


def _classified(error: TException, what: str) -> Exception:
    said = text_of(error)
    scheme = _NO_FILE_SYSTEM.search(said)
    if scheme:
        return UnsupportedOperationError(
            f"The metastore cannot {what}: it has no file system for '{scheme[1]}://'. Its "
            f"administrator must add the Hadoop connector for {scheme[1]} to its class path"
        )
    if _REFUSED.search(said):
        return PermissionDeniedError(f"The metastore refused to {what}: {said}")
    is_conflict = is_a(error, "MetaException") and _CONFLICT.search(_whole_text(error))
    if is_vanished_row(error) or is_conflict:
        return ConcurrentModificationError(
            f"The metastore could not {what}: its entries were modified concurrently; "
            f"reload them and retry ({said})"
        )
    if name_of(error) in _BAD_REQUEST or _BAD_INPUT.search(_whole_text(error)):
        return invalid(f"The metastore cannot {what}: {said}")
    return InternalError(f"The metastore failed to {what}: {name_of(error)}: {said}")


def refuse_long_values(error: TException, parameters: Mapping[str, str]) -> None:
    """Raise InvalidInputError if a value was too long for the metastore's own database.

    The limit depends on the release and the database, so it only shows in a failure.
    """
    longest = max(parameters, key=lambda key: len(parameters[key]), default=None)
    if longest is None or len(parameters[longest]) <= _SURE_TO_FIT:
        return
    if _PARAMETERS_NOT_STORED.search(_whole_text(error)):
        raise invalid(
            f"The value of property {longest[:60]!r} has {len(parameters[longest])} characters, "
            f"which is more than the metastore can store"
        ) from error


def with_hmsclient_errors(operation: Callable[[Any], T], client: Any) -> T:
    """Run an operation with pymetastore's client, but raise hmsclient's errors.

    Errors of newer Thrift bindings are immutable, and contextlib sets attributes on an error that
    passes through a context manager: it would become a TypeError.
    """
    try:
        return operation(client)
    except TApplicationException:
        raise  # an error of Thrift itself; a new one would lack its type
    except TException as error:
        familiar = getattr(hms_types, type(error).__name__, None)
        if familiar is None:
            raise
        raise familiar(message=getattr(error, "message", str(error))) from error


def lost_creation_race(catalog: Catalog, error: TException, path: Path) -> bool:
    """Return True if a failed create lost against a concurrent one.

    The losers then get an error of the metastore's database.
    """
    if not is_a(error, "MetaException"):
        return False
    is_table = len(path) > catalog.capabilities.levels
    try:
        catalog.load_table(path) if is_table else catalog.load_namespace(path)
    except (TableNotFoundError, NamespaceNotFoundError):
        return False
    return True

"""How the servers that answer to the name Unity Catalog differ, as data that the double reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """What a name belongs to."""

    CATALOG = "Catalog"
    SCHEMA = "Schema"
    TABLE = "Table"


@dataclass(frozen=True)
class ErrorKind:
    """An HTTP status and an ``error_code``."""

    status: int
    code: str


_INVALID = ErrorKind(400, "INVALID_ARGUMENT")


def _each(status: int, suffix: str) -> dict[Level, ErrorKind]:
    return {level: ErrorKind(status, f"{level.name}_{suffix}") for level in Level}


def _same(status: int, code: str) -> dict[Level, ErrorKind]:
    return {level: ErrorKind(status, code) for level in Level}


@dataclass(frozen=True)
class Dialect:
    """One service, or one range of its releases."""

    name: str
    missing: Mapping[Level, ErrorKind]
    duplicate: Mapping[Level, ErrorKind]
    not_empty: ErrorKind
    invalid: ErrorKind
    unparsable: ErrorKind = _INVALID
    """A request that is no JSON, or lacks a parameter, or whose values are not of the API."""
    page_size: int = 100
    """Rows in a page, whatever is asked for."""
    renames: bool = False
    """There is a route that renames a table."""
    whole_type_json: bool = False
    """A column's ``type_json`` has to be a whole StructField."""
    managed_storage: bool = False
    """A storage root has a directory for managed data, where external tables are refused."""
    databricks: bool = False
    """Names fold case, tables are made through SQL, and nulls are left out of replies."""
    credentials_url: bool = False
    """Vended credentials say for which place they are."""


_PRECONDITION = ErrorKind(400, "FAILED_PRECONDITION")

OPEN_SOURCE_0_3 = Dialect(
    "oss-0.3", _same(404, "NOT_FOUND"), _same(409, "ALREADY_EXISTS"), _PRECONDITION, _INVALID
)
OPEN_SOURCE_0_4 = Dialect(
    "oss-0.4",
    _same(404, "NOT_FOUND"),
    _each(400, "ALREADY_EXISTS"),
    _PRECONDITION,
    _INVALID,
    unparsable=ErrorKind(500, "INTERNAL"),
    managed_storage=True,
)
OPEN_SOURCE_0_6 = Dialect(
    "oss-0.6",
    _each(404, "NOT_FOUND"),
    _each(400, "ALREADY_EXISTS"),
    _PRECONDITION,
    _INVALID,
    renames=True,
    whole_type_json=True,
    credentials_url=True,
    managed_storage=True,
)
DATABRICKS = Dialect(
    "databricks",
    _each(404, "DOES_NOT_EXIST"),
    _each(409, "ALREADY_EXISTS"),
    ErrorKind(400, "INVALID_STATE"),
    ErrorKind(400, "INVALID_PARAMETER_VALUE"),
    page_size=50,
    databricks=True,
    credentials_url=True,
)

DIALECTS = {
    dialect.name: dialect
    for dialect in (OPEN_SOURCE_0_3, OPEN_SOURCE_0_4, OPEN_SOURCE_0_6, DATABRICKS)
}

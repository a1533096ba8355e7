"""Names of columns that a statement cannot use: with a backtick, or alike but for letter case.

Lance finds no top-level column with a backtick in its name: it neither reads its values nor writes
rows beside it. And Lance tells names apart by letter case, which Spark by default does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.types as arrow

from lance_bridge.errors import invalid

_BACKTICK = "`"


def require_readable(names: Iterable[str], table: str) -> None:
    """Raise InvalidInput (13) if Lance cannot read one of the columns."""
    for name in names:
        if _BACKTICK in name:
            raise invalid(
                f"Column {name!r} of table '{table}' has a backtick in its name, by which Lance "
                "does not find it: rename the column, or leave it out of the query"
            )


def require_writable(names: Iterable[str], table: str) -> None:
    """Raise InvalidInput (13) if Lance cannot write rows with all of the columns."""
    for name in names:
        if _BACKTICK in name:
            raise invalid(
                f"Column {name!r} of table '{table}' has a backtick in its name, and Lance writes "
                "no rows to such a table: rename the column"
            )


def require_distinct(spark: Any, schema: pa.Schema, table: str) -> None:
    """Raise InvalidInput (13) if Spark takes one column or field of a table for another."""
    if str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true":
        return
    alike = find_alike(schema)
    if alike is not None:
        raise invalid(
            f"Columns or fields '{alike[0]}' and '{alike[1]}' of table '{table}' differ only in "
            "letter case, and Spark takes one for the other: SET spark.sql.caseSensitive=true, or "
            "rename one"
        )


def find_alike(fields: Iterable[pa.Field]) -> tuple[str, str] | None:
    """Return the names of two fields of one struct that differ only in letter case, or None."""
    known: dict[str, str] = {}
    for field in fields:
        other = known.setdefault(field.name.lower(), field.name)
        if other != field.name:
            return other, field.name
        inside = find_alike(_inner(field.type))
        if inside is not None:
            return inside
    return None


def _inner(dtype: pa.DataType) -> list[pa.Field]:
    if isinstance(dtype, pa.BaseExtensionType) or not arrow.is_nested(dtype):
        return []
    return [dtype.field(i) for i in range(dtype.num_fields)]

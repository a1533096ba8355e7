"""Writing a DataFrame to a table, in every mode of Spark's; two of them Spark does not offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_namespace.errors import TableAlreadyExistsError

from lance_bridge.errors import invalid

from ..addresses import address_of
from ..lookup import create_table
from ..source import schema_compat
from ..source.options import VECTOR_PREFIX, whole_number
from ..source.requests import FORMAT, address_options
from .reading import texts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MODES = ("append", "overwrite", "error", "errorifexists", "ignore")


def write(df: DataFrame, table: str, mode: str = "append", **options: Any) -> None:
    """Write the rows of a DataFrame. A missing table is created.

    Args:
        df: Its columns are the table's, by name and in any order.
        table: ``catalog.namespace.table``, or a location.
        mode: ``append``; ``overwrite``, which keeps the table's schema unless the option
            ``overwrite_schema`` is true; ``error`` (or ``errorifexists``), which fails where there
            is a table; ``ignore``, which then does nothing. Of two that create a table at once in
            these last two modes, one does. Where its rows then fail, the table stays, empty.
        options: Those of the data source, such as ``max_rows_per_file``, or
            ``**{"vector.embedding": 768}``.

    Raises:
        InvalidInputError: (13) no such mode or catalog, or a malformed name.
        TableAlreadyExistsError: (5) the mode is ``error``, and there is a table.
        NamespaceNotFoundError: (1)
        PySparkException: What the data source raises: columns that do not fit, or wrong options.
    """
    if mode not in _MODES:
        raise invalid(f"mode must be one of {', '.join(_MODES)}, not {mode!r}")
    address = address_of(df.sparkSession, table)
    given = texts(options)
    if mode in ("append", "overwrite"):
        _save(df, {**address_options(address), **given}, mode)
        return
    vectors = {
        key[len(VECTOR_PREFIX) :]: whole_number(f"Option '{key}'", value)
        for key, value in given.items()
        if key.startswith(VECTOR_PREFIX)
    }
    try:
        create_table(address, schema_compat.new_schema(df.schema, vectors))
    except TableAlreadyExistsError:
        if mode == "ignore":
            return
        raise
    _save(df, {**address_options(address), **given}, "append")


def _save(df: DataFrame, options: dict[str, str], mode: str) -> None:
    df.write.format(FORMAT).options(**options).mode(mode).save()

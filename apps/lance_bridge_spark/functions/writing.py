"""Writing a DataFrame to a table in every save mode.

Spark does not support the modes ``error`` and ``ignore`` for data sources in Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_namespace.errors import TableAlreadyExistsError

from lance_bridge.errors import invalid

from ..addresses import address_of
from ..lookup import create_table
from ..schemas import new_schema, nullable
from ..source.options import FORMAT, Options, address_options
from .reading import texts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MODES = ("append", "overwrite", "error", "errorifexists", "ignore")


def write(df: DataFrame, table: str, mode: str = "append", **options: Any) -> None:
    """Write the rows of a DataFrame to a table, which is created if it is missing.

    Args:
        df: A DataFrame with the table's columns, by name and in any order.
        table: ``catalog.namespace.table``, or a location.
        mode: ``append``; ``overwrite``, which keeps the table's schema unless the option
            ``overwrite_schema`` is true; ``error`` (or ``errorifexists``), which fails if the
            table exists; ``ignore``, which does nothing if it exists. If two writers create the
            table concurrently in these last two modes, one succeeds. If writing the rows then
            fails, the empty table remains.
        options: Options of the data source, such as ``max_rows_per_file``, or
            ``**{"vector.embedding": 768}``.

    Raises:
        InvalidInputError: (13) no such mode or catalog, or a malformed name.
        TableAlreadyExistsError: (5) the mode is ``error``, and the table exists.
        NamespaceNotFoundError: (1)
        PySparkException: From the data source: columns do not fit, or options are invalid.
    """
    if mode not in _MODES:
        raise invalid(f"mode must be one of {', '.join(_MODES)}, not {mode!r}")
    address = address_of(df.sparkSession, table)
    given = texts(options)
    if mode in ("append", "overwrite"):
        _save(df, {**address_options(address), **given}, mode)
        return
    writing = Options(given).writing()
    if writing.branch is not None:
        raise invalid(f"Option 'branch' cannot be used with mode {mode}: a new table has no branch")
    try:
        create_table(address, new_schema(nullable(df.schema), writing.vectors))
    except TableAlreadyExistsError:
        if mode == "ignore":
            return
        raise
    _save(df, {**address_options(address), **given}, "append")


def _save(df: DataFrame, options: dict[str, str], mode: str) -> None:
    df.write.format(FORMAT).options(**options).mode(mode).save()

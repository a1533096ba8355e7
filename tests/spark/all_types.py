"""Rows of every type of Spark that Lance has, to compare with what Spark reads of Parquet."""

from __future__ import annotations

from typing import Any

ROWS = 120
INTEGERS = ["0", "1", "2", "-1", "7", "100"]
FLOATS = [
    "0.0D",
    "-0.0D",
    "1.5D",
    "-2.25D",
    "1e300D",
    "0.1D",
    "double('NaN')",
    "double('Infinity')",
]
REALS = ["float(0.0)", "float('-0.0')", "float(0.1)", "float(1.5)", "float('NaN')", "0.1D"]
TEXTS = ["''", "'a'", "'ab'", "'aé'", "'b''c'", "'%'", "'_'", "'日本'", "'a b'", '"c\\\\d"']
DAYS = ["DATE'1970-01-01'", "DATE'1969-12-31'", "DATE'2024-02-29'", "DATE'0001-01-01'"]
TIMES = ["1970-01-01 00:00:00", "1969-12-31 23:59:59.999999", "2020-09-13 12:26:40.123456"]
DECIMALS = ["0.00BD", "1.10BD", "-2.50BD", "99999999.99BD"]
BYTES = ["X''", "X'00FF'", "X'80'", "X'616263'"]

COLUMNS: dict[str, tuple[str, list[str]]] = {
    "i": ("INT", [*INTEGERS, "-2147483648"]),
    "l": ("BIGINT", [*INTEGERS, "9223372036854775807L", "(-9223372036854775807L - 1L)"]),
    "b": ("TINYINT", ["0Y", "1Y", "-1Y", "127Y", "-128Y"]),
    "h": ("SMALLINT", ["0S", "1S", "-1S", "32767S"]),
    "d": ("DOUBLE", FLOATS),
    "f": ("FLOAT", REALS),
    "s": ("STRING", TEXTS),
    "o": ("BOOLEAN", ["true", "false"]),
    "da": ("DATE", DAYS),
    "ts": ("TIMESTAMP", [f"TIMESTAMP_LTZ'{time}'" for time in TIMES]),
    "tn": ("TIMESTAMP_NTZ", [f"TIMESTAMP_NTZ'{time}'" for time in TIMES]),
    "de": ("DECIMAL(10,2)", DECIMALS),
    "bi": ("BINARY", BYTES),
    "st.x": ("INT", INTEGERS),
    "st.in.z": ("STRING", TEXTS),
    "`Mixed Name`": ("INT", INTEGERS),
}
"""Columns of the rows: their types, and values that they have, as SQL writes them."""

_NESTED = """
    SELECT *,
        IF(id % 4 = 0, NULL, array(d, NULL, double('NaN'), -0.0D)) AS a,
        IF(id % 6 = 0, NULL, map('k', i, 'n', NULL)) AS m,
        IF(id % 3 = 0, NULL, array(named_struct('x', s, 'y', array(f)))) AS deep,
        make_dt_interval(CAST(id AS INT), 1, 2, 3.000004) AS span
    FROM ({rows})
"""


def write_all_types(spark: Any, path: str) -> None:
    """Write the rows to Parquet: an id, the columns, and types that have others inside."""
    spark.sql(_NESTED.format(rows=_rows())).write.parquet(path)


def _value(column: str) -> str:
    """Return an expression of `id` that takes all values of the column, and null."""
    type_, values = COLUMNS[column]
    choices = ", ".join(f"CAST({value} AS {type_})" for value in [*values, "NULL"])
    at = f"pmod(xxhash64(id, '{column}'), {len(values) + 1})"
    return f"element_at(array({choices}), CAST(1 + {at} AS INT))"


def _rows() -> str:
    columns = [f"{_value(name)} AS {name}" for name in COLUMNS if "." not in name]
    inner = f"IF(id % 5 = 0, NULL, named_struct('z', {_value('st.in.z')}))"
    struct = f"IF(id % 7 = 0, NULL, named_struct('x', {_value('st.x')}, 'in', {inner}))"
    return f"SELECT id, {', '.join(columns)}, {struct} AS st FROM range(0, {ROWS}, 1, 1)"

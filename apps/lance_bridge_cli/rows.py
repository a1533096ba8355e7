"""Prints rows: as a table for people, as JSON or CSV for programs."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Column, Table
from rich.text import Text

from lance_bridge.values import JsonText, to_json_value, to_text

from .output import (
    MAX_CELL,
    UNLIMITED,
    Output,
    format_value,
    make_table,
    message,
    one_line,
    output_console,
    print_parts,
    print_table,
    printable,
    to_json,
)

NULL = "NULL"
_MIN_WIDTH = 16
"""A column is not made narrower than this, or its own width, so that another one fits."""
_GAP = 3
"""Characters that rich puts between two columns."""
_VECTOR_NUMBERS = 3
_SHORT_BYTES = 16
"""The maximum number of bytes to show; of longer values, only the length is shown."""
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"GIF8", "GIF"),
    (b"BM", "BMP"),
    (b"II*\x00", "TIFF"),
    (b"MM\x00*", "TIFF"),
)

Row = Mapping[str, Any]


class RowsOutput(str, Enum):
    """Output formats of rows."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


RowsOption = Annotated[RowsOutput, typer.Option("--output", "-o", help="text, json or csv.")]


def print_data(output: RowsOutput, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Print a table's own rows.

    JSON and CSV are streamed. A table for people needs all rows, to compute its width; columns that
    do not fit a terminal are left out, and a message says so.
    """
    if output is RowsOutput.JSON:
        _write_array(rows)
    elif output is RowsOutput.CSV:
        _write_csv(columns, rows)
    else:
        _print_data(columns, [[format_cell(row.get(each)) for each in columns] for row in rows])


def print_list(
    output: RowsOutput,
    columns: Sequence[str],
    rows: Sequence[Row],
    nouns: str,
    longest: int = MAX_CELL,
) -> None:
    """Print a list, or that it is empty; in JSON, an array."""
    if output is RowsOutput.JSON:
        _write_array(rows)
    elif output is RowsOutput.CSV:
        _write_csv(columns, rows)
    elif rows:
        print_table(make_table(columns, rows, longest))
    else:
        sys.stdout.write(f"(no {nouns})\n")


def print_page(
    output: RowsOutput, key: str, columns: Sequence[str], rows: Sequence[Row], token: str | None
) -> None:
    """Print a page: a list, or a JSON object of its rows and the token of the next page."""
    if output is RowsOutput.JSON:
        print_parts(Output.JSON, {key: rows, "page_token": token}, [])
        return
    print_list(output, columns, rows, key)
    if token:
        message(f"more results: use --page-token {token}")


def print_markdown(columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Print a list as a Markdown table."""
    lines = [columns, ["---"] * len(columns)]
    lines += [[format_value(row.get(each), UNLIMITED) for each in columns] for row in rows]
    for cells in lines:
        escaped = (cell.replace("|", "\\|") for cell in cells)
        sys.stdout.write(f"| {' | '.join(escaped)} |\n")


# -- for programs ----------------------------------------------------------------------------------


def _write_array(rows: Iterable[Row]) -> None:
    sys.stdout.write("[")
    for number, row in enumerate(rows):
        sys.stdout.write((",\n " if number else "") + to_json(row))
    sys.stdout.write("]\n")


def _write_csv(columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Write CSV (RFC 4180); NULL is empty, and values are formatted as in JSON."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    # A file gets values unchanged; a terminal must not interpret them.
    form = printable if sys.stdout.isatty() else str
    writer.writerow([form(each) for each in columns])
    for row in rows:
        values = (row.get(each) for each in columns)
        writer.writerow(["" if each is None else form(to_text(each)) for each in values])


# -- for people ------------------------------------------------------------------------------------


def _print_data(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    heads = [one_line(each) for each in columns]
    console = output_console()
    count = _count_fitting(heads, cells, console.width) if console.is_terminal else len(heads)
    # A row is one line: in a terminal, a value that is too wide ends with an ellipsis.
    table = Table(
        *(Column(Text(head), no_wrap=True, overflow="ellipsis") for head in heads[:count]),
        box=box.SIMPLE_HEAD,
    )
    for row in cells:
        table.add_row(*(Text(each) for each in row[:count]))
    print_table(table)
    if not cells:
        sys.stdout.write("(no rows)\n")
    if count < len(heads):
        message(
            f"{count} of {len(heads)} columns fit: choose others with --column, "
            "or use --output json or csv"
        )


def _count_fitting(heads: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> int:
    """Return how many of the first columns fit a terminal."""
    left = width - 1
    for number, head in enumerate(heads):
        longest = max([len(head), *(len(row[number]) for row in cells)])
        left -= min(longest, _MIN_WIDTH) + _GAP
        if left < 0:
            return max(number, 1)
    return len(heads)


def format_cell(value: Any, longest: int = MAX_CELL) -> str:
    """Return one line for a value of a row: vectors, images and long text are shortened."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    short = value if isinstance(value, JsonText) else _shorten(value)
    text = short if isinstance(short, str) else json.dumps(short, ensure_ascii=False)
    return one_line(text, longest)


def _shorten(value: Any) -> Any:
    """Return a value converted to JSON types, with short descriptions of vectors and bytes."""
    if isinstance(value, bytes):
        return _describe_bytes(value)
    if isinstance(value, Mapping):
        return {str(key): _shorten(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return _describe_vector(value) if _is_vector(value) else [_shorten(each) for each in value]
    return to_json_value(value)


def _is_vector(values: Sequence[Any]) -> bool:
    is_long = len(values) > _VECTOR_NUMBERS + 1
    return is_long and all(isinstance(each, int | float) for each in values)


def _describe_vector(values: Sequence[float]) -> str:
    first = ", ".join(f"{each:.4g}" for each in values[:_VECTOR_NUMBERS])
    return f"[{first}, … {len(values)} numbers]"


def _describe_bytes(value: bytes) -> str:
    if len(value) <= _SHORT_BYTES:
        return f"0x{value.hex()}"
    form = next((name for start, name in _IMAGES if value.startswith(start)), "")
    if value[:4] == b"RIFF" and value[8:12] == b"WEBP":
        form = "WebP"
    return f"<{form} image, {len(value)} bytes>" if form else f"<{len(value)} bytes>"

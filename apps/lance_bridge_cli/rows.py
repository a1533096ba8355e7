"""Rows as an answer: a table for people, JSON or CSV for programs."""

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

from .cells import format_cell
from .output import (
    LONGEST_CELL,
    WIDE,
    Output,
    as_json,
    format_value,
    message,
    one_line,
    output_console,
    plain,
    print_table,
    printable,
    table_of,
    tell_parts,
)

_NARROW = 16
"""A column is not made narrower than this, or its own width, to let another be seen."""
_GAP = 3
"""What rich puts between two columns."""


class RowsOutput(str, Enum):
    """For people, or for programs."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


RowsOption = Annotated[RowsOutput, typer.Option("--output", "-o", help="text, json or csv.")]


def print_data(
    output: RowsOutput, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]
) -> None:
    """Print a table's own rows.

    JSON and CSV are written as the rows come. A table for people needs them all, to know how wide
    it is; columns for which a terminal has no room are left out, and a message says so.
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
    rows: Sequence[Mapping[str, Any]],
    nouns: str,
    longest: int = LONGEST_CELL,
) -> None:
    """Print a list, or that there are none of its objects."""
    if output is RowsOutput.JSON:
        _write_array(rows)
    else:
        print_listed(output, columns, rows, nouns, longest)


def print_page(
    output: RowsOutput,
    key: str,
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    token: str | None,
) -> None:
    """Print a page: a table, CSV, or a JSON object of its rows and the token of the next page."""
    if output is RowsOutput.JSON:
        tell_parts(Output.JSON, {key: rows, "page_token": token}, [])
        return
    print_listed(output, columns, rows, key)
    if token:
        message(f"there is more: go on with --page-token {token}")


def print_listed(
    output: RowsOutput,
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    nouns: str,
    longest: int = LONGEST_CELL,
) -> None:
    """Print a list as CSV or for people."""
    if output is RowsOutput.CSV:
        _write_csv(columns, rows)
    elif rows:
        print_table(table_of(columns, rows, longest=longest))
    else:
        sys.stdout.write(f"(no {nouns})\n")


def print_markdown(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a list as a table of Markdown."""
    lines = [columns, ["---"] * len(columns)]
    lines += [[format_value(row.get(each), WIDE) for each in columns] for row in rows]
    for cells in lines:
        escaped = (cell.replace("|", "\\|") for cell in cells)
        sys.stdout.write(f"| {' | '.join(escaped)} |\n")


# -- for programs ----------------------------------------------------------------------------------


def _write_array(rows: Iterable[Mapping[str, Any]]) -> None:
    sys.stdout.write("[")
    for number, row in enumerate(rows):
        sys.stdout.write((",\n " if number else "") + as_json(row))
    sys.stdout.write("]\n")


def _write_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write CSV as RFC 4180 has it; NULL is empty, and values have the forms that JSON has."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    # A file gets values as they are; a terminal must not act on them.
    form = printable if sys.stdout.isatty() else str
    writer.writerow([form(each) for each in columns])
    for row in rows:
        writer.writerow([form(_csv_text(row.get(each))) for each in columns])


def _csv_text(value: Any) -> str:
    short = plain(value)
    if short is None:
        return ""
    return short if isinstance(short, str) else json.dumps(short, ensure_ascii=False)


# -- for people ------------------------------------------------------------------------------------


def _print_data(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    heads = [one_line(each) for each in columns]
    console = output_console()
    shown = _fitting(heads, cells, console.width) if console.is_terminal else len(heads)
    # One line for a row: in a terminal, what is too wide ends with an ellipsis.
    table = Table(
        *(Column(Text(head), no_wrap=True, overflow="ellipsis") for head in heads[:shown]),
        box=box.SIMPLE_HEAD,
    )
    for row in cells:
        table.add_row(*(Text(each) for each in row[:shown]))
    print_table(table)
    if not cells:
        sys.stdout.write("(no rows)\n")
    if shown < len(heads):
        message(
            f"{shown} of {len(heads)} columns fit here: name others with --column, "
            "or take all with --output json or csv"
        )


def _fitting(heads: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> int:
    """Return how many columns, the first ones, a terminal has room for."""
    left = width - 1
    for number, head in enumerate(heads):
        longest = max([len(head), *(len(row[number]) for row in cells)])
        left -= min(longest, _NARROW) + _GAP
        if left < 0:
            return max(number, 1)
    return len(heads)

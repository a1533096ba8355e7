"""Prints results, messages and progress bars.

Only results go to standard output: tables and sentences in a terminal, lines of values separated by
tabs elsewhere, and JSON and CSV for programs. Messages and bars go to standard error.
"""

from __future__ import annotations

import csv
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal

import typer
from rich import box
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from lance_bridge.redaction import redact
from lance_bridge.values import JsonText, to_json_value, to_text

UNLIMITED = sys.maxsize
"""The maximum length of a cell that is not truncated."""
MAX_CELL = 60
"""The maximum length of a cell in a terminal, unless a command shows all of it."""
_LINE_ENDS = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t"})
_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_UNSAFE = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029{_BIDI}]")
"""Characters that control a terminal: control characters except tab and line feed, and marks that
reorder the text around them."""
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


class Output(str, Enum):
    """Output formats of a result."""

    TEXT = "text"
    JSON = "json"


class RowsOutput(str, Enum):
    """Output formats of rows."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


RowsOption = Annotated[RowsOutput, typer.Option("--output", "-o", help="text, json, jsonl or csv.")]


def printable(text: str) -> str:
    """Return text from a catalog with the characters escaped that control a terminal.

    Control characters (terminal escapes begin with one) and bidirectional marks become ``\\x1b`` or
    ``\\u202e``. Tabs and line feeds are kept.
    """
    return _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def has_unicode(stream: Any) -> bool:
    """Return whether the encoding of a stream has all characters."""
    return (getattr(stream, "encoding", None) or "utf-8").lower().startswith("utf")


def one_line(text: str, longest: int = MAX_CELL) -> str:
    """Return text for a cell: one line of at most ``longest`` characters."""
    line = printable(text.translate(_LINE_ENDS))
    return line if len(line) <= longest else line[: longest - 1] + "…"


# -- messages --------------------------------------------------------------------------------------


_OURS = "lance_bridge"
"""The beginning of the names of our loggers."""


class Verbosity(IntEnum):
    """Which messages are printed besides errors."""

    QUIET = logging.ERROR
    NORMAL = logging.WARNING
    VERBOSE = logging.DEBUG


def message(text: str) -> None:
    """Print a message, such as an error, to standard error."""
    sys.stderr.write(f"lance-bridge: {printable(text)}\n")
    sys.stderr.flush()


def hint(text: str) -> None:
    """Print a message that the option ``--quiet`` suppresses."""
    if _handler.level < Verbosity.QUIET:
        message(text)


@contextmanager
def log_messages() -> Iterator[None]:
    """Print records that libraries log at WARNING or above, such as that a call is retried.

    `set_verbosity` changes the level for the rest of the block.
    """
    root = logging.getLogger()
    level = root.level
    _handler.setLevel(Verbosity.NORMAL)
    root.addHandler(_handler)
    try:
        yield
    finally:
        root.removeHandler(_handler)
        root.setLevel(level)
        _handler.setLevel(Verbosity.NORMAL)


def set_verbosity(verbosity: Verbosity) -> None:
    """Print more or fewer messages, in the block of `log_messages`."""
    _handler.setLevel(verbosity)
    if verbosity is Verbosity.VERBOSE:
        logging.getLogger().setLevel(logging.DEBUG)


class _MessageHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        is_ours = record.name.startswith(_OURS)
        # What other libraries log for developers may contain headers and keys.
        if not is_ours and record.levelno < logging.WARNING:
            return
        text = record.getMessage()
        if record.levelno < logging.WARNING:
            text = redact(text)
        message(text if is_ours else f"{record.name}: {text}")


_handler = _MessageHandler(Verbosity.NORMAL)


# -- results ---------------------------------------------------------------------------------------


def print_result(output: Output, text: str, fields: Mapping[str, Any]) -> None:
    """Print a text, or its fields as one JSON object."""
    print_parts(output, fields, [text])


def print_table_result(output: Output, table: str, text: str, **fields: Any) -> None:
    """Print a text about a table, or the table and the fields as one JSON object."""
    print_result(output, f"{table}: {text}", {"table": table, **fields})


def print_parts(output: Output, fields: Mapping[str, Any], parts: Sequence[Table | str]) -> None:
    """Print a result that has several parts for people, and is one JSON object for programs."""
    if output is Output.JSON:
        sys.stdout.write(to_json(fields) + "\n")
        return
    for part in parts:
        if isinstance(part, str):
            print_line(part)
        else:
            print_table(part)


def print_line(text: str) -> None:
    """Print a text at once, for a reader that waits for it."""
    sys.stdout.write(printable(text) + "\n")
    sys.stdout.flush()


def state_empty(nouns: str) -> None:
    """Print that a list is empty; elsewhere than in a terminal, that is no line."""
    if sys.stdout.isatty():
        print_line(f"(no {nouns})")


def print_list(
    output: RowsOutput,
    columns: Sequence[str],
    rows: Sequence[Row],
    nouns: str,
    longest: int = MAX_CELL,
) -> None:
    """Print a list, or in a terminal that it is empty; in JSON, an array."""
    if output is not RowsOutput.TEXT:
        _write_rows(output, columns, rows)
    elif rows:
        print_table(make_table(columns, rows, longest))
    else:
        state_empty(nouns)


def print_page(
    output: RowsOutput,
    key: str,
    columns: Sequence[str],
    values: Iterable[Sequence[Any]],
    token: str | None,
) -> None:
    """Print a page: a list, or a JSON object of its rows and the token of the next page."""
    rows = [dict(zip(columns, each, strict=True)) for each in values]
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


def print_data(output: RowsOutput, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Print a table's own rows.

    They are streamed. Only a table in a terminal needs all rows, to compute its width; columns that
    do not fit are left out, and a message says so.
    """
    if output is not RowsOutput.TEXT:
        _write_rows(output, columns, rows)
    elif sys.stdout.isatty():
        _print_data(columns, [[format_cell(row.get(each)) for each in columns] for row in rows])
    else:
        for row in rows:
            _write_values(format_cell(row.get(each), UNLIMITED) for each in columns)


# -- for programs ----------------------------------------------------------------------------------


def to_json(value: Any) -> str:
    """Return strict JSON; types that JSON lacks are converted.

    Characters that control a terminal are escaped, and those that the encoding of standard output
    may lack, which changes no value.
    """
    is_ascii = not has_unicode(sys.stdout)
    text = json.dumps(to_json_value(value), ensure_ascii=is_ascii, allow_nan=False)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def write_array(rows: Iterable[Row]) -> None:
    """Write a JSON array, each row as soon as it is there."""
    sys.stdout.write("[")
    for number, row in enumerate(rows):
        sys.stdout.write((",\n " if number else "") + to_json(row))
    sys.stdout.write("]")


def _write_rows(output: RowsOutput, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Write a JSON array, a JSON object per line, or CSV.

    In CSV (RFC 4180), NULL is empty, and other values are formatted as in JSON.
    """
    if output is RowsOutput.JSON:
        write_array(rows)
        sys.stdout.write("\n")
        return
    if output is RowsOutput.JSONL:
        for row in rows:
            sys.stdout.write(to_json(row) + "\n")
        return
    writer = csv.writer(sys.stdout, lineterminator="\n")
    # A file gets values unchanged; a terminal must not interpret them.
    form = printable if sys.stdout.isatty() else str
    writer.writerow([form(each) for each in columns])
    for row in rows:
        values = (row.get(each) for each in columns)
        writer.writerow(["" if each is None else form(to_text(each)) for each in values])


# -- for people ------------------------------------------------------------------------------------


def print_table(table: Table) -> None:
    """Print a table: as wide as a terminal; elsewhere as lines of values separated by tabs."""
    if sys.stdout.isatty():
        output_console().print(table)
        return
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        _write_values(map(str, cells))


def _write_values(cells: Iterable[str]) -> None:
    """Write one line. Cells have no tab: `one_line` escapes them."""
    sys.stdout.write("\t".join(cells) + "\n")


def make_table(
    columns: Sequence[str], rows: Iterable[Mapping[str, Any]], longest: int = MAX_CELL
) -> Table:
    """Return a table for people. A column's name is its key in the rows, underscores as spaces.

    In a terminal, values of more than ``longest`` characters are truncated.
    """
    shown = longest if sys.stdout.isatty() else UNLIMITED
    heads = [Column(Text(printable(each.replace("_", " ")))) for each in columns]
    table = Table(*heads, box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*(Text(format_value(row.get(column), shown)) for column in columns))
    return table


def key_value_table(fields: Mapping[str, Any], *, as_written: bool = False) -> Table:
    """Return a table of names and values.

    Args:
        as_written: Whether to keep underscores in the names, because they are of properties.
    """
    table = Table(box=box.SIMPLE, show_header=False)
    for key, value in fields.items():
        name = one_line(key if as_written else key.replace("_", " "), UNLIMITED)
        table.add_row(Text(name), Text(format_value(value, UNLIMITED)))
    return table


def format_value(value: Any, longest: int = MAX_CELL) -> str:
    """Return the text of a cell in a list: one line of at most ``longest`` characters."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return one_line(to_text(value), longest)


def output_console() -> Console:
    """Return a console on standard output, which is a terminal."""
    return Console(file=sys.stdout, highlight=False, color_system=color_system())


def color_system() -> Literal["auto"] | None:
    """Return None, for neither colours nor bold, if ``NO_COLOR`` is set (no-color.org)."""
    return None if os.environ.get("NO_COLOR") else "auto"


def _print_data(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """Print rows to a terminal."""
    heads = [one_line(each) for each in columns]
    console = output_console()
    count = _count_fitting(heads, cells, console.width)
    # A row is one line: a value that is too wide ends with an ellipsis.
    table = Table(
        *(Column(Text(head), no_wrap=True, overflow="ellipsis") for head in heads[:count]),
        box=box.SIMPLE_HEAD,
    )
    for row in cells:
        table.add_row(*(Text(each) for each in row[:count]))
    print_table(table)
    if not cells:
        state_empty("rows")
    if count < len(heads):
        hint(
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


# -- progress --------------------------------------------------------------------------------------


def _shows_progress(console: Console) -> bool:
    """Return whether standard error is a terminal, and ``--quiet`` is not given."""
    return console.is_terminal and _handler.level < Verbosity.QUIET


@contextmanager
def spinner(text: str) -> Iterator[None]:
    """Show that an operation of unknown length is in progress."""
    console = Console(stderr=True, color_system=color_system())
    if not _shows_progress(console):
        yield
        return
    turning = "dots" if has_unicode(sys.stderr) else "line"
    with console.status(Text(printable(text)), spinner=turning):
        yield


@contextmanager
def progress_bar(text: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar; yield a function that takes the number done, and the total if known."""
    console = Console(stderr=True, color_system=color_system())
    if not _shows_progress(console):
        yield lambda _done, _total: None
        return
    # The import takes a tenth of the time that `--help` may take; few commands need it.
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (TextColumn(printable(text), markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)

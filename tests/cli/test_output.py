"""What commands print: rows, types as SQL writes them, and nothing that acts on a terminal."""

from __future__ import annotations

import csv
import io
import json
import logging
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from arrow_types import ID, STORED, Sample
from lance_namespace.errors import UnsupportedOperationError
from rich.table import Table
from typer.testing import CliRunner

from lance_bridge.arrow_types import schema_from_json, schema_to_json
from lance_bridge.values import JsonText
from lance_bridge_cli.app import app
from lance_bridge_cli.output import (
    Output,
    RowsOutput,
    format_cell,
    key_value_table,
    log_messages,
    make_table,
    message,
    print_data,
    print_list,
    print_page,
    print_parts,
    print_result,
    printable,
    to_json,
)
from lance_bridge_cli.schemas import batch_to_rows, sql_type
from lance_bridge_migrate.commands.progress import log_file

from .conftest import Lake
from .program import Terminal, at_terminal, program

pytestmark = [pytest.mark.quick, pytest.mark.spec("cli.md#output", "cli.md#table")]

WIDE_ROWS = [{f"column_{number}": row * 1000 + number for number in range(200)} for row in range(5)]
PNG = b"\x89PNG\r\n\x1a\n" + bytes(500)
ESCAPES = {
    "clear": "\x1b[2Jgone",
    "title": "\x1b]0;root@prod\x07",
    "one byte": "\x9b31mred",
    "overwrite": "ok\rfailed",
    "backspace": "yes\b\b\bno",
    "bidi": "cod\u202egpj.exe",
    "isolate": "a\u2066b\u2069",
    "mark": "a\u200fb",
}
ACTING = {c for text in ESCAPES.values() for c in text if not c.isprintable()}
NAMES = ("extension<arrow.uuid>", "extension<arrow.json>", "lance.bfloat16", "timestamp[ns]")
CHOSEN = [each for each in STORED if each.name in NAMES]


@pytest.fixture
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a terminal of 80 characters."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def shown_at_terminal(show: Callable[[], None]) -> str:
    """Return what is shown where standard output is a terminal."""
    with redirect_stdout(Terminal()) as shown:
        show()
    return shown.getvalue()


# -- in a terminal ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("_terminal")
def test_a_terminal_shows_the_columns_that_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    shown = shown_at_terminal(lambda: print_data(RowsOutput.TEXT, list(WIDE_ROWS[0]), WIDE_ROWS))

    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    [head] = [line for line in lines if "column_0" in line]
    assert head.split() == [f"column_{number}" for number in range(len(head.split()))]
    assert len(head.split()) > 5
    assert len([line for line in lines if line.strip()]) == 2 + len(WIDE_ROWS)
    error = capsys.readouterr().err
    assert f"{len(head.split())} of 200 columns fit: " in error
    assert "--column" in error


@pytest.mark.usefixtures("_terminal")
def test_a_row_is_always_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    rows = [{"id": number, "a": "x" * 200, "b": "y \n" * 100} for number in range(3)]

    shown = shown_at_terminal(lambda: print_data(RowsOutput.TEXT, ["id", "a", "b"], rows))

    lines = [line for line in shown.splitlines() if line.strip()]
    assert len(lines) == 5
    assert max(map(len, lines)) <= 80
    assert capsys.readouterr().err == ""


def test_elsewhere_rows_are_lines_of_values_with_tabs(capsys: pytest.CaptureFixture[str]) -> None:
    print_data(RowsOutput.TEXT, list(WIDE_ROWS[0]), WIDE_ROWS)

    shown = capsys.readouterr()
    assert [line.split("\t") for line in shown.out.splitlines()] == [
        [str(each) for each in row.values()] for row in WIDE_ROWS
    ]
    assert shown.err == ""


def test_elsewhere_nothing_is_cut_or_padded(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 20_000
    rows: list[dict[str, Any]] = [{"a": long, "b": None}, {"a": "two\nlines\tand a tab", "b": True}]
    print_data(RowsOutput.TEXT, ["a", "b"], rows)
    print_list(RowsOutput.TEXT, ["a", "b"], rows, "rows")
    print_parts(Output.TEXT, {}, ["A sentence.", key_value_table({"some_key": long})])
    assert capsys.readouterr().out.splitlines() == [
        f"{long}\tNULL",
        "two\\nlines\\tand a tab\ttrue",
        f"{long}\t",
        "two\\nlines\\tand a tab\tyes",
        "A sentence.",
        f"some key\t{long}",
    ]


@pytest.mark.usefixtures("_terminal")
@pytest.mark.parametrize("value", ["1", "anything"])
def test_with_no_color_nothing_is_coloured_or_bold(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def show() -> None:
        print_data(RowsOutput.TEXT, ["a"], [{"a": 1}])
        print_parts(Output.TEXT, {}, [make_table(["a"], [{"a": 1}])])

    assert "\x1b[" in shown_at_terminal(show)
    monkeypatch.setenv("NO_COLOR", value)
    assert "\x1b[" not in shown_at_terminal(show)


@pytest.mark.parametrize("arguments", [["--help"], ["nothing"]], ids=" ".join)
def test_with_no_color_help_and_wrong_commands_are_plain(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1" in at_terminal(arguments, "")[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in at_terminal(arguments, "")[1]


# -- cells -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "NULL"),
        ("", ""),
        (True, "true"),
        ("two\nlines\tand a tab\r", "two\\nlines\\tand a tab\\r"),
        ([0.123456789] * 768, "[0.1235, 0.1235, 0.1235, … 768 numbers]"),
        ([1, 2, 3], "[1, 2, 3]"),
        ([[0.5] * 128, None], '["[0.5, 0.5, 0.5, … 128 numbers]", null]'),
        (b"\x01\xff", "0x01ff"),
        (bytes(100), "<100 bytes>"),
        (PNG, "<PNG image, 508 bytes>"),
        (b"\xff\xd8\xff" + bytes(97), "<JPEG image, 100 bytes>"),
        (b"RIFF\x00\x00\x00\x00WEBP" + bytes(88), "<WebP image, 100 bytes>"),
        ({"image": PNG, "n": 1}, '{"image": "<PNG image, 508 bytes>", "n": 1}'),
        (Decimal("1.50"), "1.50"),
        (JsonText('"text"'), '"text"'),
        ({"json": JsonText("[1]")}, '{"json": [1]}'),
        ("x" * 100, "x" * 59 + "…"),
    ],
)
def test_cells_shorten_vectors_images_and_long_text(value: Any, shown: str) -> None:
    assert format_cell(value) == shown


# -- for programs ----------------------------------------------------------------------------------


def test_csv_round_trips(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"id": 1, "text": 'a "quoted", text\nof two lines', "vector": [0.5, 1.0], "none": None},
        {"id": 2, "text": "é", "vector": [], "none": b"\x01"},
    ]

    print_data(RowsOutput.CSV, list(rows[0]), rows)

    found = list(csv.DictReader(io.StringIO(capsys.readouterr().out, newline="")))
    assert found == [
        {"id": "1", "text": rows[0]["text"], "vector": "[0.5, 1.0]", "none": ""},
        {"id": "2", "text": "é", "vector": "[]", "none": "AQ=="},
    ]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (b"\x00\xff", "AP8="),
        (datetime(1970, 1, 1, 0, 0, 0, 1, timezone.utc), "1970-01-01T00:00:00.000001+00:00"),
        (Decimal("1.00"), "1.00"),
    ],
    ids=str,
)
def test_types_that_json_lacks_are_converted(value: Any, written: str) -> None:
    assert json.loads(to_json({"a": value})) == {"a": written}


def test_times_that_python_lacks_are_printed_in_iso_8601(
    capsys: pytest.CaptureFixture[str],
) -> None:
    days = pa.array([10_000_000, -800_000, 0, None], pa.date32())
    moments = [300_000_000_000_000_000, -99_999_999_999_999_999, 0, None]
    zone = pa.timestamp("us", "Europe/Berlin")
    batch = pa.RecordBatch.from_pydict(
        {
            "id": [1, 2, 3, 4],
            "day": days,
            "moment": pa.array(moments, pa.timestamp("us")),
            "there": pa.array(moments, zone),
        }
    )

    print_data(RowsOutput.JSON, batch.schema.names, batch_to_rows(batch))

    shown = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in shown] == [1, 2, 3, 4]
    assert [row["day"] for row in shown] == ["+29349-01-26", "-0221-09-04", "1970-01-01", None]
    assert [row["moment"] for row in shown] == [
        "+11476-08-15T05:20:00",
        "-1199-02-15T14:13:20.000001",
        "1970-01-01T00:00:00",
        None,
    ]
    assert shown[0]["there"] == "+11476-08-15T07:20:00+02:00"


def test_values_that_cannot_be_shown_are_an_error_that_names_the_column() -> None:
    offsets = pa.array([0, 1], pa.int32()).buffers()[1]
    text = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff")])
    batch = pa.RecordBatch.from_pydict({"id": [1], "bad": text})

    with pytest.raises(UnsupportedOperationError, match=r"Column 'bad' .* leave it out"):
        batch_to_rows(batch)

    assert batch_to_rows(batch.select(["id"])) == [{"id": 1}]


@pytest.mark.spec("cli.md#pages")
def test_lists_print_the_page_token_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    for output, written in (
        (RowsOutput.TEXT, "a.b\n"),
        (RowsOutput.CSV, "table\na.b\n"),
        (RowsOutput.JSONL, '{"table": "a.b"}\n'),
    ):
        print_page(output, "tables", ["table"], [("a.b",)], "next")
        shown = capsys.readouterr()
        assert written in shown.out
        assert "--page-token" not in shown.out
        assert "--page-token next" in shown.err


@pytest.mark.parametrize("output", ["csv", "jsonl"])
def test_commands_without_rows_have_no_csv(output: str) -> None:
    done = CliRunner().invoke(app, ["table", "count", "hive", "a.b", "--output", output])

    assert done.exit_code == 2


def test_json_lines_have_one_object_per_row(capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[dict[str, Any]] = [{"id": 1, "text": "two\nlines"}, {"id": 2, "text": None}]

    print_data(RowsOutput.JSONL, ["id", "text"], rows)

    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == rows


# -- empty lists -----------------------------------------------------------------------------------


def test_an_empty_list_is_stated_in_a_terminal_and_empty_elsewhere(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def shown() -> str:
        return capsys.readouterr().out

    def in_text() -> None:
        print_page(RowsOutput.TEXT, "tables", ["table"], [], None)
        print_list(RowsOutput.TEXT, ["a"], [], "migrations")
        print_data(RowsOutput.TEXT, ["a", "b"], [])

    in_text()
    assert shown() == ""
    stated = [line for line in shown_at_terminal(in_text).splitlines() if line.startswith("(")]
    assert stated == ["(no tables)", "(no migrations)", "(no rows)"]
    print_page(RowsOutput.JSON, "tables", ["table"], [], None)
    assert json.loads(shown()) == {"tables": [], "page_token": None}
    print_page(RowsOutput.CSV, "tables", ["table"], [], None)
    assert shown() == "table\n"
    print_page(RowsOutput.JSONL, "tables", ["table"], [], None)
    assert shown() == ""


# -- types -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        (pa.int64(), "bigint"),
        (pa.uint8(), "tinyint unsigned"),
        (pa.float32(), "float"),
        (pa.float64(), "double"),
        (pa.large_string(), "string"),
        (pa.dictionary(pa.int32(), pa.string()), "string"),
        (pa.decimal128(10, 2), "decimal(10,2)"),
        (pa.decimal256(40, 0), "decimal(40,0)"),
        (pa.timestamp("us"), "timestamp(us)"),
        (pa.timestamp("ms", "Europe/Berlin"), "timestamp(ms, Europe/Berlin)"),
        (pa.time64("ns"), "time(ns)"),
        (pa.duration("s"), "duration(s)"),
        (pa.date32(), "date"),
        (pa.binary(16), "binary(16)"),
        (pa.list_(pa.float32(), 128), "float[128]"),
        (pa.list_(pa.struct([("a", pa.int32())])), "array<struct<a: int>>"),
        (pa.map_(pa.string(), pa.decimal128(5, 1)), "map<string, decimal(5,1)>"),
        (pa.json_(), "string (arrow.json)"),
    ],
    ids=str,
)
def test_arrow_types_are_formatted_as_sql(kind: pa.DataType, written: str) -> None:
    assert sql_type(kind) == written


@pytest.mark.parametrize("sample", STORED, ids=lambda each: each.name)
def test_a_printed_schema_can_be_read_again(sample: Sample) -> None:
    [expected] = schema = pa.schema([sample.field])
    printed = json.loads(json.dumps(schema_to_json(schema, exact=True).to_dict()))

    [found] = schema_from_json(printed)

    assert schema_to_json(pa.schema([found]), exact=True).to_dict() == printed
    if "extension<" not in str(expected.type):
        assert found.type == expected.type


# -- what a catalog says does not act on the terminal ----------------------------------------------


@pytest.mark.parametrize("hostile", ESCAPES.values(), ids=ESCAPES)
def test_terminal_escapes_and_bidirectional_marks_are_escaped(
    hostile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_result(Output.TEXT, f"{hostile} dropped", {})
    print_data(RowsOutput.TEXT, [hostile], [{hostile: hostile}])
    parts: list[Table | str] = [
        hostile,
        key_value_table({hostile: [hostile]}),
        make_table([hostile], []),
    ]
    print_parts(Output.TEXT, {}, parts)
    message(hostile)
    with log_messages():
        logging.getLogger("elsewhere").warning("%s", hostile)
    said = "".join(capsys.readouterr())
    assert not ACTING & set(said)
    assert printable(hostile) in said


@pytest.mark.parametrize("hostile", ESCAPES.values(), ids=ESCAPES)
def test_json_keeps_text_and_escapes_what_acts_on_a_terminal(hostile: str) -> None:
    said = to_json({hostile: hostile})
    assert not ACTING & set(said)
    assert json.loads(said) == {hostile: hostile}


def test_other_text_is_printed_unchanged() -> None:
    for text in ("sales.orders", "été 日本 🎉 שלום", "two\nlines\tand a tab", "C:\\x1b"):
        assert printable(text) == text


@pytest.mark.parametrize(
    "secret",
    [
        "jdbc:mysql://ann:hunter2@db/x",
        "token=hunter2",
        "Authorization: Bearer hunter2hunter2",
        "dapi0123456789abcdef0123456789abcdef",
    ],
)
def test_no_secret_of_a_failure_is_in_the_log_file(tmp_path: Path, secret: str) -> None:
    logger = logging.getLogger("lance_bridge_migrate.run")
    with log_file(tmp_path) as path:
        try:
            raise ValueError(secret)
        except ValueError:
            logger.exception("table sales.orders failed: %s", secret)
    text = path.read_text()
    assert "ValueError" in text
    assert "sales.orders" in text
    assert secret not in text
    assert "hunter2" not in text


# -- values as the installed program prints them ---------------------------------------------------


def _table(samples: list[Sample]) -> pa.Table:
    """Return the first and the last value of each sample, which is null."""
    fields = [each.field.with_name(f"c{number}") for number, each in enumerate(samples)]
    arrays = [pa.concat_arrays([each.array[:1], each.array[-1:]]) for each in samples]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


@pytest.mark.servers
def test_values_of_extension_types_are_printed(lake: Lake) -> None:
    assert len(CHOSEN) == len(NAMES)
    name = lake.create("t", _table(CHOSEN))
    printed = {}
    for output in ("text", "json", "csv"):
        done = program("table", "head", "prod", name, "--output", output)
        assert (done.returncode, done.stderr) == (0, "")
        printed[output] = done.stdout
    assert ID in printed["text"]
    first = {f"c{number}": each.values[0] for number, each in enumerate(CHOSEN)}
    assert json.loads(printed["json"]) == [first, dict.fromkeys(first)]
    rows = list(csv.DictReader(io.StringIO(printed["csv"])))
    is_text = [isinstance(each, str) for each in first.values()]
    cells = [
        cell if text else json.loads(cell)
        for text, cell in zip(is_text, rows[0].values(), strict=True)
    ]
    assert cells == list(first.values())
    assert set(rows[1].values()) == {""}

"""Where output goes: full disks, closed pipes and encodings, for each command and format."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from lance_bridge.exit_codes import FAILED, MISUSED, PIPE_CLOSED
from lance_bridge_cli import main
from lance_bridge_cli.streams import OutputError, checked_streams

from .conftest import Lake
from .program import PROGRAM, at_terminal

pytestmark = [pytest.mark.quick, pytest.mark.spec("cli.md#output", "cli.md#exit-codes")]

FULL = "lance-bridge: standard output cannot be written: No space left on device\n"
NARROW = ("cp1252", "ascii", "latin-1")
"""Encodings without most characters, such as those of pipes on Windows."""
NAME, PLACE = "été-日本", "/données/日本"
FORMATS = ("text", "json", "jsonl", "csv")
WITHOUT_CATALOG = [
    ["--help"],
    ["--version"],
    ["table", "--help"],
    ["table", "head", "--help"],
    ["migrate", "convert", "--help"],
    *(["catalogs", "list", "--output", each] for each in FORMATS),
    *(["catalogs", "properties", "hive", "--output", each] for each in (*FORMATS, "markdown")),
    *(["config", "show", "--output", each] for each in FORMATS),
    ["config", "default"],
]
"""Commands that print a result, and call no catalog."""


@dataclass
class Ended:
    """A command that has ended: its exit code, and what it wrote, decoded."""

    code: object
    stdout: str
    stderr: str


def run_main(
    arguments: Sequence[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    stdout: io.BytesIO | io.BufferedWriter | None = None,
    stderr: io.BytesIO | io.BufferedWriter | None = None,
    encoding: str = "utf-8",
) -> Ended:
    """Run the program in this process, with streams of an encoding that raise for what it lacks."""
    out, error = stdout or io.BytesIO(), stderr or io.BytesIO()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["lance-bridge", *arguments])
        streams = [io.TextIOWrapper(each, encoding) for each in (out, error)]
        patch.setattr(sys, "stdout", streams[0])
        patch.setattr(sys, "stderr", streams[1])
        with pytest.raises(SystemExit) as end:
            main()
        sys.stderr.flush()
        texts = [_written(buffer, encoding) for buffer in (out, error)]
        for each in streams:
            each.detach()  # which keeps its buffer open
    return Ended(end.value.code, *texts)


def _written(stream: io.BufferedIOBase, encoding: str) -> str:
    return stream.getvalue().decode(encoding) if isinstance(stream, io.BytesIO) else ""


@pytest.fixture
def configured(config: Path) -> Path:
    """A configuration file whose catalog has names that few encodings have."""
    catalogs = {NAME: {"impl": "hive", "uri": "thrift://localhost:1", "root": PLACE}}
    content = {"default": NAME, "catalogs": catalogs}
    config.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    return config


# -- writes that fail ------------------------------------------------------------------------------


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize("arguments", WITHOUT_CATALOG, ids=" ".join)
def test_a_full_disk_is_one_line_and_an_exit_code(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = run_main(arguments, monkeypatch, stdout=full)
    assert (ended.code, ended.stderr) == (FAILED, FULL)


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize("arguments", WITHOUT_CATALOG, ids=" ".join)
def test_a_closed_pipe_is_an_exit_code_without_a_message(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        ended = run_main(arguments, monkeypatch, stdout=closed)
    assert (ended.code, ended.stderr) == (PIPE_CLOSED, "")


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["table", "list", "nothing"], FAILED), (["table", "lst"], MISUSED), (["--version"], 0)],
    ids=["error", "usage", "result"],
)
def test_standard_error_that_cannot_be_written_changes_no_exit_code(
    arguments: list[str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = run_main(arguments, monkeypatch, stderr=full)
    assert ended.code == code


def test_the_quickstart_reports_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = run_main(["quickstart", str(tmp_path / "q")], monkeypatch, stdout=full)
    assert (ended.code, ended.stderr) == (FAILED, FULL)
    assert not (tmp_path / "q").exists()


@pytest.mark.parametrize(
    ("redirected", "code", "said"),
    [
        ("> /dev/full", FAILED, FULL),
        ("> /dev/full 2> /dev/full", FAILED, ""),
        ("| true", PIPE_CLOSED, ""),
        (">&-", FAILED, "lance-bridge: standard output cannot be written: Bad file descriptor\n"),
        ("2>&-", 0, ""),
    ],
)
def test_the_program_ends_without_a_traceback(redirected: str, code: int, said: str) -> None:
    command = f"{PROGRAM} --help {redirected}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == said
    assert done.returncode == code


@pytest.mark.parametrize("length", [1, 100_000], ids=["buffered", "longer than the buffer"])
def test_each_write_to_a_full_disk_fails(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("wb") as full:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(full))
        with pytest.raises(SystemExit) as end:
            _print_repeatedly("x" * length)
    assert end.value.code == FAILED


@checked_streams()
def _print_repeatedly(text: str) -> None:
    for _ in range(3):
        with pytest.raises(OutputError, match="No space left"):
            print(text, flush=True)
    print(text)


def test_standard_error_is_written_again_after_a_write_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    capacity = os.write(writer, b"." * (16 << 20))
    with os.fdopen(reader, "rb") as read, os.fdopen(writer, "wb") as full:
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(full, line_buffering=True))
        with checked_streams():
            print("while the pipe is full", file=sys.stderr)
            assert read.read(capacity) == b"." * capacity
            print("afterwards", file=sys.stderr)
        os.set_blocking(reader, False)
        assert read.read().splitlines()[-1] == b"afterwards"


# -- encodings -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize("encoding", NARROW)
@pytest.mark.parametrize("arguments", WITHOUT_CATALOG, ids=" ".join)
def test_what_an_encoding_lacks_is_escaped(
    arguments: list[str], encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unicode = run_main(arguments, monkeypatch)
    narrow = run_main(arguments, monkeypatch, encoding=encoding)
    assert (narrow.code, narrow.stderr) == (0, "") == (unicode.code, unicode.stderr)
    if arguments[-1] in ("json", "jsonl"):
        assert _values(narrow.stdout) == _values(unicode.stdout)
    elif "--help" not in arguments:  # boxes are drawn with other characters
        assert _escaped(narrow.stdout) == _escaped(unicode.stdout)


def _values(text: str) -> list[Any]:
    decoder, values, text = json.JSONDecoder(), [], text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        values.append(value)
        text = text[end:].lstrip()
    return values


def _escaped(text: str) -> bytes:
    return text.encode("ascii", "backslashreplace")


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize("encoding", NARROW)
def test_json_of_any_encoding_has_the_same_values(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = run_main(["config", "show", "-o", "json"], monkeypatch, encoding=encoding)
    found = json.loads(ended.stdout)
    assert found["default"] == NAME
    assert found["catalogs"][NAME]["root"]["value"] == PLACE
    lines = run_main(["config", "show", "-o", "jsonl"], monkeypatch, encoding=encoding).stdout
    assert PLACE in [json.loads(line)["value"] for line in lines.splitlines()]


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize("encoding", NARROW)
def test_errors_are_escaped_for_their_encoding(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = run_main(["table", "list", "日本-été"], monkeypatch, encoding=encoding)
    assert (ended.code, ended.stdout) == (FAILED, "")
    assert "There is no catalog '\\u65e5\\u672c-" in ended.stderr
    usage = run_main(["table", "日本"], monkeypatch, encoding=encoding)
    assert usage.code == MISUSED
    assert "\\u65e5" in usage.stderr


@pytest.mark.servers
def test_progress_is_shown_in_any_encoding(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = lake.create("orders")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    for command in (["table", "count"], ["maintain", "compact"]):
        code, shown = at_terminal([*command, "prod", name], "")
        assert code == 0, shown
        assert "Traceback" not in shown


# -- of tables -------------------------------------------------------------------------------------


def of_tables(name: str) -> list[list[str]]:
    """Return commands that read a table, in each format that they have."""
    database = name.partition(".")[0]
    lists = [
        ["table", "list", "prod", database],
        ["table", "head", "prod", name],
        ["table", "query", "prod", name, "--where", "id >= 0"],
        ["table", "schema", "prod", name],
        ["table", "versions", "prod", name],
        ["table", "properties", "get", "prod", name],
        ["ns", "list", "prod"],
        ["ns", "properties", "get", "prod", database],
    ]
    results = [
        ["table", "describe", "prod", name],
        ["table", "count", "prod", name],
        ["table", "location", "prod", name],
        ["ns", "describe", "prod", database],
        ["search", "prod", "orders", "--in", "name"],
        ["doctor", "prod"],
    ]
    return [
        *([*command, "-o", each] for command in lists for each in FORMATS),
        *([*command, "-o", each] for command in results for each in ("text", "json")),
    ]


@pytest.mark.servers
def test_a_full_disk_and_a_closed_pipe_end_every_command_of_tables(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in of_tables(lake.create("orders", season="winter")):
        with Path("/dev/full").open("wb") as full:
            ended = run_main(command, monkeypatch, stdout=full)
        assert (ended.code, ended.stderr) == (FAILED, FULL), command
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "wb") as closed:
            ended = run_main(command, monkeypatch, stdout=closed)
        assert (ended.code, ended.stderr) == (PIPE_CLOSED, ""), command


@pytest.mark.servers
@pytest.mark.parametrize(
    "encoding", [NARROW[0], *(pytest.param(each, marks=pytest.mark.slow) for each in NARROW[1:])]
)
def test_values_of_tables_are_escaped_for_their_encoding(
    lake: Lake, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"id": [1], "日本": ["été 🎉"]})
    for command in of_tables(lake.create("orders", rows, season="été 日本")):
        ended = run_main(command, monkeypatch, encoding=encoding)
        assert (ended.code, ended.stderr) == (0, ""), command
        assert ended.stdout, command
        if command[-1] == "json":
            assert json.loads(ended.stdout) is not None
    head = ["table", "head", "prod", lake.name("orders"), "-o", "json"]
    ended = run_main(head, monkeypatch, encoding=encoding)
    assert json.loads(ended.stdout) == [{"id": 1, "日本": "été 🎉"}]
    csv = run_main([*head[:-1], "csv"], monkeypatch, encoding=encoding).stdout
    assert "\\U0001f389" in csv

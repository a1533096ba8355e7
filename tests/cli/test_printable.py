"""What a catalog says does not act on the terminal, and a log file has no secret."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from rich.table import Table

from lance_bridge_cli.output import (
    Output,
    key_value_table,
    log_messages,
    make_table,
    message,
    print_parts,
    print_result,
    printable,
    to_json,
)
from lance_bridge_cli.rows import RowsOutput, print_data
from lance_bridge_migrate.commands.progress import log_file

pytestmark = [pytest.mark.quick, pytest.mark.spec("cli.md#output")]

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

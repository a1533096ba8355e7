"""What a catalog says does not act on the terminal that it is shown on."""

from __future__ import annotations

import json
import logging

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

"""The formats of entries in Hive Metastore and Glue: what is missing is added, the rest stays."""

from __future__ import annotations

import pytest

from lance_bridge.hive_entries import INPUT_FORMAT, OUTPUT_FORMAT, SERDE, Formats

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#fields-for-other-tools")]

TEXT = "org.apache.hadoop.mapred.TextInputFormat"
SIMPLE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"


@pytest.mark.parametrize(
    ("found", "wanted", "problems"),
    [
        (Formats(), Formats(), ()),
        (
            Formats(None, None, None),
            Formats(),
            ("no input format", "no output format", "no SerDe"),
        ),
        (Formats("", "", ""), Formats(), ("no input format", "no output format", "no SerDe")),
        (
            Formats("a.In", None, "a.SerDe"),
            Formats("a.In", OUTPUT_FORMAT, "a.SerDe"),
            ("no output format",),
        ),
        (Formats("a.In", "a.Out", None), Formats("a.In", "a.Out", SERDE), ("no SerDe",)),
        (Formats(TEXT, "a.Out", SIMPLE), Formats(TEXT, "a.Out", SIMPLE), ()),
        (Formats(INPUT_FORMAT, OUTPUT_FORMAT, SIMPLE), Formats(), ("the SerDe of text files",)),
        (Formats(INPUT_FORMAT, None, "a.SerDe"), Formats(serde="a.SerDe"), ("no output format",)),
    ],
    ids=["ours", "none", "empty", "no output", "no SerDe", "text of others", "earlier", "mixed"],
)
def test_missing_formats_are_added_and_those_of_others_stay(
    found: Formats, wanted: Formats, problems: tuple[str, ...]
) -> None:
    assert (found.completed(), found.problems()) == (wanted, problems)
    assert wanted.completed() == wanted
    assert wanted.problems() == ()


def test_no_tool_takes_an_entry_of_ours_for_text() -> None:
    """By these words, OpenMetadata and others recognise a format in the name of a SerDe."""
    words = ("simple", "csv", "tsv", "json", "parquet", "orc", "avro", "regex", "text")
    names = [name.rpartition(".")[2].lower() for name in (INPUT_FORMAT, SERDE)]
    assert [word for word in words for name in names if word in name] == []

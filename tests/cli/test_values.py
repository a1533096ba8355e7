"""Values of extension types and of times, as the installed program prints them of a real table."""

from __future__ import annotations

import csv
import io
import json

import pyarrow as pa
import pytest
from arrow_values import ID, STORED, Sample

from .conftest import Lake
from .running import program

pytestmark = [pytest.mark.servers, pytest.mark.spec("cli.md#output", "cli.md#table")]

NAMES = ("extension<arrow.uuid>", "extension<arrow.json>", "lance.bfloat16", "timestamp[ns]")
CHOSEN = [each for each in STORED if each.name in NAMES]


def _table(samples: list[Sample]) -> pa.Table:
    """Return the first and the last value of each sample, which is null."""
    fields = [each.field.with_name(f"c{number}") for number, each in enumerate(samples)]
    arrays = [pa.concat_arrays([each.array[:1], each.array[-1:]]) for each in samples]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


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

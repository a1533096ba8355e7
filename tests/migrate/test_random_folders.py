"""Random folders of files: what is converted are all rows that were written, or a plan says why."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from migrate.sessions import Scene, failed
from migrate.test_export import open_export
from pyarrow import orc

from .places import avro_file

pytestmark = [pytest.mark.slow, pytest.mark.spec("migration.md#the-second-reader")]

BATCHES, FOLDERS = 20, 10
"""A batch has to end within the seconds that a session gives to one test."""
TEXTS = ("plain", "a,b", 'say "hi", ok', "two\nlines", "café", "", "C:\\", " spaces ", "O'Neil",
         "01", "日本", 'ends with "', "tab\there", "NULL", None)  # fmt: skip
EASY = ("plain", "x", "O'Neil", "01", "some words")
FORMATS = ("parquet", "orc", "csv", "json")
Row = dict[str, Any]


@dataclass
class Folder:
    """A folder, and all rows that were written to it."""

    path: Path
    format: str
    read_options: dict[str, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.path.name


def make_folder(random: random.Random, path: Path, formats: Sequence[str] = FORMATS) -> Folder:
    """Write a folder of up to four files, some of which are odd."""
    folder = Folder(path, random.choice(formats))
    path.mkdir(parents=True)
    if folder.format == "csv":
        folder.read_options["header"] = "true"
    elif folder.format in ("parquet", "orc") and random.random() < 0.4:
        folder.read_options["mergeSchema"] = "true"
    is_easy = random.random() < 0.4
    ids = iter(range(1000))
    for number in range(random.randint(1, 4)):
        rows = [_row(next(ids), random, is_easy=is_easy) for _ in range(random.randint(1, 6))]
        if not is_easy:
            rows = _changed(rows, random, number)
        _write(folder, f"part-{number}.{folder.format}", rows, random, is_easy=is_easy)
    if random.random() < 0.2:
        name = random.choice((f"_old.{folder.format}", f".x.{folder.format}"))
        _write(folder, name, [_row(next(ids), random, is_easy=True)], random, is_easy=True)
    if random.random() < 0.15:
        (path / "README.md").write_text("Nothing to see\n")
    if random.random() < 0.3:
        (path / "_SUCCESS").write_bytes(b"")
    return folder


def _row(id: int, random: random.Random, *, is_easy: bool) -> Row:
    row: Row = {"id": id, "text": random.choice(EASY if is_easy else TEXTS)}
    row["number"] = random.randint(-5, 5)
    row["nested"] = {"a": id, "list": [{"b": random.choice(EASY)}]}
    return row


def _changed(rows: list[Row], random: random.Random, number: int) -> list[Row]:
    """Return the rows of one file with other columns than those of the others, at times."""
    change = random.choice(("", "", "", "add", "drop", "rename", "field", "retype", "long"))
    for row in rows if number else ():
        if change == "add":
            row["more"] = f"more {row['id']}"
        elif change == "drop":
            del row["number"]
        elif change == "rename":
            row["renamed"] = row.pop("number")
        elif change == "field":
            row["nested"]["list"][0]["new"] = row["id"] / 2
        elif change == "retype":
            row["number"] = f"n{row['number']}"
        elif change == "long":
            row["number"] += 2**40
    return rows


def _write(
    folder: Folder, name: str, rows: list[Row], random: random.Random, *, is_easy: bool
) -> None:
    folder.rows += rows
    path = folder.path / name
    if folder.format in ("parquet", "orc"):
        table = pa.Table.from_pylist(rows)
        if "number" in table.schema.names and max(map(_size, rows)) < 2**31:
            table = _with_int32(table)
        if folder.format == "orc" and pa.null() in table.schema.types:  # ORC has no such type
            types = [pa.string() if each == pa.null() else each for each in table.schema.types]
            table = table.cast(pa.schema([*zip(table.schema.names, types, strict=True)]))
        pq.write_table(table, path) if folder.format == "parquet" else orc.write_table(table, path)
    elif folder.format == "avro":
        path.write_bytes(avro_file(rows))
    elif folder.format == "csv":
        path.write_bytes(_csv(rows, random, is_easy=is_easy))
    else:
        path.write_bytes(_json(folder, rows, random, is_easy=is_easy))


def _size(row: Row) -> int:
    value = row.get("number", 0)
    return abs(value) if isinstance(value, int) else 0


def _with_int32(table: pa.Table) -> pa.Table:
    position = table.schema.get_field_index("number")
    if not pa.types.is_integer(table.schema.field(position).type):
        return table
    return table.set_column(position, "number", table["number"].cast(pa.int32()))


def _csv(rows: list[Row], random: random.Random, *, is_easy: bool) -> bytes:
    """Return rows with quotes where they are needed, and for texts that are empty."""
    for row in rows:
        row.pop("nested")
    names = list(rows[0])
    lines = [",".join(names)]
    for row in rows:
        values = [_csv_value(row[name]) for name in names]
        if not is_easy and random.random() < 0.05:
            row["lost"] = "EXTRA"
            values.append("EXTRA")
        lines.append(",".join(values))
    text = "\n".join(lines) + "\n"
    if not is_easy and random.random() < 0.2 and "日" not in text:
        return text.encode("latin-1")
    return text.encode()


def _csv_value(value: Any) -> str:
    if value is None:
        return ""
    text = str(value)
    if not text or any(character in text for character in ',"\n\\'):
        return '"' + text.replace('"', '""') + '"'
    return text


def _json(folder: Folder, rows: list[Row], random: random.Random, *, is_easy: bool) -> bytes:
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    odd = "" if is_easy else random.choice(("", "", "", "broken", "list", "latin"))
    text = "\n".join(lines) + "\n"
    if odd == "broken":
        folder.rows.append({"id": "broken"})
        text += '{"id": 1, "text": "cut\n'
    elif odd == "list":
        text = json.dumps(rows, indent=1, ensure_ascii=False)
    elif odd == "latin" and "日" not in text:
        return text.encode("latin-1")
    return text.encode()


def settled(rows: list[Row]) -> Counter[str]:
    """Return rows that can be compared: without nulls, and numbers as texts."""
    return Counter(json.dumps(_settled(row), sort_keys=True) for row in rows)


def _settled(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _settled(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_settled(each) for each in value]
    is_whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if is_whole else str(value)


def is_named(folder: Folder, problem: Any) -> bool:
    """Return whether a blocker names a column, or a file of the folder."""
    return bool(problem.column) or f"{folder.path}/" in problem.text


def source_of(folder: Folder) -> dict[str, Any]:
    """Return a folder as one of the paths of a conversion."""
    return {
        "path": str(folder.path),
        "format": folder.format,
        "table": folder.name,
        "read_options": folder.read_options,
    }


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(BATCHES))
def test_all_rows_of_a_random_folder_are_converted_or_the_plan_names_what_is_not(
    scene: Scene, seed: int
) -> None:
    folders = [*_folders(scene.directory / "folders", seed)]
    paths = [*map(source_of, folders)]
    with scene.run("convert") as run:
        plan = run.plan(paths=paths, namespace=[scene.target])
        blocked = {item.target[-1]: item.blockers for item in plan.blocked}
        for each in folders:
            if each.name in blocked:
                named = [is_named(each, problem) for problem in blocked[each.name]]
                assert any(named), (each, blocked[each.name])
        converted = [each for each in folders if each.name not in blocked]
        assert converted, blocked
        assert blocked, "none is odd"
        problems = failed(run.execute(verify="checksums", skip_blocked=True))
        assert problems == [], problems
    for each in converted:
        found = scene.dataset(each.name).to_table().to_pylist()
        assert settled(found) == settled(each.rows), each
    require_equal_after_export(scene, [each.name for each in converted])


def require_equal_after_export(scene: Scene, names: Sequence[str]) -> None:
    """Export tables, and convert the files again: columns, types and rows are the same."""
    out = scene.directory / "out"
    with open_export(scene, directory=str(out)) as run:
        assert failed(run.execute()) == []
    paths = [
        {"path": str(out / scene.target / name), "format": "parquet", "table": f"{name}_again"}
        for name in names
    ]
    with scene.run("convert") as run:
        plan = run.plan(paths=paths, namespace=[scene.target])
        assert {problem for item in plan.items for problem in item.problems} == set()
        problems = failed(run.execute(verify="sample"))
        assert problems == [], problems
    for name in names:
        one, other = (scene.dataset(each).to_table() for each in (name, f"{name}_again"))
        assert one.schema.equals(other.schema), name
        assert settled(one.to_pylist()) == settled(other.to_pylist()), name


def _folders(place: Path, seed: int) -> Iterator[Folder]:
    chosen = random.Random(seed)
    for number in range(FOLDERS):
        yield make_folder(chosen, place / f"f{number}")

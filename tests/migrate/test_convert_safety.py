"""Conversions lose no rows: if they are killed or stopped, beside writers, and of random folders.

Of random folders, what is converted are all rows that were written, or a plan says why.
"""

from __future__ import annotations

import json
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, cycle, product
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    ErrorCode,
    InvalidTableStateError,
    ServiceUnavailableError,
)
from migrate.sessions import (
    Died,
    Scene,
    again,
    each_file_by_itself,
    failed,
    interrupted,
    moments,
    replaced,
    rows_of,
)
from migrate.test_convert import orders
from migrate.test_export import open_export
from pyarrow import orc

from lance_bridge.tables import dropping
from lance_bridge_migrate import State
from lance_bridge_migrate.migrations import loading
from lance_bridge_migrate.record import leftover_messages
from lance_bridge_migrate.report import report_of

from .places import avro_file, counts_of, error_of, files

pytestmark = pytest.mark.servers


@pytest.mark.spec("migration.md#convert")
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_any_moment_and_run_again_each_row_exists_once(scene: Scene, every: int) -> None:
    """A conversion is resumed or undone; at each moment, where ``every`` is 1, both."""
    database = scene.database()
    scene.sql(
        f"CREATE TABLE {database}.orders USING parquet AS "
        "SELECT id, concat('row ', id) AS name FROM range(0, 5, 1, 1)"
    )
    source = files(scene.directory / "raw")
    with scene.run("convert") as run:
        run.plan(
            include=[f"{database}.*"],
            namespace=[scene.target],
            indices=[{"column": "id", "kind": "BTREE"}],
        )
        with moments() as passed:
            assert failed(run.execute(parallelism=1)) == []
        expected = rows_of(scene.dataset("orders").to_table())
        versions = len(scene.dataset("orders").versions())
        with moments() as undoing:
            assert run.undo().state is State.UNDONE
        assert passed() > 15
        assert undoing() > 8
        assert passed() > undoing()
        at, ways = range(0, passed(), every), (True, False)
        for moment, is_resumed in product(at, ways) if every == 1 else zip(at, cycle(ways)):
            again(run)
            with pytest.raises(Died), moments(moment):
                run.execute(parallelism=1)
            if is_resumed:  # or else it is undone from where it is
                assert failed(run.execute(parallelism=1)) == [], moment
                assert rows_of(scene.dataset("orders").to_table()) == expected, moment
                assert len(scene.dataset("orders").versions()) == versions, moment
            with suppress(Died), moments(moment % undoing()):
                run.undo()
            assert run.undo().state is State.UNDONE, moment
            assert scene.tables() == [], moment
            assert scene.files() == [], moment
    assert files(scene.directory / "raw") == source


@pytest.mark.spec("migration.md#convert")
def test_rows_and_branches_of_others_are_not_undone(scene: Scene) -> None:
    database = orders(scene)
    with scene.converting(database) as run:
        assert failed(run.execute()) == []
        made = scene.dataset("orders")
        lance.dataset(made.uri).create_branch("other", made.version)
        with pytest.raises(InvalidTableStateError, match="branch other"):
            run.undo()
        lance.dataset(made.uri).branches.delete("other")
        scene.dataset("orders").delete("id = 1")
        with pytest.raises(InvalidTableStateError, match="delete rows of other writers"):
            run.undo()
    assert scene.dataset("orders").count_rows() == 29


def _failing(_: object) -> Callable[..., None]:
    def fails(*_: object) -> None:
        raise ServiceUnavailableError("The catalog does not answer")

    return fails


@pytest.mark.spec("migration.md#convert")
def test_files_that_others_took_over_are_not_deleted(scene: Scene) -> None:
    database = orders(scene)
    with scene.converting(database) as run:
        assert failed(run.execute()) == []
        dataset = scene.dataset("orders")
        before = dataset.count_rows()
        with replaced(dropping, "drop_with_data", _failing):
            assert "does not answer" in failed(run.undo())[0]
        with scene.place.connect() as namespace:
            request = api.DeregisterTableRequest(id=[scene.target, "orders"])
            namespace.deregister_table(request)
        lance.write_dataset(dataset.to_table().slice(0, 1), dataset.uri, mode="append")
        [refused] = failed(run.undo())
        assert "undoing could delete rows of other writers" in refused
    assert lance.dataset(dataset.uri).count_rows() == before + 1


@pytest.mark.spec("migration.md#convert")
def test_a_source_that_changed_while_a_run_was_cut_off_is_refused(scene: Scene) -> None:
    database = orders(scene)
    with scene.converting(database) as run:
        for moment in count():
            with pytest.raises(Died), moments(moment):
                run.execute(parallelism=1)
            if "load" in run.migration.record().items[f"{database}/orders"].steps:
                break
        scene.sql(f"ALTER TABLE {database}.orders ADD COLUMNS (more INT)")
        [refused] = failed(run.execute())
        assert "plan again" in refused
        assert run.undo().state is State.UNDONE
    assert scene.tables() == []


@pytest.mark.spec("migration.md#convert")
def test_sources_that_are_away_fail_their_verification_and_are_verified_again(
    scene: Scene,
) -> None:
    database, raw = scene.database(), scene.directory / "raw"
    for stored in ("rcfile", "textfile", "parquet"):
        scene.sql(f"CREATE TABLE {database}.h_{stored} (id BIGINT) STORED AS {stored}")
        scene.sql(f"INSERT INTO {database}.h_{stored} SELECT id FROM range(5)")
    with scene.run("convert") as run:
        run.plan(include=[f"{database}.*"], namespace=[scene.target])
        assert failed(run.execute(verify="none")) == []
        away = raw.rename(raw.with_name("away"))
        record = run.execute(verify="counts")
        errors = {name: each.error for name, each in record.items.items() if each.error}
        assert {name.split("_")[-1] for name in errors} == {"rcfile", "textfile", "parquet"}
        assert all(str(raw) in each.message or "exist" in each.message for each in errors.values())
        away.rename(raw)
        assert failed(run.execute(verify="counts")) == []


@pytest.mark.spec("migration.md#convert")
def test_a_source_that_changed_since_the_plan_is_refused(scene: Scene) -> None:
    database = orders(scene)
    with scene.converting(database) as run:
        scene.sql(f"ALTER TABLE {database}.orders ADD COLUMNS (more INT)")
        with pytest.raises(ConcurrentModificationError, match="plan again"):
            run.execute()
        run.plan(include=[f"{database}.*"], namespace=[scene.target])
        scene.sql(f"DROP TABLE {database}.orders")
        with pytest.raises(ConcurrentModificationError, match="plan again"):
            run.execute()
    assert scene.tables() == []


@pytest.mark.spec("migration.md#convert")
@pytest.mark.slow
def test_of_several_at_once_one_fails_and_the_others_are_done(scene: Scene) -> None:
    database = scene.database()
    for name in "abcde":
        lists = "array(1.5F, 2.5F, 3.5F)" if name == "c" else "array(1.5F, CAST(id AS FLOAT))"
        scene.sql(
            f"CREATE TABLE {database}.{name} USING parquet AS "
            f"SELECT id, '{name}' AS name, {lists} AS vector FROM range(0, 20, 1, 2)"
        )
    with scene.converting(database, vectors={"vector": 2}) as run:
        for _ in range(2):  # the next run tries it again
            record = run.execute(parallelism=4)
            assert counts_of(record) == {"done": 5, "failed": 1}
            wrong = error_of(record, f"{database}/c")
            assert wrong.code == int(ErrorCode.INVALID_INPUT)
            assert "length is not 2" in wrong.message
        for name in "abde":
            found = scene.dataset(name).to_table()
            assert sorted(found["id"].to_pylist()) == list(range(20))
            assert set(found["name"].to_pylist()) == {name}
        assert scene.dataset("c").count_rows() == 0
        assert run.undo().state is State.UNDONE
    assert scene.files() == []


@pytest.mark.spec("migration.md#convert")
@pytest.mark.slow
def test_ctrl_c_cancels_the_jobs_of_spark_and_the_next_run_continues(scene: Scene) -> None:
    database, files_of_source = scene.database(), 40
    scene.sql(
        f"CREATE TABLE {database}.t USING parquet AS "
        f"SELECT id FROM range(0, 80, 1, {files_of_source})"
    )

    def written() -> list[str]:
        return [each for each in scene.files() if "/data/" in each]

    with scene.converting(database) as run, each_file_by_itself(scene.spark):
        with interrupted(lambda: bool(written())):
            run.execute()
        assert 0 < len(written()) < files_of_source, "it did not wait for all of them"
        record = run.migration.record()
        assert record.runs[-1].ended is not None
        assert counts_of(record) == {"done": 1, "started": 1}
        assert failed(record) == []
        assert scene.dataset("t").versions()[-1]["version"] == 1
        assert failed(run.execute(verify="checksums")) == []
        assert sorted(scene.dataset("t").to_table()["id"].to_pylist()) == list(range(80))
        assert run.undo().state is State.UNDONE
    assert scene.files() == [], "also those of the tasks that were stopped"


@pytest.mark.spec("migration.md#convert")
def test_files_and_tables_of_others_are_left_alone(scene: Scene) -> None:
    database = orders(scene)
    occupied = scene.directory / "lance" / f"{scene.target}.db" / "orders.lance"
    with scene.converting(database) as run:
        with run.migration.journal(), pytest.raises(ConcurrentModificationError, match="being run"):
            run.execute()
        occupied.mkdir(parents=True)
        (occupied / "other").write_text("x")
        assert failed(run.execute(verify="checksums")) == []
        assert scene.dataset("orders").uri != str(occupied)
        assert [each.name for each in occupied.iterdir()] == ["other"]
        plan = run.plan(include=[f"{database}.*"], namespace=[scene.target])
        assert "already used by a Lance table" in plan.blocked[0].blockers[0].text
        # Lance's own tables are none to be converted.
        plan = run.plan(include=[f"{scene.prefix}_*"], namespace=[scene.target], name="{table}_2")
        assert [item.source for item in plan.to_do] == [(database, "orders")]
        shown = f"1 views and Lance tables are skipped: {scene.target}.orders"
        assert shown in plan.notes


@pytest.mark.spec("migration.md#convert")
def test_a_table_that_others_write_to_before_the_load_is_not_touched(scene: Scene) -> None:
    database = orders(scene)
    with scene.converting(database) as run:

        def other_first(call: Any) -> Any:
            def between(table: Any, rows: Any) -> Any:
                lance.write_dataset(pa.table({"other": [1]}), table.location)
                return call(table, rows)

            return between

        with replaced(loading, "write_first", other_first):
            record = run.execute()
        assert "another writer" in failed(record)[0]
        assert "another writer has written" in failed(run.execute())[0]
        with pytest.raises(InvalidTableStateError, match="delete rows of other writers"):
            run.undo()
    assert scene.dataset("orders").to_table().to_pylist() == [{"other": 1}]


@pytest.mark.spec("migration.md#convert")
def test_files_of_failed_tasks_are_named_with_the_command_for_them(scene: Scene) -> None:
    database = scene.database()
    scene.sql(f"CREATE TABLE {database}.t USING parquet AS SELECT id FROM range(5)")

    def leaving_a_file(append: Any) -> Any:
        def leave_and_append(*arguments: Any, **more: Any) -> Any:
            [data] = (scene.directory / "lance").glob("*/*/_versions")
            (data.parent / "data").mkdir(exist_ok=True)
            (data.parent / "data" / f"{uuid.uuid4()}.lance").write_bytes(b"cut off")
            return append(*arguments, **more)

        return leave_and_append

    with scene.converting(database) as run, replaced(loading, "append", leaving_a_file):
        record = run.execute(verify="checksums")
    assert record.state is State.DONE, failed(record)
    state = record.items[f"{database}/t"]
    assert (state.facts["orphaned_files_left"], state.facts["orphaned_bytes_left"]) == (1, 7)
    command = f"lance-bridge maintain clean-up hive {scene.target}.t --older-than 7d"
    [text] = leftover_messages(state, record.plan.target)
    assert text.endswith(command)
    report = report_of(record)
    assert [each.orphaned_bytes_left for each in report.items] == [None, 7]
    assert [each.text for each in report.problems] == [text]


# -- random folders --------------------------------------------------------------------------------


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


@pytest.mark.slow
@pytest.mark.spec("migration.md#the-second-reader")
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

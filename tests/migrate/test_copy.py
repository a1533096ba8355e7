"""Tables are copied from one catalog into another with all versions; data is compared by row."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import numpy as np
import pyarrow as pa
import pytest
from arrow_types import CASES, SHAPES, TypeCase, rows_of
from lance_namespace import RegisterTableRequest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    ServiceUnavailableError,
)
from migrate.sessions import Died, die_before, failed, moments
from servers.glue_server import ACCOUNT, GlueServer
from servers.hive_entries import raw_client

from lance_bridge import blobs
from lance_bridge.dataset import BATCH_BYTES
from lance_bridge.storage import RESERVED_FILE, TableFiles, TableStorage
from lance_bridge_migrate import Level, State, verify
from lance_bridge_migrate.migration import Stopped
from lance_bridge_migrate.migrations.copy import copy_files, files_of
from lance_bridge_migrate.migrations.verification import (
    compare,
    read_all,
    read_rows,
    rows_per_batch,
    sizes_of,
)

from .places import (
    Place,
    Run,
    between,
    counts_of,
    error_of,
    files,
    make_managing,
    planned,
    read_by_name,
    register_rows,
    rows,
    select,
)

pytestmark = [pytest.mark.servers, pytest.mark.spec("migration.md#copy", "migration.md#verifying")]

SMALL, LARGE = b"a small blob", b"z" * 100_000 + b"a large blob"
"""Lance stores a small one beside the other values, and a large one in a file of its own."""
KINDS = [
    replace(case, values=(SMALL, b"", LARGE)) for case in CASES if case.name.startswith("blob")
]
BLOB_LEVELS = pytest.mark.parametrize("level", [Level.SAMPLE, Level.CHECKSUMS], ids=str)
NAMES = {Level.SAMPLE: "sample", Level.CHECKSUMS: "values"}
"""The name of the check of values, by level."""
quick = pytest.mark.quick


@pytest.fixture
def source(hive: Place) -> Place:
    """A metastore with a table of three versions, a tag and an index."""
    register_rows(hive, "a")
    place = str(hive.lake / "a.lance")
    lance.write_dataset(rows(300, 3), place, mode="append")
    dataset = lance.dataset(place)
    dataset.tags.create("first", 1)
    dataset.create_scalar_index("id", "BTREE")
    return hive


@pytest.fixture
def target(glue: Place, tmp_path: Path) -> Place:
    """Glue, with a root for new tables."""
    return replace(glue, properties={**glue.properties, "root": str(tmp_path / "copies")})


@pytest.fixture
def copy(target: Place, tmp_path: Path) -> Path:
    """Where the copy of the table comes to lie."""
    return tmp_path / "copies" / f"{target.prefix}.db" / "a.lance"


@pytest.fixture
def run(source: Place, target: Place) -> Iterator[Run]:
    """A migration of that table, which is planned."""
    with copying(source, target) as planned_run:
        yield planned_run


def copying(source: Place, target: Place) -> AbstractContextManager[Run]:
    options = select(source, namespace=[target.prefix])
    return planned("copy", between(source, target), source.migrations, **options)


def test_all_versions_tags_and_indices_are_copied_and_undone(
    source: Place, target: Place, copy: Path
) -> None:
    entries = source.entries()
    with copying(source, target) as run:
        assert [item.rows for item in run.migration.plan().to_do] == [None, 303]
        version = lance.dataset(str(source.lake / "a.lance")).version
        lance.write_dataset(rows(1, 900), str(source.lake / "a.lance"), mode="append")
        before = files(source.lake)
        record = run.execute(verify="checksums")
        assert counts_of(record) == {"done": 2}, record.items
        made = lance.dataset(str(copy))
        assert made.version == version, "what came after the plan is not copied"
        assert len(made.versions()) == version
        assert [each.name for each in made.describe_indices()] == ["id_idx"]
        assert lance.dataset(made.uri, version="first").count_rows() == 3
        assert read_by_name(target, (target.prefix, "a")).num_rows == 303
        assert run.undo().state is State.UNDONE
    assert target.entries() == {}
    assert files(copy.parents[1]) == {}
    assert files(source.lake) == before
    assert source.entries() == entries


def test_tags_of_versions_after_the_plan_are_not_copied(run: Run, lake: Path, copy: Path) -> None:
    origin = lance.write_dataset(rows(1, 900), str(lake / "a.lance"), mode="append")
    origin.tags.create("late", origin.version)
    origin.tags.create("early", 2)
    assert counts_of(run.execute()) == {"done": 2}
    made = lance.dataset(str(copy))
    assert {name: tag["version"] for name, tag in made.tags.list().items()} == {
        "first": 1, "early": 2,
    }  # fmt: skip


def test_a_table_that_got_a_branch_after_the_plan_fails_and_the_branch_is_not_copied(
    source: Place, run: Run, copy: Path
) -> None:
    origin = lance.dataset(str(source.lake / "a.lance"))
    branch = origin.create_branch("dev", origin.version)
    origin.tags.create("of_branch", ("dev", branch.version))
    record = run.execute()
    error = error_of(record, f"{source.prefix}/a")
    assert (error.code, "branches" in error.message) == (14, True)
    assert not any("dev" in path or path.startswith("tree") for path in files(copy))
    with source.connect() as namespace:
        # One that is created while the files are listed is left out.
        table = namespace.tables.load(source.table("a"))
        wanted = files_of(table.files(), origin.version)
    kept = {path for path in wanted if path.startswith(("_refs/", "tree/"))}
    assert kept == {"_refs/tags/first.json"}
    origin.tags.delete("of_branch")
    origin.branches.delete("dev")
    assert counts_of(run.execute(verify="checksums")) == {"done": 2}
    assert run.undo().state is State.UNDONE
    assert files(copy) == {}


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_any_moment_and_run_again_it_is_the_same_copy(
    source: Place, target: Place, run: Run, tmp_path: Path, every: int
) -> None:
    copies = tmp_path / "copies"
    with moments() as passed:
        run.execute(parallelism=1)
    expected = files(copies)
    copied = {v for k, v in files(source.lake).items() if not k.endswith("hint.json")}
    assert copied == {v for k, v in expected.items() if not k.endswith(RESERVED_FILE)}
    run.undo()
    for moment in range(0, passed(), every):
        run.plan_again()
        with pytest.raises(Died), moments(moment):
            run.execute(parallelism=1)
        if moment % 3 or every > 1:
            assert run.execute(verify="checksums").state is State.DONE, moment
            assert files(copies) == expected, moment
        assert run.undo().state is State.UNDONE, moment
        assert files(copies) == {}, moment
        assert target.entries() == {}, moment


@pytest.mark.spec("migration.md#undoing")
def test_killed_while_the_catalog_begins_to_manage_a_copy_it_can_be_undone(
    source: Place, target: Place, tmp_path: Path
) -> None:
    make_managing(target)
    with copying(source, target) as run:
        with pytest.raises(Died), die_before("done", "manage"):
            run.execute()
        assert target.entries()[f"{target.prefix}.a"]["parameters"]["managed_by"] == "impl"
        assert run.undo().state is State.UNDONE
    assert set(target.entries()) == {target.prefix}
    assert files(tmp_path / "copies") == {}


def test_what_others_wrote_to_a_copy_is_not_undone(run: Run, copy: Path) -> None:
    run.execute()
    place = str(copy)
    lance.write_dataset(rows(1, 900), place, mode="append")
    with pytest.raises(InvalidTableStateError, match="which undoing would delete"):
        run.undo()
    assert lance.dataset(place).count_rows() == 304


def test_a_table_that_others_made_in_the_declared_entry_is_neither_overwritten_nor_deleted(
    source: Place, target: Place, run: Run, copy: Path
) -> None:
    for moment in count():
        # It dies again and again, until the entry exists, and none of the data.
        with pytest.raises(Died), moments(moment):
            run.execute(parallelism=1)
        if ".".join(target.table("a")) in target.entries():
            break
    place = str(copy)
    assert not Path(place, "_versions").exists()
    lance.write_dataset(rows(4, 500), place)
    record = run.execute()
    assert "another writer" in str(record.items[f"{source.prefix}/a"].error)
    with pytest.raises(InvalidTableStateError, match="did not copy"):
        run.undo()
    assert lance.dataset(place).to_table()["id"].to_pylist() == rows(4, 500)["id"].to_pylist()


def test_tables_with_branches_are_refused_and_those_that_got_one_are_not_undone(
    source: Place, target: Place, run: Run, copy: Path
) -> None:
    assert counts_of(run.execute()) == {"done": 2}
    made = lance.dataset(str(copy))
    made.create_branch("other", made.version)
    with pytest.raises(InvalidTableStateError, match="branch other"):
        run.undo()
    origin = lance.dataset(str(source.lake / "a.lance"))
    origin.create_branch("dev", origin.version)
    [item] = run.plan_again(namespace=[f"{target.prefix}_2"]).blocked
    assert "branches" in item.blockers[0].text


def test_tables_whose_versions_the_catalog_holds_and_changed_entries_are_refused(
    source: Place, run: Run
) -> None:
    with source.connect() as namespace:
        namespace.manage_table(source.table("a"))
    with pytest.raises(ConcurrentModificationError, match="plan again"):
        run.execute()
    plan = run.plan_again()
    assert "The source catalog manages its versions" in plan.blocked[0].blockers[0].text


@pytest.mark.spec("migration.md#plan")
def test_an_entry_that_is_no_longer_a_lance_table_fails_alone_in_a_later_run(
    source: Place, target: Place
) -> None:
    register_rows(source, "b")
    with copying(source, target) as run:
        with pytest.raises(Died), die_before("started", "entry"):
            run.execute(parallelism=1)
        with raw_client(source.port) as client:
            entry = client.get_table(source.prefix, "b")
            del entry.parameters["table_type"]
            client.alter_table(source.prefix, "b", entry)
        record = run.execute()
        assert counts_of(record) == {"done": 2, "failed": 1}
        error = error_of(record, f"{source.prefix}/b")
        assert (error.code, "plan again" in error.message) == (14, True)


def test_files_of_others_are_neither_copied_nor_deleted(
    source: Place, target: Place, copy: Path
) -> None:
    (source.lake / "a.lance" / "data" / "notes.parquet").write_text("other")
    with copying(source, target) as run:
        assert counts_of(run.execute()) == {"done": 2}
        assert not (copy / "data" / "notes.parquet").exists()
        (copy / "data" / "mine.parquet").write_text("kept")
        assert run.undo().state is State.UNDONE
    assert list(files(copy)) == ["data/mine.parquet"]


def test_a_copy_that_an_entry_of_the_source_is_for_is_not_undone(
    source: Place, run: Run, copy: Path
) -> None:
    run.execute()
    with source.connect() as namespace:
        request = RegisterTableRequest(id=list(source.table("b")), location=str(copy))
        namespace.register_table(request)
    run.undo()
    assert lance.dataset(copy).count_rows() == 303


def test_what_a_link_is_for_is_copied_with_a_warning(
    glue: Place, glue_server: GlueServer, hive: Place, tmp_path: Path
) -> None:
    register_rows(glue, "a", tmp_path / "a.lance")
    linked = {"CatalogId": ACCOUNT, "DatabaseName": glue.prefix, "Name": "a"}
    glue_server.glue.create_table(
        DatabaseName=glue.prefix, TableInput={"Name": "l", "TargetTable": linked}
    )
    target = replace(hive, properties={**hive.properties, "root": str(tmp_path / "copies")})
    with copying(glue, target) as run:
        link = run.migration.plan().to_do[-1]
        assert (link.source[-1], link.rows) == ("l", 3)
        assert "It is a link to" in link.problems[0].text
        assert counts_of(run.execute()) == {"done": 3}
        assert read_by_name(target, (target.prefix, "l")).num_rows == 3


# -- copies ----------------------------------------------------------------------------------------


def _directory(path: Path) -> TableFiles:
    return TableFiles(TableStorage({}), str(path))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of three versions."""
    place = tmp_path / "a.lance"
    for start in (0, 3, 6):
        lance.write_dataset(rows(3, start), str(place), mode="append" if start else "create")
    return place


def _copied(source: Path, target: Path, version: int) -> list[int]:
    """Copy up to a version; return the bytes of each file that was copied."""
    sizes: list[int] = []
    copy_files(
        _directory(source),
        _directory(target),
        files_of(_directory(source), version),
        stopping=threading.Event(),
        advance=sizes.append,
    )
    return sizes


@pytest.mark.quick
def test_versions_up_to_one_are_copied_with_their_rows(table: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.lance"
    _copied(table, target, 2)
    found = lance.dataset(str(target))
    assert [each["version"] for each in found.versions()] == [1, 2]
    assert found.to_table().equals(lance.dataset(str(table), version=2).to_table())


@pytest.mark.quick
def test_only_what_is_missing_or_cut_short_is_copied_again(table: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.lance"
    _copied(table, target, 3)
    whole = files(target)
    assert _copied(table, target, 3) == []
    cut, gone, *_ = sorted((target / "data").iterdir())
    size = cut.stat().st_size + gone.stat().st_size
    cut.write_bytes(cut.read_bytes()[:10])
    gone.unlink()
    assert sum(_copied(table, target, 3)) == size
    assert files(target) == whole
    # The hint is of the source's latest version, and Lance does without.
    assert whole == {k: v for k, v in files(table).items() if not k.endswith("hint.json")}


@pytest.mark.quick
def test_a_file_that_cannot_be_copied_ends_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "a.lance"
    lance.write_dataset(rows(100), str(table), max_rows_per_file=1)
    tried: list[str] = []

    def fail(_: TableFiles, __: TableFiles, path: str) -> None:
        tried.append(path)
        if len(tried) > 1:
            threading.Event().wait(1)  # while the first failure is seen
        raise ServiceUnavailableError("the storage is down")

    monkeypatch.setattr(TableFiles, "copy_from", fail)
    with pytest.raises(ServiceUnavailableError):
        _copied(table, tmp_path / "copy.lance", 1)
    assert len(tried) < 20


@pytest.mark.quick
def test_a_copy_that_is_stopped_shows_no_version(table: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.lance"
    stopping = threading.Event()
    wanted = files_of(_directory(table), 3)
    with pytest.raises(Stopped):
        copy_files(
            _directory(table),
            _directory(target),
            wanted,
            stopping=stopping,
            advance=lambda _: stopping.set(),
        )
    assert not TableStorage({}).has_dataset(str(target))


# -- comparisons -----------------------------------------------------------------------------------

MANY = 5000


def dataset(place: Path, table: pa.Table) -> lance.LanceDataset:
    return lance.write_dataset(table, str(place))


def failed_checks(
    source: pa.Table, target: pa.Table, place: Path, level: Level
) -> list[tuple[str, str]]:
    """Return the checks that failed: their names and columns."""
    checks = [*compare(dataset(place / "one", source), dataset(place / "two", target), level)]
    return [(check.name, check.column) for check in checks if not check.ok]


def changed(at: int) -> pa.Table:
    """Return many rows, of which one has another name."""
    table = rows(MANY)
    names = table["name"].to_pylist()
    names[at] = "another"
    return table.set_column(1, "name", pa.array(names))


@pytest.mark.quick
@pytest.mark.parametrize("level", [Level.COUNTS, Level.SAMPLE, Level.CHECKSUMS])
def test_equal_tables_pass_every_level(tmp_path: Path, level: Level) -> None:
    assert failed_checks(rows(MANY), rows(MANY), tmp_path, level) == []


@pytest.mark.quick
@pytest.mark.parametrize(
    ("target", "level", "noticed"),
    [
        (rows(MANY - 1), Level.COUNTS, [("rows", "")]),
        (rows(MANY).drop_columns("vector"), Level.COUNTS, [("schema", "")]),
        (changed(0), Level.COUNTS, []),
        (changed(0), Level.SAMPLE, [("sample", "name")]),
        (changed(MANY - 1), Level.SAMPLE, [("sample", "name")]),
        (changed(7), Level.SAMPLE, []),
        (changed(7), Level.CHECKSUMS, [("values", "name")]),
        (changed(MANY - 2), Level.CHECKSUMS, [("values", "name")]),
    ],
    ids=lambda each: "" if isinstance(each, pa.Table) else str(each),
)
def test_each_level_notices_what_it_is_for(
    tmp_path: Path, target: pa.Table, level: Level, noticed: list[tuple[str, str]]
) -> None:
    assert failed_checks(rows(MANY), target, tmp_path, level) == noticed


@pytest.mark.quick
def test_empty_tables_are_compared(tmp_path: Path) -> None:
    assert failed_checks(rows(0), rows(0), tmp_path, Level.CHECKSUMS) == []
    assert failed_checks(rows(0), rows(0), tmp_path / "more", Level.SAMPLE) == []


@pytest.mark.quick
def test_levels_include_those_before_them() -> None:
    assert Level.SAMPLE.includes(Level.COUNTS)
    assert not Level.COUNTS.includes(Level.SAMPLE)


# -- NaN -----------------------------------------------------------------------------------------

VALUES = pa.struct([("x", pa.float64()), ("y", pa.list_(pa.float32()))])


NAN = float("nan")


def columns_of(value: float | None, extra: float = 1.0) -> pa.Table:
    """Return columns of many types, each with a value, a null and an extra value."""

    def column(of: pa.DataType, *rows: object) -> pa.Array:
        return pa.array([rows[0], None, *rows[1:]], of)

    half = pa.array([None if v is None else np.float16(v) for v in (value, None, extra)])
    return pa.table(
        {
            "half": half,
            "single": column(pa.float32(), value, extra),
            "double": column(pa.float64(), value, extra),
            "vector": column(pa.list_(pa.float32(), 2), [value, 0.0], [extra, 0.0]),
            "list": column(pa.list_(pa.float64()), [value, None], [extra]),
            "lists": column(pa.large_list(pa.list_(pa.float64())), [[value], []], [[extra]]),
            "struct": column(VALUES, {"x": value, "y": [value]}, {"x": extra, "y": None}),
            "structs": column(pa.list_(VALUES), [{"x": value, "y": []}], [{"x": extra, "y": []}]),
            "map": column(pa.map_(pa.string(), pa.float64()), {"k": value}, {"k": extra}),
            "words": column(pa.float64(), value, extra).dictionary_encode(),
        }
    )


LEVELS = pytest.mark.parametrize("level", [Level.SAMPLE, Level.CHECKSUMS])


@pytest.mark.quick
@LEVELS
def test_tables_with_nan_are_equal_to_their_copies(tmp_path: Path, level: Level) -> None:
    assert failed_checks(columns_of(NAN), columns_of(NAN), tmp_path, level) == []
    other = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    one, two = (pa.table({"x": values}) for values in (np.array([NAN, NAN]), other))
    assert failed_checks(one, two, tmp_path / "payloads", level) == []


@pytest.mark.quick
@LEVELS
@pytest.mark.parametrize("target", [columns_of(0.0), columns_of(NAN, 2.0), columns_of(None)])
def test_differences_beside_nan_are_noticed(tmp_path: Path, target: pa.Table, level: Level) -> None:
    columns = [column for _, column in failed_checks(columns_of(NAN), target, tmp_path, level)]
    assert columns == target.schema.names


@pytest.mark.quick
@LEVELS
def test_lists_are_different_if_they_are_divided_differently(tmp_path: Path, level: Level) -> None:
    one, two = (pa.table({"x": x}) for x in ([[NAN], [1.0, 2.0]], [[NAN, 1.0], [2.0]]))
    name = "sample" if level is Level.SAMPLE else "values"
    assert failed_checks(one, two, tmp_path, level) == [(name, "x")]


@quick
@pytest.mark.parametrize("level", [Level.SAMPLE, Level.CHECKSUMS], ids=str)
def test_large_values_are_compared_in_small_batches(tmp_path: Path, level: Level) -> None:
    random = np.random.default_rng(5)
    rows = pa.table({"id": range(80), "b": [random.bytes(500_000) for _ in range(80)]})
    found, numbers = dataset(tmp_path / "t", rows), list(range(80))
    parts = [*read_rows(found, numbers, sizes_of(found, numbers))]
    parts += read_all(found, rows_per_batch(found))
    assert max(each.nbytes for each in parts) <= 1.1 * BATCH_BYTES
    changed = rows.set_column(1, "b", pa.array([*rows["b"].to_pylist()[:-1], b"other"]))
    assert failed_checks(rows, rows, tmp_path / "same", level) == []
    name = "sample" if level is Level.SAMPLE else "values"
    assert failed_checks(rows, changed, tmp_path / "changed", level) == [(name, "b")]


# -- blobs -----------------------------------------------------------------------------------------


def change_byte(directory: Path, value: bytes) -> None:
    """Change a byte of a value in the files of a table, whose descriptions remain."""
    [file] = [
        each
        for each in directory.rglob("*")
        if each.suffix in (".lance", ".blob") and value in each.read_bytes()
    ]
    file.write_bytes(file.read_bytes().replace(value, value[:-1] + b"?"))


def tables(place: Path, rows: pa.Table) -> list[lance.LanceDataset]:
    """Write the same rows twice."""
    paths = (str(place / name) for name in ("one", "two"))
    return [lance.write_dataset(rows, path, data_storage_version="2.2") for path in paths]


def failing_checks(place: Path, level: Level) -> list[tuple[str, str]]:
    """Return the checks of two tables that fail, and their columns."""
    one, two = (lance.dataset(str(place / name)) for name in ("one", "two"))
    return [(check.name, check.column) for check in compare(one, two, level) if not check.ok]


@quick
@BLOB_LEVELS
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("case", KINDS, ids=lambda case: case.name)
def test_a_changed_byte_of_a_blob_is_noticed(
    tmp_path: Path, case: TypeCase, shape: str, level: Level
) -> None:
    tables(tmp_path, rows_of(case, shape))
    assert failing_checks(tmp_path, level) == []
    for value in (SMALL, LARGE):
        change_byte(tmp_path / "two", value[-20:])
        assert failing_checks(tmp_path, level) == [(NAMES[level], "c")]
        change_byte(tmp_path / "one", value[-20:])
        assert failing_checks(tmp_path, level) == []


@quick
@BLOB_LEVELS
def test_a_missing_file_of_blobs_fails_the_comparison(tmp_path: Path, level: Level) -> None:
    tables(tmp_path, rows_of(KINDS[0], "plain"))
    [file] = (tmp_path / "two").rglob("*.blob")
    file.unlink()
    with pytest.raises(ServiceUnavailableError, match="could not be compared"):
        failing_checks(tmp_path, level)


@quick
@BLOB_LEVELS
def test_tables_of_blobs_without_rows_are_equal(tmp_path: Path, level: Level) -> None:
    tables(tmp_path, rows_of(KINDS[0], "plain").slice(0, 0))
    assert failing_checks(tmp_path, level) == []


@quick
def test_many_rows_are_compared_in_batches_that_fit_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 300
    values = [b"%03d" % number * 1000 for number in range(rows)]
    columns = pa.schema([pa.field("id", pa.int64()), lance.blob_field("b")])
    table = pa.table([pa.array(range(rows), pa.int64()), lance.blob_array(values)], schema=columns)
    tables(tmp_path, table)
    taken: list[int] = []

    def counted(dataset: Any, ids: pa.Array, names: Any) -> Any:
        taken.append(len(ids))
        return take_rows(dataset, ids, names)

    take_rows = blobs.take_rows
    monkeypatch.setattr(blobs, "_MOST_BYTES", 30_000)
    monkeypatch.setattr(blobs, "take_rows", counted)
    for level in (Level.SAMPLE, Level.CHECKSUMS):
        assert failing_checks(tmp_path, level) == []
    assert set(taken) == {5}, "both tables count"
    change_byte(tmp_path / "two", b"299" * 10)
    for level in (Level.SAMPLE, Level.CHECKSUMS):
        assert failing_checks(tmp_path, level) == [(NAMES[level], "b")]


def test_a_copy_that_has_lost_bytes_does_not_pass_the_verification(
    hive: Place, glue: Place, tmp_path: Path
) -> None:
    place = str(hive.lake / "b.lance")
    lance.write_dataset(rows_of(KINDS[0], "plain"), place, data_storage_version="2.2")
    hive.make_namespace()
    with hive.connect() as namespace:
        request = api.RegisterTableRequest(id=list(hive.table("b")), location=place)
        namespace.register_table(request)
    target = replace(glue, properties={**glue.properties, "root": str(tmp_path / "copies")})
    options = select(hive, namespace=[target.prefix])
    with planned("copy", between(hive, target), hive.migrations, **options) as run:
        assert failed(run.execute(verify="checksums")) == []
        change_byte(tmp_path / "copies" / f"{target.prefix}.db" / "b.lance", LARGE[-20:])
        record = verify(run.type, run.endpoints, run.migration, Level.CHECKSUMS)
        assert record.state is State.DIFFERS
        checks = [check for each in record.items.values() for check in each.checks]
        assert [(each.name, each.column) for each in checks if not each.ok] == [("values", "c")]

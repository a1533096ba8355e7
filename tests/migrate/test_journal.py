"""The journal: on disk before it counts, whole but for its end after a crash; plans and records."""

from __future__ import annotations

import json
import os
import shutil
import stat
import threading
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace import errors
from typer.testing import CliRunner

from lance_bridge.user_files import STATE_VARIABLE, default_directory
from lance_bridge_cli.app import app
from lance_bridge_migrate import Address, Item, Migrations, Plan, State, migration_type
from lance_bridge_migrate.commands.planning import _with_settings
from lance_bridge_migrate.plan import blocker, new_id, now, warning, without_clashes
from lance_bridge_migrate.record import Event, Failure, Journal, Record, read

pytestmark = [pytest.mark.quick, pytest.mark.spec("migration.md#journal", "migration.md#plan")]

EVENTS = [
    Event(event="run", facts={"parallelism": 1}),
    Event(event="started", item="a", step="entry"),
    Event(event="done", item="a", step="entry", facts={"after": {"ä": [1, None]}}, is_last=True),
]


def plan(*items: Item, **more: object) -> Plan:
    given: dict[str, object] = {
        "id": new_id("register"),
        "type": "register",
        "created": now(),
        "source": Address(name="dir", properties={"root": "/lake"}),
        "target": Address(name="hive", connection="hive(thrift://h:1)"),
        "items": items or (Item(source=("a",), target=("db", "a")),),
        **more,
    }
    return Plan.model_validate(given)


def written(path: Path, *events: Event) -> Path:
    journal = Journal(path)
    for event in events:
        journal.append(event)
    journal.close()
    return path


def test_events_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = written(tmp_path / "journal", *EVENTS[:2])
    written(path, EVENTS[2])
    assert read(path) == EVENTS


def test_each_event_is_on_disk_when_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal"
    journal, synced, fsync = Journal(path), [0], os.fsync

    def noting(descriptor: int) -> None:
        fsync(descriptor)
        synced.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(os, "fsync", noting)
    for event in EVENTS:
        journal.append(event)
        assert read(path)[-1] == event, "a killed process has not taken it along"
        if event.event != "done":  # what is started again finds out by itself that it is done
            assert synced[-1] == path.stat().st_size
    journal.close()
    assert synced[-1] == path.stat().st_size


def test_events_of_many_threads_are_all_kept_and_share_writes(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")

    def append(number: int) -> None:
        for each in range(20):
            journal.append(Event(event="note", item="a", facts={"n": number * 100 + each}))

    threads = [threading.Thread(target=append, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()
    found = sorted(event.facts["n"] for event in read(tmp_path / "journal"))
    assert found == sorted(n * 100 + each for n in range(8) for each in range(20))


@given(kept=st.integers(min_value=0), junk=st.binary(max_size=30))
def test_a_torn_end_is_left_out_and_overwritten(
    tmp_path_factory: pytest.TempPathFactory, kept: int, junk: bytes
) -> None:
    path = written(tmp_path_factory.mktemp("torn") / "journal", *EVENTS)
    content = path.read_bytes()
    cut = content[: kept % (len(content) + 1)]
    path.write_bytes(cut + junk.replace(b"\n", b""))
    whole = cut.count(b"\n")
    assert read(path) == EVENTS[:whole]
    written(path, EVENTS[0])
    assert read(path) == [*EVENTS[:whole], EVENTS[0]]


def test_a_migration_that_cannot_be_read_does_not_hide_the_others_in_the_list(
    migrations: Migrations,
) -> None:
    ids = [f"2026010{day}-120000-register-0a1b2c" for day in (1, 2, 3)]
    made = [migrations.add(plan(id=id, created=f"2026-01-0{n}")) for n, id in enumerate(ids, 1)]
    written(made[0].directory / "journal.jsonl", *EVENTS)
    damaged = made[0].directory / "journal.jsonl"
    damaged.write_bytes(b"\0\n" + damaged.read_bytes())
    newer = made[1].directory / "plan.json"
    newer.write_text(newer.read_text().replace('"format": 1', '"format": 99'))
    state = str(migrations.directory.parent)

    done = CliRunner().invoke(app, ["migrate", "list", "--state", state, "-o", "json"])

    rows = json.loads(done.stdout)
    assert [(row["migration"], row["state"]) for row in rows] == [
        (ids[0], "cannot be read"),
        (ids[1], "cannot be read"),
        (ids[2], "planned"),
    ]
    assert rows[0].keys() == rows[2].keys()
    assert f"{ids[0]} cannot be read: Line 1 of " in done.stderr
    assert f"{ids[1]} cannot be read: " in done.stderr
    assert "use the release that made it" in done.stderr
    assert done.exit_code == 0


def test_damage_before_the_end_is_refused_and_nothing_is_cut_off(tmp_path: Path) -> None:
    path = written(tmp_path / "journal", *EVENTS)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\0" * 20 + b"\n" + lines[2])
    before = path.read_bytes()
    with pytest.raises(errors.InvalidTableStateError, match="Line 2"):
        read(path)
    with pytest.raises(errors.InvalidTableStateError, match="Line 2"):
        Journal(path)
    assert path.read_bytes() == before


def test_a_journal_that_cannot_be_written_says_so_when_it_is_closed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.append(Event(event="run"))
    journal._file.close()
    journal._file = Path("/dev/full").open("ab")  # noqa: SIM115 - closed by what is tested
    with pytest.raises(errors.ServiceUnavailableError, match="cannot be used"):
        journal.append(Event(event="ended"))
    with pytest.raises(errors.ServiceUnavailableError, match="cannot be used"):
        journal.close()


# -- plans ---------------------------------------------------------------------------------------


def test_a_plan_round_trips_through_json() -> None:
    item = Item(
        source=("db", "a"),
        target=("main", "db", "a"),
        facts={"columns": [{"name": "ä"}]},
        fingerprint="x",
        rows=3,
        bytes=10,
        problems=(blocker("no", "c"), warning("hm")),
    )
    made = plan(item, options={"include": ["*"]}, notes=("one",), follows="another")
    assert Plan.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 2}', plan().to_json().replace('"type"', '"types"')]
)
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(errors.InvalidInputError, match="plan"):
        Plan.from_json(text)


def test_items_of_one_target_block_each_other() -> None:
    items = [Item(source=(name,), target=("db", name.lower())) for name in ("A", "a", "b")]
    found = without_clashes(items)
    assert [bool(item.blockers) for item in found] == [True, True, False]


def test_one_source_twice_is_refused() -> None:
    items = [Item(source=("a",), target=("db", name)) for name in ("a", "b")]
    with pytest.raises(errors.InvalidInputError, match="2 times"):
        without_clashes(items)


def test_marks_are_unique_to_items_and_migrations() -> None:
    first = plan(*(Item(source=(name,), target=("db", name)) for name in ("a", "b")))
    marks = {first.mark(item) for item in first.items} | {plan().mark(first.items[0])}
    assert len(marks) == 3
    assert all(len(mark) <= 255 for mark in marks)


def test_a_location_with_a_password_is_refused_without_repeating_it() -> None:
    path = "https://user:hunter2@host/files"
    given = {"path": path, "format": "csv", "table": "t"}
    with pytest.raises(errors.InvalidInputError, match="no plan keeps a password") as refused:
        migration_type("convert").parse_options({"paths": [given], "namespace": ["db"]})
    assert "hunter2" not in str(refused.value)
    with pytest.raises(errors.InvalidInputError, match="no plan keeps a password"):
        migration_type("export").parse_options({"directory": path})


# -- the state directory -------------------------------------------------------------------------


def test_one_process_runs_a_migration_at_a_time(tmp_path: Path) -> None:
    migration = Migrations(tmp_path).add(plan())
    with migration.journal():
        assert migration.is_running
        again = pytest.raises(errors.ConcurrentModificationError, match="another process")
        with again, migration.journal():
            raise AssertionError("not reached")
    assert not migration.is_running


def test_the_directory_is_that_of_the_environment_or_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_directory() == tmp_path / ".local/state/lance-bridge"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert default_directory() == tmp_path / "xdg" / "lance-bridge"
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "own"))
    assert default_directory() == tmp_path / "own"


def test_migrations_are_listed_and_others_are_not_found(tmp_path: Path) -> None:
    kept = Migrations(tmp_path)
    assert kept.ids() == []
    made = [plan(), plan()]
    for each in made:
        kept.add(each)
    assert kept.ids() == sorted(each.id for each in made)
    assert kept.get(made[0].id).plan() == made[0]
    assert stat.S_IMODE(kept.get(made[0].id).directory.stat().st_mode) == 0o700
    for wrong in ("other", "../x", "", "a/b"):
        with pytest.raises(errors.InvalidInputError, match="migration"):
            kept.get(wrong)
    directory = kept.get(made[0].id).directory
    shutil.copytree(directory, directory.with_name(f"{directory.name}.bak"))
    assert kept.ids() == sorted(each.id for each in made), "the name of the copy is no identifier"
    (directory / "plan.json").write_text('{"format": 2}')
    with pytest.raises(errors.InvalidInputError, match=f"^{directory}/plan.json: "):
        kept.get(made[0].id).plan()


def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "migrations").write_text("a file")
    with pytest.raises(errors.ServiceUnavailableError, match=STATE_VARIABLE):
        Migrations(tmp_path).add(plan())


# -- records -------------------------------------------------------------------------------------


def test_what_failed_before_its_first_step_leaves_nothing_to_undo() -> None:
    items = [Item(source=(name,), target=("db", name)) for name in ("a", "b")]
    error = Failure(code=17, message="its files are gone")
    events = [*EVENTS, Event(event="failed", item="b", error=error), Event(event="undo")]
    made = plan(*items)
    assert Record.of(made, events).state is State.UNDOING
    undone = [Event(event="undo_started", item="a"), Event(event="undo_done", item="a")]
    record = Record.of(made, [*events, *undone])
    assert record.state is State.UNDONE
    assert record.items["b"].state is State.FAILED


@pytest.mark.spec("migration.md#running")
def test_a_record_follows_from_its_events() -> None:
    items = [Item(source=(name,), target=("db", name)) for name in ("a", "b")]
    made = plan(*items)
    record = Record.of(made, [])
    assert record.state is State.PLANNED
    error = Failure(code=5, message="taken")
    steps = [
        (EVENTS[0], State.STARTED),
        (EVENTS[1], State.STARTED),
        (EVENTS[2], State.STARTED),
        (Event(event="started", item="b", step="entry"), State.STARTED),
        (Event(event="failed", item="b", error=error), State.FAILED),
        (Event(event="ended"), State.FAILED),
        (Event(event="run"), State.FAILED),
        (Event(event="started", item="b", step="entry"), State.STARTED),
        (Event(event="done", item="b", step="entry", is_last=True), State.DONE),
        (Event(event="undo"), State.UNDOING),
        (Event(event="undo_started", item="a"), State.UNDOING),
        (Event(event="undo_done", item="a", step="entry"), State.UNDOING),
        (Event(event="undo_done", item="a"), State.UNDOING),
        (Event(event="undo_started", item="b"), State.UNDOING),
        (Event(event="undo_done", item="b"), State.UNDONE),
    ]
    for number, (event, state) in enumerate(steps):
        record.apply(event)
        assert record.state is state, number
        events = [each for each, _ in steps[: number + 1]]
        assert Record.of(made, events) == record
    assert record.items["a"].facts["after"] == {"ä": [1, None]}


# -- settings of a conversion ----------------------------------------------------------------------

GIVEN = {"name": "{table}_new", "casts": {}, "count_rows": True, "vectors": {"v": 3}}


@pytest.mark.spec("migration.md#convert")
def test_a_settings_file_gives_options_and_the_command_goes_before_it(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(
        "name: '{table}_file'\ncasts: {a: string}\ncount_rows: false\n"
        "tables: {sales.orders: {renames: {x: y}}}\n"
    )
    assert _with_settings(GIVEN, file) == {
        "name": "{table}_new",
        "casts": {"a": "string"},
        "count_rows": False,
        "vectors": {"v": 3},
        "tables": {"sales.orders": {"renames": {"x": "y"}}},
    }
    assert _with_settings(GIVEN, None) == GIVEN


@pytest.mark.spec("migration.md#convert")
@pytest.mark.parametrize("text", ["- a\n", "a: [\n", ""])
def test_a_settings_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(typer.Exit):
        _with_settings(GIVEN, file)
    with pytest.raises(typer.Exit):
        _with_settings(GIVEN, tmp_path / "none.yaml")

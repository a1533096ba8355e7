"""``migrate report``: a page that people read anywhere, and JSON, of any state of a migration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.running import answer_of, run, run_without
from hatchling.builders.wheel import WheelBuilder
from migrate import reported
from migrate.building import Run, from_directory, write
from migrate.pages import page_of_report, plots_on, read, require_self_contained
from migrate.places import Place
from migrate.reported import done, ended, planned, started, table, tables, verified, written

from lance_bridge_migrate import Migrations, Record
from lance_bridge_migrate.journal import Check, Event, Failure
from lance_bridge_migrate.plan import blocker, warning
from lance_bridge_migrate.report import Report, report_of

pytestmark = pytest.mark.spec("migration.md#report")


REPOSITORY = Path(__file__).parents[2]


def commands(report: Report) -> list[str]:
    return [each.command.split()[2] for each in report.commands]


# -- the command ---------------------------------------------------------------------------------


@pytest.mark.servers
def test_a_migration_is_reported_by_the_command(
    hive: Place, lake: Path, migrations: Migrations, tmp_path: Path
) -> None:
    write(lake, "orders", "parts")
    with from_directory(lake, hive) as endpoints:
        ran = Run("register", endpoints, migrations)
        id = ran.plan(namespace=hive.namespace()).id
        ran.execute(verify="checksums")
        kept = ["--state", str(tmp_path / "state")]
        printed = run("migrate", "report", id, *kept)
        files = [ran.migration.directory / f"report.{each}" for each in ("html", "json")]
        assert printed.stdout.split() == [str(each) for each in files]
        found = Report.model_validate_json(files[1].read_bytes())
        assert (found.migration, found.state.value) == (id, "done")
        assert found.counts == {"done": 3}
        assert found.totals.tables_done == 2
        assert {each.verified for each in found.items} == {"checksums"}
        assert all(each.ok for each in found.checks)
        assert {(e.rows_found, e.bytes_after) for e in found.items[1:]} == {(3, None)}
        shown = read(files[0].read_text(encoding="utf-8"))
        require_self_contained(shown)
        assert [each.one("strong").text for each in plots_on(shown)] == ["Time by step"]
        rows = shown.with_id("tables").rows()
        assert [row[0] for row in rows] == ["", "orders", "parts"]
        assert len(shown.with_id("checks").rows()) == len(found.checks) > 8
        assert f"migrate undo {id} --state {tmp_path / 'state'}" in shown.with_id("next").words
        ran.undo()
        to = tmp_path / "of undoing.html"
        answer = answer_of("migrate", "report", id, "--to", str(to), *kept)
    assert answer == json.loads(to.with_suffix(".json").read_text(encoding="utf-8"))
    assert answer["state"] == "undone"
    assert [each["type"] for each in answer["runs"]] == ["run", "undo"]


def kept_in(directory: Path) -> str:
    return Migrations(directory).add(planned(table())).directory.name


@pytest.mark.quick
def test_a_file_that_is_not_a_report_is_not_overwritten(tmp_path: Path) -> None:
    command = ["migrate", "report", kept_in(tmp_path), "--state", str(tmp_path), "--to"]
    mine = tmp_path / "mine.json"
    mine.write_text("{}")
    assert "is not a report" in run(*command, str(tmp_path / "mine.html"), code=1).stderr
    assert not (tmp_path / "mine.html").exists()
    assert mine.read_text() == "{}"
    assert "end with .html" in run(*command, str(mine), code=1).stderr
    assert "cannot be written" in run(*command, str(tmp_path / "no" / "a.html"), code=1).stderr
    own = tmp_path / "own.html"
    run(*command, str(own))
    own.with_suffix(".json").write_text(json.dumps({"generator": "lance-bridge migrate report"}))
    run(*command, str(own))
    assert Report.model_validate_json(own.with_suffix(".json").read_bytes()).type == "convert"


@pytest.mark.quick
def test_missing_and_damaged_migrations_are_reported_as_errors(tmp_path: Path) -> None:
    kept = ["--state", str(tmp_path)]
    assert "no migration" in run("migrate", "report", "x", *kept, code=1).stderr
    id = kept_in(tmp_path)
    journal = Migrations(tmp_path).get(id).directory / "journal.jsonl"
    journal.write_bytes(b"{\n" + started().to_line())
    assert "damaged" in run("migrate", "report", id, *kept, code=1).stderr


@pytest.mark.servers
def test_without_the_extra_all_else_works_and_the_error_names_it(tmp_path: Path) -> None:
    id, state = kept_in(tmp_path), ("--state", str(tmp_path))
    listed, failed = run_without(
        ["jinja2"], ["migrate", "list", *state], ["migrate", "report", id, *state]
    )
    assert id in listed.stdout
    assert (failed.code, failed.stdout) == (1, "")
    assert "pip install 'lance-bridge[report]'" in failed.stderr
    assert "Traceback" not in failed.stderr


@pytest.mark.quick
def test_the_wheel_has_the_template() -> None:
    builder = WheelBuilder(str(REPOSITORY))
    found = {each.distribution_path for each in builder.recurse_included_files()}
    assert "lance_bridge_migrate/report/templates/page.html.j2" in found


# -- states --------------------------------------------------------------------------------------


@pytest.mark.quick
def test_totals_are_of_the_tables_that_are_done() -> None:
    items = [*tables(4), table("left", rows=7, bytes=70, nothing_to_do="It is there")]
    events = [started(), *written(items[1], seconds=1), *written(items[2], seconds=2)]
    report = report_of(Record.of(planned(*items), [*events, ended(6)]))
    totals = report.totals
    assert (totals.tables, totals.tables_done) == (5, 2)
    assert totals.rows_planned.total == 6000
    assert totals.rows_written.model_dump() == {"total": 3000, "known": 2, "tables": 2}
    assert (totals.bytes_before.total, totals.bytes_after.total) == (3 * 10**6, 15 * 10**5)
    assert (totals.size_ratio, totals.seconds, totals.step_seconds) == (0.5, 6.0, 3.0)
    assert (totals.rows_per_second, totals.bytes_per_second) == (500.0, 250000.0)
    first = report.items[1]
    assert [(each.name, each.seconds) for each in first.steps] == [("entry", 0.25), ("load", 0.75)]
    assert (first.rows_per_second, first.location) == (1000.0, "/lake/t0001.lance")
    shown = page_of_report(report).with_id("totals").pairs()
    assert shown["Rows written"] == "3,000"
    assert shown["Bytes after"].startswith("1.50 MB 50.0 %")
    assert shown["Speed"].startswith("500 rows/s; 250 kB/s; 0.33 tables/s")


@pytest.mark.quick
def test_what_is_not_known_is_never_zero() -> None:
    item = table()
    events = [started(), *written(item, bytes_after=None, rows_written=True, bytes_written=-1)]
    report = report_of(Record.of(planned(item), events))
    [found] = json.loads(report.model_dump_json())["items"]
    unknown = ("rows_before", "rows_written", "bytes_before", "bytes_written", "bytes_after")
    assert [found[each] for each in unknown] == [None] * 5
    assert report.totals.rows_written.model_dump() == {"total": None, "known": 0, "tables": 1}
    shown = page_of_report(report)
    [row] = shown.with_id("tables").rows()
    assert row[3:7] == ["unknown"] * 4
    assert row[8] == "unknownunknown"
    assert shown.with_id("totals").pairs()["Bytes after"] == "unknown"


@pytest.mark.quick
def test_errors_come_first_with_the_next_commands() -> None:
    items = [
        table("warned", problems=(warning("Its types change", "price"),)),
        table("blocked", problems=(blocker("Its type does not fit", "shape"),)),
        table("failed"),
    ]
    failure = Event(event="failed", item="db/failed", error=Failure(code=17, message="No network"))
    events = [started({"skip_blocked": True}), *written(items[0]), failure, ended(3)]
    report = report_of(Record.of(planned(*items), events))
    assert report.state.value == "failed"
    assert [(each.severity, each.table, each.column, each.code) for each in report.problems] == [
        ("error", "main.failed", "", 17),
        ("blocker", "main.blocked", "shape", None),
        ("warning", "main.warned", "price", None),
    ]
    assert commands(report) == ["resume", "verify", "undo", "show"]
    assert "--skip-blocked" not in report.commands[0].command, "the next run takes it over"
    shown = page_of_report(report)
    assert shown.with_id("problems").rows()[0][0] == "error 17"
    assert [row[2] for row in shown.with_id("tables").rows()] == ["failed", "blocked", "done"]


@pytest.mark.quick
def test_what_differs_comes_first_among_the_checks() -> None:
    items = [table("same", rows=1), table("other", rows=2)]
    differs = Check(name="checksum", column="v", ok=False, expected=[2, 9, 1], found=None)
    checks = [reported.same_rows(items[1]), differs]
    events = [started(), *(e for i in items for e in written(i)),
              verified(items[0], reported.same_rows(items[0])),
              verified(items[1], *checks, level="checksums"), ended(9)]  # fmt: skip
    report = report_of(Record.of(planned(*items), events))
    assert report.state.value == "differs"
    assert [each.ok for each in report.checks] == [False, True, True]
    shown = page_of_report(report).with_id("checks")
    assert "3 were made, of which 1 differ" in shown.words
    assert shown.rows()[0] == ["differs", "main.other", "checksum", "v", "[2, 9, 1]", "-"]


@pytest.mark.quick
def test_runs_say_how_they_ended() -> None:
    items = tables(2)
    cut_off = Event(event="started", item=items[1].key, step="entry", at=reported.at(40))
    events = [started(), ended(5, "stopped"), started(seconds=30), *written(items[0]), cut_off]
    report = report_of(Record.of(planned(*items), events))
    assert [(each.end, each.seconds) for each in report.runs] == [
        ("stopped", 5.0), ("not noted", 10.0),
    ]  # fmt: skip
    assert report.state.value == "started"
    assert commands(report)[0] == "resume"
    shown = page_of_report(report)
    rows = shown.with_id("runs").rows()
    assert [row[3] for row in rows] == ["stopped (Ctrl-C)", "cut off, or still running"]
    assert "or more" in rows[1][4]
    assert shown.with_id("tables").rows()[0][7] == "entry: not finished"


@pytest.mark.quick
def test_an_undone_migration_says_so_and_is_not_resumed() -> None:
    item = table(rows=3, bytes=30)
    undoing = [Event(event="undo", at=reported.at(60)), Event(event="undo_started", item=item.key)]
    events = [started(), *written(item), ended(3), *undoing]
    half = report_of(Record.of(planned(item), events))
    assert (half.state.value, commands(half)) == ("undoing", ["undo", "show"])
    events += [
        Event(event="undo_done", item=item.key, step=step, at=reported.at(61))
        for step in ("load", "entry")
    ]
    events += [Event(event="undo_done", item=item.key), ended(62)]
    report = report_of(Record.of(planned(item), events))
    assert (report.state.value, commands(report)) == ("undone", ["show"])
    assert [(each.type, each.seconds) for each in report.runs] == [("run", 3.0), ("undo", 2.0)]
    assert report.totals.seconds == 3.0
    shown = page_of_report(report)
    assert "It was undone" in shown.one("header").words
    assert shown.with_id("tables").rows()[0][7].count("undone") == 2


@pytest.mark.quick
def test_a_plan_without_items_or_runs_is_reported() -> None:
    empty = page_of_report(report_of(Record.of(planned(), [])))
    assert "never run" in empty.with_id("runs").words
    for part in ("problems", "tables", "plots", "checks"):
        assert empty.with_id(part).rows() == []
    blocked = planned(table(problems=(blocker("No"),)), table("b"))
    report = report_of(Record.of(blocked, []), "/a b")
    assert report.commands[0].command.endswith(f"resume {blocked.id} --skip-blocked --state '/a b'")


@pytest.mark.quick
def test_a_table_without_rows_is_reported() -> None:
    report = report_of(done([table(rows=0, bytes=0)]))
    assert report.items[0].rows_per_second == 0.0
    assert report.totals.size_ratio is None
    [row] = page_of_report(report).with_id("tables").rows()
    assert row[3:7] == ["0", "0", "0 B", "0 B"]

"""``migrate report``: a page that people read anywhere, and JSON, of any state of a migration."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from cli.program import answer_of, run, run_without

from lance_bridge.errors import invalid
from lance_bridge_migrate import Migrations, Plan, Record
from lance_bridge_migrate.plan import Address, Facts, Item, ItemType, blocker, warning
from lance_bridge_migrate.record import Check, Event, Failure
from lance_bridge_migrate.report import Report, report_of
from lance_bridge_migrate.report_page import MAX_LINES, MAX_ROWS, page_of, plots_of

from .places import Place, Run, from_directory, write

pytestmark = [pytest.mark.quick, pytest.mark.spec("migration.md#report")]

_BEGIN = datetime(2026, 1, 31, 12, 0, 0, tzinfo=timezone.utc)
_VOID = {"meta", "br", "link", "img", "input", "hr", "base", "source", "embed", "track", "wbr"}
_LOADING = {"src", "href", "xlink:href", "srcset", "data", "action", "formaction", "poster",
            "background", "ping", "manifest"}  # fmt: skip
_ACTIVE = {"script", "link", "iframe", "object", "embed", "img", "base", "form", "video", "audio",
           "use", "image", "foreignobject", "template"}  # fmt: skip
_CSS_LOADS = re.compile(r"url\(|@import|image-set\(|expression\(", re.IGNORECASE)
REPOSITORY = Path(__file__).parents[2]


# -- records of migrations that no test has the time to run, made of events ------------------------


def at(seconds: float) -> str:
    """Return a time, so many seconds after the first run began."""
    return (_BEGIN + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def planned(*items: Item, **more: Any) -> Plan:
    """Return a plan of a conversion."""
    given: dict[str, Any] = {
        "id": "20260131-115900-convert-0a1b2c",
        "type": "convert",
        "created": at(-60),
        "source": Address(name="spark", properties={"spark.sql.x": "of-the-source"}),
        "target": Address(name="hive", connection="hive(thrift://h:1)"),
        "items": items,
        **more,
    }
    return Plan.model_validate(given)


def table(name: str = "a", **more: Any) -> Item:
    return Item(source=("db", name), target=("main", name), **more)


def tables(count: int) -> list[Item]:
    """Return tables of other sizes each, the last one the largest."""
    return [table(f"t{n:04}", rows=n * 1000, bytes=n * 10**6) for n in range(count)]


def started(options: Facts | None = None, seconds: float = 0) -> Event:
    return Event(
        event="run", facts=options or {"parallelism": 2, "verify": "counts"}, at=at(seconds)
    )


def ended(seconds: float, name: Any = "ended") -> Event:
    return Event(event=name, at=at(seconds))


def written(item: Item, seconds: float = 2.0, **facts: Any) -> Iterator[Event]:
    """Yield the events of a table that is written: an entry, and then its rows."""
    noted = {
        "bytes_before": item.bytes,
        "rows_written": item.rows,
        "bytes_written": (item.bytes or 0) // 2,
        "bytes_after": (item.bytes or 0) // 2,
        **facts,
    }
    for step, took in (("entry", seconds / 4), ("load", seconds * 3 / 4)):
        last = step == "load"
        yield Event(event="started", item=item.key, step=step, at=at(1))
        yield Event(
            event="done", item=item.key, step=step, seconds=took, is_last=last, at=at(1 + took),
            facts=noted if last else {"location": f"/lake/{item.source[-1]}.lance"},
        )  # fmt: skip


def verified(item: Item, *checks: Check, level: str = "counts") -> Event:
    return Event(event="verified", item=item.key, checks=checks, level=level)


def same_rows(item: Item) -> Check:
    return Check(name="rows", ok=True, expected=item.rows, found=item.rows)


def done(items: Iterable[Item]) -> Record:
    """Return the record of a run that wrote and verified all of these in ten seconds."""
    kept = list(items)
    events = [started()]
    for number, item in enumerate(kept):
        events += [*written(item, seconds=1 + number), verified(item, same_rows(item))]
    return Record.of(planned(*kept), [*events, ended(10)])


# -- a page of HTML, read strictly -----------------------------------------------------------------


@dataclass
class Element:
    """One element: its name in lower case, its attributes, and what is in it."""

    tag: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text in it, as it is written."""
        return "".join(each if isinstance(each, str) else each.text for each in self.children)

    @property
    def words(self) -> str:
        """All text in it, as a browser shows it: one space for any number."""
        return " ".join(self.text.split())

    def all(self, tag: str = "") -> Iterator[Element]:
        """Yield it and all elements in it, or those of one name."""
        if tag in ("", self.tag):
            yield self
        for each in self.children:
            if isinstance(each, Element):
                yield from each.all(tag)

    def texts(self, tag: str) -> list[str]:
        """Return what a browser shows of each element of a name."""
        return [each.words for each in self.all(tag)]

    def one(self, tag: str) -> Element:
        [found] = self.all(tag)
        return found

    def with_id(self, name: str) -> Element:
        [found] = [each for each in self.all() if each.attributes.get("id") == name]
        return found

    def rows(self) -> list[list[str]]:
        """Return the cells of all rows of tables in it, without those of heads."""
        return [
            [each.words for each in row.children if isinstance(each, Element)]
            for body in self.all("tbody")
            for row in body.all("tr")
        ]

    def pairs(self) -> dict[str, str]:
        """Return rows of two cells as a mapping."""
        return {row[0]: row[1] for row in self.rows()}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {key: value or "" for key, value in attrs})
        assert len(element.attributes) == len(attrs), f"an attribute of {tag} is set twice"
        self.open[-1].children.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert any(each.tag == "svg" for each in self.open), f"{tag} is closed at once"
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"{tag} ends, and {self.open[-1].tag} is open"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data[:60]}")


def read(text: str) -> Element:
    """Return a page. Raises AssertionError where an element is not closed, or closed wrongly."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == [reader.root], [each.tag for each in reader.open]
    return reader.root.one("html")


def require_self_contained(page: Element) -> None:
    """Raise AssertionError where a page loads or runs anything, or uses an identifier twice."""
    for element in page.all():
        assert element.tag not in _ACTIVE, element
        names = set(element.attributes)
        assert not names & _LOADING, element
        assert not [name for name in names if name.startswith("on")], element
        style = element.text if element.tag == "style" else element.attributes.get("style", "")
        assert not _CSS_LOADS.search(style), style[:200]
    known = [each.attributes["id"] for each in page.all() if "id" in each.attributes]
    assert len(known) == len(set(known)) > 0
    [policy] = [each.attributes["content"] for each in page.all("meta")
                if each.attributes.get("http-equiv") == "Content-Security-Policy"]  # fmt: skip
    assert policy.startswith("default-src 'none'")


def plots_on(page: Element) -> list[Element]:
    """Return the plots of a page. Raises AssertionError for a bar that has no width or colour."""
    found = list(page.all("figure"))
    for bar in (bar for each in found for bar in each.all("i")):
        assert re.fullmatch(r"width: [\d.]+%; background: #\w{6}", bar.attributes["style"]), bar
    return found


def page_of_report(report: Report) -> Element:
    """Return the page of a report, having checked what holds for all of them."""
    found = read(page_of(report, "report.json"))
    require_self_contained(found)
    assert len(plots_on(found)) == len(plots_of(report))
    return found


# -- reports ---------------------------------------------------------------------------------------


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


# -- states --------------------------------------------------------------------------------------


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


def test_what_differs_comes_first_among_the_checks() -> None:
    items = [table("same", rows=1), table("other", rows=2)]
    differs = Check(name="checksum", column="v", ok=False, expected=[2, 9, 1], found=None)
    checks = [same_rows(items[1]), differs]
    events = [started(), *(e for i in items for e in written(i)),
              verified(items[0], same_rows(items[0])),
              verified(items[1], *checks, level="checksums"), ended(9)]  # fmt: skip
    report = report_of(Record.of(planned(*items), events))
    assert report.state.value == "differs"
    assert [each.ok for each in report.checks] == [False, True, True]
    shown = page_of_report(report).with_id("checks")
    assert "3 were made, of which 1 differ" in shown.words
    assert shown.rows()[0] == ["differs", "main.other", "checksum", "v", "[2, 9, 1]", "-"]


def test_runs_say_how_they_ended() -> None:
    items = tables(2)
    cut_off = Event(event="started", item=items[1].key, step="entry", at=at(40))
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


def test_an_undone_migration_says_so_and_is_not_resumed() -> None:
    item = table(rows=3, bytes=30)
    undoing = [Event(event="undo", at=at(60)), Event(event="undo_started", item=item.key)]
    events = [started(), *written(item), ended(3), *undoing]
    half = report_of(Record.of(planned(item), events))
    assert (half.state.value, commands(half)) == ("undoing", ["undo", "show"])
    events += [
        Event(event="undo_done", item=item.key, step=step, at=at(61)) for step in ("load", "entry")
    ]
    events += [Event(event="undo_done", item=item.key), ended(62)]
    report = report_of(Record.of(planned(item), events))
    assert (report.state.value, commands(report)) == ("undone", ["show"])
    assert [(each.type, each.seconds) for each in report.runs] == [("run", 3.0), ("undo", 2.0)]
    assert report.totals.seconds == 3.0
    shown = page_of_report(report)
    assert "It was undone" in shown.one("header").words
    assert shown.with_id("tables").rows()[0][7].count("undone") == 2


def test_a_plan_without_items_or_runs_is_reported() -> None:
    empty = page_of_report(report_of(Record.of(planned(), [])))
    assert "never run" in empty.with_id("runs").words
    for part in ("problems", "tables", "plots", "checks"):
        assert empty.with_id(part).rows() == []
    blocked = planned(table(problems=(blocker("No"),)), table("b"))
    report = report_of(Record.of(blocked, []), "/a b")
    assert report.commands[0].command.endswith(f"resume {blocked.id} --skip-blocked --state '/a b'")


def test_a_table_without_rows_is_reported() -> None:
    report = report_of(done([table(rows=0, bytes=0)]))
    assert report.items[0].rows_per_second == 0.0
    assert report.totals.size_ratio is None
    [row] = page_of_report(report).with_id("tables").rows()
    assert row[3:7] == ["0", "0", "0 B", "0 B"]


# -- many tables, hostile names, secrets -----------------------------------------------------------


@pytest.mark.servers
def test_a_thousand_tables_make_a_page_that_opens_and_json_that_has_all() -> None:
    items = [each.with_problems(warning("w" * 1000)) for each in tables(1000)]
    report = report_of(done(items))
    text = page_of(report, "report.json")
    assert len(text.encode()) < 2_000_000
    shown = page_of_report(report)
    for part in ("tables", "checks", "problems"):
        section = shown.with_id(part)
        assert len(section.rows()) == MAX_LINES
        assert "The first 500 of 1,000 are shown: report.json has all." in section.words
    plots = shown.with_id("plots")
    for figure in plots.all("figure"):
        assert f"The {MAX_ROWS} largest are shown; 970 are not shown." in figure.words
        assert len(figure.texts("p")) == MAX_ROWS
        assert "main.t0999" in figure.texts("p")[0]
    kept = json.loads(report.model_dump_json())
    assert [len(kept[each]) for each in ("items", "checks", "problems")] == [1000] * 3


def test_results_come_before_options_and_phones_get_each_cell_with_its_name() -> None:
    item = table("orders_of_2026").with_problems(warning("w"))
    events = [started(), *written(item), verified(item, same_rows(item))]
    plan = planned(item, options={"namespace": ["main"]})
    page = page_of_report(report_of(Record.of(plan, events)))
    sections = [each.attributes["id"] for each in page.all("section")]
    assert sections[:2] == ["totals", "problems"]
    assert sections[-1] == "options"
    assert "Option namespace" in page.with_id("options").pairs()
    for name in ("problems", "tables", "checks", "runs"):
        found = page.with_id(name)
        heads = [each.words for each in found.one("thead").all("th")]
        [row] = found.one("tbody").all("tr")
        assert [each.attributes["data-label"] for each in row.all("td")] == heads
    [cell, *_] = page.with_id("tables").one("tbody").all("td")
    assert cell.words == "db.orders_of_2026"
    assert [each for each in cell.children if isinstance(each, str)] == [
        "db.", "orders_", "of_", "2026",
    ]  # fmt: skip
    style = page.one("style").text
    assert "overflow-wrap: break-word" in style
    assert "min-width: 56rem" not in style


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</title></style></svg><b>",
    "{{ 7 * 7 }}{% if %}",
    "$\\frac{1}{2}$ $a_b$ $$",
    "--> <!-- ]]> &amp; &#60;",
    "\x00\x1b[31m\x0b\x7f\ufffe",
    "\u202eltr\u2066 a\nb\tc",
    "漢字" * 60,
    "W" * 500,
    "javascript:alert(1) url(http://x.test/y)",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_is_more_than_a_name(name: str) -> None:
    item = Item(
        source=(name,), target=("db", name), rows=1, bytes=1,
        problems=(warning(name, name),), fingerprint=name,
    )  # fmt: skip
    space = Item(type=ItemType.NAMESPACE, source=(name,), target=(name,), nothing_to_do=name)
    events = [
        started(),
        Event(event="started", item=item.key, step=name),
        Event(event="done", item=item.key, step=name, seconds=1.0, facts={"location": name}),
        *written(item),
        verified(item, Check(name=name, column=name, ok=False, expected=name, found={name: name})),
        Event(event="failed", item=item.key, error=Failure(code=13, message=name)),
    ]
    plan = planned(
        space, item, notes=(name,), options={name: name}, follows=name,
        source=Address(name=name), target=Address(name="t", connection=name),
    )  # fmt: skip
    report = report_of(Record.of(plan, events), name)
    assert len(plots_of(report)) == 4
    shown = page_of_report(report)
    assert not [each for each in shown.all() if each.tag in ("b", "script", "img")]
    printable = report.items[1].target[1]
    cells = [" ".join(row[0].split()) for row in shown.with_id("tables").rows()]
    assert " ".join(printable.split())[:190] in cells[0]
    assert not set(page_of(report, "x")) & set("\x00\x0b\x1b\x7f\ufffe")


def test_secrets_are_not_shown_wherever_they_were_noted() -> None:
    secret = "s3cr3t-0f-m1ne"
    item = table(facts={"source": {"read_options": {"password": secret}}, "note": secret})
    failure = f"https://me:{secret}@host/x?sig={secret}&a=1 refused; secret_access_key = {secret}"
    events = [
        started({"parallelism": 1, "extra": secret}),
        *written(item, token=secret, location=f"s3://key:{secret}@bucket/t.lance"),
        Event(event="failed", item=item.key, error=Failure(code=17, message=failure)),
    ]
    options = {
        "properties": {"aws_secret_access_key": secret, "owner": "me", "storage.key": secret},
        "paths": [{"read_options": {"apiKey": secret}}],
    }
    source = Address(name="spark", properties={"spark.hadoop.x": secret}, connection="Spark at /w")
    report = report_of(Record.of(planned(item, options=options, source=source), events))
    for text in (report.model_dump_json(), page_of(report, "report.json")):
        assert secret not in text
        assert "***@host/x?sig=***&" in text.replace("&amp;", "&")
        assert "owner" in text


def test_numbers_that_are_none_make_json_that_every_reader_takes() -> None:
    check = Check(name="x", ok=False, expected=float("nan"), found=[float("inf")])
    report = report_of(Record.of(planned(table()), [verified(table(), check)]))

    def refuse(constant: str) -> None:
        raise invalid(constant)

    [found] = json.loads(report.model_dump_json(), parse_constant=refuse)["checks"]
    assert (found["expected"], found["found"]) == ("nan", ["inf"])


# -- plots ---------------------------------------------------------------------------------------


def test_plots_show_the_largest_tables_in_distinct_colours() -> None:
    report = report_of(done(tables(40)))
    plots = {each.title: each for each in plots_of(report)}
    times = plots["Time by step"]
    assert [row.item.name for row in times.rows[:2]] == ["main.t0039", "main.t0038"]
    assert times.rows[0].bars == {"load": 30.0, "entry": 10.0}
    assert times.left_out == 10
    sizes = plots["Sizes before and after"]
    assert sizes.rows[0].bars == {"before": 39_000_000, "after": 19_500_000}
    assert [sizes.width(each) for each in sizes.rows[0].bars.values()] == [100.0, 50.0]
    for plot in plots.values():
        assert len(set(plot.colours.values())) == len(plot.colours)
        assert not plot.is_logarithmic
    figures = {each.one("strong").text: each for each in plots_on(page_of_report(report))}
    shown = {title: figure.texts("p")[0] for title, figure in figures.items()}
    assert shown == {
        "Time by step": "main.t0039 40.0 s",
        "Sizes before and after": "main.t0039 39.0 MB → 19.5 MB",
        "Bytes written per second": "main.t0039 488 kB/s",
        "Rows written per second": "main.t0039 975 rows/s",
    }


def test_bars_of_tables_that_are_far_apart_can_all_be_seen() -> None:
    items = [
        table(f"t{n}", rows=10 ** (n % 10 + 1), bytes=3 * 10 ** (n % 9 + 3)) for n in range(20)
    ]
    events = [started()]
    for number, item in enumerate(items):
        events += written(item, seconds=0.05 * 3 ** (number % 10))
    report = report_of(Record.of(planned(*items), events))
    plots = plots_of(report)
    assert [plot.title for plot in plots] == [
        "Time", "Sizes before and after", "Bytes written per second", "Rows written per second",
    ]  # fmt: skip
    for plot in plots:
        widths = [plot.width(each) for row in plot.rows for each in row.bars.values()]
        assert len(widths) == len(items) * len(plot.colours)
        assert 2 < min(widths) < max(widths) == 100
    for figure in plots_on(page_of_report(report)):
        assert "Bars are logarithmic" in figure.words


def test_many_steps_share_one_colour_and_no_time_is_lost() -> None:
    item = table()
    events = [started()]
    for number in range(12):
        step = f"index c{number}_idx"
        events.append(Event(event="started", item=item.key, step=step))
        events.append(Event(event="done", item=item.key, step=step, seconds=float(number)))
    report = report_of(Record.of(planned(item), events))
    [plot] = plots_of(report)
    assert list(plot.colours)[-1] == "other steps"
    assert len(plot.colours) == 7
    assert list(plot.rows[0].bars) == list(plot.colours)
    assert sum(plot.rows[0].bars.values()) == pytest.approx(66.0)
    [figure] = plots_on(page_of_report(report))
    assert figure.texts("p") == ["main.a 1 min 6 s"]

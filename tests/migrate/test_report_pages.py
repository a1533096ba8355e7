"""Reports of many tables, with hostile names and with secrets; and their plots."""

from __future__ import annotations

import json

import pytest
from migrate.pages import page_of_report, plots_on
from migrate.reported import (
    done,
    planned,
    same_rows,
    started,
    table,
    tables,
    verified,
    written,
)

from lance_bridge.errors import invalid
from lance_bridge_migrate import Record
from lance_bridge_migrate.journal import Check, Event, Failure
from lance_bridge_migrate.plan import Address, Item, ItemType, warning
from lance_bridge_migrate.report import report_of
from lance_bridge_migrate.report.page import MAX_LINES, MAX_ROWS, page_of, plots_of

pytestmark = pytest.mark.spec("migration.md#report")


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


@pytest.mark.quick
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


@pytest.mark.quick
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


@pytest.mark.quick
def test_secrets_are_not_shown_wherever_they_were_noted() -> None:
    secret = "s3cr3t-0f-m1ne"
    item = table(facts={"source": {"read_options": {"password": secret}}, "note": secret})
    failure = f"https://me:{secret}@host/x?sig={secret}&a=1 refused; secret_access_key = {secret}"
    events = [
        started({"at_once": 1, "extra": secret}),
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


@pytest.mark.quick
def test_numbers_that_are_none_make_json_that_every_reader_takes() -> None:
    check = Check(name="x", ok=False, expected=float("nan"), found=[float("inf")])
    report = report_of(Record.of(planned(table()), [verified(table(), check)]))

    def refuse(constant: str) -> None:
        raise invalid(constant)

    [found] = json.loads(report.model_dump_json(), parse_constant=refuse)["checks"]
    assert (found["expected"], found["found"]) == ("nan", ["inf"])


# -- plots ---------------------------------------------------------------------------------------


@pytest.mark.quick
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


@pytest.mark.quick
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


@pytest.mark.quick
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

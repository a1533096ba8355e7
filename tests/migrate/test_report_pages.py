"""Reports of many tables, of names that mean harm, and of secrets; and what plots look like."""

from __future__ import annotations

import json
import math

import matplotlib
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from migrate.pages import page_of_report
from migrate.reported import (
    begun,
    done,
    planned,
    same_rows,
    table,
    tables,
    verified,
    written,
)

from lance_bridge.errors import invalid
from lance_bridge_migrate import Record
from lance_bridge_migrate.journal import Check, Event, Failure
from lance_bridge_migrate.plan import Address, Item, What, warning
from lance_bridge_migrate.report import report_of
from lance_bridge_migrate.report.page import LINES, page_of
from lance_bridge_migrate.report.plots import SHOWN, Plot, figure_of, label_of, plots_of


def test_a_thousand_tables_make_a_page_that_opens_and_json_that_has_all() -> None:
    items = [each.with_problems(warning("w" * 1000)) for each in tables(1000)]
    report = report_of(done(items))
    text = page_of(report, "report.json")
    assert len(text.encode()) < 2_000_000
    shown = page_of_report(report)
    for part in ("tables", "checks", "problems"):
        section = shown.with_id(part)
        assert len(section.rows()) == LINES
        assert "The first 500 of 1,000 are shown: report.json has all." in section.words
    plots = shown.with_id("plots")
    for figure in plots.all("figure"):
        assert f"The {SHOWN} largest are shown; 970 are left out." in figure.words
        title = figure.one("desc")
        assert title.text.count(";") == SHOWN - 1
        assert "main.t0999" in title.text
    kept = json.loads(report.model_dump_json())
    assert [len(kept[each]) for each in ("items", "checks", "problems")] == [1000] * 3


def test_results_come_before_options_and_phones_get_each_cell_with_its_name() -> None:
    item = table("orders_of_2026").with_problems(warning("w"))
    events = [begun(), *written(item), verified(item, same_rows(item))]
    plan = planned(item, options={"namespace": ["main"]})
    page = page_of_report(report_of(Record.of(plan, events)))
    sections = [each.attributes["id"] for each in page.all("section")]
    assert sections[:2] == ["totals", "problems"]
    assert sections[-1] == "what"
    assert "Option namespace" in page.with_id("what").pairs()
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
    space = Item(what=What.NAMESPACE, source=(name,), target=(name,), nothing_to_do=name)
    events = [
        begun(),
        Event(event="begun", item=item.key, step=name),
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


def test_secrets_are_not_shown_wherever_a_kind_has_noted_them() -> None:
    secret = "s3cr3t-0f-m1ne"
    item = table(facts={"source": {"read_options": {"password": secret}}, "note": secret})
    failure = f"https://me:{secret}@host/x?sig={secret}&a=1 refused; secret_access_key = {secret}"
    events = [
        begun({"at_once": 1, "extra": secret}),
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


Box = tuple[float, float, float, float]


def boxes(plot: Plot) -> list[tuple[str, Box]]:
    """Return where matplotlib puts each text of a plot: left, bottom, right, top."""
    figure = figure_of(plot)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]  # matplotlib gives it no types
    [axes] = figure.axes
    least, most = axes.get_xlim()
    ticks = [t.label1 for t in axes.xaxis.get_major_ticks() if least <= t.get_loc() <= most]
    texts: list[Text] = [*axes.texts, axes.xaxis.label, *ticks]
    extents = [each.get_window_extent() for each in texts]
    width, height = figure.bbox.width, figure.bbox.height
    for text, box in zip(texts, extents, strict=True):
        inside = 0 <= box.x0 <= box.x1 <= width and 0 <= box.y0 <= box.y1 <= height
        assert inside, text
    return [
        (text.get_text(), (box.x0, box.y0, box.x1, box.y1))
        for text, box in zip(texts, extents, strict=True)
    ]


def are_apart(one: Box, other: Box) -> bool:
    beside = one[2] <= other[0] or other[2] <= one[0]
    return beside or one[3] <= other[1] or other[3] <= one[1]


@pytest.mark.parametrize("count", [1, 2, 30, 1000])
def test_no_text_of_a_plot_meets_another(count: int) -> None:
    wide = [each.model_copy(update={"target": ("W" * 100, f"W{n}")})
            for n, each in enumerate(tables(count + 1))][1:]  # fmt: skip
    plots = plots_of(report_of(done(wide)))
    assert len(plots) == 4
    for plot in plots:
        placed = boxes(plot)
        assert len(placed) > min(count, SHOWN) * 2 + 2
        for number, (one, first) in enumerate(placed):
            for other, second in placed[number + 1 :]:
                assert are_apart(first, second), (plot.title, one, other)


def test_plots_show_the_largest_tables_with_units_and_colours_told_apart() -> None:
    plots = {each.title: each for each in plots_of(report_of(done(tables(40))))}
    times = plots["Time by step"]
    assert times.axis == "time in seconds"
    assert [row.name for row in times.rows[:2]] == ["main.t0039", "main.t0038"]
    assert times.rows[0].bars == {"load": 30.0, "entry": 10.0}
    assert times.left_out == 10
    sizes = plots["Sizes before and after"]
    assert sizes.axis == "size of the data in MB"
    assert sizes.rows[0].bars == {"before": 39.0, "after": 19.5}
    assert sizes.rows[0].text == "39.0 MB → 19.5 MB"
    assert plots["Rows written in a second"].axis == "throughput in rows/s"
    assert plots["Bytes written in a second"].axis == "throughput in kB/s"
    for plot in plots.values():
        assert len(set(plot.colours.values())) == len(plot.colours)


def test_bars_of_tables_that_are_far_apart_can_all_be_seen_and_no_text_meets_another() -> None:
    items = [
        table(f"t{n}", rows=10 ** (n % 10 + 1), bytes=3 * 10 ** (n % 9 + 3)) for n in range(20)
    ]
    events = [begun()]
    for number, item in enumerate(items):
        events += written(item, seconds=0.05 * 3 ** (number % 10))
    plots = plots_of(report_of(Record.of(planned(*items), events)))
    assert [plot.title for plot in plots] == [
        "Time", "Sizes before and after", "Bytes written in a second", "Rows written in a second",
    ]  # fmt: skip
    for plot in plots:
        assert plot.axis.endswith("on a logarithmic axis")
        [axes] = figure_of(plot).axes
        least, most = map(math.log10, axes.get_xlim())
        drawn = [bar for bar in axes.patches if isinstance(bar, Rectangle)]
        bars = [math.log10(bar.get_x() + bar.get_width()) for bar in drawn]
        assert len(bars) == len(items) * len(plot.colours)
        assert min(bars) - least > (most - least) / 50
        assert max(bars) <= most
        assert 2 <= len(axes.get_xticks()) <= 6
        placed = boxes(plot)
        for number, (one, first) in enumerate(placed):
            for other, second in placed[number + 1 :]:
                assert are_apart(first, second), (plot.title, one, other)


def test_a_long_name_in_a_plot_is_cut_where_a_part_of_it_begins() -> None:
    assert label_of("main.lake.orders") == "main.lake.orders"
    assert label_of("main.lakehouse_analytics.events_of_11") == "…analytics.events_of_11"
    assert label_of("x" * 60) == "…" + "x" * 28


def test_many_steps_share_one_colour_and_no_time_is_lost() -> None:
    item = table()
    events = [begun()]
    for number in range(12):
        step = f"index c{number}_idx"
        events.append(Event(event="begun", item=item.key, step=step))
        events.append(Event(event="done", item=item.key, step=step, seconds=float(number)))
    [plot] = plots_of(report_of(Record.of(planned(item), events)))
    assert list(plot.colours)[-1] == "other steps"
    assert len(plot.colours) == 7
    assert list(plot.rows[0].bars) == list(plot.colours)
    assert sum(plot.rows[0].bars.values()) == pytest.approx(66.0)
    assert plot.rows[0].text == "1 min 6 s"


def test_plots_are_the_same_whatever_the_user_has_set() -> None:
    report = report_of(done(tables(2)))
    before = page_of(report, "x")
    with matplotlib.rc_context({"text.usetex": True, "svg.fonttype": "path", "font.size": 40}):
        assert page_of(report, "x") == before
        assert matplotlib.rcParams["font.size"] == 40

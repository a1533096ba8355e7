"""Tiers: which command runs a test. Each test has exactly one, as a marker.

A pytest plugin. ``--tier quick,smoke`` selects, and is the default; a node id on the command line
selects every tier. The tier of a parameter (``pytest.param(…, marks=pytest.mark.slow)``) replaces
that of its test, which replaces that of its class, and that of its module. A test without a tier,
or with two in one of these places, is an error of its module's collection.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest

TIERS = {
    "quick": "needs no server, and 2 CPU seconds at most; run by make test",
    "smoke": "shows that a real server, Spark or program works at all; run by make test",
    "servers": "needs a server or Spark, or more time; run by make test-servers, in CI",
    "slow": "minutes each; run by make test-slow, before a release",
    "checks": "reads documents and packaging, without a server; run by make check",
    "documents": "follows a document from its first line to its last; run by make test-documents",
    "engines": "runs Ray, Daft, Polars, DuckDB or granian; run by make test-engines",
    "releases": "starts another release of Spark on one machine; run by make test-releases",
    "matrix": "starts sessions of several releases of Spark, on clusters; run by make test-spark",
    "clients": "runs a client with a big installation of its own; run by make test-clients",
}
DEFAULT = "quick,smoke"
SECONDS = {
    **dict.fromkeys(("smoke", "servers", "engines", "clients"), 1000),
    **dict.fromkeys(("slow", "documents", "releases", "matrix"), 3600),
}
"""Of a test without a marker ``timeout``; other tiers have those of ``pyproject.toml``. They are so
many because the first test of a server waits until that has started, on a busy machine."""
FURTHER_RELEASES = {"4.0", "4.1"}
"""Of Hive. They do what 4.2 does, and each starts a metastore of its own: their cases are slow."""

SERVER_FIXTURES = {"metastores", "glue_server"}
"""No quick test has them; nor the fixture ``spark``, but for a parameter of that name."""

_MARK = re.compile(r"\bmark\.(\w+)")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--tier``."""
    parser.addoption("--tier", help=f"tiers to run, separated by commas ({DEFAULT})")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and check the option.

    Raises:
        pytest.UsageError: There is no such tier.
    """
    for name, meaning in TIERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    if unknown := sorted(selected(config) - TIERS.keys()):
        raise pytest.UsageError(f"no tier {', '.join(unknown)}: choose of {', '.join(TIERS)}")


def selected(config: pytest.Config) -> set[str]:
    """Return the tiers to run."""
    given: str | None = config.getoption("tier")
    if given is None and any("::" in each for each in config.args):
        return {*TIERS}
    return {*(given or DEFAULT).split(",")}


def tiers_of(item: pytest.Item) -> set[str]:
    """Return the tiers that a test is marked with: one, if it is marked as it must be."""
    case = getattr(item, "callspec", None)
    marks = [case.marks] if case else []
    marks += [node.own_markers for node in reversed(item.listchain())]
    tiers = ({mark.name for mark in each} & TIERS.keys() for each in marks)
    found: set[str] = next(filter(None, tiers), set())
    if found == {"servers"} and case and _is_of_further_release(case.params.values()):
        return {"slow"}
    return found


def _is_of_further_release(values: Iterable[object]) -> bool:
    return any(isinstance(each, str) and each in FURTHER_RELEASES for each in values)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail the collection of a module or class whose tests lack a tier, or have two."""
    report = yield
    tests = [each for each in report.result or () if isinstance(each, pytest.Item)]
    objections = [text for each in tests if (text := _objection(each))]
    if objections:
        report.outcome = "failed"
        report.longrepr = "\n".join(objections)
    return report


def _objection(test: pytest.Item) -> str:
    """Return what is wrong with the tier of a test, or nothing."""
    found = tiers_of(test)
    if len(found) != 1:
        has = f"the tiers {', '.join(sorted(found))}" if found else "no tier"
        return (
            f"{test.nodeid} has {has}: mark it, its class or its module with one of "
            f"{', '.join(TIERS)} (tests/tiers.py)"
        )
    case = getattr(test, "callspec", None)
    used = {*getattr(test, "fixturenames", ())} - (case.params.keys() if case else set())
    servers = used & {*SERVER_FIXTURES, "spark"}
    if found == {"quick"} and servers:
        return f"{test.nodeid} is quick, but uses {', '.join(sorted(servers))}: see tests/tiers.py"
    return ""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files that name tiers, but none that is run: importing all costs each process seconds.

    Slow cases can be marked where parameters are defined, in another file.
    """
    tiers = selected(config)
    if "slow" in tiers or not re.fullmatch(r"test_.*\.py", collection_path.name):
        return None
    named = {*_MARK.findall(collection_path.read_text(encoding="utf-8"))} & TIERS.keys()
    return True if named and named.isdisjoint(tiers) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is of other tiers, and limit how long each test may take."""
    tiers = selected(config)
    others = [each for each in items if tiers_of(each).isdisjoint(tiers)]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [each for each in items if not tiers_of(each).isdisjoint(tiers)]
    for each in items:
        [tier] = tiers_of(each)
        if tier in SECONDS and each.get_closest_marker("timeout") is None:
            each.add_marker(pytest.mark.timeout(SECONDS[tier]))


def pytest_report_header(config: pytest.Config) -> str:
    """Say which tiers run."""
    return f"tiers: {', '.join(each for each in TIERS if each in selected(config))}"

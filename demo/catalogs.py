"""The same calls on three catalogs: a real Hive Metastore, and doubles of the others."""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from lance_namespace.errors import UnsupportedOperationError
from servers.glue_server import ACCESS_KEY, REGION, SECRET_KEY, GlueServer
from servers.unity import OPEN_SOURCE_0_6
from servers.unity.server import UnityProcess

from demo.same_calls import same_calls
from demo.story import Story

BUCKET = "demo-lake"
CATALOG = "demo"
_EXPECTED = {
    "has the namespace": True,
    "tables after the write": ["worlds"],
    "rows with moons": ["Earth", "Mars"],
    "rows after the append": 6,
    "tables after the rename": ["planets"],
    "location stays": True,
    "tables after deregistering": [],
    "rows after registering": 6,
    "changed property": "astronomers",
    "tables after the drop": [],
    "has the namespace still": False,
}
_REFUSED = {"changed property": {"on-unity"}}
_UNSUPPORTED = "it cannot"
_WIDTH = 86


@dataclass(frozen=True)
class DemoCatalog:
    """One catalog of the three."""

    name: str
    properties: dict[str, str]
    root: str
    files: Callable[[], list[str]]
    """Lists the files below ``root``."""


def on_all_three(story: Story, hive_uri: str, directory: Path) -> None:
    """Run the calls on each catalog, and compare the results."""
    with ExitStack() as running:
        catalogs = [
            _hive(hive_uri, directory / "warehouse"),
            _glue(story, running),
            _unity(story, running, directory / "unity"),
        ]
        running.enter_context(_configured(story, catalogs, directory / "lance-bridge.yaml"))
        _compare_calls(story, catalogs)
        _check_files(story, catalogs)


def _hive(uri: str, warehouse: Path) -> DemoCatalog:
    properties = {"impl": "hive", "uri": uri}
    return DemoCatalog("on-hive", properties, str(warehouse), lambda: _files(warehouse, "sky.db"))


def _glue(story: Story, running: ExitStack) -> DemoCatalog:
    story.step(
        "Start a double of AWS",
        "moto in its own process: Glue and S3 as AWS documents them, with Glue's pages and "
        "version locks added. It is not AWS, and needs no account.",
    )
    story.call("aws = GlueServer().start()")
    server = running.enter_context(GlueServer())
    root = server.make_bucket(BUCKET)
    story.result(f"Glue and S3 at {server.endpoint}")
    properties = {
        "impl": "glue",
        "region": REGION,
        "endpoint": server.endpoint,
        "root": root,
        "storage.aws_endpoint": server.endpoint,
        "storage.allow_http": "true",
    }
    return DemoCatalog("on-glue", properties, root, lambda: server.keys(BUCKET))


def _unity(story: Story, running: ExitStack, directory: Path) -> DemoCatalog:
    story.step(
        "Start a double of Unity Catalog",
        "This project's double of the open-source server, in its own process, because no Unity "
        "server is available as a package. It answers as releases 0.5 to 0.7 do; docker/ runs "
        "the real one.",
    )
    story.call("unity = UnityProcess().start()")
    process = UnityProcess(OPEN_SOURCE_0_6, [CATALOG])
    # Also stops it if its start is interrupted.
    running.callback(process.stop)
    running.enter_context(process)
    story.result(f"Unity Catalog at {process.url}")
    directory.mkdir()
    properties = {
        "impl": "unity",
        "host": process.url,
        "catalog": CATALOG,
        "root": str(directory),
    }
    return DemoCatalog("on-unity", properties, str(directory), lambda: _files(directory))


def _files(directory: Path, below: str = "") -> list[str]:
    found = (path for path in (directory / below).rglob("*") if path.is_file())
    return sorted(str(path.relative_to(directory)) for path in found)


@contextmanager
def _configured(story: Story, catalogs: list[DemoCatalog], path: Path) -> Iterator[None]:
    """Make the catalogs known to ``lance_bridge.connect`` by name."""
    story.step(
        "Give the three catalogs names",
        "Once, in ~/.lance-bridge.yaml or where $LANCE_BRIDGE_CONFIG says. Secrets can stay in the "
        "environment.",
    )
    named = {catalog.name: catalog.properties for catalog in catalogs}
    text = yaml.safe_dump({"catalogs": named}, sort_keys=False)
    path.write_text(text, encoding="utf-8")
    story.result(text.rstrip())
    added = {
        "LANCE_BRIDGE_CONFIG": str(path),
        "LANCE_BRIDGE_ON_GLUE_ACCESS_KEY_ID": ACCESS_KEY,
        "LANCE_BRIDGE_ON_GLUE_SECRET_ACCESS_KEY": SECRET_KEY,
    }
    story.result("and in the environment: " + ", ".join(added))
    before = dict(os.environ)
    os.environ.update(added)
    try:
        yield
    finally:
        for key in added:
            os.environ.pop(key)
        os.environ.update(before)


def _compare_calls(story: Story, catalogs: list[DemoCatalog]) -> None:
    story.step(
        "Make the same calls on all three",
        "One function, which gets only the name of a catalog.",
    )
    story.call(inspect.getsource(same_calls))
    story.call(f"zip(*(same_calls(name) for name in {[catalog.name for catalog in catalogs]}))")
    for found in zip(*(same_calls(catalog.name) for catalog in catalogs), strict=True):
        what = found[0][0]
        answers = [answer for _, answer in found]
        if what == "location":
            _compare_locations(story, catalogs, answers)
        elif what in _REFUSED:
            _compare_refusals(story, catalogs, what, answers)
        else:
            story.check(f"{what}, on all three", _the_same(answers), _EXPECTED[what])


def _the_same(answers: list[object]) -> object:
    """Return the answer if all are equal, or the list of them."""
    return answers[0] if all(each == answers[0] for each in answers) else answers


def _compare_locations(story: Story, catalogs: list[DemoCatalog], answers: list[object]) -> None:
    for catalog, location in zip(catalogs, answers, strict=True):
        story.result(f"{catalog.name:<8} {location}")
    below = [str(at).startswith(f"{p.root}/") for p, at in zip(catalogs, answers, strict=True)]
    story.check("the location is below the catalog's own root, on all three", all(below), True)


def _compare_refusals(
    story: Story, catalogs: list[DemoCatalog], what: str, answers: list[object]
) -> None:
    """Print which catalogs do not support it, and why."""
    for catalog, answer in zip(catalogs, answers, strict=True):
        refused = isinstance(answer, UnsupportedOperationError)
        expected = _UNSUPPORTED if catalog.name in _REFUSED[what] else _EXPECTED[what]
        story.check(f"{what}, {catalog.name}", _UNSUPPORTED if refused else answer, expected)
        if refused:
            story.result(textwrap.fill(str(answer), _WIDTH))


def _check_files(story: Story, catalogs: list[DemoCatalog]) -> None:
    story.step("List the files that are left", "Dropping the tables deleted their files.")
    for catalog in catalogs:
        story.check(f"files below the root of {catalog.name}", catalog.files(), [])

"""The same calls on three catalogs: a real Hive Metastore, and what stands in for the others."""

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
from servers.unity.process import UnityProcess

from demo.same_calls import same_calls
from demo.telling import Story

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
class Place:
    """One catalog of the three."""

    name: str
    properties: dict[str, str]
    root: str
    files: Callable[[], list[str]]
    """What lies below ``root`` now."""


def on_all_three(story: Story, hive_uri: str, directory: Path) -> None:
    """Run the calls on each, one after the other, and compare."""
    with ExitStack() as running:
        places = [
            _hive(hive_uri, directory / "warehouse"),
            _glue(story, running),
            _unity(story, running, directory / "unity"),
        ]
        running.enter_context(_configured(story, places, directory / "lance-bridge.yaml"))
        _call(story, places)
        _look_for_files(story, places)


def _hive(uri: str, warehouse: Path) -> Place:
    properties = {"impl": "hive", "uri": uri}
    return Place("on-hive", properties, str(warehouse), lambda: _files(warehouse, "sky.db"))


def _glue(story: Story, running: ExitStack) -> Place:
    story.step(
        "Start what stands in for AWS",
        "moto, in a process of its own: Glue and S3 as AWS documents them, with Glue's pages and "
        "locks made as strict. It is not AWS, and needs no account.",
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
    return Place("on-glue", properties, root, lambda: server.keys(BUCKET))


def _unity(story: Story, running: ExitStack, directory: Path) -> Place:
    story.step(
        "Start what stands in for Unity Catalog",
        "This project's own double of the open-source server, in a process of its own, since no "
        "Unity server can be had as a package. It answers as releases 0.5 to 0.7 were seen to; "
        "docker/ has the real one, for those who have Docker.",
    )
    story.call("unity = UnityProcess().start()")
    process = UnityProcess(OPEN_SOURCE_0_6, [CATALOG])
    # An interruption while it starts leaves nobody else to stop it.
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
    return Place("on-unity", properties, str(directory), lambda: _files(directory))


def _files(directory: Path, below: str = "") -> list[str]:
    found = (path for path in (directory / below).rglob("*") if path.is_file())
    return sorted(str(path.relative_to(directory)) for path in found)


@contextmanager
def _configured(story: Story, places: list[Place], path: Path) -> Iterator[None]:
    """Let ``lance_bridge.connect`` know the catalogs by their names for a while."""
    story.step(
        "Give the three catalogs names",
        "Once, in ~/.lance-bridge.yaml or where $LANCE_BRIDGE_CONFIG says. Secrets can stay in the "
        "environment.",
    )
    named = {place.name: place.properties for place in places}
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


def _call(story: Story, places: list[Place]) -> None:
    story.step(
        "Make the very same calls on all three",
        "One function, which knows nothing of a catalog but its name.",
    )
    story.call(inspect.getsource(same_calls))
    story.call(f"zip(*(same_calls(name) for name in {[place.name for place in places]}))")
    for found in zip(*(same_calls(place.name) for place in places), strict=True):
        what = found[0][0]
        answers = [answer for _, answer in found]
        if what == "location":
            _compare_locations(story, places, answers)
        elif what in _REFUSED:
            _compare_refusals(story, places, what, answers)
        else:
            story.check(f"{what}, on all three", _the_same(answers), _EXPECTED[what])


def _the_same(answers: list[object]) -> object:
    """Return the answer that all gave; all of them where they differ."""
    return answers[0] if all(each == answers[0] for each in answers) else answers


def _compare_locations(story: Story, places: list[Place], answers: list[object]) -> None:
    for place, location in zip(places, answers, strict=True):
        story.result(f"{place.name:<8} {location}")
    below = [str(at).startswith(f"{p.root}/") for p, at in zip(places, answers, strict=True)]
    story.check("the location is below the catalog's own root, on all three", all(below), True)


def _compare_refusals(story: Story, places: list[Place], what: str, answers: list[object]) -> None:
    """Say which catalogs can not do it, and why."""
    for place, answer in zip(places, answers, strict=True):
        refused = isinstance(answer, UnsupportedOperationError)
        expected = _UNSUPPORTED if place.name in _REFUSED[what] else _EXPECTED[what]
        story.check(f"{what}, {place.name}", _UNSUPPORTED if refused else answer, expected)
        if refused:
            story.result(textwrap.fill(str(answer), _WIDTH))


def _look_for_files(story: Story, places: list[Place]) -> None:
    story.step("See what is left", "Dropping the tables deleted their files.")
    for place in places:
        story.check(f"files below the root of {place.name}", place.files(), [])

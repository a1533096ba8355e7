"""Every public method of LanceDB's clients, unmodified, on tables of a real Hive Metastore.

The result is the table of `specs/server.md`: ``LANCE_BRIDGE_TEST_WRITE=1`` writes it. Methods that
need Polars are tried by `make test-engines`, which installs it. npm fetches those of Node.js.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
import os
import re
import subprocess
import uuid
import warnings
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import lance_namespace as api
import lancedb
import pytest
from clients.fetched import node_packages
from server.lancedb_clients.trials import (
    CATALOG,
    CONNECTION,
    COUNT,
    TABLE,
    CatalogScene,
    Scene,
    Trial,
    done,
    rows,
)

from lance_bridge_hive import HiveNamespace

pytestmark = pytest.mark.spec("server.md#lancedb", "server.md#operations-of-lancedb")

SPEC = Path(__file__).parents[3] / "specs" / "server.md"
WORKS = "works"
NONE = ""
_ROWS = r"(?<=<!-- lancedb: {0} -->\n).*?(?=<!-- end of lancedb -->)"
ENTERPRISE = "only LanceDB Enterprise has it"
REFUSED = "LanceDB does not support it for remote tables"
REASONS = {
    r"POST /v1/jobs/describe is not supported": "the server has no jobs",
    r"only LanceDB Enterprise has it": ENTERPRISE,
    r"functions run in LanceDB Enterprise": ENTERPRISE,
    r"Function catalog operations|Secret operations|View operations": ENTERPRISE,
    r"SQL is not supported (for|by) this|SQL error .*transport error": ENTERPRISE,
    r"(cancel|list|open|pause|resume)_jobs? is not supported": ENTERPRISE,
    r"lsm\w* is not supported on this table type": ENTERPRISE,
    r"errors are recorded only on LanceDB Cloud": ENTERPRISE,
    r"Unknown or expired SQL query": ENTERPRISE,
    r"A materialized view of an SQL query": "views of SQL queries need LanceDB Enterprise",
    r"a clone reads any location": "a clone would read any location with the server's credentials",
    r"has 2 names; this catalog has 1": "a database in Hive contains no namespaces",
    r"Namespace operations are not supported": "LanceDB lacks it (use `list_tables`)",
    r"'NoneType' object has no attribute '\w+_exists'": "LanceDB fails: it has no namespace client",
    r"the server keeps no cache": "the server keeps no cache between requests",
    r"prewarm_data is currently only": "LanceDB does not support it",
    r"Table 'v' was not found": "no view exists, because none can be created",
    r"Set default-namespace to use one name": "LanceDB puts views in the root namespace",
    r"\[\] has 0 names; tables are in 1": "LanceDB looks for views in the root namespace",
    r"Invalid input: Table identifier \['v'\]": "LanceDB puts views in the root namespace",
    r"drop_database is deprecated": "deprecated in LanceDB (use `drop_all_tables`)",
    r"to_(arrow|pandas)\(\) is not yet supported": "LanceDB lacks it (use `search` or pylance)",
    r"fetch_blob\w+(\(\))? (requires|is not supported)": "LanceDB needs protocol 0.5 or later",
    r"a remote refresh runs as a server job": "LanceDB does not support it",
    r"not supported on (the )?LanceDB [cC]loud": REFUSED,
    r"cannot be run on a remote table": REFUSED,
    r"(materialized views|views) are supported only on local": REFUSED,
    r"Getting the read consistency": REFUSED,
    r"is a no-op on LanceDB Cloud": "LanceDB does nothing for remote tables",
    r"has no attribute '(migrate_v2\w+|_uri)'": "LanceDB fails with AttributeError",
    r"NotImplementedError: $": "LanceDB does not support it",
    r"Dropping all tables is not currently": "LanceDB does not support it",
}
"""Reasons by what LanceDB raises. Anything else is a failure of the test."""
TARGETS = ("`db://`", "`db://`, async", "`rest`", "`rest`, async")
CATALOG_TARGETS = ("`connect_catalog`", "`connect_catalog`, async")
NEED_POLARS = {"to_polars"}
AnyScene = TypeVar("AnyScene")
SCRIPT = Path(__file__).parent / "node" / "operations.cjs"
TARGET = "Node.js"


def reason_of(text: str) -> str | None:
    """Return why a method does not work, or None if no reason explains the error."""
    return next((each for pattern, each in REASONS.items() if re.search(pattern, text)), None)


def methods_of(owner: Any) -> list[str]:
    """Return the public methods and properties of an object; not those that make another."""
    names = [name for name in dir(type(owner)) if not name.startswith("_")]
    return [
        name
        for name in names
        if not isinstance(inspect.getattr_static(type(owner), name), classmethod)
    ]


def render(results: Mapping[tuple[str, str], str], targets: Iterable[str]) -> str:
    """Return the rows of the table: a method, what comes of it in each client, and why."""
    targets = list(targets)
    names = sorted({name for name, _ in results})
    lines = [f"| method | {' | '.join(targets)} | reason |", "|---" * (len(targets) + 2) + "|"]
    for name in names:
        found = [results.get((name, target), NONE) for target in targets]
        cells = [each if each in (WORKS, NONE) else "no" for each in found]
        why = dict.fromkeys(each for each in found if each not in (WORKS, NONE))
        lines.append(f"| `{name}` | {' | '.join(cells)} | {'; '.join(why)} |")
    return "\n".join(lines) + "\n"


def documented_methods(part: str) -> set[str]:
    """Return the names of the methods that have a row in the document."""
    found = re.search(_ROWS.format(part), SPEC.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return set(_by_method(found.group()))


def _by_method(rows: str) -> dict[str, str]:
    return {line.split("`")[1]: line for line in rows.splitlines()[2:]}


def require_written(part: str, rows: str, untried: Collection[str] = ()) -> None:
    """Check that the rows stand in the document; with ``LANCE_BRIDGE_TEST_WRITE`` write them.

    Args:
        untried: Methods that have no row here, and keep the one that they have in the document.
    """
    pattern = re.compile(_ROWS.format(part), re.DOTALL)
    text = SPEC.read_text(encoding="utf-8")
    if untried:
        old = _by_method("".join(pattern.findall(text)[:1]))
        merged = _by_method(rows) | {name: old[name] for name in untried}
        lines = [*rows.splitlines()[:2], *(merged[name] for name in sorted(merged))]
        rows = "\n".join(lines) + "\n"
    if os.environ.get("LANCE_BRIDGE_TEST_WRITE"):
        text = pattern.sub(lambda _: rows, text, count=1)
        SPEC.write_text(text, encoding="utf-8")
    found = pattern.search(text)
    assert found is not None
    assert found.group() == rows


async def _connect(target: str, url: str, database: str) -> tuple[Any, dict[str, Any]]:
    if "db://" in target:
        connect: Any = lancedb.connect_async if "async" in target else lancedb.connect
        return await done(connect(f"db://{database}", api_key="k", host_override=url)), {}
    named: Any = lancedb.connect_namespace_async if "async" in target else lancedb.connect_namespace
    return await done(named("rest", {"uri": url})), {"namespace_path": [database]}


async def _scene(hive: HiveNamespace, url: str, target: str) -> Scene:
    database = f"lancedb_{uuid.uuid4().hex[:12]}"
    hive.create_namespace(api.CreateNamespaceRequest(id=[database]))
    db, at = await _connect(target, url, database)
    table = await done(db.create_table("t", rows(COUNT), **at))
    return Scene(db, table, at)


async def _try(
    trial: Callable[[AnyScene], Awaitable[None]], scene: AnyScene, failures: list[str]
) -> str:
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*is a no-op")
            await trial(scene)
    except Exception as error:  # noqa: BLE001 - whatever a method raises is its result
        text = f"{type(error).__name__}: {error}"
        reason = reason_of(text)
        if reason is None:
            failures.append(text)
        return reason or "failed"
    return WORKS


async def _results(
    hive: HiveNamespace, url: str, part: str, trials: dict[str, Trial], untried: Collection[str]
) -> dict[tuple[str, str], str]:
    found, failures = {}, list[str]()
    for target in TARGETS:
        scene = await _scene(hive, url, target)
        for name in methods_of(scene.table if part == "tables" else scene.db):
            assert name in trials, f"{target}: there is no trial of {name}"
            if name in untried:
                continue
            trial_scene = await _scene(hive, url, target)
            found[name, target] = await _try(trials[name], trial_scene, failures)
            if found[name, target] == "failed":
                failures[-1] = f"{target} {name}: {failures[-1]}"
    assert not failures, "\n".join(failures)
    return found


@pytest.mark.servers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("part", "trials"), [("connections", CONNECTION), ("tables", TABLE)])
def test_every_method_works_or_has_the_reason_that_is_documented(
    hive: HiveNamespace, url: str, part: str, trials: dict[str, Trial]
) -> None:
    has_polars = importlib.util.find_spec("polars") is not None
    untried = set() if has_polars else NEED_POLARS & documented_methods(part)
    results = asyncio.run(_results(hive, url, part, trials, untried))
    require_written(part, render(results, TARGETS), untried)


@pytest.mark.engines
@pytest.mark.filterwarnings("ignore")
def test_methods_that_need_polars_are_as_documented(hive: HiveNamespace, url: str) -> None:
    untried = documented_methods("tables") - NEED_POLARS
    results = asyncio.run(_results(hive, url, "tables", TABLE, untried))
    require_written("tables", render(results, TARGETS), untried)


async def _catalog_results(hive: HiveNamespace, url: str) -> dict[tuple[str, str], str]:
    found, failures = {}, list[str]()
    for target in CATALOG_TARGETS:
        connect: Any = (
            lancedb.connect_catalog_async if "async" in target else lancedb.connect_catalog
        )
        catalog = await done(connect(url, api_key="k"))
        for name in methods_of(catalog):
            existing, free = (f"lancedb_{uuid.uuid4().hex[:12]}" for _ in range(2))
            hive.create_namespace(api.CreateNamespaceRequest(id=[existing]))
            scene = CatalogScene(catalog, url, existing, free)
            found[name, target] = await _try(CATALOG[name], scene, failures)
    assert not failures, "\n".join(failures)
    return found


@pytest.mark.servers
def test_every_method_of_a_catalog_works_or_has_the_reason_that_is_documented(
    hive: HiveNamespace, url: str
) -> None:
    results = asyncio.run(_catalog_results(hive, url))
    require_written("catalogs", render(results, CATALOG_TARGETS))


# -- Node.js ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def packages() -> Path:
    return node_packages()


def _run(*arguments: object) -> str:
    """Run Node.js with these arguments; return what it prints."""
    command = ["node", *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.servers
def test_every_method_of_node_works_or_has_the_reason_that_is_documented(
    hive: HiveNamespace, url: str, packages: Path
) -> None:
    hive.create_namespace(api.CreateNamespaceRequest(id=["nodes"]))
    results = json.loads(_run(SCRIPT, packages, url, "nodes"))
    assert "connectCatalog" not in results.pop("exports")
    for part, found in results.items():
        reasons = {
            (name, TARGET): text if text == WORKS else reason_of(text)
            for name, text in found.items()
        }
        failures = [(name, found[name]) for (name, _), reason in reasons.items() if reason is None]
        assert failures == []
        require_written(f"node {part}", render({k: v or "" for k, v in reasons.items()}, [TARGET]))


@pytest.mark.servers
def test_the_lines_for_node_run(
    hive: HiveNamespace, url: str, packages: Path, tmp_path: Path
) -> None:
    hive.create_namespace(api.CreateNamespaceRequest(id=["films"]))
    [lines] = re.findall(r"```js\n(.*?)```", SPEC.read_text(encoding="utf-8"), re.DOTALL)
    script = tmp_path / "lines.mjs"
    script.write_text(lines.replace("https://gateway.example.com", url))
    (tmp_path / "node_modules").symlink_to(packages / "node_modules")
    assert "Alien" in _run("--preserve-symlinks", script)
    hive.drop_table(api.DropTableRequest(id=["films", "t"]))
    hive.drop_namespace(api.DropNamespaceRequest(id=["films"]))

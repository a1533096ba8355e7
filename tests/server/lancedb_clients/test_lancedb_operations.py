"""Every public method of LanceDB's clients, unmodified, on tables of a real Hive Metastore.

The result is the table of `specs/server.md`: ``LANCE_BRIDGE_TEST_WRITE=1`` writes it. Methods that
need Polars are tried by `make test-engines`, which installs it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import uuid
import warnings
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeVar

import lance_namespace as api
import lancedb
import pytest
from server.lancedb_clients.operations_table import (
    WORKS,
    documented_methods,
    methods_of,
    reason_of,
    render,
    require_written,
)
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

pytestmark = [pytest.mark.spec("server.md#operations-of-lancedb")]

TARGETS = ("`db://`", "`db://`, async", "`rest`", "`rest`, async")
CATALOG_TARGETS = ("`connect_catalog`", "`connect_catalog`, async")
NEED_POLARS = {"to_polars"}
AnyScene = TypeVar("AnyScene")


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

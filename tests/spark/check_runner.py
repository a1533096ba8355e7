"""Runs checks of a module with one session after another catalog, and reports each."""

from __future__ import annotations

import importlib
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

from lance_namespace import CreateNamespaceRequest

from lance_bridge_spark.addresses import catalogs_of
from lance_bridge_spark.registration import register

from .sql_helpers import Database


def checks(
    spark: Any, modules: Sequence[str], catalogs: dict[str, list[str]], only: Sequence[str] = ()
) -> dict[str, str]:
    """Run all checks of modules, and return what was wrong with which.

    Args:
        catalogs: Namespaces to make and to use, by the name of a catalog of the session.
        only: Names of checks; all where it is empty.
    """
    register(spark)
    wrong, done = {}, 0
    for catalog, path in catalogs.items():
        namespace = catalogs_of(spark)[catalog].connect()
        namespace.create_namespace(CreateNamespaceRequest(id=path, mode="exist_ok"))
        db = Database(spark, catalog, ".".join(path))
        for check in (each for name in modules for each in _checks_of(name, catalog)):
            if only and check.__name__ not in only:
                continue
            done += 1
            started = time.monotonic()
            try:
                check(db)
            except Exception:  # noqa: BLE001 - every failure is reported, and the others run
                wrong[f"{catalog}: {check.__name__}"] = traceback.format_exc()[-3000:]
                print(wrong[f"{catalog}: {check.__name__}"])
            print(f"{time.monotonic() - started:6.1f} s {catalog}: {check.__name__}", flush=True)
    assert done, f"no checks in {modules}"
    return wrong


def _checks_of(name: str, catalog: str) -> Iterator[Callable[[Database], None]]:
    """Yield the checks of a module and of its parts, where they are for a catalog."""
    module = importlib.import_module(name)
    parts: Sequence[ModuleType] = (module, *getattr(module, "PARTS", ()))
    if getattr(module, "ONLY", catalog) == catalog:
        for part in parts:
            yield from (each for key, each in vars(part).items() if key.startswith("check_"))

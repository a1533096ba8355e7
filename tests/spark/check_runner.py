"""Runs checks of a module with one session after another catalog, and reports each."""

from __future__ import annotations

import importlib
import time
import traceback
from collections.abc import Sequence
from typing import Any

from lance_namespace import CreateNamespaceRequest

from lance_bridge_spark.addresses import catalogs_of
from lance_bridge_spark.registration import register


def checks(
    spark: Any, modules: Sequence[str], catalogs: dict[str, list[str]], only: Sequence[str] = ()
) -> dict[str, str]:
    """Run all checks of modules, and return what was wrong with which.

    Args:
        modules: Importable ones, each with its ``CHECKS``, or ``module:NAME`` for others.
        catalogs: Namespaces to make and to use, by the name of a catalog of the session.
        only: Names of checks; all where it is empty.
    """
    register(spark)
    wrong, done = {}, 0
    for catalog, path in catalogs.items():
        namespace = catalogs_of(spark)[catalog].connect()
        namespace.create_namespace(CreateNamespaceRequest(id=path, mode="exist_ok"))
        for module in modules:
            name, _, group = module.partition(":")
            found = importlib.import_module(name)
            if getattr(found, "ONLY", catalog) != catalog:
                continue
            for check in getattr(found, group or "CHECKS"):
                if only and check.__name__ not in only:
                    continue
                done += 1
                started = time.monotonic()
                try:
                    check(spark, catalog, ".".join(path))
                except Exception:  # noqa: BLE001 - every failure is reported, and the others run
                    wrong[f"{catalog}: {check.__name__}"] = traceback.format_exc()[-3000:]
                    print(wrong[f"{catalog}: {check.__name__}"])
                print(
                    f"{time.monotonic() - started:6.1f} s {catalog}: {check.__name__}", flush=True
                )
    assert done, f"no checks in {modules}"
    return wrong

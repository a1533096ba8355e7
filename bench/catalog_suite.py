"""Operations on a catalog (Hive Metastore, Glue or Unity), compared with calls of the raw client.

Starts the catalog with many tables, half of them Lance tables, and many namespaces. Measures each
operation in turns with the raw client, then its calls on the wire. moto stands in for AWS, and the
project's own double for Unity's server: both do less than a server with a database. Missed bars are
reported only.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from typing import Any

from bench import catalogs
from bench.catalogs import NAMESPACE, Catalog
from bench.runner import (
    Operation,
    Row,
    Way,
    at_least,
    count_calls,
    operation_rows,
    request,
    show_progress,
    take_turns,
)
from lance_bridge_metastore import RELEASES

_DEFAULTS = {"hive": (1000, 60), "glue": (300, 30), "unity": (300, 40)}
"""For each catalog: tables and rounds."""
_REHEARSALS = 5
_COUNTED_ROUNDS = 5


def add_options(parser: argparse.ArgumentParser, suite: str) -> None:
    """Add the options of a catalog's suite."""
    tables, rounds = _DEFAULTS[suite]
    parser.add_argument("--tables", type=at_least(2), default=tables, help="half are Lance tables")
    parser.add_argument("--databases", type=at_least(2), default=300, help="or schemas")
    parser.add_argument("--rounds", type=at_least(1), default=rounds, help="of all operations")
    if suite == "hive":
        parser.add_argument("--version", choices=list(RELEASES), default="2.3", help="of Hive")


def measure(options: argparse.Namespace) -> Row:
    """Start the catalog, and measure operations on it."""
    show_progress("starting and filling the catalog …")
    with _start(options) as catalog:
        catalog.fill()
        show_progress(f"measuring operations on {catalog.title} …")
        operations = measure_operations(catalog, options.rounds)
        lance_tables = len(catalog.lance_names)
        return {"catalog": catalog.title, "lance_tables": lance_tables, "operations": operations}


def _start(options: argparse.Namespace) -> AbstractContextManager[Catalog]:
    size = (options.tables, options.databases)
    if options.suite == "hive":
        return catalogs.hive(options.version, *size)
    return {"glue": catalogs.glue, "unity": catalogs.unity}[options.suite](*size)


def measure_operations(catalog: Catalog, rounds: int) -> list[Row]:
    """Time all operations on direct connections, then count their calls through the proxy."""
    with catalog.open_client() as raw:
        with closing(catalog.connect()) as namespace:
            operations = catalog_operations(catalog, namespace, raw)
            figures = take_turns(operations, rounds, _REHEARSALS)
        with catalog.counted() as (wire, counted):
            count_calls(catalog_operations(catalog, counted, raw), wire, figures, _COUNTED_ROUNDS)
    return operation_rows(operations, figures)


def catalog_operations(catalog: Catalog, namespace: Any, raw: Any) -> list[Operation]:
    """Return the operations in a possible order for each round; a turn is a number."""
    names = catalog.lance_names

    def operation(
        name: str,
        is_right: Callable[[Any, int], bool],
        path: Callable[[int], list[str]] = lambda _: [NAMESPACE],
        raw_arguments: Callable[[int], list[Any]] = lambda _: [],
        **fields: Any,
    ) -> Operation:
        method = name.removesuffix(" limit 10")
        ways: dict[str, Way] = {
            "ours": lambda n: request(namespace, method, id=path(n), **fields),
            "raw": lambda n: catalog.raw(method, raw, *raw_arguments(n)),
        }
        return Operation(
            name,
            ways,
            lambda found, n: is_right(found["ours"], n),
            catalog.bars(method),
        )

    def chosen(n: int) -> str:
        return names[n * 37 % len(names)]

    def ours(n: int) -> list[str]:
        return [NAMESPACE, f"ours_{n}"]

    def is_ours(found: Any, n: int) -> bool:
        return catalog.is_at(f"ours_{n}", found.location)

    def has_all_namespaces(found: Any, _: int) -> bool:
        return len(found.namespaces) == catalog.namespaces and NAMESPACE in found.namespaces

    return [
        operation("list_tables", lambda found, _: bool(found.tables == names)),
        operation(
            "list_tables limit 10", lambda found, _: bool(found.tables == names[:10]), limit=10
        ),
        operation("list_namespaces", has_all_namespaces, lambda _: []),
        operation(
            "describe_table",
            lambda found, n: catalog.is_at(chosen(n), found.location),
            lambda n: [NAMESPACE, chosen(n)],
            lambda n: [chosen(n)],
        ),
        operation("declare_table", is_ours, ours, lambda n: [f"raw_{n}"]),
        operation("deregister_table", is_ours, ours, lambda n: [f"raw_{n}"]),
    ]

"""Pages of a database of many Lance tables, on an embedded Hive Metastore.

The tables are copies of one that is declared, made in the metastore's Derby database, which takes
minutes; the metastore cannot tell them from others. Times are of one client on a machine that may
do other work; those of the processor are of the metastore and the gateway. Missed bars are
reported only.
"""

from __future__ import annotations

import argparse
import html
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import lance_namespace as api
from server.serving import serving

from bench.runner import Bar, at_least, make_report, make_row, show_progress
from lance_bridge_federated import FederatedNamespace
from lance_bridge_hive import HiveNamespace
from lance_bridge_metastore import RELEASES, Metastore
from lance_bridge_metastore.artifacts import jars_of
from lance_bridge_metastore.java import find_java
from lance_bridge_server.app import create_app
from lance_bridge_server.gateway import Gateway

PAGE_BAR = Bar("ms", "<=", 500)
_DATABASE, _FIRST = "many", "t"
_COPY = Path(__file__).with_name("CopyTables.java")
_TICKS = 100  # of the processor's time in /proc, a second


def add_options(parser: argparse.ArgumentParser, _: str) -> None:
    """Add the options of the suite."""
    parser.add_argument("--tables", type=at_least(1000), default=100_000)
    parser.add_argument("--rounds", type=at_least(1), default=10, help="of each page")
    parser.add_argument("--version", choices=list(RELEASES), default="2.3", help="of Hive")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the first time that a page is shown, and later times."""
    with (
        tempfile.TemporaryDirectory() as directory,
        many_tables(options.version, Path(directory), options.tables) as (metastore, hive),
    ):
        rows = list(_measure(metastore, hive, options.tables, options.rounds))
    facts = {"catalog": f"Hive Metastore {options.version}", "tables": options.tables}
    return make_report(facts, {"pages": rows})


@contextmanager
def many_tables(
    version: str, directory: Path, count: int
) -> Iterator[tuple[Metastore, HiveNamespace]]:
    """Run a metastore with a database of so many Lance tables."""
    show_progress(f"making {count} tables …")
    with (
        Metastore(version, directory) as metastore,
        HiveNamespace(uri=metastore.uri, root=str(directory / "data")) as hive,
    ):
        hive.create_namespace(api.CreateNamespaceRequest(id=[_DATABASE]))
        hive.declare_table(api.DeclareTableRequest(id=[_DATABASE, _FIRST]))
        metastore.stop()
        jars = jars_of(metastore.release)
        java = find_java(metastore.release.minimum_java).path
        database = str(directory / "metastore_db")
        command = [java, "-cp", f"{jars}/*", str(_COPY), database, str(count - 1)]
        subprocess.run(command, check=True, cwd=directory)
        metastore.start()
        yield metastore, hive


def _measure(
    metastore: Metastore, hive: HiveNamespace, tables: int, rounds: int
) -> Iterator[dict[str, Any]]:
    catalogs = {"prod": hive}
    gateway = Gateway(FederatedNamespace(catalogs), catalogs=catalogs)
    with serving(create_app(gateway)) as url, httpx.Client(base_url=url, timeout=120) as client:
        first = f"/ui/namespace/prod/{_DATABASE}"
        yield _row("first page, not listed before", metastore, 1, partial(_has, client, first))
        following = _next_page(client.get(first).text)
        last = f"{_FIRST}{1000 + tables // 2}"
        pages = {
            "catalogs": ("/ui", "prod"),
            "first page": (first, "Next page"),
            "second page": (following, "First page"),
            "table": (f"/ui/table/prod/{_DATABASE}/{last}", "declared, no data yet"),
            "search by name": (f"/ui/search?q={last}", last),
        }
        for name, (path, text) in pages.items():
            show_progress(f"measuring {name} …")
            yield _row(name, metastore, rounds, partial(_has, client, path, text))


def _next_page(text: str) -> str:
    found = re.search(r'href="([^"]+)" rel="next"', text)
    assert found, "the first page has all tables"
    return html.unescape(found[1])


def _has(client: httpx.Client, path: str, text: str = "Next page") -> bool:
    answer = client.get(path)
    return answer.status_code == 200 and text in answer.text


def _row(name: str, metastore: Metastore, rounds: int, get: Callable[[], bool]) -> dict[str, Any]:
    times, wrong = [], 0
    processor = _processor_seconds(metastore)
    for _ in range(rounds):
        started = time.perf_counter()
        wrong += not get()
        times.append(time.perf_counter() - started)
    processor = (_processor_seconds(metastore) - processor) / rounds
    found = {"page": name, "ms": statistics.median(times) * 1000, "cpu_ms": processor * 1000}
    return make_row(found, [PAGE_BAR], wrong)


def _processor_seconds(metastore: Metastore) -> float:
    """Return the time of the processor that the metastore and this process have taken."""
    fields = Path(f"/proc/{metastore.pid}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / _TICKS

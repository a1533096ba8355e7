"""The program as a process: Ctrl-C, retries, and what it says where a package is missing."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from servers.processes import free_port, wait_until

from .conftest import Lake
from .running import offered, run, run_without, said, started

pytestmark = pytest.mark.servers

FRAGMENTS = 400
HIVE = ("thrift", "hmsclient", "pymetastore", "puresasl")
METASTORE = ("metastore", "start", "--port", "0")


@pytest.mark.spec("cli.md#ctrl-c")
def test_ctrl_c_ends_a_command_that_waits_for_a_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"uri=thrift://127.0.0.1:{silent.getsockname()[1]}"
        with started("doctor", "hive", "-p", uri) as running:
            silent.settimeout(60)
            connection, _ = silent.accept()
            with connection:
                assert connection.recv(1)  # it has asked, and waits
                code, out, error = running.interrupt()
    assert (code, out) == (130, "")
    assert "Traceback" not in error


@pytest.mark.spec("cli.md#ctrl-c")
def test_ctrl_c_while_a_table_is_compacted_leaves_it_whole(lake: Lake) -> None:
    name = lake.create("orders", pa.table({"id": [0]}))
    place = str(lake.place("orders"))
    more = pa.table({"id": range(1, FRAGMENTS)})
    lance.write_dataset(more, place, mode="append", max_rows_per_file=1, max_rows_per_group=1)
    before = lance.dataset(place)
    data = Path(place, "data")
    files = len(list(data.iterdir()))
    command = ["maintain", "compact", "prod", name, "--target-rows", "2"]
    with started(*command) as running:
        wait_until(lambda: len(list(data.iterdir())) > files)
        code, out, error = running.interrupt()
    assert (code, out) == (130, "")
    assert "Traceback" not in error
    after = lance.dataset(place)
    assert after.version == before.version
    assert after.count_rows() == FRAGMENTS
    run("maintain", "compact", "prod", name)
    assert len(lance.dataset(place).get_fragments()) == 1


@pytest.mark.spec("cli.md#completion")
def test_tables_and_namespaces_are_completed(lake: Lake) -> None:
    lake.create("orders")
    lake.create("orders_old")
    name = lake.database
    assert offered("table", "head", "prod", name[:-1]) == [f"{name}.orders", f"{name}.orders_old"]
    assert offered("table", "head", "prod", f"{name}.orders_") == [f"{name}.orders_old"]
    assert offered("ns", "describe", "prod", name) == [name]
    given = ["-p", f"uri={lake.metastore.uri}"]
    assert offered("table", "count", *given, "hive", f"{name}.orders_") == [f"{name}.orders_old"]


@pytest.mark.spec("cli.md#exit-codes", "cli.md#metastore")
def test_without_its_extra_a_command_says_what_to_install_and_others_work(config: Path) -> None:
    config.write_text("catalogs: {}\n")
    command = ["table", "list", "hive", "-p", "uri=thrift://h:1"]
    table, metastore, others = run_without(HIVE, command, METASTORE, ["catalogs", "list"])
    [without_spark] = run_without(["pyspark"], METASTORE)
    assert table.code == metastore.code == without_spark.code == 1
    assert "pip install 'lance-bridge[hive]'" in said(table.stderr)
    for done in (metastore, without_spark):
        assert "pip install 'lance-bridge[hive-embedded]'" in said(done.stderr)
    assert (others.code, others.stderr) == (0, "")
    assert "hive" in others.stdout


@pytest.mark.spec("cli.md#exit-codes")
@pytest.mark.usefixtures("config")
def test_retries_at_a_closed_port_are_reported_within_two_seconds() -> None:
    uri = f"uri=thrift://127.0.0.1:{free_port()}"
    command = [sys.executable, "-c", "from lance_bridge_cli import main; main()"]
    waits = ["table", "list", "hive", "-p", uri, "-p", "client.retry-timeout=2"]
    with subprocess.Popen(
        [*command, *waits], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        said_at = time.monotonic()
        out, rest = process.communicate(timeout=60)
        waited = time.monotonic() - said_at
    assert "no metastore can be reached" in first
    assert "trying again for up to 2 s (client.retry-timeout)" in first
    assert waited > 0.7, "the message came with the failure, and not before the wait"
    assert (process.returncode, out) == (1, "")
    assert "connection refused" in said(rest)

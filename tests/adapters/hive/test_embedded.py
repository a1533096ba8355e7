"""The embedded metastore starts, keeps its state, ends with its parent, and reports errors."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import (
    Database,
    GetTableRequest,
    MetaException,
)
from servers.hive_entries import raw_client, raw_table
from servers.metastores import VERSIONS, Metastores
from servers.processes import wait_until

import lance_bridge_metastore as embedded
from lance_bridge_metastore import Metastore, MetastoreStartError

pytestmark = pytest.mark.servers

LANCE_FILTER = 'hive_filter_field_params__table_type like "(?i)lance"'


def database(name: str) -> Database:
    return Database(name=name, description="", locationUri=None, parameters={})


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# -- every release -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_each_release_serves_lance_tables_on_the_loopback_address_only(
    metastores: Metastores, version: str
) -> None:
    metastore = metastores.get(version)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((_address_of_this_machine(), metastore.port), timeout=5)
    with raw_client(metastore.port) as hive:
        hive.create_database(database("each_release"))
        hive.create_table(raw_table("each_release", "vectors", "s3://bucket/vectors.lance"))
        location = hive.get_database("each_release").locationUri
        hive.create_table(raw_table("each_release", "beside", f"{location}/beside.lance"))
        request = GetTableRequest(dbName="each_release", tblName="vectors")
        table = hive.get_table_req(request).table
        names = hive.get_table_names_by_filter("each_release", LANCE_FILTER, -1)
        hive.drop_table("each_release", "vectors", False)
        hive.drop_table("each_release", "beside", False)
        hive.drop_database("each_release", False, False)
        left = hive.get_all_databases()
    assert table.sd.location == "s3://bucket/vectors.lance"
    assert table.tableType == "EXTERNAL_TABLE"
    assert sorted(names) == ["beside", "vectors"]
    assert location == f"{metastore.warehouse.replace('file://', 'file:')}/each_release.db"
    assert "each_release" not in left


def _address_of_this_machine() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Connecting a datagram socket sends nothing; it only chooses the address to send from.
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


def test_another_shares_no_state_and_refuses_object_stores_as_hive_ships_it(
    metastore: Metastore, metastores: Metastores
) -> None:
    with (
        closing(metastores.new("2.3", stub=False)) as plain,
        raw_client(plain.port) as hive,
        raw_client(metastore.port) as shared,
    ):
        hive.create_database(database("only_here"))
        assert "only_here" not in shared.get_all_databases()
        with pytest.raises(MetaException, match="No FileSystem for scheme"):
            hive.create_table(raw_table("only_here", "vectors", "s3://bucket/vectors.lance"))
    assert plain.port != metastore.port


# -- start and stop ------------------------------------------------------------------------------


@pytest.mark.slow
def test_it_outlives_its_thread_keeps_its_state_and_ends_with_close() -> None:
    metastore = Metastore("2.3")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(metastore.start).result()
    with metastore:
        directory, port = metastore.directory, metastore.port
        pids = [metastore.pid]
        make_databases(metastore)
        metastore.restart()
        assert metastore.port == port
        pids.append(metastore.pid)
        metastore.kill()
        assert metastore.pid is None
        metastore.start()
        pids.append(metastore.pid)
        require_databases(metastore)
        assert metastore.is_running
    assert len(set(pids)) == 3
    assert not any(pid is None or is_alive(pid) for pid in pids)
    assert not directory.exists()


@pytest.mark.slow
def test_a_directory_keeps_its_state_and_is_in_use_as_long_as_its_metastore_runs(
    tmp_path: Path,
) -> None:
    first, second = Metastore("2.3", tmp_path), Metastore("2.3", tmp_path)
    with first:
        make_databases(first)
        configured = (tmp_path / "conf" / "hive-site.xml").read_bytes()
        for _ in range(2):
            with pytest.raises(MetastoreStartError, match="in use by another metastore"):
                second.start()
            second.close()
        assert (tmp_path / "conf" / "hive-site.xml").read_bytes() == configured
        first.kill()
        first.start()
    with second:
        require_databases(second)
        # The database has a lock of its own.
        (tmp_path / "lock").unlink()
        third = Metastore("2.3", tmp_path)
        with pytest.raises(MetastoreStartError, match="in use by another metastore"):
            third.start()
        third.close()
    assert (tmp_path / "metastore_db").is_dir()


def make_databases(metastore: Metastore) -> None:
    with raw_client(metastore.port) as hive:
        for number in range(20):
            hive.create_database(database(f"kept_{number}"))


def require_databases(metastore: Metastore) -> None:
    with raw_client(metastore.port) as hive:
        assert len(hive.get_databases("kept_*")) == 20


def test_a_running_metastore_refuses_a_second_start(metastore: Metastore) -> None:
    with pytest.raises(MetastoreStartError, match="is already running"):
        metastore.start()


OWNER = """
import sys
from lance_bridge_metastore import Metastore
metastore = Metastore("2.3").start()
print(metastore.pid, metastore.directory, flush=True)
sys.stdin.read()
"""


def start_owner() -> tuple[subprocess.Popen[str], int, Path]:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    pid, directory = owner.stdout.readline().split()
    return owner, int(pid), Path(directory)


@pytest.mark.slow
def test_no_jvm_outlives_a_killed_parent() -> None:
    owner, pid, directory = start_owner()
    assert is_alive(pid)
    owner.kill()
    owner.communicate()
    wait_until(lambda: not is_alive(pid))
    wait_until(lambda: not directory.exists())


@pytest.mark.slow
def test_no_jvm_outlives_its_guard() -> None:
    with Metastore("2.3") as metastore:
        pid = metastore.pid
        assert pid is not None
        status = Path(f"/proc/{pid}/status").read_text()
        guard = next(line.split()[1] for line in status.splitlines() if line.startswith("PPid"))
        os.kill(int(guard), signal.SIGKILL)
        wait_until(lambda: not is_alive(pid))
        wait_until(lambda: not metastore.is_running)


@pytest.mark.slow
def test_no_jvm_outlives_a_parent_that_did_not_close_it() -> None:
    owner, pid, directory = start_owner()
    owner.communicate("", timeout=60)
    assert not is_alive(pid)
    assert not directory.exists()


@pytest.mark.slow
def test_the_command_prints_its_uri_and_ends_on_sigterm(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lance_bridge_metastore", "--port", "0"]
    running = subprocess.Popen(
        [*command, "--directory", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline().startswith("Starting Hive Metastore 2.3.10")
    uri = running.stdout.readline().strip()
    with raw_client(int(uri.rpartition(":")[2])) as hive:
        assert hive.get_all_databases() == ["default"]
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)
    assert running.returncode == 0


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        (
            {"settings": {"javax.jdo.option.ConnectionDriverName": "no.such.Driver"}},
            r"(?s)ended while starting.*no\.such\.Driver",
        ),
        ({"start_timeout": 0.1}, r"did not respond within 0\.1 seconds"),
    ],
    ids=["dies", "does not answer"],
)
def test_a_metastore_that_does_not_start_is_stopped_and_reported(
    properties: dict[str, Any], says: str
) -> None:
    metastore = Metastore("2.3", **properties)
    with pytest.raises(MetastoreStartError, match=says):
        metastore.start()
    assert not metastore.is_running
    metastore.close()


def test_a_port_in_use_is_refused_at_once(metastore: Metastore) -> None:
    other = Metastore("2.3", port=metastore.port)
    with pytest.raises(MetastoreStartError, match=f"Port {metastore.port} is in use"):
        other.start()
    other.close()


# -- fetching ------------------------------------------------------------------------------------


def release(artifact: str, version: str) -> embedded.Release:
    jar = embedded.releases.Artifact("commons-cli", artifact, version)
    return embedded.Release("test", "0.0.1", minimum_java=17, artifacts=(jar,))


def test_ivy_fetches_an_artifact_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_CACHE", str(tmp_path / "cache"))
    jars = embedded.jars_of(release("commons-cli", "1.5.0"))
    assert [jar.name for jar in jars.glob("*.jar")] == ["commons-cli-1.5.0.jar"]
    marker = json.loads((jars / "complete.json").read_text())
    assert marker["commons-cli-1.5.0.jar"] == (jars / "commons-cli-1.5.0.jar").stat().st_size


def test_a_failed_fetch_reports_ivys_output_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(embedded.ArtifactsUnavailableError, match=r"(?s)0\.0\.1.*no-such-artifact"):
        embedded.jars_of(release("no-such-artifact", "1.0"))
    assert list((tmp_path / "cache").rglob("complete.json")) == []

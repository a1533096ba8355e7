"""The embedded metastore: its command, jars and settings, and how it starts, ends and fails."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
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
from lance_bridge import jvm
from lance_bridge_metastore import (
    ArtifactsUnavailableError,
    JavaNotFoundError,
    Metastore,
    MetastoreStartError,
    releases,
)
from lance_bridge_metastore import __main__ as command
from lance_bridge_metastore.server import hive_site, to_xml

pytestmark = pytest.mark.quick

# -- python -m lance_bridge_metastore -------------------------------------------------------------


@pytest.fixture(autouse=True)
def _signals_as_they_were() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every start fail before it begins."""

    def start(_: Metastore) -> Metastore:
        raise MetastoreStartError("not now")

    monkeypatch.setattr(Metastore, "start", start)


def test_sigterm_stops_the_metastore_and_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests of metastores that run send it to a command."""
    stops: list[Metastore] = []

    def stop(metastore: Metastore) -> None:
        stops.append(metastore)

    monkeypatch.setattr(Metastore, "is_running", property(lambda _: True))
    monkeypatch.setattr(Metastore, "stop", stop)
    monkeypatch.setattr(time, "sleep", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    assert command.main(["--port", "0", "--directory", str(tmp_path)]) == 0
    assert len(stops) == 1


def error_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line of a mistake, without the warning of who may connect."""
    assert command.main(["--version", "4.0", *arguments]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.usefixtures("no_start")
@pytest.mark.parametrize("arguments", [[], ["--version", "2.3"], ["--version", "3.1"]])
def test_tls_that_listens_on_every_address_is_warned_of(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([*arguments, "--setting", "hive.metastore.use.SSL=true"]) == 1
    warning = capsys.readouterr().err.splitlines()[0]
    assert warning.startswith("Warning: ")
    assert "every address of this machine" in warning
    assert "authentication" in warning


@pytest.mark.usefixtures("no_start")
@pytest.mark.parametrize("version", ["2.3", "3.1", "4.0", "4.1", "4.2"])
def test_listening_on_the_loopback_address_gives_no_warning(
    version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--version", version]) == 1
    assert "Warning" not in capsys.readouterr().err


@pytest.mark.parametrize("port", ["99999", "65536", "-1"])
def test_an_invalid_port_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--port must be between 0 and 65535" in error_line([f"--port={port}"], capsys)


@pytest.mark.parametrize("inside", ["", "deeper/still"])
def test_a_directory_that_is_a_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], inside: str
) -> None:
    file = tmp_path / "file"
    file.write_text("kept")
    line = error_line(["--directory", str(file / inside)], capsys)
    assert f"Directory {file / inside} cannot be used: " in line
    assert file.read_text() == "kept"


def test_a_directory_that_cannot_be_written_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    line = error_line(["--directory", str(tmp_path / "state")], capsys)
    assert line.endswith("cannot be used: Permission denied")


def test_a_directory_whose_files_cannot_be_written_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lance_bridge_metastore.server.jars_of", lambda *_, **__: tmp_path)
    (tmp_path / "conf").write_text("in the way")
    line = error_line(["--port", "0", "--directory", str(tmp_path)], capsys)
    assert f"Directory {tmp_path} cannot be used: " in line


def test_a_directory_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        line = error_line(["--directory", str(tmp_path)], capsys)
    assert f"Directory {tmp_path} is in use by another metastore" in line


def test_an_unknown_version_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'1\.2': choose from 2\.3, 3\.1, 4\.0, 4\.1, 4\.2"):
        Metastore("1.2")


def fake_java(directory: Path, version: str) -> Path:
    executable = directory / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    executable.chmod(0o755)
    return executable


def test_a_java_that_is_too_old_is_refused_when_named(tmp_path: Path) -> None:
    old = fake_java(tmp_path, "1.8.0_402")
    with pytest.raises(JavaNotFoundError, match="is Java 8; 21 or later is needed"):
        Metastore("4.2", java=str(old)).start()


# -- fetching ------------------------------------------------------------------------------------

SMALL = embedded.Release(
    "test",
    "0.0.0",
    minimum_java=17,
    artifacts=(releases.Artifact("commons-cli", "commons-cli", "1.5.0"),),
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LANCE_BRIDGE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def pretend_to_fetch(monkeypatch: pytest.MonkeyPatch, *failures: BaseException) -> list[int]:
    """Replace Ivy: write half of the jars and fail, once per failure; then write all."""
    fetches: list[int] = []
    remaining = list(failures)

    def retrieve(_release: Any, destination: Path, *_: Any) -> None:
        fetches.append(1)
        (destination / "first.jar").write_bytes(b"first")
        if remaining:
            raise remaining.pop(0)
        (destination / "second.jar").write_bytes(b"second")

    monkeypatch.setattr(releases, "_retrieve", retrieve)
    return fetches


def test_an_interrupted_fetch_is_not_complete(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetches = pretend_to_fetch(monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        embedded.jars_of(SMALL)
    assert list(cache.rglob("*.jar")) == []
    jars = embedded.jars_of(SMALL)
    assert sorted(jar.name for jar in jars.glob("*.jar")) == ["first.jar", "second.jar"]
    assert embedded.jars_of(SMALL) == jars
    assert len(fetches) == 2


def test_a_cache_that_lost_a_jar_is_fetched_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches = pretend_to_fetch(monkeypatch)
    (embedded.jars_of(SMALL) / "second.jar").write_bytes(b"sec")
    assert (embedded.jars_of(SMALL) / "second.jar").read_bytes() == b"second"
    assert len(fetches) == 2
    assert embedded.cache_directory() == cache


@pytest.mark.usefixtures("cache")
def test_concurrent_fetches_of_the_same_jars_happen_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fetches = pretend_to_fetch(monkeypatch)
    with ThreadPoolExecutor(4) as pool:
        places = set(pool.map(lambda _: embedded.jars_of(SMALL), range(4)))
    assert len(places) == 1
    assert len(fetches) == 1


@pytest.mark.usefixtures("cache")
def test_jars_are_fetched_with_the_java_that_was_chosen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    chosen, other = fake_java(tmp_path / "chosen", "21.0.1"), fake_java(tmp_path / "b", "25")
    old = fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(other.parent.parent))
    started = []

    def fail(command: list[str], **_: Any) -> Any:
        started.append(command[0])
        raise ArtifactsUnavailableError("not fetched")

    monkeypatch.setattr(jvm, "_version_of", lambda path: 11 if "old" in path else 21)
    monkeypatch.setattr("subprocess.run", fail)
    for given in (chosen, old):
        with pytest.raises(ArtifactsUnavailableError, match="not fetched"):
            releases.jars_of(embedded.RELEASES["3.1"], java=str(given))
    with pytest.raises(ArtifactsUnavailableError, match="not fetched"):
        Metastore("4.2", java=str(chosen)).start()
    assert command.main(["--fetch-only", "--version", "4.2", "--java", str(chosen)]) == 1
    assert started == [str(chosen), str(other), str(chosen), str(chosen)]


@pytest.mark.usefixtures("cache")
def test_the_client_is_looked_for_before_jars_are_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fetches = pretend_to_fetch(monkeypatch)
    monkeypatch.setitem(sys.modules, "hmsclient", None)
    with pytest.raises(ArtifactsUnavailableError, match="hive-embedded"):
        Metastore("4.2").start()
    assert fetches == []


def test_a_cache_that_cannot_be_used_is_named(cache: Path, tmp_path: Path) -> None:
    cache.write_text("in the way")
    (tmp_path / "jars").mkdir()
    uses: list[Callable[[], object]] = [
        lambda: embedded.jars_of(SMALL),
        lambda: releases.loopback_classes("java", tmp_path / "jars"),
        lambda: Metastore("2.3", tmp_path / "state").start(),
    ]
    for use in uses:
        with pytest.raises(ArtifactsUnavailableError, match=f"The cache {cache} cannot be used: "):
            use()


def test_a_compiler_that_does_not_end_is_given_up(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slow = fake_java(tmp_path, "21.0.1")
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(releases, "_COMPILE_SECONDS", 0.1)
    with pytest.raises(ArtifactsUnavailableError, match=f"for the cache {cache} could not"):
        releases.loopback_classes(str(slow), tmp_path)


# -- configuration -------------------------------------------------------------------------------


def test_settings_override_defaults_under_either_name(tmp_path: Path) -> None:
    settings = {"metastore.warehouse.dir": "s3://bucket/warehouse"}
    site = hive_site(embedded.release("4.0"), tmp_path, "file:///unused", "instance", settings)
    assert site["metastore.warehouse.dir"] == "s3://bucket/warehouse"
    assert "hive.metastore.warehouse.dir" not in site


def test_values_are_escaped_in_hive_site() -> None:
    assert "<value>a&lt;b&amp;c</value>" in to_xml({"name": "a<b&c"})


# -- metastores that run ---------------------------------------------------------------------------


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


@pytest.mark.servers
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


@pytest.mark.servers
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


@pytest.mark.servers
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


@pytest.mark.servers
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


@pytest.mark.servers
def test_a_port_in_use_is_refused_at_once(metastore: Metastore) -> None:
    other = Metastore("2.3", port=metastore.port)
    with pytest.raises(MetastoreStartError, match=f"Port {metastore.port} is in use"):
        other.start()
    other.close()


# -- fetching by Ivy ------------------------------------------------------------------------------


def release(artifact: str, version: str) -> embedded.Release:
    jar = embedded.releases.Artifact("commons-cli", artifact, version)
    return embedded.Release("test", "0.0.1", minimum_java=17, artifacts=(jar,))


@pytest.mark.servers
def test_ivy_fetches_an_artifact_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_CACHE", str(tmp_path / "cache"))
    jars = embedded.jars_of(release("commons-cli", "1.5.0"))
    assert [jar.name for jar in jars.glob("*.jar")] == ["commons-cli-1.5.0.jar"]
    marker = json.loads((jars / "complete.json").read_text())
    assert marker["commons-cli-1.5.0.jar"] == (jars / "commons-cli-1.5.0.jar").stat().st_size


@pytest.mark.servers
def test_a_failed_fetch_reports_ivys_output_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(embedded.ArtifactsUnavailableError, match=r"(?s)0\.0\.1.*no-such-artifact"):
        embedded.jars_of(release("no-such-artifact", "1.0"))
    assert list((tmp_path / "cache").rglob("complete.json")) == []

"""The embedded metastore without one that runs: its command, its jars, its settings, mistakes."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

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
    """`test_embedded` sends it to a command whose metastore runs."""
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

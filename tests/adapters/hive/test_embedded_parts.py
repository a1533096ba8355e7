"""What an embedded metastore is made of: the jars of a release, and its configuration."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import lance_bridge_metastore as embedded
from lance_bridge.jvm import java
from lance_bridge_metastore import (
    ArtifactsUnavailableError,
    JavaNotFoundError,
    Metastore,
    artifacts,
    configuration,
)
from lance_bridge_metastore.__main__ import main


def fake_java(directory: Path, version: str) -> Path:
    executable = directory / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    executable.chmod(0o755)
    return executable


@pytest.mark.quick
def test_a_java_that_is_too_old_is_refused_when_named(tmp_path: Path) -> None:
    old = fake_java(tmp_path, "1.8.0_402")
    with pytest.raises(JavaNotFoundError, match="is Java 8; 21 or later is needed"):
        Metastore("4.2", java=str(old)).start()


# -- fetching ------------------------------------------------------------------------------------

SMALL = embedded.Release(
    "test",
    "0.0.0",
    minimum_java=17,
    artifacts=(embedded.releases.Artifact("commons-cli", "commons-cli", "1.5.0"),),
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

    monkeypatch.setattr(artifacts, "_retrieve", retrieve)
    return fetches


@pytest.mark.quick
def test_an_interrupted_fetch_is_not_complete(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetches = pretend_to_fetch(monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        embedded.jars_of(SMALL)
    assert list(cache.rglob("*.jar")) == []
    jars = embedded.jars_of(SMALL)
    assert sorted(jar.name for jar in jars.glob("*.jar")) == ["first.jar", "second.jar"]
    assert embedded.jars_of(SMALL) == jars
    assert len(fetches) == 2


@pytest.mark.quick
def test_a_cache_that_lost_a_jar_is_fetched_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches = pretend_to_fetch(monkeypatch)
    (embedded.jars_of(SMALL) / "second.jar").write_bytes(b"sec")
    assert (embedded.jars_of(SMALL) / "second.jar").read_bytes() == b"second"
    assert len(fetches) == 2
    assert embedded.cache_directory() == cache


@pytest.mark.quick
@pytest.mark.usefixtures("cache")
def test_concurrent_fetches_of_the_same_jars_happen_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fetches = pretend_to_fetch(monkeypatch)
    with ThreadPoolExecutor(4) as pool:
        places = set(pool.map(lambda _: embedded.jars_of(SMALL), range(4)))
    assert len(places) == 1
    assert len(fetches) == 1


@pytest.mark.servers
@pytest.mark.usefixtures("cache")
def test_ivy_fetches_an_artifact_for_real() -> None:
    jars = embedded.jars_of(SMALL)
    assert [jar.name for jar in jars.glob("*.jar")] == ["commons-cli-1.5.0.jar"]
    marker = json.loads((jars / "complete.json").read_text())
    assert marker["commons-cli-1.5.0.jar"] == (jars / "commons-cli-1.5.0.jar").stat().st_size


@pytest.mark.servers
def test_a_failed_fetch_reports_ivys_output_and_leaves_nothing(cache: Path) -> None:
    missing = embedded.releases.Artifact("commons-cli", "no-such-artifact", "1.0")
    release = embedded.Release("test", "0.0.1", minimum_java=17, artifacts=(missing,))
    with pytest.raises(ArtifactsUnavailableError, match=r"(?s)0\.0\.1.*no-such-artifact"):
        embedded.jars_of(release)
    assert list(cache.rglob("complete.json")) == []


@pytest.mark.quick
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

    monkeypatch.setattr(java, "_version_of", lambda path: 11 if "old" in path else 21)
    monkeypatch.setattr("subprocess.run", fail)
    for given in (chosen, old):
        with pytest.raises(ArtifactsUnavailableError, match="not fetched"):
            artifacts.jars_of(embedded.RELEASES["3.1"], java=str(given))
    with pytest.raises(ArtifactsUnavailableError, match="not fetched"):
        Metastore("4.2", java=str(chosen)).start()
    assert main(["--fetch-only", "--version", "4.2", "--java", str(chosen)]) == 1
    assert started == [str(chosen), str(other), str(chosen), str(chosen)]


@pytest.mark.quick
@pytest.mark.usefixtures("cache")
def test_the_client_is_looked_for_before_jars_are_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fetches = pretend_to_fetch(monkeypatch)
    monkeypatch.setitem(sys.modules, "hmsclient", None)
    with pytest.raises(ArtifactsUnavailableError, match="hive-embedded"):
        Metastore("4.2").start()
    assert fetches == []


@pytest.mark.quick
def test_a_cache_that_cannot_be_used_is_named(cache: Path, tmp_path: Path) -> None:
    cache.write_text("in the way")
    (tmp_path / "jars").mkdir()
    with pytest.raises(ArtifactsUnavailableError, match=f"The cache {cache} cannot be used: "):
        embedded.jars_of(SMALL)
    with pytest.raises(ArtifactsUnavailableError, match=f"The cache {cache} cannot be used: "):
        artifacts.loopback_classes("java", tmp_path / "jars")
    with pytest.raises(ArtifactsUnavailableError, match=f"The cache {cache} cannot be used: "):
        Metastore("2.3", tmp_path / "state").start()


@pytest.mark.quick
def test_a_compiler_that_does_not_end_is_given_up(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slow = fake_java(tmp_path, "21.0.1")
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(artifacts, "_COMPILE_SECONDS", 0.1)
    with pytest.raises(ArtifactsUnavailableError, match=f"for the cache {cache} could not"):
        artifacts.loopback_classes(str(slow), tmp_path)


# -- configuration -------------------------------------------------------------------------------


@pytest.mark.quick
def test_settings_override_defaults_under_either_name(tmp_path: Path) -> None:
    settings = {"metastore.warehouse.dir": "s3://bucket/warehouse"}
    site = configuration.hive_site(
        embedded.release("4.0"), tmp_path, "file:///unused", "instance", settings
    )
    assert site["metastore.warehouse.dir"] == "s3://bucket/warehouse"
    assert "hive.metastore.warehouse.dir" not in site


@pytest.mark.quick
def test_values_are_escaped_in_hive_site() -> None:
    assert "<value>a&lt;b&amp;c</value>" in configuration.to_xml({"name": "a<b&c"})

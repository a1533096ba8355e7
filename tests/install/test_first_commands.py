"""The two commands of the README in a fresh clone: Python, git and make, no Java, and no caches.

Slow: each clone installs everything. Figures are printed, and no time limit is a test.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from install.environments import REPOSITORY, link_programs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

SECONDS = 3000.0
ABSENT = r"(java|javac|jlink|jshell|node|npm|npx|mvn|curl|wget|go|cargo)\b.*"
"""Programs that a machine may lack."""
UNSET = ("JAVA_HOME", "LANCE_BRIDGE_CACHE", "VIRTUAL_ENV", "PYTHONPATH", "SPARK_HOME")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a user who has just got the machine."""
    machine = tmp_path_factory.mktemp("machine")
    programs, home = machine / "bin", machine / "home"
    programs.mkdir()
    home.mkdir()
    (programs / "python3").symlink_to(Path(sys.base_prefix, "bin", "python3").resolve())
    link_programs(programs, absent=ABSENT, places=("/usr/bin", "/bin", "/usr/sbin"))
    kept = {key: value for key, value in os.environ.items() if key not in UNSET}
    return {**kept, "PATH": str(programs), "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is committed, and nothing else."""
    place = tmp_path_factory.mktemp("clone") / "lance-bridge"
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(place)], check=True)
    return place


def make(target: str, clone: Path, environment: dict[str, str]) -> str:
    """Run a command of the README; return what it printed."""
    started = time.monotonic()
    done = subprocess.run(
        ["make", target],
        cwd=clone,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    print(f"make {target}: {time.monotonic() - started:.0f} s")
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


def test_both_commands_work_with_python_git_and_make(
    clone: Path, environment: dict[str, str]
) -> None:
    demo = make("demo", clone, environment)
    assert demo.splitlines()[-1].startswith("Done: ")
    tests = make("test", clone, environment)
    assert re.search(r"\b\d{4,} passed\b", tests.splitlines()[-1])
    places = (Path(environment["HOME"]), clone / ".cache")
    jars = {path.name for place in places for path in place.rglob("*.jar")}
    assert {name.partition("-")[0] for name in jars} <= {"ecj", "lance"}, "pip brings the others"

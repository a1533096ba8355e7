"""Virtual environments with the wheel as it would be published, and nothing of this project's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterable
from pathlib import Path

from servers.processes import run_command

REPOSITORY = Path(__file__).parents[2]
INSTALL_SECONDS = 900.0
RUN_SECONDS = 300.0
_UNWANTED = ("PYTHON", "LANCE_BRIDGE", "SPARK_", "PYSPARK_", "AWS_", "DATABRICKS_")


class Environment:
    """A virtual environment with the wheel and some extras, and nothing else."""

    def __init__(self, directory: Path, wheel: Path, extras: str) -> None:
        self.directory = directory
        self.bin = directory / "environment" / "bin"
        venv.create(directory / "environment", with_pip=True)
        wanted = f"{wheel}[{extras}]" if extras else str(wheel)
        self.run("pip", "install", "--quiet", wanted, seconds=INSTALL_SECONDS)

    @property
    def variables(self) -> dict[str, str]:
        """Those of a shell where it is active."""
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith(_UNWANTED)},
            "HOME": str(self.directory),
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "NO_PROXY": "127.0.0.1",
        }

    def run(
        self, program: str, *arguments: str, code: int | None = 0, seconds: float = RUN_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of it, and check its exit code; any is good where it is None."""
        command, given = [self.bin / program, *arguments], self.variables
        return run_command(*command, code=code, seconds=seconds, cwd=self.directory, env=given)

    def python(self, script: str, *arguments: str) -> str:
        """Run a script of Python; return what it printed."""
        return self.run("python", "-c", script, *arguments).stdout


def link_programs(target: Path, *, absent: str, places: Iterable[str] = ()) -> Path:
    """Make a directory of all programs of this machine but for those that it is to lack.

    Args:
        absent: A regular expression for their names.
        places: Where the programs are; the directories of ``PATH`` if it is empty.
    """
    target.mkdir(exist_ok=True)
    for directory in places or os.environ["PATH"].split(os.pathsep):
        for each in sorted(Path(directory).glob("*")):
            link = target / each.name
            if not re.fullmatch(absent, each.name) and not link.exists():
                link.symlink_to(each)
    return target


def build_wheel(target: Path) -> Path:
    """Build the wheel into a directory; return its path."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    run_command(*command, "--directory", target, cwd=REPOSITORY)
    [built] = target.glob("*.whl")
    return built

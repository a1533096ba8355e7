"""Runs programs that use other tools, in an environment without this project."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers.processes import run_command

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache"
Ask = Callable[..., Any]
"""``ask(program, action, environment, **given)`` returns what a program of ``programs`` printed."""


def ask_in(environment: str) -> Ask:
    """Return `Ask` for an environment of ``.cache``."""
    python = CACHE / environment / "bin" / "python"
    assert python.exists(), "the other tools are not installed: run 'make test-clients'"

    def ask(program: str, action: str, environment: dict[str, str], **given: object) -> Any:
        # -I: this project's modules and the user's are not found.
        done = run_command(
            *(python, "-I", HERE / "programs" / f"{program}.py", action),
            input=json.dumps(given),
            env={"PATH": os.environ["PATH"], **environment},
        )
        return json.loads(done.stdout.splitlines()[-1])

    return ask


@pytest.fixture(scope="session")
def ask() -> Ask:
    """Ask another tool."""
    return ask_in("neighbours")


@pytest.fixture(scope="session")
def ask_openmetadata() -> Ask:
    """Ask OpenMetadata, which is in an environment of its own."""
    return ask_in("openmetadata")

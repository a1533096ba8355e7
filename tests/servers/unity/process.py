"""A double in a process of its own, where it takes no time from the client that is measured."""

from __future__ import annotations

import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ..processes import end
from .dialects import OPEN_SOURCE_0_6, Dialect

_TESTS = Path(__file__).parents[2]
_START_SECONDS = 120.0


class UnityProcess:
    """A context manager around ``python -m servers.unity``; ``url`` is where it answers."""

    def __init__(self, dialect: Dialect = OPEN_SOURCE_0_6, catalogs: Sequence[str] = ()) -> None:
        self._command = [sys.executable, "-m", "servers.unity", "--dialect", dialect.name]
        for name in catalogs:
            self._command += ["--catalog", name]
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> UnityProcess:
        self._process = subprocess.Popen(
            self._command, cwd=_TESTS, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        try:
            self.url = self._answer()
        except BaseException:
            self.stop()
            raise
        return self

    def _answer(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _START_SECONDS)
        url = self._process.stdout.readline().strip() if ready else ""
        if not url:
            raise RuntimeError("the Unity double did not start")
        return url

    def __exit__(self, _type: object, error: object, _trace: object) -> None:
        code = self.stop()
        assert error is not None or code == 0, "requests broke the published API: see its output"

    def stop(self) -> int:
        """End the process and return its exit code; safe to repeat."""
        if self._process is None:
            return 0
        code = end(self._process)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None
        return code

"""The installed program as a server that is killed and started again at the same address.

``python -m server.gateway_process STEP serve …`` kills itself at a step of `managed.death`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cli.running import PROGRAM
from managed import death
from servers.processes import free_port

from lance_bridge_cli import main

_TESTS = Path(__file__).parents[1]
_SECONDS = 120.0


class GatewayProcess:
    """``lance-bridge serve`` at one port, over any number of starts."""

    def __init__(self, log: Path, *arguments: str) -> None:
        """Args: log: The file that has what it prints to standard error."""
        self._port = free_port()
        self._log = log
        self._arguments = arguments
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *, dies_at: str = "") -> None:
        """Start it, and wait until it listens.

        Args:
            dies_at: A step of `managed.death` at which it kills itself.
        """
        program = (
            [sys.executable, "-m", "server.gateway_process", dies_at] if dies_at else [PROGRAM]
        )
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*program, "serve", *self._arguments, "--port", str(self._port)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONPATH": str(_TESTS)} if dies_at else None,
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == self.url, self._log.read_text()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def await_end(self) -> int:
        """Return the exit code of one that ends by itself.

        Raises:
            subprocess.TimeoutExpired: it does not.
        """
        assert self._process is not None
        return self._process.wait(_SECONDS)

    def restart(self) -> None:
        self.kill()
        self.start()

    def __enter__(self) -> GatewayProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


if __name__ == "__main__":
    death.at(sys.argv.pop(1))
    main()

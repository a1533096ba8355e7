"""The installed program as a server that is killed and started again at the same address."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType

from cli.running import PROGRAM
from servers.processes import free_port


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

    def start(self) -> None:
        """Start it, and wait until it listens."""
        command = [PROGRAM, "serve", *self._arguments, "--port", str(self._port)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == self.url, self._log.read_text()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def restart(self) -> None:
        self.kill()
        self.start()

    def __enter__(self) -> GatewayProcess:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

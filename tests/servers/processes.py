"""Processes that tests start, and end by nothing but themselves; and the environment of tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import traceback
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, TypeVar

import pytest

HOST = "127.0.0.1"
_END_SECONDS = 60.0
_NO_USER = 65534
"""The identifier of the user that owns no files."""
_GUARDIAN = Path(__file__).with_name("guardian.py")
_OWNERS = "TEST_PROCESS_OWNERS"
"""The variable that says which processes have started a process, directly or not: their marks."""
_Server = TypeVar("_Server", bound="ServerProcess")
CLOUDS = ("AWS_", "DATABRICKS_")
KEPT = ("LANCE_BRIDGE_TEST_", "LANCE_BRIDGE_CACHE")


@contextmanager
def without_privileges() -> Iterator[None]:
    """Run the block as a user without rights if these tests run as root, who is denied nothing."""
    user = os.geteuid()
    if user != 0:
        yield
        return
    os.seteuid(_NO_USER)
    try:
        yield
    finally:
        os.seteuid(user)


@contextmanager
def public_directory() -> Iterator[Path]:
    """Yield a directory that every user can find; pytest's own are for one user."""
    with TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


def end_children_with_this_process() -> None:
    """Have all that this process starts from now on end with it, also after ``kill -9``.

    A mark in the environment says what belongs to it. Children inherit the mark whatever starts
    them and however deep: Spark's launcher, a gateway with workers, a process in its own session.
    Linux's death signal (prctl) is no substitute: it comes when the *thread* ends that has started
    a process, and grandchildren do not get it. A guard in front of each program would be the child
    instead of it, which tests kill and measure.
    """
    if sys.platform != "linux":  # the guardian reads /proc
        return
    mark = os.urandom(16).hex()
    guardian = subprocess.Popen(
        [sys.executable, "-I", "-S", str(_GUARDIAN), mark],
        env={key: value for key, value in os.environ.items() if key != _OWNERS},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is not for it
    )

    def close_in_child() -> None:
        """Let go of the pipe, which must close with this process although a fork of it goes on."""
        assert guardian.stdin is not None
        guardian.stdin.close()

    os.register_at_fork(after_in_child=close_in_child)  # and it keeps the pipe open until the end
    os.environ[_OWNERS] = " ".join(filter(None, [os.environ.get(_OWNERS), mark]))


def inherited_owners() -> dict[str, str]:
    """Return what an environment that is not this process's own needs for the same."""
    return {_OWNERS: os.environ[_OWNERS]} if _OWNERS in os.environ else {}


def end(process: subprocess.Popen[Any]) -> int:
    """Ask a process to end, make it where it does not, and return its exit code."""
    process.terminate()
    try:
        return process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def run_command(
    *command: object, code: int | None = 0, seconds: float = 300.0, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program, and check its exit code.

    Args:
        command: The program and its arguments.
        code: The exit code that it must have; any where it is None.
        seconds: When it is ended at the latest.
        options: Those of ``subprocess.run``.
    """
    words = [str(each) for each in command]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=seconds, **options
    )
    message = f"{words}\n{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
    assert code in (None, done.returncode), message
    return done


def returns_in_child(work: Callable[[], object], seconds: int = 20) -> bool:
    """Return whether a function returns in a forked child, within a time."""
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(seconds)  # ends a child that waits for ever
            work()
            status = 0
        except Exception:  # noqa: BLE001 - the exit status says it
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def free_port() -> int:
    """Return a port that no process listens on, for a server that cannot choose one itself."""
    with socket.create_server((HOST, 0)) as free:
        port: int = free.getsockname()[1]
        return port


def wait_until(
    condition: Callable[[], object], seconds: float = 180.0, every: float = 0.05
) -> None:
    """Wait for a condition.

    Args:
        every: How often it is checked, in seconds.

    Raises:
        AssertionError: It does not hold in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen in {seconds:g} seconds"
        time.sleep(every)


def memory(pid: int, *, peak: bool = False) -> int:
    """Return the resident memory of a process, now or at its largest, in bytes."""
    name = "VmHWM:" if peak else "VmRSS:"
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


class ServerProcess(ABC):
    """A context manager around an HTTP server in a process of its own.

    What it holds is gone when it stops.
    """

    health: ClassVar[str]
    """The path that answers 200 once the server is ready."""
    start_seconds: ClassVar[float] = 120.0

    def __init__(self) -> None:
        self._temporary: TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def endpoint(self) -> str:
        """Where it answers: ``http://127.0.0.1:PORT``."""
        return f"http://{HOST}:{self._port}"

    @property
    def directory(self) -> Path:
        """A directory of the running server's own."""
        assert self._temporary is not None
        return Path(self._temporary.name)

    def __enter__(self: _Server) -> _Server:
        self._temporary = TemporaryDirectory(prefix="server-")
        port_file, log = self.directory / "port", self.directory / "log"
        try:
            with log.open("wb") as output:
                self._process = subprocess.Popen(
                    self._command(port_file),
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            self._await(port_file, log)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process; safe to repeat."""
        if self._process is not None:
            end(self._process)
            self._process = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    @abstractmethod
    def _command(self, port_file: Path) -> list[str]:
        """Return what starts the server; it, or this, writes its port to the file."""

    def _environment(self) -> dict[str, str]:
        return dict(os.environ)

    def _await(self, port_file: Path, log: Path) -> None:
        assert self._process is not None
        deadline = time.monotonic() + self.start_seconds
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            if port_file.exists():
                self._port = int(port_file.read_text())
                if self._answers():
                    return
            time.sleep(0.05)
        name, printed = type(self).__name__, log.read_text(errors="replace")
        raise RuntimeError(f"{name} did not start:\n{printed[-2000:]}")

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.endpoint}{self.health}", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return False


def remove_settings(patch: pytest.MonkeyPatch, *more: str) -> None:
    """Keep settings of the user out of tests, and out of the processes that they start.

    Args:
        more: Beginnings of names, besides those of AWS and Databricks.
    """
    for variable in list(os.environ):
        if variable.startswith((*CLOUDS, *more)) and not variable.startswith(KEPT):
            patch.delenv(variable)
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    patch.setenv("DATABRICKS_CONFIG_FILE", "/nonexistent")

"""Secrets that tests make, each another, and the search for them in all that processes leave.

A secret is found as it is, and in the forms that it takes on its way: quoted for URLs, in base64
wherever it stands in what was encoded, in UTF-16, and in compressed files.
"""

from __future__ import annotations

import gzip
import os
import threading
import zlib
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

STORAGE = (
    "aws_secret_access_key", "aws_session_token", "aws_sse_customer_key_base64",
    "secret_access_key",
    "azure_storage_account_key", "azure_storage_sas_key", "azure_storage_sas_token",
    "azure_storage_client_secret", "azure_storage_token", "account_key", "sas",
    "google_service_account_key", "google_application_credentials", "google_storage_token",
    "oss_secret_access_key", "oss_security_token", "hf_token", "connection_string", "proxy_url",
    "headers.authorization", "password", "bearer_token", "cookie", "anything.else",
)  # fmt: skip
"""Options of every vendor's store that hold a secret, and one that is unknown."""


def hadoop_token(password: str) -> str:
    """Return a delegation token of Hadoop, as a text, with this password of at most 127 bytes."""
    parts = (b"alice", password.encode(), b"HIVE_DELEGATION_TOKEN", b"")
    content = b"".join(bytes([len(each)]) + each for each in parts)
    return urlsafe_b64encode(content).rstrip(b"=").decode()


class Secrets:
    """Makes secrets that are distinct, and finds them again, encoded too."""

    def __init__(self) -> None:
        self.made: dict[str, str] = {}

    def new(self, what: str) -> str:
        return self.made.setdefault(what, f"zq{len(self.made):03}HIDDENk7w9x{len(self.made):03}")

    def storage(self, what: str, options: Iterable[str] = STORAGE) -> dict[str, str]:
        """Return options of stores, each with a secret of its own."""
        return {f"storage.{option}": self.new(f"{what} {option}") for option in options}

    def found_in(self, content: bytes) -> set[str]:
        return {
            what
            for what, secret in self.made.items()
            if any(form in content for form in _forms(secret))
        }

    def found_among(self, contents: Mapping[str, bytes]) -> dict[str, set[str]]:
        """Return the secrets that are in any of some contents, by its name."""
        searched = {name: self.found_in(content) for name, content in contents.items()}
        return {name: found for name, found in searched.items() if found}

    def found_below(self, directory: Path) -> dict[str, set[str]]:
        """Return the secrets that are in names and contents of files, by file."""
        return self.found_among(dict(_files_below(directory)))


def _forms(secret: str) -> Iterator[bytes]:
    yield secret.encode()
    yield quote(secret).encode()
    yield secret.encode("utf-16-le")
    for before in range(3):
        encoded = b64encode(b"-" * before + secret.encode() + b"---")
        yield encoded[4 if before else 0 : len(secret) * 4 // 3 - 2]


def _files_below(directory: Path) -> Iterator[tuple[str, bytes]]:
    for path in directory.rglob("*"):
        try:
            content = path.read_bytes() if path.is_file() else b""
        except FileNotFoundError:  # Spark has removed it meanwhile
            continue
        yield str(path.relative_to(directory)), str(path).encode() + _unpacked(content)


def _unpacked(content: bytes) -> bytes:
    if content[:2] != b"\x1f\x8b":
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return content


def log_everything(directory: Path) -> Path:
    """Have Pythons that find the directory on their path log at DEBUG into files beside it.

    Those are all that a session of Spark starts, whose workers have no other way to be reached.

    Returns:
        The directory with the logs, one for each process that does not come of a fork.
    """
    directory.mkdir()
    logs = directory.with_suffix(".logs")
    logs.mkdir()
    (directory / "sitecustomize.py").write_text(
        "import logging, os\n"
        f"name = os.path.join({str(logs)!r}, str(os.getpid()))\n"
        "logging.basicConfig(filename=name, level=logging.DEBUG)\n"
    )
    return logs


@contextmanager
def command_lines(above: int) -> Iterator[set[str]]:
    """Note the arguments of a process and of all that it starts, every few milliseconds.

    Args:
        above: The process whose children are noted; their children are as well.
    """
    noted: set[str] = set()
    is_over = threading.Event()

    def note() -> None:
        while not is_over.wait(0.02):
            noted.update(_lines_below(above))

    thread = threading.Thread(target=note)
    thread.start()
    try:
        yield noted
    finally:
        is_over.set()
        thread.join()


def _lines_below(above: int) -> set[str]:
    parents: dict[int, int] = {}
    lines: dict[int, str] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            status = Path("/proc", entry, "stat").read_text()
            lines[int(entry)] = Path("/proc", entry, "cmdline").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(entry)] = int(status.rpartition(")")[2].split()[1])
    return {line for process, line in lines.items() if _is_below(process, above, parents)}


def _is_below(process: int, above: int, parents: Mapping[int, int]) -> bool:
    while process in parents:
        process = parents[process]
        if process == above:
            return True
    return False

"""Follows the pages on the gateway, ``docs/gateway*.md``, as their readers do.

Each block runs as it stands, but for the address of the gateway and absolute paths, which are those
of the test. What a block says that it prints, in comments, it must print.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import lance_namespace as api
from cli.program import pasted
from server.authenticated import serve
from servers.metastores import Metastores
from servers.processes import run_command

from lance_bridge_hive import HiveNamespace
from lance_bridge_server.access.authentication import ApiKeyFile

REPOSITORY = Path(__file__).parents[2]
CLIENTS_PAGE = REPOSITORY / "docs" / "gateway-clients.md"
PAGE = REPOSITORY / "docs" / "gateway.md"
ADDRESS = "https://lance.example.com"
_BLOCK = re.compile(
    r"^#{2,3} (?P<section>[^\n]*)$|^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_PRINTED = re.compile(
    r"^ *(?:print|console\.log|System\.out\.println)\(.*\);?  ?(?:#|//) (.*)$", re.MULTILINE
)
DATABASE = "sales"
_CREATES = re.compile("create_table|write_dataset")


@dataclass(frozen=True)
class Block:
    """A snippet, and the heading that it is under."""

    section: str
    language: str
    text: str

    @property
    def printed(self) -> list[str]:
        """What it says that it prints."""
        return _PRINTED.findall(self.text)


def blocks(page: Path) -> list[Block]:
    """Return the snippets of a page, in order."""
    found, section = [], ""
    for match in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        if match["section"] is not None:
            section = match["section"]
        else:
            found.append(Block(section, match["language"], match["text"]))
    return found


@dataclass
class Reader:
    """Follows a page in a directory.

    Args:
        directory: Where programs run, and files are written.
        replaced: Texts of the page, to what they are here.
        environment: Variables that the reader has set.
    """

    directory: Path
    replaced: Mapping[str, str]
    environment: dict[str, str] = field(default_factory=dict)

    def here(self, text: str) -> str:
        """Return a text with the address and the paths that there are here."""
        for old, new in self.replaced.items():
            text = text.replace(old, new)
        return text

    def follow(self, block: Block, *, own_process: bool = False) -> str:
        """Run a block of a shell or of Python; return what it printed.

        Args:
            own_process: Whether Python runs in a process of its own, as it need not be: each start
                imports for seconds.
        """
        text = self.here(block.text)
        if text.startswith("lance-bridge ") and ">" not in text:
            done = pasted(text.replace("\\\n", " "))
            assert done.exit_code == 0, done.output
            return done.stdout
        if block.language == "sh":
            return self.run(["sh", "-eu", "-c", text])
        assert block.language == "python"
        printed = self.run([sys.executable, "-c", text]) if own_process else self._execute(text)
        assert printed.splitlines() == block.printed, f"{block.text}\n{printed}"
        return printed

    def _execute(self, text: str) -> str:
        """Run Python in this process; return what it printed."""
        before, out = Path.cwd(), io.StringIO()
        os.chdir(self.directory)
        try:
            with patch.dict(os.environ, self.environment), redirect_stdout(out):
                exec(compile(text, "snippet", "exec"), {"__name__": "__main__"})
        finally:
            os.chdir(before)
        return out.getvalue()

    def run(self, command: Sequence[str], **more: str) -> str:
        """Run a program to its end; return what it printed."""
        given = {**self.variables, **more}
        done = run_command(*command, cwd=self.directory, env=given, stdin=subprocess.DEVNULL)
        return done.stdout

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a terminal where the virtual environment is active."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "HOME": str(self.directory), **self.environment}


@contextmanager
def reader_of_clients_page(directory: Path, metastores: Metastores) -> Iterator[Reader]:
    """Run the gateway; yield a reader who has its address and a key. Drop the database after it."""
    uri = f"thrift://127.0.0.1:{metastores.get('2.3').port}"
    keys = ApiKeyFile(directory / "keys.json")
    key, _ = keys.add("ann")
    catalog = ["--catalog", f"prod=hive:uri={uri}", "-p", f"prod.root={directory}/lake"]
    with serve(*catalog, "--api-keys", str(keys.path), "--port", "0") as served:
        yield Reader(directory, {ADDRESS: served.url}, {"LANCE_KEY": key})
    with HiveNamespace(uri=uri) as namespace:
        request = api.DropNamespaceRequest(id=[DATABASE], mode="Skip", behavior="Cascade")
        namespace.drop_namespace(request)


@contextmanager
def reader_after_python(directory: Path, metastores: Metastores) -> Iterator[Reader]:
    """The same for a reader who has come to the sections after Python's: `films` has three rows."""
    with reader_of_clients_page(directory, metastores) as reader:
        for block in blocks(CLIENTS_PAGE):
            is_python = block.section in ("pylance", "LanceDB for Python")
            if block.section == "curl" or (is_python and _CREATES.search(block.text)):
                reader.follow(block)
        yield reader


def section(title: str) -> list[Block]:
    """Return the snippets of a section."""
    return [each for each in blocks(CLIENTS_PAGE) if each.section == title]

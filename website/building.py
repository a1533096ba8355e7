"""Collects, renders and checks the site.

Documents of the repository are collected (`pages`), pages of the reference are generated
(`reference`), Zensical renders them, and every link of the result is checked (`links`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from .links import broken_links
from .pages import PAGES, PICTURES, ROOT, render
from .reference import GENERATED

BUILD = ROOT / "build" / "site"
STYLE = "extra.css"
WARNING = "warning"


def collect(target: Path) -> None:
    """Write all pages below a directory."""
    for source, page in PAGES.items():
        _write(target / page, render(source))
    for page, generate in GENERATED.items():
        _write(target / page, generate())
    shutil.copy(Path(__file__).with_name(STYLE), target)
    for source, picture in PICTURES.items():
        (target / picture).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / source, target / picture)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def build(directory: Path) -> list[str]:
    """Build the site in a new directory, and return its problems."""
    shutil.rmtree(directory, ignore_errors=True)
    collect(directory / "pages")
    shutil.copy(Path(__file__).with_name("zensical.toml"), directory)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode or WARNING in done.stdout.lower():
        return [done.stdout]
    return list(broken_links(directory / "html"))

"""Builds the documentation site: collects its pages, renders them, and checks every link.

Pages are documents of the repository (`pages`) and generated ones (`reference`). Zensical renders
them.
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

SITE = ROOT / "build" / "site"
STYLE = "extra.css"
WARNING = "warning"


def build(directory: Path, python: str = sys.executable) -> list[str]:
    """Build the site in a new directory, and return its problems.

    Args:
        python: The interpreter that has Zensical.
    """
    shutil.rmtree(directory, ignore_errors=True)
    collect(directory / "pages")
    shutil.copy(Path(__file__).with_name("zensical.toml"), directory)
    done = subprocess.run(
        [python, "-m", "zensical", "build", "--clean", "--strict"],
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


def main() -> int:
    """Build the site, print its problems or its directory, and return the exit code."""
    problems = build(SITE)
    print(*problems or [f"the site is in {SITE / 'html'}"], sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

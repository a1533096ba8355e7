"""Checks the archives of a directory: ``python -m release dist [--strict]``.

With ``--strict``, what only hinders publishing fails, too.
"""

import sys
from pathlib import Path

from .distributions import hindrances, mistakes, read

if __name__ == "__main__":
    directory, *options = sys.argv[1:]
    built = read(Path(directory))
    wrong, unready = mistakes(built), hindrances(built)
    print(f"{built.wheel.name}: version {built.version}")
    print(*(f"wrong: {each}" for each in wrong), sep="\n", end="\n" if wrong else "")
    print(
        *(f"before publishing: {each}" for each in unready), sep="\n", end="\n" if unready else ""
    )
    sys.exit(1 if wrong or (unready and "--strict" in options) else 0)

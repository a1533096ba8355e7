"""Builds the site, and prints its problems or its directory."""

import sys

from .building import BUILD, build

if __name__ == "__main__":
    if sys.version_info < (3, 11):
        sys.exit("Zensical, which renders the site, needs Python 3.11 or later")
    problems = build(BUILD)
    print(*problems or [f"the site is in {BUILD / 'html'}"], sep="\n")
    sys.exit(1 if problems else 0)

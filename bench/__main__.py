"""Measures what lance-bridge costs, compared with the same work without it.

Every suite starts the servers it needs, does each operation in several ways that alternate within
one run, and prints times, ratios, calls on the wire and limits. Times depend on the machine:
compare ratios. The exit code is 1 if an answer was wrong, and in the suite migrate if a limit was
missed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from bench.runner import to_text

SUITES = {
    "hive": "catalog_suite",
    "glue": "catalog_suite",
    "unity": "catalog_suite",
    "operations": "table_suite",
    "memory": "memory",
    "spark": "spark",
    "migrate": "migrate",
    "server": "server",
    "catalog-page": "catalog_page",
}
"""The module of each suite, imported when it is chosen: Spark's takes a second."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one suite, print its report, and return the exit code."""
    chooser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    chooser.add_argument("suite", choices=SUITES)
    chooser.add_argument(
        "options", nargs=argparse.REMAINDER, help="of the suite: python -m bench SUITE --help"
    )
    chosen = chooser.parse_args(arguments)
    module = importlib.import_module(f"bench.{SUITES[chosen.suite]}")
    parser = argparse.ArgumentParser(
        prog=f"python -m bench {chosen.suite}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(suite=chosen.suite)
    parser.add_argument("--output", choices=["text", "json"], default="text")
    module.add_options(parser, chosen.suite)
    options = parser.parse_args(chosen.options)
    report: dict[str, Any] = module.measure(options)
    print(json.dumps(report, indent=2) if options.output == "json" else to_text(report))
    missed = chosen.suite == "migrate" and report["missed"]
    return 1 if report["wrong_answers"] or missed else 0


if __name__ == "__main__":
    sys.exit(main())

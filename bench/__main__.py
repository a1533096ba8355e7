"""Measures what lance-bridge costs, compared with the same work without it.

Every suite starts the servers it needs, does each operation in several ways that alternate within
one run, and prints times, ratios, calls on the wire and limits. Times depend on the machine:
compare ratios. The exit code is 1 if an answer was wrong, and in the suites start and migrate if a
limit was missed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from servers.processes import end_children_with_this_process

from bench.runner import make_report, to_text

SUITES = {
    "hive": "catalog_suite",
    "glue": "catalog_suite",
    "unity": "catalog_suite",
    "operations": "table_suite",
    "memory": "memory",
    "start": "start",
    "spark": "spark",
    "pictures": "pictures",
    "migrate": "migrate",
    "server": "server",
}
"""The module of each suite, imported when it is chosen: Spark's takes a second."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one suite, print its report, and return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m bench", description=__doc__, formatter_class=form)
    suites = parser.add_subparsers(dest="suite", required=True)
    for name, file in SUITES.items():
        suite = suites.add_parser(name, formatter_class=form)
        if name in arguments:
            module = importlib.import_module(f"bench.{file}")
            suite.description = module.__doc__
            suite.add_argument("--output", choices=["text", "json"], default="text")
            module.add_options(suite, name)
    options = parser.parse_args(arguments)
    facts = {name: value for name, value in vars(options).items() if name != "output"}
    report = make_report({**facts, **module.measure(options)})
    print(json.dumps(report, indent=2) if options.output == "json" else to_text(report))
    missed = options.suite in ("start", "migrate") and report["missed"]
    return 1 if report["wrong_answers"] or missed else 0


if __name__ == "__main__":
    end_children_with_this_process()
    sys.exit(main())

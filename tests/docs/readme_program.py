"""The process in which `test_readme_in_order` runs commands of the program and snippets.

Called as ``python -m docs.readme_program``. Each line of its input is a JSON list: the words of a
command, or the snippets of a section, each a language and a text. It answers each with a line, the
exit code and what was printed on standard output and on standard error. Commands and snippets share
one Python and one JVM, because each start of them costs seconds.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from docs.spark_snippets import run
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from lance_bridge_cli.app import app


def _command(words: list[str]) -> list[Any]:
    done = CliRunner().invoke(app, words)
    error = done.exception
    failed = error is not None and not isinstance(error, SystemExit)
    return [done.exit_code, done.stdout, f"{done.stderr}{error!r}" if failed else done.stderr]


def _snippets(parts: list[list[str]]) -> list[Any]:
    printed = run(None, {"section": parts}, [])["section"]
    if (session := SparkSession.getActiveSession()) is not None:
        session.stop()  # or else commands would use it
    return [0, "".join(printed), ""]


def main() -> None:
    # What a JVM prints is not to be among the answers.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        for line in sys.stdin:
            given = json.loads(line)
            found = _snippets(given) if isinstance(given[0], list) else _command(given)
            answers.write(json.dumps(found) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()

"""The processes in which tests run commands of the program and snippets of documents, in order.

`run_snippets` is called through `servers.sparks`. ``python -m docs.snippet_processes`` is for
`test_readme_in_order`: each line of its input is a JSON list, the words of a command, or the
snippets of a section, each a language and a text. It answers each with a line, the exit code and
what was printed on standard output and on standard error. Commands and snippets share one Python
and one JVM, because each start of them costs seconds.
"""

from __future__ import annotations

import io
import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any

from pyspark.sql import SparkSession
from typer.testing import CliRunner

from lance_bridge_cli.app import app


def run_snippets(
    spark: Any, documents: Mapping[str, Sequence[Sequence[str]]], before: Sequence[str]
) -> dict[str, list[str]]:
    """Run each document's snippets, and return what each printed, or the trace of what it raised.

    Args:
        documents: By name, the language and the text of each snippet. What one defines, the next
            ones of the document know, and all know ``spark``.
        before: Statements of SQL to begin with.
    """
    for statement in before:
        spark.sql(statement)
    printed: dict[str, list[str]] = {}
    for name, snippets in documents.items():
        known: dict[str, Any] = {"spark": spark}
        printed[name] = [_printed(language, text, known) for language, text in snippets]
    return printed


def _printed(language: str, text: str, known: dict[str, Any]) -> str:
    out = io.StringIO()
    try:
        with redirect_stdout(out):
            _run(language, text, known)
    except Exception:  # noqa: BLE001 - whatever it is, the next ones run, and it is reported
        return f"{text}\n{traceback.format_exc()[-3000:]}"
    return out.getvalue()


def _run(language: str, text: str, known: dict[str, Any]) -> None:
    if language == "python":
        exec(compile(text, "snippet", "exec"), known)
        return
    for statement in text.split(";\n"):
        known["spark"].sql(statement).collect()


def _command(words: list[str]) -> list[Any]:
    done = CliRunner().invoke(app, words)
    error = done.exception
    failed = error is not None and not isinstance(error, SystemExit)
    return [done.exit_code, done.stdout, f"{done.stderr}{error!r}" if failed else done.stderr]


def _snippets(parts: list[list[str]]) -> list[Any]:
    printed = run_snippets(None, {"section": parts}, [])["section"]
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

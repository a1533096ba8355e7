"""Runs the snippets of documents in one Spark session, as their readers would: in order.

Called in a process of its own, through `servers.sparks`.
"""

from __future__ import annotations

import io
import traceback
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any


def run(
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

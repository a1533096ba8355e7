"""Trino: runs statements (``run``), and returns the rows or the error of each."""

from __future__ import annotations

import json
import sys
from typing import Any

from trino.dbapi import connect
from trino.exceptions import TrinoQueryError


def answer_to(statement: str) -> Any:
    """Return the rows of a statement, or its error as text."""
    try:
        return cursor.execute(statement).fetchall()
    except TrinoQueryError as error:
        return f"{error.error_name}: {error.message}"


given = json.load(sys.stdin)
cursor = connect(host="127.0.0.1", port=given["port"], user="reader").cursor()
print(json.dumps([answer_to(each) for each in given["statements"]]))

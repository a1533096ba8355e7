"""How many files of core a reader opens to follow a call: those with a function that runs in it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import lance_namespace as api
import pytest

import lance_bridge

from .memory_catalog import MemoryNamespace
from .memory_tables import TABLE, count_rows, create, stream

pytestmark = pytest.mark.quick

CORE = Path(lance_bridge.__file__).parent


def files_of(call: Callable[[], object]) -> list[str]:
    """Return the files of core whose functions run in this thread during a call, sorted."""
    entered: set[str] = set()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            entered.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    paths = map(Path, entered)
    return sorted(str(path.relative_to(CORE)) for path in paths if path.is_relative_to(CORE))


def test_describing_a_table_takes_at_most_nine_files(namespace: MemoryNamespace) -> None:
    create(namespace, TABLE)
    request = api.DescribeTableRequest(id=TABLE)

    files = files_of(lambda: namespace.describe_table(request))

    assert "dataset/read.py" in files
    assert len(files) <= 9, ", ".join(files)


def test_inserting_rows_takes_at_most_fourteen_files(namespace: MemoryNamespace) -> None:
    create(namespace, TABLE, rows=3)
    request, data = api.InsertIntoTableRequest(id=TABLE), stream(2)

    files = files_of(lambda: namespace.insert_into_table(request, data))

    assert count_rows(namespace, TABLE) == 5
    assert "dataset/insert.py" in files
    # Four of them read the file that says whether another entry manages the versions.
    assert len(files) <= 14, ", ".join(files)

"""How pytest-xdist gives tests to its workers: files that share a server or Spark stay together.

A pytest plugin, used by ``--dist loadfile``. A worker starts each server and each Spark session
once, when the first test asks for it, and ends it after the last one.
"""

from __future__ import annotations

from typing import Any

import pytest

FIRST = (
    ("tests/migrate/",),
    ("tests/spark/",),
    ("tests/docs/test_readme_in_order.py",),
    ("tests/docs/test_specs_of_apps.py",),
    (
        "tests/conformance/test_hive.py",
        "tests/adapters/hive/",
        "tests/managed/",
        "tests/smoke/",
    ),
    ("tests/cli/",),
    ("tests/server/test_stop.py",),
    ("tests/server/test_serve_command.py",),
    ("tests/docs/test_gateway_pages.py",),
)
"""Beginnings of the node ids that one worker gets; those that take longest are started first, so
that all workers end at about the same time."""


def rank(node_id: str) -> int:
    """Return when a test runs: the lower, the earlier."""
    ranks = (rank for rank, each in enumerate(FIRST) if node_id.startswith(each))
    return next(ranks, len(FIRST))


def unit_of(node_id: str) -> str:
    """Return the unit of a test, which runs on one worker: an entry of `FIRST`, or its file."""
    number = rank(node_id)
    return FIRST[number][0] if number < len(FIRST) else node_id.split("::", 1)[0]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests into the order of `FIRST`."""
    items.sort(key=lambda item: rank(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute units, in the order in which their tests were collected."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - may not be installed

    config.option.loadscopereorder = False
    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = unit_of
    return scheduler

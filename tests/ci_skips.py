"""In CI a skipped test is a failed test, unless ``tests/expected_skips.txt`` lists it.

A pytest plugin. It is active when the environment says ``CI=true``; elsewhere skips stay skips.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ALLOW_LIST = Path("tests", "expected_skips.txt")


@dataclass(frozen=True)
class ExpectedSkip:
    """One line of the allow-list: which tests may skip, and with what in their message."""

    test: re.Pattern[str]
    reason: str

    def covers(self, node_id: str, reason: str) -> bool:
        """Whether a skip of ``node_id`` with this message is the expected one."""
        return self.test.fullmatch(node_id) is not None and self.reason in reason


def parse_allow_list(text: str) -> list[ExpectedSkip]:
    """Read lines of ``node id | reason``; ``*`` stands for anything, ``#`` opens a comment.

    Raises:
        pytest.UsageError: A line has no reason.
    """
    expected = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        pattern, separator, reason = (part.strip() for part in line.partition(" | "))
        if not separator or not reason:
            raise pytest.UsageError(
                f"{ALLOW_LIST}, line {number}: expected 'node id | reason', got {line!r}"
            )
        # Not fnmatch: the brackets of a parametrised test's id must stay literal.
        test = re.compile(".*".join(re.escape(part) for part in pattern.split("*")))
        expected.append(ExpectedSkip(test, reason))
    return expected


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The message a test or module skipped with."""
    details = report.longrepr
    return details[2] if isinstance(details, tuple) else str(details)


class SkipPolicy:
    """Turns every skip that the allow-list does not cover into a failure."""

    def __init__(self, expected: Sequence[ExpectedSkip]) -> None:
        self._expected = expected

    def _objection(self, report: pytest.TestReport | pytest.CollectReport) -> str | None:
        # An expected failure is reported as skipped too; strict xfail already polices those.
        if not report.skipped or hasattr(report, "wasxfail"):
            return None
        reason = skip_reason(report)
        if any(skip.covers(report.nodeid, reason) for skip in self._expected):
            return None
        return (
            f"unexpected skip in CI: {report.nodeid}: {reason}\n"
            f"Provide what is missing, or add a line to {ALLOW_LIST.as_posix()}."
        )

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Fail a test that skipped unexpectedly."""
        report = yield
        if objection := self._objection(report):
            report.outcome = "failed"
            report.longrepr = objection
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(
        self,
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Fail a module that skipped unexpectedly while it was collected."""
        report = yield
        if objection := self._objection(report):
            report.outcome = "failed"
            report.longrepr = objection
        return report


def pytest_configure(config: pytest.Config) -> None:
    """Put the policy in force when this is CI."""
    if os.environ.get("CI", "").lower() not in {"1", "true"}:
        return
    allow_list = config.rootpath / ALLOW_LIST
    text = allow_list.read_text(encoding="utf-8") if allow_list.exists() else ""
    config.pluginmanager.register(SkipPolicy(parse_allow_list(text)), "ci-skip-policy")

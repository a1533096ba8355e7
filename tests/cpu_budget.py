"""What ``make test`` may cost, in CPU seconds: ``--cpu-budget 700 --test-cpu-budget 2``.

A pytest plugin, which CI turns on. A test whose body needs more than its share is named at the end,
and fails if it needs more than twice as much, but for smoke tests, which start what is real. A run
fails whose processes need more than the budget, with all servers that they have waited for. Seconds
are those of a reference machine: each process first times a fixed piece of work, again and again,
because a slow or shared machine needs more of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from typing import Any

import pytest

_UNIT_SECONDS = 0.075
"""What `_work` takes on the reference machine: two cores of a cloud's virtual machine."""
_TESTS_PER_SAMPLE = 100
_TOLERANCE = 2.0
"""CPU time is not exact on a shared machine, and a first test pays for imports."""
_EXPENSIVE = "above the CPU budget"
_SHARE = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the two options."""
    parser.addoption("--cpu-budget", type=float, help="CPU seconds that the whole run may need")
    parser.addoption("--test-cpu-budget", type=float, help="CPU seconds that one test may need")


def pytest_configure(config: pytest.Config) -> None:
    """Turn it on if there is a budget."""
    if config.getoption("cpu_budget") or config.getoption("test_cpu_budget"):
        config.pluginmanager.register(CpuBudget(config), "cpu-budget")


def cpu_seconds() -> float:
    """Return the CPU time of this process, and of its children that have ended."""
    return sum(os.times()[:4])


def _work() -> int:
    return sum(hash(str(number)) & 1 for number in range(400_000))


def slowness() -> float:
    """Return how many times the reference's CPU time this machine needs now; at least 1."""
    started = time.process_time()
    _work()
    return max(1.0, (time.process_time() - started) / _UNIT_SECONDS)


class CpuBudget:
    """Measures each test and the run, and fails what is above its budget."""

    def __init__(self, config: pytest.Config) -> None:
        self._of_run: float | None = config.getoption("cpu_budget")
        self._of_test: float | None = config.getoption("test_cpu_budget")
        self._output: dict[str, Any] | None = getattr(config, "workeroutput", None)
        self._samples = [slowness()]
        self._tests = 0
        self._used = 0.0
        self._expensive: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure the body of a test."""
        self._tests += 1
        if self._tests % _TESTS_PER_SAMPLE == 0:
            self._samples.append(slowness())
        before = cpu_seconds()
        try:
            return (yield)
        finally:
            item.stash[_SHARE] = self._of_reference(cpu_seconds() - before)

    def _of_reference(self, seconds: float) -> float:
        """Return the seconds that a test would have needed on the reference machine."""
        found = seconds / self._samples[-1]
        if self._of_test and found > self._of_test:  # the machine may have become slower
            self._samples.append(slowness())
            found = seconds / self._samples[-1]
        return found

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Name a test that needed too much, and fail one that needed far too much."""
        report = yield
        used = item.stash.get(_SHARE, 0.0)
        limit = None if item.get_closest_marker("smoke") else self._of_test
        if limit and call.when == "call" and report.passed and used > limit:
            message = (
                f"{item.nodeid} needed {used:.1f} CPU seconds, and may need {limit:g}: "
                "make it cheaper, or give it the tier 'servers' (tests/tiers.py)"
            )
            report.user_properties.append((_EXPENSIVE, message))
            if used > _TOLERANCE * limit:
                report.outcome = "failed"
                report.longrepr = message
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what the summary names; reports of processes arrive here too."""
        if report.when == "call" and report.passed:
            found = [str(text) for key, text in report.user_properties if key == _EXPENSIVE]
            self._expensive += found

    def pytest_testnodedown(self, node: Any) -> None:
        """Add what a process of pytest-xdist has used."""
        self._used += getattr(node, "workeroutput", {}).get("cpu_seconds", 0.0)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that needed too much."""
        # Children of a process with workers are these, which report what they have used.
        used = sum(os.times()[:2]) if self._used else cpu_seconds()
        own = used * len(self._samples) / sum(self._samples)
        if self._output is not None:
            self._output["cpu_seconds"] = own
            return
        self._used += own
        if self._of_run and self._used > self._of_run:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say what was used, and which tests needed too much."""
        for each in self._expensive:
            terminalreporter.write_line(each)
        if self._of_run:
            above = " (more than the budget)" if self._used > self._of_run else ""
            terminalreporter.write_line(
                f"CPU seconds: {self._used:.0f} of {self._of_run:g}{above}, see tests/cpu_budget.py"
            )

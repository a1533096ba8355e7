"""The budget of CPU seconds, on small suites of its own."""

from __future__ import annotations

import cpu_budget
import pytest

pytestmark = pytest.mark.quick

pytest_plugins = ["pytester"]

SUITE = """
import time

def test_cheap():
    pass

def test_dear():
    started = time.process_time()
    while time.process_time() < started + 0.3:
        pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(test_suite=SUITE)
    return pytester


@pytest.fixture(autouse=True)
def reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take this machine for the reference: tests of it depend on no machine's speed."""
    monkeypatch.setattr(cpu_budget, "slowness", lambda: 1.0)


def run(suite: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return suite.runpytest_inprocess("-p", "cpu_budget", "-p", "no:cacheprovider", *arguments)


def test_without_a_budget_everything_passes(suite: pytest.Pytester) -> None:
    result = run(suite)
    result.assert_outcomes(passed=2)
    result.stdout.no_fnmatch_line("CPU seconds*")


@pytest.mark.parametrize("processes", [[], ["-n", "1"]])
@pytest.mark.parametrize(("budget", "failed"), [("0.25", 0), ("0.1", 1)])
def test_a_test_above_its_budget_is_named_and_far_above_it_fails(
    suite: pytest.Pytester, processes: list[str], budget: str, failed: int
) -> None:
    suite.makeconftest("import cpu_budget; cpu_budget.slowness = lambda: 1.0")  # in processes too
    result = run(suite, "--test-cpu-budget", budget, *processes)
    result.assert_outcomes(passed=2 - failed, failed=failed)
    message = f"test_suite.py::test_dear needed 0.* CPU seconds, and may need {budget}: make it *"
    result.stdout.fnmatch_lines([message])


@pytest.mark.parametrize("processes", [[], ["-n", "1"]])
def test_a_run_above_its_budget_fails_though_its_tests_pass(
    suite: pytest.Pytester, processes: list[str]
) -> None:
    result = run(suite, "--cpu-budget", "0.25", *processes)
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["CPU seconds: * of 0.25 (more than the budget), *"])


def test_a_run_within_its_budget_passes(suite: pytest.Pytester) -> None:
    result = run(suite, "--cpu-budget", "10000", "--test-cpu-budget", "1000")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["CPU seconds: * of 10000, see tests/cpu_budget.py"])


def test_a_slow_machine_has_more_seconds(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_budget, "slowness", lambda: 10.0)
    run(suite, "--test-cpu-budget", "0.25").assert_outcomes(passed=2)

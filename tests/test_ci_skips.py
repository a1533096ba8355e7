"""The CI policy on skips, run on small test suites of its own."""

from __future__ import annotations

import pytest
from ci_skips import parse_allow_list

pytestmark = pytest.mark.quick

pytest_plugins = ["pytester"]

SUITE = """
import pytest

def test_that_passes():
    pass

@pytest.mark.parametrize("version", ["3.1", "4.2"])
def test_that_skips(version):
    pytest.skip(f"no Java 21 for {version}")
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A suite with one test that passes and two that skip, in CI."""
    monkeypatch.setenv("CI", "true")
    pytester.makepyfile(test_suite=SUITE)
    return pytester


def allow(suite: pytest.Pytester, *lines: str) -> None:
    tests = suite.mkdir("tests")
    (tests / "expected_skips.txt").write_text("\n".join(lines), encoding="utf-8")


def run(suite: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return suite.runpytest("-p", "ci_skips", "-p", "no:cacheprovider", *arguments)


def test_the_policy_is_loaded_in_this_very_run(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.pluginmanager.has_plugin("ci_skips")


def test_an_unexpected_skip_fails_and_is_named(suite: pytest.Pytester) -> None:
    result = run(suite)

    result.assert_outcomes(passed=1, failed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["*unexpected skip in CI: test_suite.py::test_that_skips?3.1?: *no Java 21 for 3.1*"]
    )


def test_a_listed_skip_is_accepted_and_brackets_are_literal(suite: pytest.Pytester) -> None:
    allow(suite, "# comment", "", "*::test_that_skips[4.2] | no Java 21")

    result = run(suite)

    result.assert_outcomes(passed=1, skipped=1, failed=1)


def test_a_listed_test_that_skips_for_another_reason_fails(suite: pytest.Pytester) -> None:
    allow(suite, "*::test_that_skips* | no Docker")

    result = run(suite)

    result.assert_outcomes(passed=1, failed=2)


def test_a_skipped_module_fails(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_module="import pytest\npytest.importorskip('no_such_module')")

    result = run(suite, "test_module.py")

    result.assert_outcomes(errors=1)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*unexpected skip in CI: test_module.py: *no_such_module*"])


def test_a_skip_by_mark_fails(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        test_mark="import pytest\n@pytest.mark.skip(reason='later')\ndef test_it(): pass"
    )

    result = run(suite, "test_mark.py")

    result.assert_outcomes(errors=1)


def test_an_expected_failure_is_no_skip(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_xfail="import pytest\n@pytest.mark.xfail\ndef test_it(): assert 0")

    result = run(suite, "test_xfail.py")

    result.assert_outcomes(xfailed=1)
    assert result.ret == pytest.ExitCode.OK


def test_outside_ci_skips_stay_skips(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI")

    result = run(suite)

    result.assert_outcomes(passed=1, skipped=2)
    assert result.ret == pytest.ExitCode.OK


@pytest.mark.parametrize("line", ["*::test_that_skips", "*::test_that_skips | ", "| no Java"])
def test_an_allow_list_line_without_pattern_or_reason_is_refused(line: str) -> None:
    with pytest.raises(pytest.UsageError, match=r"expected_skips\.txt, line 1"):
        parse_allow_list(line)

"""Tiers of tests, on small suites of their own."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.quick

pytest_plugins = ["pytester"]

SUITE = """
import pytest

@pytest.mark.quick
def test_quick(): pass

@pytest.mark.smoke
class TestSmoke:
    def test_it(self): pass

@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.servers
def test_on_a_server(n): pass

@pytest.mark.servers
@pytest.mark.parametrize("release", ["2.3", "4.0"])
def test_on_a_release(release): pass
"""


def run(suite: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return suite.runpytest("-p", "tiers", "-p", "no:cacheprovider", *arguments)


@pytest.mark.parametrize(
    ("tiers", "passed"),
    [
        ([], 2),
        (["--tier", "quick"], 1),
        (["--tier", "servers"], 2),
        (["--tier", "slow"], 2),
        (["--tier", "servers,slow"], 4),
        (["test_suite.py::test_on_a_server"], 2),
    ],
)
def test_tests_of_the_chosen_tiers_run(
    pytester: pytest.Pytester, tiers: list[str], passed: int
) -> None:
    pytester.makepyfile(test_suite=SUITE)
    run(pytester, *tiers).assert_outcomes(passed=passed)


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        ("", "test_suite.py::test_a has no tier"),
        ("@pytest.mark.quick\n@pytest.mark.slow\n",
         "test_suite.py::test_a has the tiers quick, slow"),
        ("@pytest.mark.smoke\n", "test_suite.py::test_a has the tiers servers, smoke"),
        ("@pytest.mark.parametrize('n', [pytest.param(1, marks=[pytest.mark.slow, "
         "pytest.mark.quick])])\n", "test_suite.py::test_a[[]1[]] has the tiers quick, slow"),
    ],
)  # fmt: skip
def test_a_test_with_no_tier_or_with_two_fails_at_collection(
    pytester: pytest.Pytester, marks: str, message: str
) -> None:
    module = "pytestmark = pytest.mark.servers\n" if "smoke" in marks else ""
    arguments = "n" if "param" in marks else ""
    text = f"import pytest\n{module}{marks}def test_a({arguments}): pass\n"
    pytester.makepyfile(test_suite=text, test_other=SUITE)

    result = run(pytester, "--tier", "quick,slow,servers,smoke")

    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([f"{message}: mark it, its class or its module with one of *"])


def test_files_of_other_tiers_are_not_imported_but_those_without_any_are(
    pytester: pytest.Pytester,
) -> None:
    broken = "import pytest\npytestmark = pytest.mark.servers\nraise RuntimeError('imported')\n"
    pytester.makepyfile(test_broken=broken, test_suite=SUITE, test_none="def test_a(): pass\n")

    result = run(pytester, "--tier", "quick")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["test_none.py::test_a has no tier: *"])


def test_a_quick_test_that_uses_a_server_fails_at_collection(pytester: pytest.Pytester) -> None:
    fixture = "@pytest.fixture\ndef spark(): pass\n"
    test = "@pytest.mark.quick\ndef test_a(spark): pass\n"
    pytester.makepyfile(test_suite=f"import pytest\n{fixture}{test}")
    run(pytester).stdout.fnmatch_lines(["test_suite.py::test_a is quick, but uses spark: *"])


def test_an_unknown_tier_is_wrong_usage(pytester: pytest.Pytester) -> None:
    result = run(pytester, "--tier", "quik")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no tier quik: choose of quick, smoke, *"])

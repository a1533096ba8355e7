"""The plugins of this suite, most of them on small suites of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cpu_budget
import pytest
from ci_skips import parse_allow_list
from clients.conftest import pytest_ignore_collect
from distribution import FIRST, unit_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis_profiles import FIXED, THOROUGH, examples

pytestmark = pytest.mark.quick

pytest_plugins = ["pytester"]

REPOSITORY = Path(__file__).parents[1]


def run(suite: pytest.Pytester, plugin: str, *arguments: str) -> pytest.RunResult:
    """Run a suite with one of the plugins."""
    return suite.runpytest("-p", plugin, "-p", "no:cacheprovider", *arguments)


# -- tiers -----------------------------------------------------------------------------------------


TIERED = """
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

OF_THE_MODULE = """
import pytest

pytestmark = pytest.mark.servers

def test_of_the_module(): pass

@pytest.mark.quick
def test_of_its_own(): pass

@pytest.mark.smoke
class TestOfTheClass:
    def test_of_the_class(self): pass

    @pytest.mark.slow
    def test_of_its_own(self): pass
"""


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
    pytester.makepyfile(test_suite=TIERED)
    run(pytester, "tiers", *tiers).assert_outcomes(passed=passed)


@pytest.mark.parametrize(
    ("tier", "passed"),
    [
        ("servers", "test_of_the_module"),
        ("quick", "test_of_its_own"),
        ("smoke", "TestOfTheClass::test_of_the_class"),
        ("slow", "TestOfTheClass::test_of_its_own"),
    ],
)
def test_the_tier_of_a_test_replaces_that_of_its_class_and_that_of_its_module(
    pytester: pytest.Pytester, tier: str, passed: str
) -> None:
    pytester.makepyfile(test_suite=OF_THE_MODULE)
    result = run(pytester, "tiers", "-v", "--tier", tier)
    result.assert_outcomes(passed=1, deselected=3)
    result.stdout.fnmatch_lines([f"test_suite.py::{passed} PASSED*"])


@pytest.mark.parametrize(
    ("module", "marks", "message"),
    [
        ("", "", "test_suite.py::test_a has no tier"),
        ("quick", "@pytest.mark.quick\n@pytest.mark.slow\n",
         "test_suite.py::test_a has the tiers quick, slow"),
        ("servers, pytest.mark.smoke", "", "test_suite.py::test_a has the tiers servers, smoke"),
        ("", "@pytest.mark.parametrize('n', [pytest.param(1, marks=[pytest.mark.slow, "
         "pytest.mark.quick])])\n", "test_suite.py::test_a[[]1[]] has the tiers quick, slow"),
    ],
)  # fmt: skip
def test_a_test_with_no_tier_or_with_two_fails_at_collection(
    pytester: pytest.Pytester, module: str, marks: str, message: str
) -> None:
    of_module = f"pytestmark = [pytest.mark.{module}]\n" if module else ""
    arguments = "n" if "param" in marks else ""
    text = f"import pytest\n{of_module}{marks}def test_a({arguments}): pass\n"
    pytester.makepyfile(test_suite=text, test_other=TIERED)

    result = run(pytester, "tiers", "--tier", "quick,slow,servers,smoke")

    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([f"{message}: mark it, its class or its module with one of *"])


def test_files_of_other_tiers_are_not_imported_but_those_without_any_are(
    pytester: pytest.Pytester,
) -> None:
    broken = "import pytest\npytestmark = pytest.mark.servers\nraise RuntimeError('imported')\n"
    pytester.makepyfile(test_broken=broken, test_suite=TIERED, test_none="def test_a(): pass\n")

    result = run(pytester, "tiers", "--tier", "quick")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["test_none.py::test_a has no tier: *"])


def test_a_quick_test_that_uses_a_server_fails_at_collection(pytester: pytest.Pytester) -> None:
    fixture = "@pytest.fixture\ndef spark(): pass\n"
    test = "@pytest.mark.quick\ndef test_a(spark): pass\n"
    pytester.makepyfile(test_suite=f"import pytest\n{fixture}{test}")
    result = run(pytester, "tiers")
    result.stdout.fnmatch_lines(["test_suite.py::test_a is quick, but uses spark: *"])


def test_a_test_may_take_as_long_as_it_says_or_else_as_its_tier_does(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        test_suite="""
        import pytest

        @pytest.mark.parametrize("own, expected", [
            pytest.param("none", None, marks=pytest.mark.quick),
            pytest.param("none", 1000, marks=pytest.mark.servers),
            pytest.param("none", 3600, marks=pytest.mark.slow),
            pytest.param("7200", 7200, marks=[pytest.mark.slow, pytest.mark.timeout(7200)]),
        ])
        def test_it(request, own, expected):
            mark = request.node.get_closest_marker("timeout")
            assert (mark and mark.args[0]) == expected
        """
    )
    run(pytester, "tiers", "--tier", "quick,servers,slow").assert_outcomes(passed=4)


@pytest.mark.parametrize(("tiers", "ignored"), [("engines,quick", None), ("slow", True)])
def test_clients_are_imported_where_their_tier_runs_and_so_are_installed(
    tiers: str, ignored: bool | None
) -> None:
    config: Any = SimpleNamespace(args=[], getoption=lambda _: tiers)
    directory = REPOSITORY / "tests" / "clients" / "engines"
    assert pytest_ignore_collect(directory, config) is ignored


def test_an_unknown_tier_is_wrong_usage(pytester: pytest.Pytester) -> None:
    result = run(pytester, "tiers", "--tier", "quik")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no tier quik: choose of quick, smoke, *"])


# -- skips in CI -----------------------------------------------------------------------------------


SKIPPING = """
import pytest

def test_that_passes():
    pass

@pytest.mark.parametrize("version", ["3.1", "4.2"])
def test_that_skips(version):
    pytest.skip(f"no Java 21 for {version}")
"""


@pytest.fixture
def skipping(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A suite with one test that passes and two that skip, in CI."""
    monkeypatch.setenv("CI", "true")
    pytester.makepyfile(test_suite=SKIPPING)
    return pytester


def test_the_policy_is_loaded_in_this_very_run(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.pluginmanager.has_plugin("ci_skips")


@pytest.mark.parametrize(
    ("allowed", "skipped"),
    [
        ([], 0),
        (["# comment", "", "*::test_that_skips[4.2] | no Java 21"], 1),
        (["*::test_that_skips* | no Docker"], 0),
    ],
    ids=["none", "one, whose brackets are literal", "another reason"],
)
def test_an_unexpected_skip_fails_and_is_named(
    skipping: pytest.Pytester, allowed: list[str], skipped: int
) -> None:
    tests = skipping.mkdir("tests")
    (tests / "expected_skips.txt").write_text("\n".join(allowed), encoding="utf-8")
    result = run(skipping, "ci_skips")
    result.assert_outcomes(passed=1, skipped=skipped, failed=2 - skipped)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["*unexpected skip in CI: test_suite.py::test_that_skips?3.1?: *no Java 21 for 3.1*"]
    )


def test_a_skipped_module_fails(skipping: pytest.Pytester) -> None:
    skipping.makepyfile(test_module="import pytest\npytest.importorskip('no_such_module')")
    result = run(skipping, "ci_skips", "test_module.py")
    result.assert_outcomes(errors=1)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*unexpected skip in CI: test_module.py: *no_such_module*"])


@pytest.mark.parametrize(
    ("mark", "outcome"), [("skip(reason='later')", {"errors": 1}), ("xfail", {"xfailed": 1})]
)
def test_a_skip_by_mark_fails_and_an_expected_failure_is_no_skip(
    skipping: pytest.Pytester, mark: str, outcome: dict[str, int]
) -> None:
    text = f"import pytest\n@pytest.mark.{mark}\ndef test_it(): assert 0"
    skipping.makepyfile(test_mark=text)
    result = run(skipping, "ci_skips", "test_mark.py")
    result.assert_outcomes(**outcome)
    assert (result.ret == pytest.ExitCode.OK) is (mark == "xfail")


def test_outside_ci_skips_stay_skips(
    skipping: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI")

    result = run(skipping, "ci_skips")

    result.assert_outcomes(passed=1, skipped=2)
    assert result.ret == pytest.ExitCode.OK


@pytest.mark.parametrize("line", ["*::test_that_skips", "*::test_that_skips | ", "| no Java"])
def test_an_allow_list_line_without_pattern_or_reason_is_refused(line: str) -> None:
    with pytest.raises(pytest.UsageError, match=r"expected_skips\.txt, line 1"):
        parse_allow_list(line)


# -- the budget of CPU seconds ---------------------------------------------------------------------


COSTLY = """
import time

def test_cheap():
    pass

def test_dear():
    started = time.process_time()
    while time.process_time() < started + 0.3:
        pass
"""


@pytest.fixture
def costly(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(test_suite=COSTLY)
    return pytester


@pytest.fixture(autouse=True)
def reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take this machine for the reference: tests of it depend on no machine's speed."""
    monkeypatch.setattr(cpu_budget, "slowness", lambda: 1.0)


def test_without_a_budget_everything_passes(costly: pytest.Pytester) -> None:
    result = run(costly, "cpu_budget")
    result.assert_outcomes(passed=2)
    result.stdout.no_fnmatch_line("CPU seconds*")


@pytest.mark.parametrize(
    ("processes", "budget", "failed"), [([], "0.25", 0), ([], "0.1", 1), (["-n", "1"], "0.1", 1)]
)
def test_a_test_above_its_budget_is_named_and_far_above_it_fails(
    costly: pytest.Pytester, processes: list[str], budget: str, failed: int
) -> None:
    costly.makeconftest("import cpu_budget; cpu_budget.slowness = lambda: 1.0")  # in processes too
    result = run(costly, "cpu_budget", "--test-cpu-budget", budget, *processes)
    result.assert_outcomes(passed=2 - failed, failed=failed)
    message = f"test_suite.py::test_dear needed 0.* CPU seconds, and may need {budget}: make it *"
    result.stdout.fnmatch_lines([message])


@pytest.mark.parametrize("processes", [[], ["-n", "1"]])
def test_a_run_above_its_budget_fails_though_its_tests_pass(
    costly: pytest.Pytester, processes: list[str]
) -> None:
    result = run(costly, "cpu_budget", "--cpu-budget", "0.25", *processes)
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["CPU seconds: * of 0.25 (more than the budget), *"])


def test_a_run_within_its_budget_passes(costly: pytest.Pytester) -> None:
    result = run(costly, "cpu_budget", "--cpu-budget", "10000", "--test-cpu-budget", "1000")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["CPU seconds: * of 10000, see tests/cpu_budget.py"])


def test_a_slow_machine_has_more_seconds(
    costly: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_budget, "slowness", lambda: 10.0)
    run(costly, "cpu_budget", "--test-cpu-budget", "0.25").assert_outcomes(passed=2)


# -- workers ---------------------------------------------------------------------------------------


def test_tests_that_share_a_server_or_spark_run_on_one_worker() -> None:
    units = {
        "tests/migrate/test_copy.py::test_a[x::y]": "tests/migrate/",
        "tests/spark/service/test_service_tables.py::test_a": "tests/spark/",
        "tests/conformance/test_hive.py::TestHive23::test_a": "tests/conformance/test_hive.py",
        "tests/adapters/hive/test_races.py::test_a": "tests/conformance/test_hive.py",
        "tests/smoke/test_spark.py::test_a": "tests/conformance/test_hive.py",
        "tests/conformance/test_glue.py::TestGlue::test_a": "tests/conformance/test_glue.py",
        "tests/core/test_tags.py::test_a": "tests/core/test_tags.py",
    }
    assert {node_id: unit_of(node_id) for node_id in units} == units


def test_what_is_ordered_exists() -> None:
    beginnings = [each for unit in FIRST for each in unit]
    assert [each for each in beginnings if not [*REPOSITORY.glob(f"{each}*")]] == []


# -- examples of property tests --------------------------------------------------------------------


@pytest.fixture(params=[FIXED, THOROUGH])
def profile(request: pytest.FixtureRequest) -> Iterator[str]:
    before = settings.get_current_profile_name()
    settings.load_profile(request.param)
    yield request.param
    settings.load_profile(before)


def tried() -> list[int]:
    """Run a property test, and return its examples."""
    seen: list[int] = []

    @given(st.integers())
    def look(number: int) -> None:
        seen.append(number)

    look()
    return seen


def test_examples_are_the_same_on_each_run_unless_it_is_thorough(profile: str) -> None:
    one, other = tried(), tried()
    assert len(one) == len(other) == (100 if profile == FIXED else 500)
    assert (one == other) == (profile == FIXED)


def test_the_examples_of_a_test_change_as_those_of_all_do(profile: str) -> None:
    assert examples(20).max_examples == (20 if profile == FIXED else 100)


@pytest.mark.usefixtures("profile")
def test_no_example_is_too_slow_whatever_else_a_test_allows() -> None:
    allowed = examples(20, share_fixtures=True)
    assert allowed.deadline is None
    assert {*allowed.suppress_health_check} == {
        HealthCheck.too_slow,
        HealthCheck.function_scoped_fixture,
    }

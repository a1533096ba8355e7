"""Property tests try the same examples on each run, as many as the profile says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis_profiles import FIXED, THOROUGH, examples

pytestmark = pytest.mark.quick


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

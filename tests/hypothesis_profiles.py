"""Which examples property tests try, and how many: the same ones on each run, whatever the machine.

A pytest plugin. Profile ``fixed`` is used here and in CI, so that what fails once fails again.
``--hypothesis-profile=thorough``, in ``make test-slow``, tries five times as many, others each
time; a failure prints how to repeat it.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

FIXED, THOROUGH = "fixed", "thorough"

settings.register_profile(
    FIXED,
    max_examples=100,
    derandomize=True,
    database=None,
    print_blob=True,
    # How long an example takes, or its data, depends on the machine and on what else it does.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    THOROUGH, settings.get_profile(FIXED), max_examples=500, derandomize=False
)
settings.load_profile(FIXED)


def examples(count: int, *, share_fixtures: bool = False) -> settings:
    """Return settings of a test that tries fewer examples than others, or more.

    Args:
        count: How many in profile ``fixed``; in another, it changes as that of other tests.
        share_fixtures: Allow fixtures of function scope, which all examples then share.
    """
    used, fixed = settings.default, settings.get_profile(FIXED)
    assert used is not None
    shared = [HealthCheck.function_scoped_fixture] if share_fixtures else []
    return settings(
        max_examples=count * used.max_examples // fixed.max_examples,
        suppress_health_check=[*used.suppress_health_check, *shared],
    )

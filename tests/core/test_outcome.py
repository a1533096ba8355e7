"""Lost replies, at the level of one change."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from lance_namespace.errors import (
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
    ThrottlingError,
)

from lance_bridge.entries.outcome import settle
from lance_bridge.errors import OutcomeUnknownError

LOST = OutcomeUnknownError("lost")
TAKEN = TableAlreadyExistsError("taken")


class Script:
    """Raises, or answers, one thing after the other, and counts how often it was asked."""

    def __init__(self, *steps: object) -> None:
        self._steps: Iterator[object] = iter(steps)
        self.calls = 0

    def _next(self) -> object:
        self.calls += 1
        step = next(self._steps)
        if isinstance(step, Exception):
            raise step
        return step

    def change(self) -> None:
        self._next()

    def happened(self) -> bool:
        return bool(self._next())


def never() -> bool:
    raise AssertionError("nothing was to be read back")


def test_a_change_that_is_answered_is_made_once_and_not_read_back() -> None:
    change = Script(None)
    settle(change.change, never)
    assert change.calls == 1


def test_a_refused_change_is_raised_without_reading_back() -> None:
    change = Script(TAKEN)
    with pytest.raises(TableAlreadyExistsError):
        settle(change.change, never)
    assert change.calls == 1


def test_a_change_that_happened_is_not_repeated() -> None:
    change, happened = Script(LOST), Script(True)
    settle(change.change, happened.happened)
    assert (change.calls, happened.calls) == (1, 1)


def test_a_change_that_did_not_happen_is_repeated() -> None:
    change, happened = Script(LOST, LOST, None), Script(False, False)
    settle(change.change, happened.happened)
    assert (change.calls, happened.calls) == (3, 2)


def test_after_three_lost_replies_without_effect_the_outcome_is_unknown() -> None:
    change, happened = Script(LOST, LOST, LOST), Script(False, False, False)
    with pytest.raises(OutcomeUnknownError):
        settle(change.change, happened.happened)
    assert (change.calls, happened.calls) == (3, 3)


def test_a_refusal_of_the_repetition_is_success_where_the_first_had_come_late() -> None:
    settle(Script(LOST, TAKEN).change, Script(False, True).happened)


def test_a_refusal_of_the_repetition_is_raised_where_somebody_else_was_first() -> None:
    with pytest.raises(TableAlreadyExistsError):
        settle(Script(LOST, TAKEN).change, Script(False, False).happened)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ServiceUnavailableError("down"), OutcomeUnknownError),
        (ThrottlingError("slowly"), ThrottlingError),
    ],
)
def test_what_reading_back_raises_is_told_and_nothing_is_repeated(
    error: Exception, kind: type[Exception]
) -> None:
    change = Script(LOST)
    with pytest.raises(kind, match=f"{LOST}.*could not be found out: {error}"):
        settle(change.change, Script(error).happened)
    assert change.calls == 1


def test_what_is_gone_by_the_time_it_is_read_back_is_not_found() -> None:
    change = Script(LOST)
    with pytest.raises(TableNotFoundError, match="gone"):
        settle(change.change, Script(TableNotFoundError("gone")).happened)
    assert change.calls == 1


def test_a_refusal_after_a_lost_reply_is_doubtful_where_nobody_can_look() -> None:
    change = Script(LOST, TableNotFoundError("gone"))
    with pytest.raises(OutcomeUnknownError, match="down"):
        settle(change.change, Script(False, ServiceUnavailableError("down")).happened)
    assert change.calls == 2


@pytest.mark.parametrize("broken", [KeyError("x"), RuntimeError("x")])
def test_a_defect_is_not_taken_for_an_answer(broken: Exception) -> None:
    def change() -> None:
        raise broken

    run: Callable[[], None] = change
    with pytest.raises(type(broken)):
        settle(run, never)

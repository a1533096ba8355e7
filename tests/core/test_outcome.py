"""One change: a reply that is lost, and what Lance says of a commit that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from lance_namespace.errors import (
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
    ThrottlingError,
)

from lance_bridge.errors import OutcomeUnknownError, is_refusal, reason_in
from lance_bridge.lost_replies import retry_after_readback

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#errors-of-every-operation")]

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


@pytest.mark.parametrize(
    ("replies", "read_back", "raised"),
    [
        ([None], [], None),
        ([TAKEN], [], TableAlreadyExistsError),
        ([LOST], [True], None),
        ([LOST, LOST, None], [False, False], None),
        ([LOST, LOST, LOST], [False, False, False], OutcomeUnknownError),
        ([LOST, TAKEN], [False, False], TableAlreadyExistsError),
        ([LOST], [TableNotFoundError("gone")], TableNotFoundError),
    ],
)
def test_a_change_is_repeated_where_it_did_not_happen_and_nowhere_else(
    replies: list[Any], read_back: list[Any], raised: type[Exception] | None
) -> None:
    change, happened = Script(*replies), Script(*read_back)
    with pytest.raises(raised) if raised else nullcontext():
        retry_after_readback(change.change, happened.happened)
    assert (change.calls, happened.calls) == (len(replies), len(read_back))


def test_a_refusal_of_the_repetition_is_success_where_the_first_had_come_late() -> None:
    retry_after_readback(Script(LOST, TAKEN).change, Script(False, True).happened)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ServiceUnavailableError("down"), OutcomeUnknownError),
        (ThrottlingError("slowly"), ThrottlingError),
    ],
)
def test_what_reading_back_raises_is_reported_and_nothing_is_repeated(
    error: Exception, kind: type[Exception]
) -> None:
    change = Script(LOST)
    with pytest.raises(kind, match=f"{LOST}.*could not be read back: {error}"):
        retry_after_readback(change.change, Script(error).happened)
    assert change.calls == 1


def test_a_refusal_after_a_lost_reply_is_unknown_where_nothing_can_be_read() -> None:
    change = Script(LOST, TableNotFoundError("gone"))
    with pytest.raises(OutcomeUnknownError, match="down"):
        retry_after_readback(change.change, Script(False, ServiceUnavailableError("down")).happened)
    assert change.calls == 2


@pytest.mark.parametrize("broken", [KeyError("x"), RuntimeError("x")])
def test_a_defect_is_not_taken_for_an_answer(broken: Exception) -> None:
    def change() -> None:
        raise broken

    run: Callable[[], None] = change
    with pytest.raises(type(broken)):
        retry_after_readback(run, never)


# -- what Lance says of a failed commit ------------------------------------------------------------


@pytest.mark.spec("operations.md#commits-and-conflicts")
@pytest.mark.parametrize(
    ("text", "is_the_request_s"),
    [
        ("LanceError(Arrow): Divide by zero error", True),
        ("Not supported: This feature is not implemented", True),
        ("LanceError(Arrow): External error: LanceError(IO): timed out", False),
        ("LanceError(IO): Invalid user input", False),
        ("Permission denied", False),
    ],
)
def test_a_failure_of_the_storage_at_any_depth_is_no_refusal(
    text: str, is_the_request_s: bool
) -> None:
    assert is_refusal(OSError(text)) is is_the_request_s


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("one\ntwo", "one"),
        (
            "Parameter validation failed:\nInvalid length\nmore",
            "Parameter validation failed: Invalid length",
        ),
        ("java.lang.X:\n\n  cause", "java.lang.X: cause"),
        ("alone:", "alone:"),
        ("", ""),
        ("a" * 400, "a" * 300),
    ],
)
def test_a_message_is_shortened_to_its_reason(message: str, reason: str) -> None:
    assert reason_in(f"  {message}\n") == reason

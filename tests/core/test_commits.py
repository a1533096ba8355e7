"""A failed commit is the request's fault or the storage's, by what Lance says of it."""

from __future__ import annotations

import pytest

from lance_bridge.errors import is_refusal


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

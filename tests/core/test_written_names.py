"""Names of tables and namespaces in messages."""

from __future__ import annotations

import pytest

from lance_bridge.names import first_names


@pytest.mark.parametrize(
    ("count", "text"), [(0, ""), (1, "a"), (2, "a, b"), (3, "a, b and 1 more")]
)
def test_a_message_has_the_first_names_and_the_number_of_others(count: int, text: str) -> None:
    assert first_names(["a", "b", "c"][:count], 2) == text

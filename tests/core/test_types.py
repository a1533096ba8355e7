"""The table of plain types: whole, and unambiguous in each form that is read back."""

from __future__ import annotations

import arrow_types
import pyarrow as pa
import pytest

from lance_bridge.types import PLAIN_TYPES, plain_type

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#published-columns")]

WITH_PARAMETERS = (
    pa.types.is_timestamp, pa.types.is_time, pa.types.is_duration, pa.types.is_decimal,
    pa.types.is_fixed_size_binary, pa.types.is_dictionary, pa.types.is_nested,
)  # fmt: skip


def test_every_type_without_parameters_is_in_the_table() -> None:
    types = [case.type for case in arrow_types.CASES]
    plain = [
        each
        for each in types
        if not isinstance(each, pa.BaseExtensionType)
        and not any(matches(each) for matches in WITH_PARAMETERS)
    ]
    assert len(plain) >= len(PLAIN_TYPES)
    assert [str(each) for each in plain if plain_type(each) is None] == []


@pytest.mark.parametrize("form", ["arrow", "name", "lance"])
def test_no_two_types_have_one_name(form: str) -> None:
    names = [getattr(each, form) for each in PLAIN_TYPES]
    assert len({*names}) == len(names)

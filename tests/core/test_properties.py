"""Properties of entries: what callers set and see, and what is core's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError

from lance_bridge.catalog import TableRecord
from lance_bridge.records import (
    ENTRY_ID,
    check_properties,
    manager_in,
    properties_of_new_table,
    replace_visible,
    visible_properties,
)

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#table-properties")]


def is_accepted(key: str) -> bool:
    """Return whether a key has no meaning of its own: the tests below name those that have."""
    try:
        check_properties({key: ""})
    except InvalidInputError:
        return False
    return True


OWN = st.dictionaries(st.text(min_size=1).filter(is_accepted), st.text(), max_size=5)


@given(OWN)
def test_a_caller_sees_what_a_caller_gave_and_nothing_else(own: dict[str, str]) -> None:
    assert check_properties(own) == own
    stored = properties_of_new_table(own)
    assert TableRecord(("t",), properties=stored).is_lance
    assert visible_properties(stored) == own


@given(OWN, OWN)
def test_replacing_keeps_the_marks_and_the_identity(
    old: dict[str, str], new: dict[str, str]
) -> None:
    stored = properties_of_new_table(old)
    changed = replace_visible(stored, new)
    assert visible_properties(changed) == new
    for key in ("table_type", "managed_by", ENTRY_ID):
        assert changed[key] == stored[key]


def test_every_new_entry_has_an_identity_of_its_own() -> None:
    assert properties_of_new_table({})[ENTRY_ID] != properties_of_new_table({})[ENTRY_ID]


@pytest.mark.spec(
    "common.md#createnamespace",
    "common.md#createtable",
    "common.md#declaretable",
    "common.md#registertable",
)
@pytest.mark.parametrize(
    "key",
    [
        "",
        "lance_bridge.id",
        "lance_bridge.",
        "lance_bridge.x",
        "LANCE_BRIDGE.latest",
        "Lance_Bridge.x",
    ],
)
def test_an_empty_or_reserved_key_is_invalid(key: str) -> None:
    with pytest.raises(InvalidInputError, match="reserved"):
        check_properties({key: "x"})


@pytest.mark.spec("common.md#declaretable")
@pytest.mark.parametrize(
    "key",
    [
        "EXTERNAL", "external", "External.Table.Purge", "auto.purge", "AUTO.PURGE",
        "Storage_Handler",
        "translated_to_external", "spark.sql.sources.provider", "Spark.SQL.Sources.schema.part.0",
        "metadata_location", " external ",
    ],
)  # fmt: skip
def test_what_engines_act_on_is_refused_in_any_letter_case(key: str) -> None:
    with pytest.raises(InvalidInputError, match="reserved by the metastore"):
        check_properties({key: "TRUE"})


def test_what_core_keeps_is_hidden_and_kept_in_any_letter_case() -> None:
    stored = {**properties_of_new_table({}), "LANCE_BRIDGE.Latest": "7"}
    assert visible_properties(stored) == {}
    assert replace_visible(stored, {"a": "b"}) == {**stored, "a": "b"}


@pytest.mark.spec(
    "common.md#createtable",
    "common.md#declaretable",
    "common.md#lance-tables",
    "common.md#registertable",
)
@pytest.mark.parametrize("mark", ["table_type", "TABLE_TYPE", "Table_Type"])
def test_a_mark_may_be_repeated_but_means_lance(mark: str) -> None:
    assert check_properties({mark: "LANCE", "a": "b"}) == {"a": "b"}
    for other in ("iceberg", "", "lance "):
        with pytest.raises(InvalidInputError, match="marks Lance tables"):
            check_properties({mark: other})


def test_who_manages_a_table_may_be_said_as_it_is_in_any_letter_case() -> None:
    for value, manager in (("storage", "storage"), ("Catalog", "storage"), ("IMPL", "impl")):
        assert check_properties({"managed_by": value}) == {}
        assert manager_in({"Managed_By": value}) == manager
    assert manager_in({"a": "b"}) is None
    with pytest.raises(InvalidInputError, match="managed_by"):
        check_properties({"managed_by": "me"})

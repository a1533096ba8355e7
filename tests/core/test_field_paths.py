"""Field paths: segments with dots and backticks, as the specification writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace import errors

from lance_bridge.dataset import paths

from .evolving import create_table, dataset, drop
from .memory_catalog import MemoryNamespace

pytestmark = [pytest.mark.quick, pytest.mark.spec("operations.md#field-paths")]

names = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1),
    min_size=1,
    max_size=4,
)


@given(names)
def test_a_canonical_path_is_read_back(segments: list[str]) -> None:
    assert paths.parse(paths.canonical(segments)) == tuple(segments)


@pytest.mark.parametrize(
    ("text", "segments"),
    [("a", ("a",)), ("a.b", ("a", "b")), ("`a.b`.c", ("a.b", "c")), ("`c``d`", ("c`d",))],
)
def test_a_path_is_cut_at_dots_outside_backticks(text: str, segments: tuple[str, ...]) -> None:
    assert paths.parse(text) == segments


@pytest.mark.spec("operations.md#errors-of-every-operation")
@pytest.mark.parametrize(
    "text", ["", ".", "a.", ".a", "a..b", "`a", "`a`b", "a`b`", "``", "\ud800"]
)
def test_what_is_no_path_is_invalid(text: str) -> None:
    with pytest.raises(errors.InvalidInputError):
        paths.parse(text)


def test_lance_finds_every_field_by_its_canonical_path(namespace: MemoryNamespace) -> None:
    create_table(namespace)
    found = dataset(namespace)
    columns = {column.path: column for column in paths.walk(found)}
    assert {"st.`a.b`", "st.`c``d`", "st.x", "tags.item", "vector"} < set(columns)
    for path, column in columns.items():
        field = found.lance_schema.field(path)
        assert field is not None
        assert field.id() == column.field.id()


@pytest.mark.parametrize("path", ["nope", "ID", "x", "st.nope", "st.a.b", "id.x", "i\0d"])
def test_the_error_for_a_missing_field_lists_the_fields(
    namespace: MemoryNamespace, path: str
) -> None:
    create_table(namespace)
    with pytest.raises(errors.TableColumnNotFoundError, match="its columns are id, text, odd"):
        drop(namespace, path)
    assert dataset(namespace).version == 1

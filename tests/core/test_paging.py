"""Pages of listings that may change while they are read."""

from __future__ import annotations

import base64
import json

import lance_namespace as api
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InternalError, InvalidInputError

from lance_bridge.paging import PageRequest, decode_token, encode_token, names_of_all_pages

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#pagination", "operations.md#pages")]

NAMES = st.sets(st.text(min_size=1, max_size=4), max_size=12)


def page_of(
    names: list[str], limit: int | None, token: str | None, scope: str = "tables"
) -> tuple[list[str], str | None]:
    return PageRequest.parse(scope, limit, token).cut_names(names)


def encoded(content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode()


def decoded(token: str) -> list[object]:
    content: list[object] = json.loads(base64.urlsafe_b64decode(token))
    return content


@given(NAMES, st.integers(1, 13))
def test_pages_of_an_unchanging_list_are_the_sorted_list(names: set[str], limit: int) -> None:
    seen: list[str] = []
    token: str | None = None
    pages = 0
    while pages == 0 or token:
        page, token = page_of(list(names), limit, token)
        assert len(page) <= limit
        assert page or pages == 0
        seen += page
        pages += 1
    assert seen == sorted(names)
    assert pages == max(1, -(-len(names) // limit))


@given(
    NAMES,
    st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=20),
    st.integers(1, 4),
)
def test_changes_between_pages_neither_repeat_nor_hide_a_name_that_stays(
    names: set[str], changes: list[tuple[set[str], set[str]]], limit: int
) -> None:
    always = set(names)
    ever = set(names)
    seen: list[str] = []
    token: str | None = None
    for added, removed in changes:
        page, token = page_of(list(names), limit, token)
        seen += page
        if token is None:
            break
        names = (names | added) - removed
        always -= removed
        ever |= added
    else:
        while token is not None:
            page, token = page_of(list(names), limit, token)
            seen += page
    assert seen == sorted(set(seen))
    assert always <= set(seen) <= ever


def test_repeated_names_are_listed_once() -> None:
    assert page_of(["a", "a", "b"], None, None) == (["a", "b"], None)


@given(st.text())
def test_any_text_as_a_token_is_invalid_or_the_start(token: str) -> None:
    if not token:
        return
    with pytest.raises(InvalidInputError, match="page_token"):
        page_of(["a"], 1, token)


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_any_json_as_a_token_is_invalid(content: object) -> None:
    with pytest.raises(InvalidInputError, match="page_token"):
        page_of(["a"], 1, encoded(content))


def test_a_token_that_is_cut_or_of_another_version_or_shape_is_invalid() -> None:
    _, token = page_of(["a", "b"], 1, None)
    assert token is not None
    version, scope, last = decoded(token)
    shapes = ([2, scope, last], [version, scope], [version, scope, 1], [version, None, last])
    deep = base64.urlsafe_b64encode(b"[" * 100_000).decode()
    cut = (token[:-1], token[:-4], token + "AAAA", token.replace("W", "*"))
    for bad in (*map(encoded, shapes), *cut, deep):
        with pytest.raises(InvalidInputError, match="page_token"):
            page_of(["a"], 1, bad)


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_token_survives_any_name(one: str, other: str) -> None:
    first, second = sorted({one, other + one})
    page, token = page_of([first, second], 1, None)
    assert page == [first]
    assert token is not None
    assert token.isascii()
    assert page_of([first, second], 1, token) == ([second], None)


def test_what_is_listed_may_be_any_text() -> None:
    scope = "versions of \ud800"
    token = encode_token(scope, ("a",))
    assert decode_token(scope, token) == ("a",)
    with pytest.raises(InvalidInputError, match="page_token"):
        decode_token("versions of ?", token)


class Pages:
    """A listing that answers by what it is asked for: token to names and next token."""

    def __init__(self, pages: dict[str | None, tuple[list[str], str | None]]) -> None:
        self._pages = pages

    def list_tables(self, request: api.ListTablesRequest) -> api.ListTablesResponse:
        names, token = self._pages[request.page_token]
        return api.ListTablesResponse(tables=names, page_token=token)


def test_names_of_all_pages_are_read_to_the_last_page() -> None:
    pages = Pages({None: (["a"], "1"), "1": ([], "2"), "2": (["b"], None)})
    found = names_of_all_pages(pages.list_tables, api.ListTablesRequest(id=[]), "tables")
    assert list(found) == ["a", "b"]


def test_a_listing_that_repeats_a_page_for_ever_is_an_error() -> None:
    pages = Pages({None: (["a"], "1"), "1": (["b"], "1")})
    found = names_of_all_pages(pages.list_tables, api.ListTablesRequest(id=[]), "tables")
    assert [next(found), next(found)] == ["a", "b"]
    with pytest.raises(InternalError, match="repeats itself"):
        next(found)

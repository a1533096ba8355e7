"""Cases: listings page by page, while tables and namespaces come and go."""

from __future__ import annotations

import pytest
from lance_namespace import ErrorCode

from .build import unique_name
from .calls import Calls, collect, pages
from .cases import Cases, needs
from .expect import refused
from .space import Space

INVALID = ErrorCode.INVALID_INPUT
NAMES = ["a", "b", "c", "d", "e", "f"]
BAD_TOKENS = ("nonsense", "%%%", "eyJ", "AAAA", "[]", "W10=", "a b", "\x00", "é", "9" * 5000)


class PagingCases(Cases):
    """``limit`` and ``page_token``."""

    def _declare(self, space: Space, *names: str) -> None:
        for name in names:
            space.api.declare_table(space.table(name))

    # -- whole listings --------------------------------------------------------------------------

    def test_tables_come_sorted(self, space: Space) -> None:
        names = ["b", "a_b", "a1", "c", "a", "ab", "_a"]
        self._declare(space, *names)
        assert space.names() == sorted(names)

    @pytest.mark.parametrize("limit", [1, 2, 3, 5, 6, 7, 1000])
    def test_tables_page_by_page_are_the_same_as_at_once(self, space: Space, limit: int) -> None:
        self._declare(space, *NAMES)
        assert space.api.all_tables(space.id, limit=limit) == NAMES

    @needs("namespace_changes")
    @pytest.mark.parametrize("limit", [1, 3, 1000])
    def test_namespaces_page_by_page_are_the_same_as_at_once(
        self, space: Space, limit: int
    ) -> None:
        mine = sorted([space.name, *(space.new_namespace()[-1] for _ in range(3))])
        parent = space.target.parent
        if limit == 1 and len(space.api.all_namespaces(parent)) > 200:
            limit = 50  # a shared catalog with many namespaces: one at a time takes too long
        found = space.api.all_namespaces(parent, limit=limit)
        assert [name for name in found if name in mine] == mine
        assert found == sorted(set(found))

    def test_declared_tables_hidden_from_pages_leave_no_gaps(self, space: Space) -> None:
        self._declare(space, "a", "b", "d")
        space.with_rows("c")
        space.with_rows("e")
        hidden = space.api.all_tables(space.id, limit=1, include_declared=False)
        assert hidden == ["c", "e"]

    # -- single pages ----------------------------------------------------------------------------

    def test_limit_one_gives_one_name_and_a_token(self, space: Space) -> None:
        self._declare(space, "a", "b")
        first = space.api.list_tables(space.id, limit=1)
        assert list(first.tables) == ["a"]
        assert first.page_token
        second = space.api.list_tables(space.id, limit=1, page_token=first.page_token)
        assert list(second.tables) == ["b"]

    def test_an_exactly_full_last_page_ends_the_listing(self, space: Space) -> None:
        self._declare(space, "a", "b", "c", "d")
        first = space.api.list_tables(space.id, limit=2)
        assert list(first.tables) == ["a", "b"]
        last = space.api.list_tables(space.id, limit=2, page_token=first.page_token)
        assert list(last.tables) == ["c", "d"]
        assert not self._rest(space, last.page_token)

    def test_the_last_page_may_be_short(self, space: Space) -> None:
        self._declare(space, "a", "b", "c")
        first = space.api.list_tables(space.id, limit=2)
        last = space.api.list_tables(space.id, limit=2, page_token=first.page_token)
        assert list(last.tables) == ["c"]
        assert not last.page_token

    def test_a_page_is_empty_when_all_later_tables_were_dropped(self, space: Space) -> None:
        self._declare(space, "a", "b", "c")
        first = space.api.list_tables(space.id, limit=1)
        for name in ("b", "c"):
            space.api.drop_table(space.table(name))
        last = space.api.list_tables(space.id, limit=1, page_token=first.page_token)
        assert list(last.tables) == []
        assert not last.page_token

    def test_an_empty_token_is_the_start(self, space: Space) -> None:
        self._declare(space, "a", "b")
        answer = space.api.list_tables(space.id, page_token="")
        assert list(answer.tables) == ["a", "b"]

    # -- changes between pages -------------------------------------------------------------------

    def test_tables_created_between_pages_neither_repeat_nor_hide_others(
        self, space: Space
    ) -> None:
        self._declare(space, "b", "d", "f", "h")
        first = space.api.list_tables(space.id, limit=2)
        self._declare(space, "a", "c", "e", "g")
        rest = self._rest(space, first.page_token)
        assert list(first.tables) == ["b", "d"]
        assert {"f", "h"} <= set(rest)
        assert not {"b", "d"} & set(rest)
        assert rest == sorted(set(rest))

    def test_tables_dropped_between_pages_neither_repeat_nor_hide_others(
        self, space: Space
    ) -> None:
        self._declare(space, *NAMES)
        first = space.api.list_tables(space.id, limit=3)
        for name in ("a", "c", "d"):
            space.api.drop_table(space.table(name))
        assert list(first.tables) == ["a", "b", "c"]
        assert self._rest(space, first.page_token) == ["e", "f"]

    @needs("namespace_changes")
    def test_namespaces_changed_between_pages_neither_repeat_nor_hide_others(
        self, space: Space
    ) -> None:
        prefix = unique_name()
        parent = list(space.target.parent)
        made = {name: space.adopt([*parent, f"{prefix}_{name}"]) for name in "abcde"}
        for name in "ace":
            space.api.create_namespace(made[name])
        found: list[str] = []
        for names, _ in pages(space.api.list_namespaces, "namespaces", 1, id=parent):
            found.extend(names)
            if names == [made["c"][-1]]:
                space.api.drop_namespace(made["c"])
                space.api.create_namespace(made["b"])
                space.api.create_namespace(made["d"])
        own = [name for name in found if name.startswith(prefix)]
        assert own == [made[name][-1] for name in ("a", "c", "d", "e")]

    # -- bad requests ----------------------------------------------------------------------------

    @pytest.mark.parametrize("limit", [0, -1, -(2**31)])
    def test_list_tables_with_a_limit_below_one_is_invalid_input(
        self, space: Space, limit: int
    ) -> None:
        with refused(INVALID, naming="limit"):
            space.api.list_tables(space.id, limit=limit)

    @pytest.mark.parametrize("limit", [0, -1, -(2**31)])
    def test_list_namespaces_with_a_limit_below_one_is_invalid_input(
        self, space: Space, limit: int
    ) -> None:
        with refused(INVALID, naming="limit"):
            space.api.list_namespaces(space.target.parent, limit=limit)

    @needs("list_all")
    @pytest.mark.parametrize("limit", [0, -1])
    def test_list_all_tables_with_a_limit_below_one_is_invalid_input(
        self, space: Space, limit: int
    ) -> None:
        with refused(INVALID, naming="limit"):
            space.api.list_all_tables(limit=limit)

    def test_list_tables_with_a_bad_token_is_invalid_input(self, space: Space) -> None:
        for token in BAD_TOKENS:
            with refused(INVALID, naming="token"):
                space.api.list_tables(space.id, page_token=token)

    def test_list_namespaces_with_a_bad_token_is_invalid_input(self, space: Space) -> None:
        for token in BAD_TOKENS:
            with refused(INVALID, naming="token"):
                space.api.list_namespaces(space.target.parent, page_token=token)

    @needs("list_all")
    def test_list_all_tables_with_a_bad_token_is_invalid_input(self, space: Space) -> None:
        for token in BAD_TOKENS:
            with refused(INVALID, naming="token"):
                space.api.list_all_tables(page_token=token)

    def test_a_token_of_another_namespace_is_invalid_input(self, space: Space) -> None:
        other = space.new_namespace()
        self._declare(space, "a", "b")
        token = space.api.list_tables(space.id, limit=1).page_token
        with refused(INVALID, naming="token"):
            space.api.list_tables(other, page_token=token)

    @needs("namespace_changes")
    def test_a_token_of_another_listing_is_invalid_input(self, space: Space) -> None:
        space.new_namespace()
        token = space.api.list_namespaces(space.target.parent, limit=1).page_token
        assert token
        with refused(INVALID, naming="token"):
            space.api.list_tables(space.id, page_token=token)

    def test_a_token_serves_another_client(self, space: Space) -> None:
        self._declare(space, "a", "b")
        token = space.api.list_tables(space.id, limit=1).page_token
        second = Calls(space.target.connect())
        assert list(second.list_tables(space.id, page_token=token).tables) == ["b"]
        second.close()

    def _rest(self, space: Space, token: str | None) -> list[str]:
        """Return what follows a page, one name at a time; nothing follows the last."""
        return collect(space.api.list_tables, "tables", 1, token, id=space.id) if token else []

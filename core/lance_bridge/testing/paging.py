"""Cases: listings page by page, while tables and namespaces are added and dropped."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from lance_namespace import ErrorCode

from .build import unique_name
from .calls import Calls, collect, pages
from .case_namespace import CaseNamespace
from .cases import Cases, Refusals, needs
from .expect import refused

INVALID = ErrorCode.INVALID_INPUT
NAMES = ["a", "b", "c", "d", "e", "f"]
BAD_TOKENS = ("nonsense", "%%%", "eyJ", "AAAA", "[]", "W10=", "a b", "\x00", "é", "9" * 5000)


class PagingCases(Cases):
    """``limit`` and ``page_token``."""

    def _declare(self, ns: CaseNamespace, *names: str) -> None:
        for name in names:
            ns.declare_table(ns.table(name))

    # -- whole listings --------------------------------------------------------------------------

    def test_tables_come_sorted(self, ns: CaseNamespace) -> None:
        names = ["b", "a_b", "a1", "c", "a", "ab", "_a"]
        self._declare(ns, *names)
        assert ns.names() == sorted(names)

    def test_tables_page_by_page_are_the_same_as_at_once(self, ns: CaseNamespace) -> None:
        self._declare(ns, *NAMES)
        for limit in (1, 2, 3, 5, 6, 7, 1000):
            assert ns.all_tables(ns.id, limit=limit) == NAMES, limit

    @needs("namespace_changes")
    def test_namespaces_page_by_page_are_the_same_as_at_once(self, ns: CaseNamespace) -> None:
        mine = sorted([ns.name, *(ns.new_namespace()[-1] for _ in range(3))])
        parent = ns.target.parent
        # In a shared catalog with many namespaces, one at a time takes too long.
        smallest = 50 if len(ns.all_namespaces(parent)) > 200 else 1
        for limit in (smallest, 3 * smallest, 1000):
            found = ns.all_namespaces(parent, limit=limit)
            assert [name for name in found if name in mine] == mine, limit
            assert found == sorted(set(found)), limit

    def test_declared_tables_hidden_from_pages_leave_no_gaps(self, ns: CaseNamespace) -> None:
        self._declare(ns, "a", "b", "d")
        ns.with_rows("c")
        ns.with_rows("e")
        hidden = ns.all_tables(ns.id, limit=1, include_declared=False)
        assert hidden == ["c", "e"]

    # -- single pages ----------------------------------------------------------------------------

    def test_limit_one_gives_one_name_and_a_token(self, ns: CaseNamespace) -> None:
        self._declare(ns, "a", "b")
        first = ns.list_tables(ns.id, limit=1)
        assert list(first.tables) == ["a"]
        assert first.page_token
        second = ns.list_tables(ns.id, limit=1, page_token=first.page_token)
        assert list(second.tables) == ["b"]

    def test_a_page_is_empty_when_all_later_tables_were_dropped(self, ns: CaseNamespace) -> None:
        self._declare(ns, "a", "b", "c")
        first = ns.list_tables(ns.id, limit=1)
        for name in ("b", "c"):
            ns.drop_table(ns.table(name))
        last = ns.list_tables(ns.id, limit=1, page_token=first.page_token)
        assert list(last.tables) == []
        assert not last.page_token

    def test_an_empty_token_is_the_start(self, ns: CaseNamespace) -> None:
        self._declare(ns, "a", "b")
        answer = ns.list_tables(ns.id, page_token="")
        assert list(answer.tables) == ["a", "b"]

    # -- changes between pages -------------------------------------------------------------------

    def test_tables_created_between_pages_neither_repeat_nor_hide_others(
        self, ns: CaseNamespace
    ) -> None:
        self._declare(ns, "b", "d", "f", "h")
        first = ns.list_tables(ns.id, limit=2)
        self._declare(ns, "a", "c", "e", "g")
        rest = self._rest(ns, first.page_token)
        assert list(first.tables) == ["b", "d"]
        assert {"f", "h"} <= set(rest)
        assert not {"b", "d"} & set(rest)
        assert rest == sorted(set(rest))

    def test_tables_dropped_between_pages_neither_repeat_nor_hide_others(
        self, ns: CaseNamespace
    ) -> None:
        self._declare(ns, *NAMES)
        first = ns.list_tables(ns.id, limit=3)
        for name in ("a", "c", "d"):
            ns.drop_table(ns.table(name))
        assert list(first.tables) == ["a", "b", "c"]
        assert self._rest(ns, first.page_token) == ["e", "f"]

    @needs("namespace_changes")
    def test_namespaces_changed_between_pages_neither_repeat_nor_hide_others(
        self, ns: CaseNamespace
    ) -> None:
        prefix = unique_name()
        parent = list(ns.target.parent)
        made = {name: ns.track([*parent, f"{prefix}_{name}"]) for name in "abcde"}
        for name in "ace":
            ns.create_namespace(made[name])
        found: list[str] = []
        for names, _ in pages(ns.list_namespaces, "namespaces", 1, id=parent):
            found.extend(names)
            if names == [made["c"][-1]]:
                ns.drop_namespace(made["c"])
                ns.create_namespace(made["b"])
                ns.create_namespace(made["d"])
        own = [name for name in found if name.startswith(prefix)]
        assert own == [made[name][-1] for name in ("a", "c", "d", "e")]

    # -- bad requests ----------------------------------------------------------------------------

    def test_a_listing_with_a_limit_below_one_is_invalid_input(
        self, ns: CaseNamespace, refusals: Refusals
    ) -> None:
        refusals.refuse(self._listings(ns, "limit"), [0, -1, -(2**31)], INVALID, naming="limit")

    def test_a_listing_with_a_bad_token_is_invalid_input(
        self, ns: CaseNamespace, refusals: Refusals
    ) -> None:
        refusals.refuse(self._listings(ns, "page_token"), BAD_TOKENS, INVALID, naming="token")

    def _listings(self, ns: CaseNamespace, option: str) -> dict[str, Callable[[Any], object]]:
        """Return each paged operation as a call that takes the value of an option."""
        listings: dict[str, Callable[..., object]] = {
            "list_tables": partial(ns.list_tables, ns.id),
            "list_namespaces": partial(ns.list_namespaces, ns.target.parent),
            "list_all_tables": ns.list_all_tables,
        }

        def bound(call: Callable[..., object]) -> Callable[[Any], object]:
            return lambda value: call(**{option: value})

        return {name: bound(call) for name, call in listings.items()}

    def test_a_token_of_another_namespace_is_invalid_input(self, ns: CaseNamespace) -> None:
        other = ns.new_namespace()
        self._declare(ns, "a", "b")
        token = ns.list_tables(ns.id, limit=1).page_token
        with refused(INVALID, naming="token"):
            ns.list_tables(other, page_token=token)

    @needs("namespace_changes")
    def test_a_token_of_another_listing_is_invalid_input(self, ns: CaseNamespace) -> None:
        ns.new_namespace()
        token = ns.list_namespaces(ns.target.parent, limit=1).page_token
        assert token
        with refused(INVALID, naming="token"):
            ns.list_tables(ns.id, page_token=token)

    def test_a_token_serves_another_client(self, ns: CaseNamespace) -> None:
        self._declare(ns, "a", "b")
        token = ns.list_tables(ns.id, limit=1).page_token
        second = Calls(ns.target.connect())
        assert list(second.list_tables(ns.id, page_token=token).tables) == ["b"]
        second.close()

    def _rest(self, ns: CaseNamespace, token: str | None) -> list[str]:
        """Return the names after a page, read one at a time; none after the last page."""
        return collect(ns.list_tables, "tables", 1, token, id=ns.id) if token else []

"""Cases: listings page by page, during changes, and for a user who may not see all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import lance
import pytest
from lance_namespace import ErrorCode

from .calls import Calls, code_of, collect, pages, refused, unique_name
from .cases import Cases, Namespace, needs
from .target import Target

INVALID = ErrorCode.INVALID_INPUT
BAD_STATE = ErrorCode.INVALID_TABLE_STATE
DENIED = ErrorCode.PERMISSION_DENIED

# -- pages -----------------------------------------------------------------------------------------


NAMES = ["a", "b", "c", "d", "e", "f"]
BAD_TOKENS = ("nonsense", "%%%", "eyJ", "AAAA", "[]", "W10=", "a b", "\x00", "é", "9" * 5000)


class PagingCases(Cases):
    """``limit`` and ``page_token``."""

    def _declare(self, ns: Namespace, *names: str) -> None:
        for name in names:
            ns.declare_table(ns.table(name))

    def test_tables_come_sorted(self, ns: Namespace) -> None:
        names = ["b", "a_b", "a1", "c", "a", "ab", "_a"]
        self._declare(ns, *names)
        assert ns.names() == sorted(names)

    def test_tables_page_by_page_are_the_same_as_at_once(self, ns: Namespace) -> None:
        self._declare(ns, *NAMES)
        for limit in (1, 2, 3, 5, 6, 7, 1000):
            assert ns.all_tables(ns.id, limit=limit) == NAMES, limit

    @needs("namespace_changes")
    def test_namespaces_page_by_page_are_the_same_as_at_once(self, ns: Namespace) -> None:
        mine = sorted([ns.name, *(ns.new_namespace()[-1] for _ in range(3))])
        parent = ns.target.parent
        # In a shared catalog with many namespaces, one at a time takes too long.
        smallest = 50 if len(ns.all_namespaces(parent)) > 200 else 1
        for limit in (smallest, 3 * smallest, 1000):
            found = ns.all_namespaces(parent, limit=limit)
            assert [name for name in found if name in mine] == mine, limit
            assert found == sorted(set(found)), limit

    def test_declared_tables_hidden_from_pages_leave_no_gaps(self, ns: Namespace) -> None:
        self._declare(ns, "a", "b", "d")
        ns.with_rows("c")
        ns.with_rows("e")
        hidden = ns.all_tables(ns.id, limit=1, include_declared=False)
        assert hidden == ["c", "e"]

    def test_limit_one_gives_one_name_and_a_token(self, ns: Namespace) -> None:
        self._declare(ns, "a", "b")
        first = ns.list_tables(ns.id, limit=1)
        assert list(first.tables) == ["a"]
        assert first.page_token
        second = ns.list_tables(ns.id, limit=1, page_token=first.page_token)
        assert list(second.tables) == ["b"]

    def test_a_page_is_empty_when_all_later_tables_were_dropped(self, ns: Namespace) -> None:
        self._declare(ns, "a", "b", "c")
        first = ns.list_tables(ns.id, limit=1)
        for name in ("b", "c"):
            ns.drop_table(ns.table(name))
        last = ns.list_tables(ns.id, limit=1, page_token=first.page_token)
        assert list(last.tables) == []
        assert not last.page_token

    def test_an_empty_token_is_the_start(self, ns: Namespace) -> None:
        self._declare(ns, "a", "b")
        answer = ns.list_tables(ns.id, page_token="")
        assert list(answer.tables) == ["a", "b"]

    def test_tables_created_between_pages_neither_repeat_nor_hide_others(
        self, ns: Namespace
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
        self, ns: Namespace
    ) -> None:
        self._declare(ns, *NAMES)
        first = ns.list_tables(ns.id, limit=3)
        for name in ("a", "c", "d"):
            ns.drop_table(ns.table(name))
        assert list(first.tables) == ["a", "b", "c"]
        assert self._rest(ns, first.page_token) == ["e", "f"]

    @needs("namespace_changes")
    def test_namespaces_changed_between_pages_neither_repeat_nor_hide_others(
        self, ns: Namespace
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

    def test_a_listing_with_a_limit_below_one_is_invalid_input(self, ns: Namespace) -> None:
        ns.refuse(self._listings(ns, "limit"), [0, -1, -(2**31)], INVALID, naming="limit")

    def test_a_listing_with_a_bad_token_is_invalid_input(self, ns: Namespace) -> None:
        ns.refuse(self._listings(ns, "page_token"), BAD_TOKENS, INVALID, naming="token")

    def _listings(self, ns: Namespace, option: str) -> dict[str, Callable[[Any], object]]:
        """Return each paged operation as a call that takes the value of an option."""
        return {
            "list_tables": lambda value: ns.list_tables(ns.id, **{option: value}),
            "list_namespaces": lambda value: ns.list_namespaces(
                ns.target.parent, **{option: value}
            ),
            "list_all_tables": lambda value: ns.list_all_tables(**{option: value}),
        }

    def test_a_token_of_another_namespace_is_invalid_input(self, ns: Namespace) -> None:
        other = ns.new_namespace()
        self._declare(ns, "a", "b")
        token = ns.list_tables(ns.id, limit=1).page_token
        with refused(INVALID, naming="token"):
            ns.list_tables(other, page_token=token)

    @needs("namespace_changes")
    def test_a_token_of_another_listing_is_invalid_input(self, ns: Namespace) -> None:
        ns.new_namespace()
        token = ns.list_namespaces(ns.target.parent, limit=1).page_token
        assert token
        with refused(INVALID, naming="token"):
            ns.list_tables(ns.id, page_token=token)

    def test_a_token_serves_another_client(self, ns: Namespace) -> None:
        self._declare(ns, "a", "b")
        token = ns.list_tables(ns.id, limit=1).page_token
        with closing(Calls(ns.target.connect())) as second:
            assert list(second.list_tables(ns.id, page_token=token).tables) == ["b"]

    def _rest(self, ns: Namespace, token: str | None) -> list[str]:
        """Return the names after a page, read one at a time; none after the last page."""
        return collect(ns.list_tables, "tables", 1, token, id=ns.id) if token else []


# -- partial rights --------------------------------------------------------------------------------


@needs("second_user")
class PartialRightsCases(Cases):
    """No operation takes a listing for all that there is."""

    @pytest.fixture
    def user(self, target: Target, _declared: None) -> Iterator[Namespace]:
        """The second user's client, with a namespace that she created and no listing shows her."""
        with closing(Namespace(target, target.second_user())) as user:
            yield user

    def test_a_namespace_that_no_listing_shows_can_be_used(self, user: Namespace) -> None:
        assert user.name not in user.all_namespaces(user.target.parent), "a listing shows it"
        table_id = user.with_rows()
        assert user.names() == ["t"]
        assert user.ids(table_id) == [0, 1, 2]
        user.namespace_exists(user.id)
        user.deregister_table(table_id)
        assert user.names() == []

    def test_a_table_in_an_unlisted_namespace_can_be_dropped(self, user: Namespace) -> None:
        location = user.location(user.with_rows())
        user.drop_table(user.table())
        assert user.names() == []
        assert user.storage.files(location) == frozenset()

    @needs("register", "shared_locations")
    def test_drop_sees_a_shared_location_in_an_unlisted_namespace(self, user: Namespace) -> None:
        place = user.dataset("shared")
        for table_id in [user.register(name, place) for name in ("one", "two")]:
            with refused(BAD_STATE, naming=table_id[-1]):
                user.drop_table(table_id)
        assert user.storage.ids(place) == [0, 1, 2]

    @needs("register")
    def test_drop_sees_a_shallow_clone_in_an_unlisted_namespace(self, user: Namespace) -> None:
        base, place = user.with_rows("base"), user.new_location("clone")
        options = user.storage.options
        source = lance.dataset(user.location(base), storage_options=options)
        source.shallow_clone(place, source.version, storage_options=options)
        clone = user.register("clone", place)
        with refused(BAD_STATE, naming="base"):
            user.drop_table(base)
        assert user.ids(clone) == [0, 1, 2]
        user.drop_table(clone)
        user.drop_table(base)

    @needs("register", "shared_locations", "namespace_changes", "cascade")
    def test_drop_cascade_sees_a_shared_location_in_an_unlisted_namespace(
        self, user: Namespace
    ) -> None:
        place = user.dataset("shared")
        user.register("one", place)
        user.register("two", place)
        with refused(BAD_STATE):
            user.drop_namespace(user.id, behavior="Cascade")
        assert user.names() == ["one", "two"]
        assert user.storage.ids(place) == [0, 1, 2]

    def test_a_table_that_the_user_may_not_see_is_permission_denied_and_not_missing(
        self, ns: Namespace, user: Namespace
    ) -> None:
        table_id = ns.with_rows()
        calls: list[Callable[[list[str]], object]] = [
            user.describe_table, user.table_exists, user.drop_table, user.deregister_table,
        ]  # fmt: skip
        assert [code_of(call, table_id) for call in calls] == [DENIED] * len(calls)
        assert ns.ids(table_id) == [0, 1, 2]

    @needs("register", "shared_locations")
    def test_drop_keeps_the_files_of_a_table_that_the_user_may_not_see(
        self, ns: Namespace, user: Namespace
    ) -> None:
        place = ns.location(ns.with_rows())
        mine = user.register("mine", place)
        with refused(BAD_STATE, naming="mine"):
            user.drop_table(mine)
        assert ns.storage.ids(place) == [0, 1, 2]

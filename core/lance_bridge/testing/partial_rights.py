"""Cases: a user whose listings do not show all that exists, or that she may use."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import lance
import pytest
from lance_namespace import ErrorCode

from .case_namespace import CaseNamespace
from .cases import Cases, needs
from .expect import code_of, refused
from .target import Target

BAD_STATE = ErrorCode.INVALID_TABLE_STATE
DENIED = ErrorCode.PERMISSION_DENIED


class PartialRightsCases(Cases):
    """No operation takes a listing for all that there is."""

    @pytest.fixture
    def user(self, target: Target, _declared: None) -> Iterator[CaseNamespace]:
        """The second user's client, with a namespace that she created and no listing shows her."""
        user = CaseNamespace(target, target.second_user())
        yield user
        user.close()

    @needs("second_user")
    def test_a_namespace_that_no_listing_shows_can_be_used(self, user: CaseNamespace) -> None:
        assert user.name not in user.all_namespaces(user.target.parent), "a listing shows it"
        table_id = user.with_rows()
        assert user.names() == ["t"]
        assert user.ids(table_id) == [0, 1, 2]
        user.namespace_exists(user.id)
        user.deregister_table(table_id)
        assert user.names() == []

    @needs("second_user")
    def test_a_table_in_an_unlisted_namespace_can_be_dropped(self, user: CaseNamespace) -> None:
        location = user.location(user.with_rows())
        user.drop_table(user.table())
        assert user.names() == []
        assert user.storage.files(location) == frozenset()

    @needs("second_user", "register", "shared_locations")
    def test_drop_sees_a_shared_location_in_an_unlisted_namespace(
        self, user: CaseNamespace
    ) -> None:
        place = user.dataset("shared")
        for table_id in (user.register("one", place), user.register("two", place)):
            user.table_exists(table_id)
        for name in ("one", "two"):
            with refused(BAD_STATE, naming=name):
                user.drop_table(user.table(name))
        assert user.storage.ids(place) == [0, 1, 2]

    @needs("second_user", "register")
    def test_drop_sees_a_shallow_clone_in_an_unlisted_namespace(self, user: CaseNamespace) -> None:
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

    @needs("second_user", "register", "shared_locations", "namespace_changes", "cascade")
    def test_drop_cascade_sees_a_shared_location_in_an_unlisted_namespace(
        self, user: CaseNamespace
    ) -> None:
        place = user.dataset("shared")
        user.register("one", place)
        user.register("two", place)
        with refused(BAD_STATE):
            user.drop_namespace(user.id, behavior="Cascade")
        assert user.names() == ["one", "two"]
        assert user.storage.ids(place) == [0, 1, 2]

    @needs("second_user")
    def test_a_table_that_the_user_may_not_see_is_permission_denied_and_not_missing(
        self, ns: CaseNamespace, user: CaseNamespace
    ) -> None:
        table_id = ns.with_rows()
        calls: list[Callable[[list[str]], object]] = [
            user.describe_table, user.table_exists, user.drop_table, user.deregister_table,
        ]  # fmt: skip
        assert [code_of(call, table_id) for call in calls] == [DENIED] * len(calls)
        assert ns.ids(table_id) == [0, 1, 2]

    @needs("second_user", "register", "shared_locations")
    def test_drop_keeps_the_files_of_a_table_that_the_user_may_not_see(
        self, ns: CaseNamespace, user: CaseNamespace
    ) -> None:
        place = ns.location(ns.with_rows())
        user.register_table(user.table("mine"), user.target.register_location(place))
        with refused(BAD_STATE, naming="mine"):
            user.drop_table(user.table("mine"))
        assert ns.storage.ids(place) == [0, 1, 2]

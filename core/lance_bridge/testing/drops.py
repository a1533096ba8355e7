"""Cases: drop of tables, and what it must never delete."""

from __future__ import annotations

import pytest
from lance_namespace import ErrorCode

from .build import rows
from .cases import Cases, needs
from .expect import refused
from .space import Space
from .storage import local_path, same_place

NAMESPACE_NOT_FOUND = ErrorCode.NAMESPACE_NOT_FOUND
NOT_FOUND = ErrorCode.TABLE_NOT_FOUND
BAD_STATE = ErrorCode.INVALID_TABLE_STATE

SPELLINGS = {
    "trailing slash": "{path}/",
    "path": "{path}",
    "one slash": "file:{path}",
    "three slashes": "file://{path}",
    "dot": "{parent}/./{name}",
}
"""Ways to write a local directory; braces hold the parts of its absolute path."""


class DropCases(Cases):
    """DropTable deletes the entry and the files in its own location, and nothing else."""

    def test_a_dropped_table_is_gone_with_its_files(self, space: Space) -> None:
        table_id = space.with_rows()
        location = space.location(table_id)
        answer = space.api.drop_table(table_id)
        assert same_place(answer.location or location, location)
        assert space.names() == []
        assert space.storage.files(location) == frozenset()
        with refused(NOT_FOUND, naming="t"):
            space.api.table_exists(table_id)

    def test_a_declared_table_can_be_dropped(self, space: Space) -> None:
        location = space.api.declare_table(space.table()).location or ""
        space.api.drop_table(space.table())
        assert space.names() == []
        assert space.storage.files(location) == frozenset()

    @needs("register")
    def test_drop_of_a_registered_table_deletes_its_files(self, space: Space) -> None:
        place = space.dataset("here")
        space.api.drop_table(space.register("t", place))
        assert space.storage.files(place) == frozenset()

    def test_drop_leaves_other_tables_and_files_beside(self, space: Space) -> None:
        kept = space.with_rows("kept", range(5))
        location = space.location(space.with_rows("t"))
        beside = f"{location.rstrip('/')}_beside_{space.name}"
        space.storage.put(beside, "kept.txt", b"kept")
        space.api.drop_table(space.table("t"))
        assert space.ids(kept) == [0, 1, 2, 3, 4]
        assert space.storage.files(beside) == {"kept.txt"}
        space.storage.remove(beside)

    def test_a_dropped_name_can_be_used_again(self, space: Space) -> None:
        space.api.drop_table(space.with_rows())
        assert space.ids(space.with_rows(ids=range(5))) == [0, 1, 2, 3, 4]

    def test_drop_of_a_missing_table_is_table_not_found(self, space: Space) -> None:
        with refused(NOT_FOUND, naming="nowhere"):
            space.api.drop_table(space.table("nowhere"))

    def test_drop_in_a_missing_namespace_is_namespace_not_found(self, space: Space) -> None:
        missing = space.missing_namespace()
        with refused(NAMESPACE_NOT_FOUND, naming=missing[-1]):
            space.api.drop_table([*missing, "t"])

    # -- shared and nested locations -------------------------------------------------------------

    @needs("register")
    def test_drop_of_a_table_that_shares_its_location_is_invalid_table_state(
        self, space: Space
    ) -> None:
        place = space.dataset("shared")
        one, two = space.register("one", place), space.register("two", place)
        self._both_refuse(space, one, two)

    @needs("register")
    @pytest.mark.parametrize("spelling", SPELLINGS)
    def test_drop_sees_a_shared_location_in_another_spelling(
        self, space: Space, spelling: str
    ) -> None:
        place = space.dataset("shared")
        path = local_path(place)
        if path is None:
            pytest.skip("the target's data_root is not on local disk")
        one = space.register("one", place)
        other = SPELLINGS[spelling].format(path=path, parent=path.parent, name=path.name)
        two = space.register("two", other)
        self._both_refuse(space, one, two)

    @needs("register")
    def test_drop_of_a_table_whose_location_contains_another_is_invalid_table_state(
        self, space: Space
    ) -> None:
        outer, inner = self._nested(space)
        with refused(BAD_STATE, naming="outer"):
            space.api.drop_table(outer)
        assert space.ids(outer) == [0, 1, 2]
        assert space.ids(inner) == [0, 1, 2, 3, 4]

    @needs("register")
    def test_drop_of_a_table_inside_the_location_of_another_is_invalid_table_state(
        self, space: Space
    ) -> None:
        outer, inner = self._nested(space)
        with refused(BAD_STATE, naming="inner"):
            space.api.drop_table(inner)
        assert space.ids(outer) == [0, 1, 2]
        assert space.ids(inner) == [0, 1, 2, 3, 4]

    @needs("register")
    def test_a_table_can_be_dropped_once_the_other_entry_is_deregistered(
        self, space: Space
    ) -> None:
        place = space.dataset("shared")
        one, two = space.register("one", place), space.register("two", place)
        space.api.deregister_table(one)
        space.api.drop_table(two)
        assert space.storage.files(place) == frozenset()

    @needs("register")
    def test_a_location_that_only_starts_the_same_is_not_shared(self, space: Space) -> None:
        short, long = space.dataset("data"), space.dataset("data.lance2", range(5))
        space.register("short", short)
        space.register("long", long)
        space.api.drop_table(space.table("short"))
        assert space.storage.files(short) == frozenset()
        assert space.ids(space.table("long")) == [0, 1, 2, 3, 4]

    def _both_refuse(self, space: Space, one: list[str], two: list[str]) -> None:
        for table_id in (one, two):
            with refused(BAD_STATE, naming=table_id[-1]):
                space.api.drop_table(table_id)
        assert space.names() == ["one", "two"]
        assert space.ids(one) == [0, 1, 2]
        assert space.ids(two) == [0, 1, 2]

    def _nested(self, space: Space) -> tuple[list[str], list[str]]:
        outside = space.dataset("outer")
        inside = f"{outside}/nested/{space.name}_inner.lance"
        space.storage.write(inside, rows(range(5)))
        return space.register("outer", outside), space.register("inner", inside)

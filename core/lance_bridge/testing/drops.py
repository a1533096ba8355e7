"""Cases: drop of tables, and what it must never delete."""

from __future__ import annotations

import pytest
from lance_namespace import ErrorCode

from .build import rows
from .case_namespace import CaseNamespace
from .cases import Cases, needs
from .expect import refused
from .storage import local_path, same_location

NOT_FOUND = ErrorCode.TABLE_NOT_FOUND
BAD_STATE = ErrorCode.INVALID_TABLE_STATE

SPELLINGS = ("{path}/", "{path}", "file:{path}", "file://{path}", "{parent}/./{name}")
"""Ways to write a local directory; braces hold the parts of its absolute path."""


class DropCases(Cases):
    """DropTable deletes the entry and the files in its own location, and nothing else."""

    def test_a_dropped_table_is_gone_with_its_files(self, ns: CaseNamespace) -> None:
        table_id = ns.with_rows()
        location = ns.location(table_id)
        answer = ns.drop_table(table_id)
        assert same_location(answer.location or location, location)
        assert ns.names() == []
        assert ns.storage.files(location) == frozenset()
        with refused(NOT_FOUND, naming="t"):
            ns.table_exists(table_id)

    def test_a_declared_table_can_be_dropped(self, ns: CaseNamespace) -> None:
        location = ns.declare_table(ns.table()).location or ""
        ns.drop_table(ns.table())
        assert ns.names() == []
        assert ns.storage.files(location) == frozenset()

    @needs("register")
    def test_drop_of_a_registered_table_deletes_its_files(self, ns: CaseNamespace) -> None:
        place = ns.dataset("here")
        ns.drop_table(ns.register("t", place))
        assert ns.storage.files(place) == frozenset()

    def test_drop_leaves_other_tables_and_files_beside(self, ns: CaseNamespace) -> None:
        kept = ns.with_rows("kept", range(5))
        location = ns.location(ns.with_rows("t"))
        beside = f"{location.rstrip('/')}_beside_{ns.name}"
        ns.storage.put(beside, "kept.txt", b"kept")
        ns.drop_table(ns.table("t"))
        assert ns.ids(kept) == [0, 1, 2, 3, 4]
        assert ns.storage.files(beside) == {"kept.txt"}
        ns.storage.remove(beside)

    def test_a_dropped_name_can_be_used_again(self, ns: CaseNamespace) -> None:
        ns.drop_table(ns.with_rows())
        assert ns.ids(ns.with_rows(ids=range(5))) == [0, 1, 2, 3, 4]

    # -- shared and nested locations -------------------------------------------------------------

    @needs("register", "shared_locations")
    def test_drop_of_a_table_that_shares_its_location_is_invalid_table_state(
        self, ns: CaseNamespace
    ) -> None:
        place = ns.dataset("shared")
        one, two = ns.register("one", place), ns.register("two", place)
        self._both_refuse(ns, one, two)

    @needs("register", "shared_locations")
    def test_drop_sees_a_shared_location_in_another_spelling(self, ns: CaseNamespace) -> None:
        place = ns.dataset("shared")
        path = local_path(place)
        if path is None:
            pytest.skip("the target's data_root is not on local disk")
        one = ns.register("one", place)
        for spelling in SPELLINGS:
            other = spelling.format(path=path, parent=path.parent, name=path.name)
            two = ns.register("two", other)
            self._both_refuse(ns, one, two)
            ns.deregister_table(two)

    @needs("register", "shared_locations")
    def test_drop_of_a_table_whose_location_contains_another_is_invalid_table_state(
        self, ns: CaseNamespace
    ) -> None:
        outer, inner = self._nested(ns)
        with refused(BAD_STATE, naming="outer"):
            ns.drop_table(outer)
        assert ns.ids(outer) == [0, 1, 2]
        assert ns.ids(inner) == [0, 1, 2, 3, 4]

    @needs("register", "shared_locations")
    def test_drop_of_a_table_inside_the_location_of_another_is_invalid_table_state(
        self, ns: CaseNamespace
    ) -> None:
        outer, inner = self._nested(ns)
        with refused(BAD_STATE, naming="inner"):
            ns.drop_table(inner)
        assert ns.ids(outer) == [0, 1, 2]
        assert ns.ids(inner) == [0, 1, 2, 3, 4]

    @needs("register", "shared_locations")
    def test_a_table_can_be_dropped_once_the_other_entry_is_deregistered(
        self, ns: CaseNamespace
    ) -> None:
        place = ns.dataset("shared")
        one, two = ns.register("one", place), ns.register("two", place)
        ns.deregister_table(one)
        ns.drop_table(two)
        assert ns.storage.files(place) == frozenset()

    @needs("register")
    def test_a_location_that_only_starts_the_same_is_not_shared(self, ns: CaseNamespace) -> None:
        short, long = ns.dataset("data"), ns.dataset("data.lance2", range(5))
        ns.register("short", short)
        ns.register("long", long)
        ns.drop_table(ns.table("short"))
        assert ns.storage.files(short) == frozenset()
        assert ns.ids(ns.table("long")) == [0, 1, 2, 3, 4]

    def _both_refuse(self, ns: CaseNamespace, one: list[str], two: list[str]) -> None:
        for table_id in (one, two):
            with refused(BAD_STATE, naming=table_id[-1]):
                ns.drop_table(table_id)
        assert ns.names() == ["one", "two"]
        assert ns.ids(one) == [0, 1, 2]
        assert ns.ids(two) == [0, 1, 2]

    def _nested(self, ns: CaseNamespace) -> tuple[list[str], list[str]]:
        outside = ns.dataset("outer")
        inside = f"{outside}/nested/{ns.name}_inner.lance"
        ns.storage.write(inside, rows(range(5)))
        return ns.register("outer", outside), ns.register("inner", inside)

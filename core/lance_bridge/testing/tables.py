"""Cases: declare, describe, exists, list, register, deregister, drop and rename of tables."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

import lance
import pytest
from lance_namespace import ErrorCode, InvalidTableStateError

from .calls import SCHEMA, collect, refused, rows
from .cases import Cases, Namespace, local_path, needs, same_location

ALREADY_EXISTS = ErrorCode.TABLE_ALREADY_EXISTS
NO_VERSION = ErrorCode.TABLE_VERSION_NOT_FOUND
NOT_FOUND = ErrorCode.TABLE_NOT_FOUND
INVALID = ErrorCode.INVALID_INPUT
BAD_STATE = ErrorCode.INVALID_TABLE_STATE

# -- declare, describe, exists and list ------------------------------------------------------------


class TableCases(Cases):
    """Table entries, seen without changing their data."""

    # -- declare ---------------------------------------------------------------------------------

    def test_a_declared_table_exists_is_described_and_is_listed(self, ns: Namespace) -> None:
        location = ns.declare_table(ns.table()).location
        assert location
        ns.table_exists(ns.table())
        assert same_location(ns.location(ns.table()), location)
        assert ns.names() == ["t"]

    def test_declare_writes_no_data(self, ns: Namespace) -> None:
        location = ns.declare_table(ns.table()).location or ""
        written = {name for name in ns.storage.files(location) if name.endswith(".lance")}
        assert not written

    def test_data_written_to_a_declared_location_is_the_table(self, ns: Namespace) -> None:
        answer = ns.declare_table(ns.table())
        options = answer.storage_options or ns.storage.options
        lance.write_dataset(rows(range(4)), answer.location, storage_options=options)
        assert ns.ids(ns.table()) == [0, 1, 2, 3]

    @needs("create_empty_table")
    @pytest.mark.filterwarnings("ignore:create_empty_table:DeprecationWarning")
    def test_an_empty_table_is_a_declared_one(self, ns: Namespace) -> None:
        answer = ns.call("create_empty_table", ns.table())
        assert answer.location == ns.location(ns.table())
        assert ns.describe_table(ns.table(), check_declared=True).is_only_declared

    def test_declared_tables_get_locations_of_their_own(self, ns: Namespace) -> None:
        other = ns.new_namespace()
        ids = [ns.table("a"), ns.table("b"), [*other, "a"]]
        locations = {ns.declare_table(table_id).location for table_id in ids}
        assert len(locations) == 3

    @needs("chosen_location")
    def test_declare_honours_the_requested_location(self, ns: Namespace) -> None:
        wanted = ns.new_location("chosen")
        answer = ns.declare_table(ns.table(), location=wanted)
        assert same_location(answer.location, wanted)
        assert same_location(ns.location(ns.table()), wanted)

    @needs("table_properties")
    def test_declare_keeps_table_properties(self, ns: Namespace) -> None:
        wanted = {"owner of data": "Ines", "empty": "", "unicode": "Größe → 7"}
        answer = ns.declare_table(ns.table(), properties=wanted)
        assert wanted.items() <= (answer.properties or {}).items()
        assert wanted.items() <= ns.properties(ns.table()).items()

    @needs("table_properties")
    def test_a_table_is_managed_as_asked_or_not_made(self, ns: Namespace) -> None:
        managed = {"managed_by": "impl"}
        if ns.features.managed_tables:
            ns.create_table(ns.table(), rows(range(2)), properties=managed)
            assert ns.describe_table(ns.table()).managed_versioning is True
            return
        with refused(ErrorCode.UNSUPPORTED, naming="t"):
            ns.create_table(ns.table(), rows(range(2)), properties=managed)
        assert ns.names() == []

    def test_declare_of_a_table_without_data_is_repeatable_or_table_already_exists(
        self, ns: Namespace
    ) -> None:
        first = ns.declare_table(ns.table()).location
        if ns.features.declare_again:
            assert ns.declare_table(ns.table()).location == first
        else:
            with refused(ALREADY_EXISTS, naming="t"):
                ns.declare_table(ns.table())
        assert same_location(ns.location(ns.table()), first)

    def test_declare_of_a_table_with_data_is_table_already_exists(self, ns: Namespace) -> None:
        table_id = ns.with_rows("taken")
        with refused(ALREADY_EXISTS, naming="taken"):
            ns.declare_table(table_id)
        assert ns.ids(table_id) == [0, 1, 2]

    # -- describe --------------------------------------------------------------------------------

    def test_describe_gives_a_location_and_a_table_uri_that_lance_opens(
        self, ns: Namespace
    ) -> None:
        answer = ns.describe_table(ns.with_rows(), with_table_uri=True)
        uri = answer.table_uri or ""
        parts = urlsplit(uri)
        assert parts.scheme, f"{uri!r} is not a URI"
        assert parts.netloc or parts.path.startswith("/"), f"{uri!r} is not complete"
        assert not set(uri) & set(' \\"<>^`{|}'), "not escaped"
        options = answer.storage_options or ns.storage.options
        for place in (answer.location, uri):
            assert lance.dataset(place, storage_options=options).count_rows() == 3

    def test_describe_gives_no_table_uri_unless_asked(self, ns: Namespace) -> None:
        answer = ns.describe_table(ns.with_rows(), with_table_uri=False)
        assert answer.table_uri is None

    def test_describe_says_whether_a_table_is_only_declared_when_asked(self, ns: Namespace) -> None:
        ns.declare_table(ns.table("declared"))
        ns.with_rows("written")
        for name in ("declared", "written"):
            table_id = ns.table(name)
            answer = ns.describe_table(table_id, check_declared=True)
            assert answer.is_only_declared == (name == "declared")
            answer = ns.describe_table(table_id, check_declared=False, load_detailed_metadata=False)
            assert answer.is_only_declared is None

    def test_detailed_describe_gives_name_version_schema_and_statistics(
        self, ns: Namespace
    ) -> None:
        table_id = ns.with_rows()
        answer = ns.describe_table(table_id, load_detailed_metadata=True)
        assert answer.table == "t"
        assert answer.namespace == ns.id
        assert answer.version == 1
        schema = answer.var_schema
        assert schema is not None
        assert [field.name for field in schema.fields] == SCHEMA.names
        assert [field.type.type for field in schema.fields] == ["int64", "utf8"]

    def test_detailed_describe_gives_statistics_and_metadata(self, ns: Namespace) -> None:
        content = rows(range(10)).replace_schema_metadata({"author": "Ines"})
        ns.create_table(ns.table(), content)
        dataset = lance.dataset(ns.location(ns.table()), storage_options=ns.storage.options)
        dataset.delete("id < 3")
        dataset.update_metadata({"unit": "m"})
        answer = ns.describe_table(ns.table(), load_detailed_metadata=True)
        assert answer.version == 3
        assert answer.stats is not None
        assert (answer.stats.num_fragments, answer.stats.num_deleted_rows) == (1, 3)
        assert answer.var_schema is not None
        assert (answer.var_schema.metadata or {}).get("author") == "Ines"
        assert (answer.metadata or {}).get("unit") == "m"

    def test_detailed_describe_of_a_declared_table_says_so(self, ns: Namespace) -> None:
        ns.declare_table(ns.table())
        try:
            answer = ns.describe_table(ns.table(), load_detailed_metadata=True)
        except InvalidTableStateError:
            return  # the specification lets a detailed describe fail here
        assert answer.is_only_declared
        assert answer.version is None

    def test_describe_of_an_old_version_describes_that_version(self, ns: Namespace) -> None:
        table_id = ns.with_rows()
        changed = rows(range(2)).drop_columns(["word"])
        ns.storage.write(ns.location(table_id), changed, mode="overwrite")
        old = ns.describe_table(table_id, version=1, load_detailed_metadata=True)
        new = ns.describe_table(table_id, version=2, load_detailed_metadata=True)
        assert (old.version, new.version) == (1, 2)
        assert old.var_schema is not None
        assert new.var_schema is not None
        assert len(old.var_schema.fields) == 2
        assert len(new.var_schema.fields) == 1

    def test_describe_of_a_missing_version_is_table_version_not_found(self, ns: Namespace) -> None:
        table_id = ns.with_rows()
        for details in (False, True):
            with refused(NO_VERSION, naming="99"):
                ns.describe_table(table_id, version=99, load_detailed_metadata=details)

    def test_exists_checks_the_version(self, ns: Namespace) -> None:
        table_id = ns.with_rows()
        ns.table_exists(table_id, version=1)
        with refused(NO_VERSION, naming="99"):
            ns.table_exists(table_id, version=99)

    def test_list_tables_gives_the_names_of_this_namespace_only(self, ns: Namespace) -> None:
        other = ns.new_namespace()
        ns.declare_table([*other, "elsewhere"])
        ns.with_rows("here")
        assert ns.names() == ["here"]
        assert ns.all_tables(other) == ["elsewhere"]

    def test_list_tables_hides_declared_tables_when_asked(self, ns: Namespace) -> None:
        ns.declare_table(ns.table("declared"))
        ns.with_rows("written")
        assert ns.names() == ["declared", "written"]
        assert ns.all_tables(ns.id, include_declared=True) == ["declared", "written"]
        assert ns.all_tables(ns.id, include_declared=False) == ["written"]

    @needs("list_all")
    def test_list_all_tables_gives_full_identifiers(self, ns: Namespace) -> None:
        other = ns.new_namespace()
        wanted = sorted([*place, name] for place in (ns.id, other) for name in "abc")
        for table_id in wanted:
            ns.declare_table(table_id)
        for found in (ns.list_all_tables().tables, collect(ns.list_all_tables, "tables", 2)):
            own = [ns.features.delimiter.join(table_id) for table_id in wanted]
            assert _own(ns, found, other) == sorted(own)

    @needs("list_all")
    def test_list_all_tables_hides_declared_tables_when_asked(self, ns: Namespace) -> None:
        ns.declare_table(ns.table("declared"))
        table_id = ns.with_rows("written")
        found = ns.list_all_tables(include_declared=False).tables
        assert _own(ns, found) == [ns.features.delimiter.join(table_id)]


def _own(ns: Namespace, found: Iterable[str], *others: list[str]) -> list[str]:
    """Return the found identifiers that are in a case's namespaces, in their order."""
    delimiter = ns.features.delimiter
    starts = tuple(delimiter.join([*namespace, ""]) for namespace in (ns.id, *others))
    return [name for name in found if name.startswith(starts)]


# -- register and deregister -----------------------------------------------------------------------


class RegistrationCases(Cases):
    """Entries that are added and removed while their data stays."""

    # -- register --------------------------------------------------------------------------------

    @needs("register")
    def test_a_registered_table_keeps_its_location_and_its_data(self, ns: Namespace) -> None:
        place = ns.dataset("here", range(4))
        table_id = ns.register("t", place)
        assert same_location(ns.location(table_id), place)
        assert ns.ids(table_id) == [0, 1, 2, 3]
        assert ns.names() == ["t"]

    @needs("register", "table_properties")
    def test_register_keeps_table_properties(self, ns: Namespace) -> None:
        table_id = ns.register("t", ns.dataset("here"), properties={"author": "Ines"})
        assert ns.properties(table_id).get("author") == "Ines"

    @needs("register")
    def test_register_under_a_taken_name_is_table_already_exists(self, ns: Namespace) -> None:
        table_id = ns.with_rows("taken")
        before = ns.location(table_id)
        place = ns.dataset("other", range(9))
        for mode in (None, "Create", "create", "CREATE"):
            with refused(ALREADY_EXISTS, naming="taken"):
                ns.register("taken", place, mode=mode)
        assert ns.location(table_id) == before
        assert ns.ids(table_id) == [0, 1, 2]

    @needs("register")
    def test_register_under_the_name_of_a_declared_table_is_table_already_exists(
        self, ns: Namespace
    ) -> None:
        before = ns.declare_table(ns.table("taken")).location
        place = ns.dataset("other")
        with refused(ALREADY_EXISTS, naming="taken"):
            ns.register("taken", place)
        assert ns.location(ns.table("taken")) == before

    @needs("register", "alter")
    def test_register_overwrite_replaces_the_entry_and_keeps_both_data(self, ns: Namespace) -> None:
        table_id = ns.with_rows(ids=range(9))
        for mode in ("Overwrite", "overwrite", "OVERWRITE"):
            before = ns.location(table_id)
            place = ns.dataset(f"other_{mode}", range(9))
            ns.register("t", place, mode=mode)
            assert same_location(ns.location(table_id), place)
            assert ns.ids(table_id) == ns.storage.ids(before) == list(range(9))
        assert ns.names() == ["t"]

    @needs("register")
    def test_register_overwrite_of_a_missing_table_registers_it(self, ns: Namespace) -> None:
        place = ns.dataset("here")
        ns.register("t", place, mode="Overwrite")
        assert same_location(ns.location(ns.table()), place)

    @needs("register")
    def test_register_with_an_unknown_mode_is_invalid_input(self, ns: Namespace) -> None:
        place = ns.dataset("here")
        with refused(INVALID, naming="ExistOk"):
            ns.register("t", place, mode="ExistOk")
        assert ns.names() == []

    @needs("register")
    def test_register_with_an_empty_location_is_invalid_input(self, ns: Namespace) -> None:
        with refused(INVALID):
            ns.register_table(ns.table(), "")
        assert ns.names() == []

    def test_a_deregistered_table_is_gone_and_its_files_stay(self, ns: Namespace) -> None:
        table_id = ns.with_rows()
        location = ns.location(table_id)
        files = ns.storage.files(location)
        answer = ns.deregister_table(table_id)
        assert same_location(answer.location, location)
        assert ns.names() == []
        with refused(NOT_FOUND, naming="t"):
            ns.table_exists(table_id)
        assert ns.storage.files(location) == files
        assert ns.storage.ids(location) == [0, 1, 2]

    def test_a_new_table_under_the_name_of_a_deregistered_one_lies_elsewhere(
        self, ns: Namespace
    ) -> None:
        table_id = ns.with_rows()
        before = ns.location(table_id)
        ns.deregister_table(table_id)
        assert not same_location(ns.declare_table(table_id).location, before)
        ns.deregister_table(table_id)
        ns.create_table(table_id, rows(range(7)))
        assert not same_location(ns.location(table_id), before)
        assert ns.ids(table_id) == list(range(7))
        assert ns.storage.ids(before) == [0, 1, 2]

    @needs("register")
    def test_a_deregistered_table_can_be_registered_again(self, ns: Namespace) -> None:
        place = ns.dataset("here")
        table_id = ns.register("t", place)
        ns.deregister_table(table_id)
        ns.register("t", place)
        assert ns.ids(table_id) == [0, 1, 2]


# -- drop ------------------------------------------------------------------------------------------


SPELLINGS = ("{path}/", "{path}", "file:{path}", "file://{path}", "{parent}/./{name}")
"""Ways to write a local directory; braces hold the parts of its absolute path."""


class DropCases(Cases):
    """DropTable deletes the entry and the files in its own location, and nothing else."""

    def test_a_dropped_table_is_gone_with_its_files(self, ns: Namespace) -> None:
        table_id = ns.with_rows()
        location = ns.location(table_id)
        answer = ns.drop_table(table_id)
        assert same_location(answer.location or location, location)
        assert ns.names() == []
        assert ns.storage.files(location) == frozenset()
        with refused(NOT_FOUND, naming="t"):
            ns.table_exists(table_id)

    def test_a_declared_table_can_be_dropped(self, ns: Namespace) -> None:
        location = ns.declare_table(ns.table()).location or ""
        ns.drop_table(ns.table())
        assert ns.names() == []
        assert ns.storage.files(location) == frozenset()

    def test_drop_leaves_other_tables_and_files_beside(self, ns: Namespace) -> None:
        kept = ns.with_rows("kept", range(5))
        location = ns.location(ns.with_rows("t"))
        beside = f"{location.rstrip('/')}_beside_{ns.name}"
        ns.storage.put(beside, "kept.txt", b"kept")
        ns.drop_table(ns.table("t"))
        assert ns.ids(kept) == [0, 1, 2, 3, 4]
        assert ns.storage.files(beside) == {"kept.txt"}
        ns.storage.remove(beside)

    def test_a_dropped_name_can_be_used_again(self, ns: Namespace) -> None:
        ns.drop_table(ns.with_rows())
        assert ns.ids(ns.with_rows(ids=range(5))) == [0, 1, 2, 3, 4]

    @needs("register", "shared_locations")
    def test_drop_of_a_table_that_shares_its_location_is_invalid_table_state(
        self, ns: Namespace
    ) -> None:
        place = ns.dataset("shared")
        one, two = ns.register("one", place), ns.register("two", place)
        self._both_refuse(ns, one, two)
        ns.deregister_table(one)
        ns.drop_table(two)
        assert ns.storage.files(place) == frozenset()

    @needs("register", "shared_locations")
    def test_drop_sees_a_shared_location_in_another_spelling(self, ns: Namespace) -> None:
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
    def test_drop_of_a_table_whose_location_contains_another_or_is_inside_is_invalid_table_state(
        self, ns: Namespace
    ) -> None:
        outside = ns.dataset("outer")
        inside = f"{outside}/nested/{ns.name}_inner.lance"
        ns.storage.write(inside, rows(range(5)))
        for table_id in (ns.register("outer", outside), ns.register("inner", inside)):
            ns.table_exists(table_id)
        for name in ("outer", "inner"):
            with refused(BAD_STATE, naming=name):
                ns.drop_table(ns.table(name))
        assert ns.ids(ns.table("outer")) == [0, 1, 2]
        assert ns.ids(ns.table("inner")) == [0, 1, 2, 3, 4]

    @needs("register")
    def test_a_location_that_only_starts_the_same_is_not_shared(self, ns: Namespace) -> None:
        short, long = ns.dataset("data"), ns.dataset("data.lance2", range(5))
        ns.register("short", short)
        ns.register("long", long)
        ns.drop_table(ns.table("short"))
        assert ns.storage.files(short) == frozenset()
        assert ns.ids(ns.table("long")) == [0, 1, 2, 3, 4]

    def _both_refuse(self, ns: Namespace, one: list[str], two: list[str]) -> None:
        for table_id in (one, two):
            with refused(BAD_STATE, naming=table_id[-1]):
                ns.drop_table(table_id)
        assert ns.names() == ["one", "two"]
        assert ns.ids(one) == ns.ids(two) == [0, 1, 2]


# -- rename ----------------------------------------------------------------------------------------


@needs("rename")
class RenameCases(Cases):
    """Rename moves the entry and never the files."""

    def test_a_renamed_table_keeps_its_location_and_its_data(self, ns: Namespace) -> None:
        table_id = ns.with_rows("old")
        before = ns.location(table_id)
        for name, namespace_id in (("new", None), ("newer", ns.id)):
            ns.rename_table(table_id, name, new_namespace_id=namespace_id)
            assert ns.names() == [name]
            with refused(NOT_FOUND, naming=table_id[-1]):
                ns.describe_table(table_id)
            table_id = ns.table(name)
            assert same_location(ns.location(table_id), before)
            assert ns.ids(table_id) == [0, 1, 2]

    @needs("table_properties")
    def test_a_renamed_table_keeps_its_properties(self, ns: Namespace) -> None:
        ns.declare_table(ns.table("old"), properties={"author": "Ines"})
        ns.rename_table(ns.table("old"), "new")
        assert ns.properties(ns.table("new")).get("author") == "Ines"

    @needs("rename_across")
    def test_rename_into_another_namespace_keeps_location_and_data(self, ns: Namespace) -> None:
        other = ns.new_namespace()
        table_id = ns.with_rows("old")
        before = ns.location(table_id)
        ns.rename_table(table_id, "new", new_namespace_id=other)
        assert ns.names() == []
        assert ns.all_tables(other) == ["new"]
        assert same_location(ns.location([*other, "new"]), before)
        assert ns.ids([*other, "new"]) == [0, 1, 2]

    def test_rename_onto_an_existing_table_is_table_already_exists(self, ns: Namespace) -> None:
        source = ns.with_rows("source")
        for place in [ns.id, *([ns.new_namespace()] if ns.features.rename_across else [])]:
            taken = [*place, "taken"]
            ns.create_table(taken, rows(range(5)))
            with refused(ALREADY_EXISTS, naming="taken"):
                ns.rename_table(source, "taken", new_namespace_id=place)
            assert ns.ids(source) == [0, 1, 2]
            assert ns.ids(taken) == [0, 1, 2, 3, 4]

    def test_a_renamed_table_and_a_new_one_under_its_old_name_are_apart(
        self, ns: Namespace
    ) -> None:
        ns.rename_table(ns.with_rows("old"), "new")
        fresh = ns.with_rows("old", range(5))
        assert not same_location(ns.location(fresh), ns.location(ns.table("new")))
        assert ns.ids(ns.table("new")) == [0, 1, 2]
        ns.drop_table(ns.table("new"))
        assert ns.names() == ["old"]
        assert ns.ids(fresh) == [0, 1, 2, 3, 4]

    def test_a_new_table_under_the_name_of_a_renamed_declared_one_lies_elsewhere(
        self, ns: Namespace
    ) -> None:
        ns.declare_table(ns.table("old"))
        ns.rename_table(ns.table("old"), "new")
        ns.declare_table(ns.table("old"))
        assert not same_location(ns.location(ns.table("old")), ns.location(ns.table("new")))

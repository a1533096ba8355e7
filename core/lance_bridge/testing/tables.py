"""Cases: declare, describe, exists and list of tables, and list of all tables."""

from __future__ import annotations

from urllib.parse import urlsplit

import lance
import pytest
from lance_namespace import ErrorCode, InvalidTableStateError

from .build import SCHEMA, rows
from .calls import collect
from .case_namespace import CaseNamespace
from .cases import Cases, needs
from .expect import refused
from .storage import same_location

ALREADY_EXISTS = ErrorCode.TABLE_ALREADY_EXISTS
NO_VERSION = ErrorCode.TABLE_VERSION_NOT_FOUND


class TableCases(Cases):
    """Table entries, seen without changing their data."""

    # -- declare ---------------------------------------------------------------------------------

    def test_a_declared_table_exists_is_described_and_is_listed(self, ns: CaseNamespace) -> None:
        location = ns.declare_table(ns.table()).location
        assert location
        ns.table_exists(ns.table())
        assert same_location(ns.location(ns.table()), location)
        assert ns.names() == ["t"]

    def test_declare_writes_no_data(self, ns: CaseNamespace) -> None:
        location = ns.declare_table(ns.table()).location or ""
        written = {name for name in ns.storage.files(location) if name.endswith(".lance")}
        assert not written

    def test_data_written_to_a_declared_location_is_the_table(self, ns: CaseNamespace) -> None:
        answer = ns.declare_table(ns.table())
        options = answer.storage_options or ns.storage.options
        lance.write_dataset(rows(range(4)), answer.location, storage_options=options)
        assert ns.ids(ns.table()) == [0, 1, 2, 3]

    @needs("create_empty_table")
    @pytest.mark.filterwarnings("ignore:create_empty_table:DeprecationWarning")
    def test_an_empty_table_is_a_declared_one(self, ns: CaseNamespace) -> None:
        answer = ns.call("create_empty_table", ns.table())
        assert answer.location == ns.location(ns.table())
        assert ns.describe_table(ns.table(), check_declared=True).is_only_declared

    def test_declared_tables_get_locations_of_their_own(self, ns: CaseNamespace) -> None:
        other = ns.new_namespace()
        ids = [ns.table("a"), ns.table("b"), [*other, "a"]]
        locations = {ns.declare_table(table_id).location for table_id in ids}
        assert len(locations) == 3

    @needs("chosen_location")
    def test_declare_honours_the_requested_location(self, ns: CaseNamespace) -> None:
        wanted = ns.new_location("chosen")
        answer = ns.declare_table(ns.table(), location=wanted)
        assert same_location(answer.location or "", wanted)
        assert same_location(ns.location(ns.table()), wanted)

    @needs("table_properties")
    def test_declare_keeps_table_properties(self, ns: CaseNamespace) -> None:
        wanted = {"owner of data": "Ines", "empty": "", "unicode": "Größe → 7"}
        answer = ns.declare_table(ns.table(), properties=wanted)
        assert wanted.items() <= (answer.properties or {}).items()
        described = ns.describe_table(ns.table()).properties
        assert wanted.items() <= (described or {}).items()

    def test_declare_of_a_table_without_data_is_repeatable_or_table_already_exists(
        self, ns: CaseNamespace
    ) -> None:
        first = ns.declare_table(ns.table()).location
        if ns.features.declare_again:
            assert ns.declare_table(ns.table()).location == first
        else:
            with refused(ALREADY_EXISTS, naming="t"):
                ns.declare_table(ns.table())
        assert same_location(ns.location(ns.table()), first or "")

    def test_declare_of_a_table_with_data_is_table_already_exists(self, ns: CaseNamespace) -> None:
        table_id = ns.with_rows("taken")
        with refused(ALREADY_EXISTS, naming="taken"):
            ns.declare_table(table_id)
        assert ns.ids(table_id) == [0, 1, 2]

    # -- describe --------------------------------------------------------------------------------

    def test_describe_gives_a_location_that_lance_opens(self, ns: CaseNamespace) -> None:
        table_id = ns.with_rows()
        answer = ns.describe_table(table_id)
        options = answer.storage_options or ns.storage.options
        dataset = lance.dataset(answer.location, storage_options=options)
        assert sorted(dataset.to_table()["id"].to_pylist()) == [0, 1, 2]

    def test_describe_gives_a_table_uri_that_lance_opens(self, ns: CaseNamespace) -> None:
        table_id = ns.with_rows()
        answer = ns.describe_table(table_id, with_table_uri=True)
        parts = urlsplit(answer.table_uri or "")
        assert parts.scheme, f"{answer.table_uri!r} is not a URI"
        assert parts.netloc or parts.path.startswith("/"), f"{answer.table_uri!r} is not complete"
        assert not set(answer.table_uri or "") & set(' \\"<>^`{|}'), "not escaped"
        options = answer.storage_options or ns.storage.options
        assert lance.dataset(answer.table_uri, storage_options=options).count_rows() == 3

    def test_describe_gives_no_table_uri_unless_asked(self, ns: CaseNamespace) -> None:
        answer = ns.describe_table(ns.with_rows(), with_table_uri=False)
        assert answer.table_uri is None

    def test_describe_says_whether_a_table_is_only_declared_when_asked(
        self, ns: CaseNamespace
    ) -> None:
        ns.declare_table(ns.table("declared"))
        ns.with_rows("written")
        for name in ("declared", "written"):
            table_id = ns.table(name)
            answer = ns.describe_table(table_id, check_declared=True)
            assert answer.is_only_declared == (name == "declared")
            answer = ns.describe_table(table_id, check_declared=False, load_detailed_metadata=False)
            assert answer.is_only_declared is None

    def test_detailed_describe_gives_name_version_schema_and_statistics(
        self, ns: CaseNamespace
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

    def test_detailed_describe_gives_statistics_and_metadata(self, ns: CaseNamespace) -> None:
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

    def test_detailed_describe_of_a_declared_table_says_so(self, ns: CaseNamespace) -> None:
        ns.declare_table(ns.table())
        try:
            answer = ns.describe_table(ns.table(), load_detailed_metadata=True)
        except InvalidTableStateError:
            return  # the specification lets a detailed describe fail here
        assert answer.is_only_declared
        assert answer.version is None

    def test_describe_of_an_old_version_describes_that_version(self, ns: CaseNamespace) -> None:
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

    def test_describe_of_a_missing_version_is_table_version_not_found(
        self, ns: CaseNamespace
    ) -> None:
        table_id = ns.with_rows()
        with refused(NO_VERSION, naming="99"):
            ns.describe_table(table_id, version=99)
        with refused(NO_VERSION, naming="99"):
            ns.describe_table(table_id, version=99, load_detailed_metadata=True)

    # -- exists ----------------------------------------------------------------------------------

    def test_exists_checks_the_version(self, ns: CaseNamespace) -> None:
        table_id = ns.with_rows()
        ns.table_exists(table_id, version=1)
        with refused(NO_VERSION, naming="99"):
            ns.table_exists(table_id, version=99)

    # -- list ------------------------------------------------------------------------------------

    def test_an_empty_namespace_lists_no_tables(self, ns: CaseNamespace) -> None:
        answer = ns.list_tables(ns.id)
        assert list(answer.tables) == []
        assert not answer.page_token

    def test_list_tables_gives_the_names_of_this_namespace_only(self, ns: CaseNamespace) -> None:
        other = ns.new_namespace()
        ns.declare_table([*other, "elsewhere"])
        ns.with_rows("here")
        assert ns.names() == ["here"]
        assert ns.all_tables(other) == ["elsewhere"]

    def test_list_tables_hides_declared_tables_when_asked(self, ns: CaseNamespace) -> None:
        ns.declare_table(ns.table("declared"))
        ns.with_rows("written")
        assert ns.names() == ["declared", "written"]
        assert ns.all_tables(ns.id, include_declared=True) == ["declared", "written"]
        assert ns.all_tables(ns.id, include_declared=False) == ["written"]

    @needs("list_all")
    def test_list_all_tables_gives_full_identifiers(self, ns: CaseNamespace) -> None:
        other = ns.new_namespace()
        for table_id in (ns.table("a"), ns.table("b"), [*other, "a"]):
            ns.declare_table(table_id)
        found = _own(ns, ns.list_all_tables().tables, other)
        wanted = [ns.table("a"), ns.table("b"), [*other, "a"]]
        assert found == sorted(ns.features.delimiter.join(table_id) for table_id in wanted)

    @needs("list_all")
    def test_list_all_tables_hides_declared_tables_when_asked(self, ns: CaseNamespace) -> None:
        ns.declare_table(ns.table("declared"))
        table_id = ns.with_rows("written")
        found = ns.list_all_tables(include_declared=False).tables
        assert _own(ns, found) == [ns.features.delimiter.join(table_id)]

    @needs("list_all")
    def test_list_all_tables_page_by_page_is_the_same_as_at_once(self, ns: CaseNamespace) -> None:
        other = ns.new_namespace()
        for table_id in ([*place, name] for place in (ns.id, other) for name in "abc"):
            ns.declare_table(table_id)
        at_once = _own(ns, ns.list_all_tables().tables, other)
        paged = _own(ns, collect(ns.list_all_tables, "tables", 2), other)
        assert paged == at_once
        assert len(paged) == 6


def _own(ns: CaseNamespace, found: object, *others: list[str]) -> list[str]:
    """Return the found identifiers that are in a case's namespaces, in their order."""
    assert isinstance(found, (list, tuple))
    delimiter = ns.features.delimiter
    starts = tuple(delimiter.join([*namespace, ""]) for namespace in (ns.id, *others))
    return [name for name in found if name.startswith(starts)]

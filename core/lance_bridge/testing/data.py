"""Cases: data of tables: create, count, pylance, rows, columns, indices, versions, branches.

Lance does most of it alike on every catalog. So the kit asks whether each operation works once on a
table of this one, and what each answers where there is no table, no branch or no data. These cases
share a namespace.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace import ErrorCode

from .calls import (
    IDS,
    SCHEMA,
    Calls,
    answer_of,
    code_of,
    ipc,
    items,
    refused,
    rows,
    unique_name,
    vector_of,
)
from .cases import Cases, Namespace, needs, same_location, why_absent
from .requests import (
    BATCH_OPERATIONS,
    BRANCH_OPERATIONS,
    DATA_OPERATIONS,
    LENIENT_ON_DECLARED,
    NOT_FOUND_ON_DECLARED,
    batch,
    calls_of,
)
from .target import Target

ALREADY_EXISTS = ErrorCode.TABLE_ALREADY_EXISTS
NO_VERSION = ErrorCode.TABLE_VERSION_NOT_FOUND
INVALID = ErrorCode.INVALID_INPUT
BAD_STATE = ErrorCode.INVALID_TABLE_STATE

# -- create_table and count_table_rows -------------------------------------------------------------


class DataCases(Cases):
    """Tables with rows."""

    # -- create_table ----------------------------------------------------------------------------

    def test_create_table_writes_the_rows_and_says_where(self, ns: Namespace) -> None:
        answer = ns.create_table(ns.table(), rows(range(4)))
        assert answer.version == 1
        assert same_location(answer.location, ns.location(ns.table()))
        assert ns.ids(ns.table()) == [0, 1, 2, 3]
        assert ns.names() == ["t"]

    @needs("table_properties")
    def test_create_table_keeps_table_properties(self, ns: Namespace) -> None:
        ns.create_table(ns.table(), rows(range(3)), properties={"author": "Ines"})
        assert ns.properties(ns.table()).get("author") == "Ines"

    def test_create_table_under_a_taken_name_is_table_already_exists(self, ns: Namespace) -> None:
        table_id = ns.with_rows("taken")
        for mode in (None, "Create", "create", "CREATE"):
            with refused(ALREADY_EXISTS, naming="taken"):
                ns.create_table(table_id, rows(range(9)), mode=mode)
        assert ns.ids(table_id) == [0, 1, 2]

    def test_create_table_exist_ok_keeps_the_existing_table(self, ns: Namespace) -> None:
        table_id = ns.with_rows()
        before = ns.location(table_id)
        for mode in ("ExistOk", "exist_ok", "EXIST_OK", "existok"):
            answer = ns.create_table(table_id, rows(range(9)), mode=mode)
            assert same_location(answer.location or before, before)
        assert ns.ids(table_id) == [0, 1, 2]

    def test_create_table_overwrite_replaces_the_rows(self, ns: Namespace) -> None:
        table_id = ns.with_rows()
        for count, mode in enumerate(("Overwrite", "overwrite", "OVERWRITE")):
            answer = ns.create_table(table_id, rows(range(9 - count)), mode=mode)
            assert same_location(answer.location, ns.location(table_id))
            assert ns.ids(table_id) == list(range(9 - count))
        assert ns.names() == ["t"]

    def test_create_table_overwrite_can_change_the_schema(self, ns: Namespace) -> None:
        table_id = ns.with_rows()
        ns.create_table(table_id, pa.table({"id": ["x"]}), mode="Overwrite")
        answer = ns.describe_table(table_id, load_detailed_metadata=True)
        assert answer.var_schema is not None
        assert [field.type.type for field in answer.var_schema.fields] == ["utf8"]

    def test_every_create_table_mode_makes_a_missing_table(self, ns: Namespace) -> None:
        for mode in ("ExistOk", "Overwrite"):
            ns.create_table(ns.table(mode.lower()), rows(range(3)), mode=mode)
            assert ns.ids(ns.table(mode.lower())) == [0, 1, 2]

    def test_create_table_with_an_unknown_mode_is_invalid_input(self, ns: Namespace) -> None:
        table_id = ns.with_rows()
        for name in ("t", "fresh"):
            with refused(INVALID, naming="Append"):
                ns.create_table(ns.table(name), rows(range(9)), mode="Append")
        assert ns.names() == ["t"]
        assert ns.ids(table_id) == [0, 1, 2]

    def test_create_table_completes_a_declared_table_or_is_table_already_exists(
        self, ns: Namespace
    ) -> None:
        declared = ns.declare_table(ns.table()).location or ""
        if not ns.features.create_completes:
            with refused(ALREADY_EXISTS, naming="t"):
                ns.with_rows()
            return
        ns.with_rows()
        assert same_location(ns.location(ns.table()), declared)
        assert ns.ids(ns.table()) == [0, 1, 2]

    def test_create_table_in_other_modes_completes_a_declared_table(self, ns: Namespace) -> None:
        for mode in ("ExistOk", "Overwrite"):
            ns.declare_table(ns.table(mode.lower()))
            ns.create_table(ns.table(mode.lower()), rows(range(3)), mode=mode)
            assert ns.ids(ns.table(mode.lower())) == [0, 1, 2]

    def test_a_failed_create_table_can_be_repeated(self, ns: Namespace) -> None:
        whole = ipc(rows(range(1000)))
        streams = (b"these are not the bytes of a stream", whole[: len(whole) // 2])
        for stream in streams:
            with refused(INVALID):
                ns.create_table(ns.table(), stream)
            assert ns.names() == []
        table_id = ns.with_rows()
        for stream in streams:
            with refused(INVALID):
                ns.create_table(table_id, stream, mode="Overwrite")
        assert ns.ids(table_id) == [0, 1, 2]

    def test_create_table_from_a_stream_without_rows_makes_an_empty_table(
        self, ns: Namespace
    ) -> None:
        table_id = ns.with_rows(ids=range(0))
        assert ns.count(table_id) == 0
        answer = ns.describe_table(table_id, load_detailed_metadata=True)
        assert answer.var_schema is not None
        assert [field.name for field in answer.var_schema.fields] == SCHEMA.names

    def test_count_counts_the_rows_of_a_version(self, ns: Namespace) -> None:
        table_id = ns.with_rows(ids=range(10))
        ns.storage.write(ns.location(table_id), rows(range(4)), mode="append")
        assert ns.count(table_id) == 14
        assert ns.count(table_id, version=1) == 10
        assert ns.count(table_id, predicate="id >= 4 AND word != 'word 5'") == 5
        with refused(NO_VERSION, naming="99"):
            ns.count(table_id, version=99)


# -- pylance ---------------------------------------------------------------------------------------


class PylanceCases(Cases):
    """``lance.write_dataset`` and ``lance.dataset`` with ``namespace_client``."""

    def test_pylance_creates_appends_overwrites_and_reads_each_version(self, ns: Namespace) -> None:
        ns.write(rows(range(2)), "create")
        assert ns.read() == [0, 1]
        assert (ns.names(), ns.count(ns.table())) == (["t"], 2)
        ns.write(rows(range(2, 5)), "append")
        assert ns.read() == [0, 1, 2, 3, 4]
        ns.write(rows(range(7, 9)), "overwrite")
        assert ns.read() == [7, 8]
        assert ns.names() == ["t"]
        wanted = [[0, 1], [0, 1, 2, 3, 4], [7, 8]]
        assert [ns.read(version) for version in (1, 2, 3)] == wanted

    @needs("declare_again")
    def test_a_failed_first_write_can_be_tried_again(self, ns: Namespace) -> None:
        with pytest.raises((OSError, RuntimeError, ValueError)):
            ns.write(_broken_reader(), "create")
        ns.write(rows(range(4)), "create")
        assert ns.read() == [0, 1, 2, 3]
        assert ns.names() == ["t"]

    def test_a_failed_append_changes_nothing(self, ns: Namespace) -> None:
        ns.write(rows(range(2)), "create")
        with pytest.raises((OSError, RuntimeError, ValueError)):
            ns.write(_broken_reader(), "append")
        assert ns.read() == [0, 1]

    def test_pylance_reads_and_writes_through_a_second_client(self, ns: Namespace) -> None:
        ns.with_rows(ids=range(2))
        with closing(Calls(ns.target.connect())) as second:
            lance.write_dataset(
                rows([2, 3]), namespace_client=second.client, table_id=ns.table(), mode="append"
            )
        assert ns.read() == [0, 1, 2, 3]


def _broken_reader() -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(range(100)).to_batches()[0]
        raise RuntimeError("the reader fails in the middle")

    return pa.RecordBatchReader.from_batches(SCHEMA, batches())


# -- tables of the cases ---------------------------------------------------------------------------


class CaseTable:
    """A table for one case. `call` goes through the namespace; the rest opens it by its path."""

    def __init__(self, ns: Namespace, **fields: Any) -> None:
        self.ns = ns
        self.id = ns.table(f"t{next(_numbers)}")
        answer = ns.create_table(self.id, items(IDS), **fields)
        self.location = answer.location or ns.location(self.id)

    def call(self, operation: str, data: Any = None, **fields: Any) -> Any:
        """Call an operation on the table by its name; see `Calls.call`."""
        return self.ns.call(operation, self.id, data, **fields)

    def dataset(self, branch: str | None = None) -> lance.LanceDataset:
        """Open the latest version of main, or of a branch, by the table's path."""
        found = lance.dataset(self.location, storage_options=self.ns.storage.options)
        return found if branch is None else found.checkout_version((branch, None))

    def values(self, column: str, branch: str | None = None) -> list[Any]:
        """Return a column, in the order of ids."""
        rows = self.dataset(branch).to_table().to_pylist()
        return [row[column] for row in sorted(rows, key=lambda row: row["id"])]

    def ids(self, branch: str | None = None) -> list[int]:
        """Return the ids, sorted."""
        return self.values("id", branch)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Require that the block leaves versions, tags and branches as they are."""
        before = self._state()
        yield
        assert self._state() == before, "the request was refused, and yet it changed the table"

    def _state(self) -> object:
        dataset = self.dataset()
        return dataset.version, dataset.tags.list(), dataset.branches.list()

    def stage(self) -> dict[str, Any]:
        """Write the data of the next version, and its manifest under a name that is no version's.

        Returns:
            The fields of a request to create that version, which has one row more: 100.
        """
        storage, version = self.ns.storage, self.dataset().version + 1
        before = storage.files(self.location)
        storage.write(self.location, items([100]), mode="append")
        (name,) = (
            name
            for name in storage.files(self.location) - before
            if name.startswith("_versions/") and name.endswith(".manifest")
        )
        manifest = storage.get(self.location, name)
        storage.delete(self.location, name)
        hint = "_versions/latest_version_hint.json"
        if hint in storage.files(self.location):
            storage.delete(self.location, hint)
        staged = f"{name}-{uuid.uuid4()}"
        storage.put(self.location, staged, manifest)
        assert self.dataset().version == version - 1
        # In the form of responses and of pylance's requests.
        latest = self.call("list_table_versions").versions[-1].manifest_path
        return {
            "version": version,
            "manifest_path": f"{latest.rpartition('/_versions/')[0]}/{staged}",
            "manifest_size": len(manifest),
            "naming_scheme": "V2",
        }


class DataOperationCases(Cases):
    """Base of the groups of cases on the data of tables."""

    @pytest.fixture(scope="class")
    @classmethod
    def shared_namespace(cls, target: Target) -> Iterator[Namespace]:
        """A client and a namespace that all these cases share."""
        ns = Namespace(target)
        yield ns
        # A drop would compare each location with those of all other tables.
        for name in ns.names():
            code_of(ns.deregister_table, ns.table(name))
        ns.close()

    @pytest.fixture
    def shared(self, request: pytest.FixtureRequest, shared_namespace: Namespace) -> Namespace:
        """The same namespace, for this case."""
        shared_namespace.case = request.node.originalname
        return shared_namespace

    @pytest.fixture
    def table(self, shared: Namespace) -> CaseTable:
        """A table with 40 rows, for one case to change."""
        return CaseTable(shared)


_numbers = itertools.count()


# -- each operation once ---------------------------------------------------------------------------


_UPSERT = {"on": ["id"], "when_matched_update_all": True, "when_not_matched_insert_all": True}


class SmokeCases(DataOperationCases):
    """A few tables go through every operation; see `EntrySuite`."""

    def test_rows_are_inserted_merged_updated_and_deleted(self, table: CaseTable) -> None:
        table.call("insert_into_table", items(range(40, 43)))
        table.call("merge_insert_into_table", items(range(42, 45)), **_UPSERT)
        table.call("update_table", updates=[["word", "'new'"]], predicate="id = 0")
        table.call("delete_from_table", predicate="id = 1")
        assert table.ids() == [0, *range(2, 45)]
        assert table.values("word")[:2] == ["new", "plum"]
        assert _found(table, filter="word = 'new' OR inner.x = 10") == [0, 5]
        table.call("insert_into_table", items([7]), mode="Overwrite")
        assert table.ids() == [7]

    def test_columns_are_added_altered_and_dropped(self, table: CaseTable) -> None:
        added = [{"name": "twice", "expression": "id * 2"}]
        table.call("alter_table_add_columns", new_columns=added)
        table.call("alter_table_alter_columns", alterations=[{"path": "word", "rename": "noun"}])
        table.call("alter_table_drop_columns", columns=["inner"])
        names = ["id", "noun", "text", "n", "vector", "twice"]
        assert table.dataset().schema.names == names
        assert table.values("twice") == [number * 2 for number in IDS]
        table.call("update_table_schema_metadata", metadata={"author": "Ines"})
        assert table.dataset().schema.metadata == {b"author": b"Ines"}

    @needs("alter_table_backfill_columns")
    def test_a_computed_column_is_filled(self, table: CaseTable) -> None:
        computed = [{"name": "twice", "computed": "id * 2"}]
        table.call("alter_table_add_columns", new_columns=computed)
        assert set(table.values("twice")) == {None}
        assert table.call("alter_table_backfill_columns", column="twice").job_id
        assert table.values("twice") == [number * 2 for number in IDS]

    @needs("update_field_metadata")
    def test_a_field_has_metadata(self, table: CaseTable) -> None:
        entry = {"path": "word", "metadata": {"unit": "m"}}
        table.call("update_field_metadata", updates=[entry])
        assert table.dataset().schema.field("word").metadata == {b"unit": b"m"}

    def test_indices_are_built_and_searched(self, table: CaseTable) -> None:
        table.call("create_table_scalar_index", column="id", index_type="BTREE")
        table.call("create_table_index", column="text", index_type="FTS")
        listed = table.call("list_table_indices").indexes
        assert sorted(each.index_name for each in listed) == ["id_idx", "text_idx"]
        stats = table.call("describe_table_index_stats", index_name="id_idx")
        assert stats.num_indexed_rows == 40
        assert table.call("get_table_stats").num_indices == 2
        plan = _query_fields(filter="id = 31")
        assert "31" in table.call("explain_table_query_plan", query=plan)
        assert "31" in table.call("analyze_table_query_plan", **plan)
        assert 10 in _found(table, text="apple")
        table.call("drop_table_index", index_name="id_idx")
        assert [each.name for each in table.dataset().describe_indices()] == ["text_idx"]
        with table.unchanged(), refused(INVALID):
            table.call("create_table_index", column="id", index_type="HASH")

    def test_vectors_are_searched_by_the_distance_of_the_request(self, table: CaseTable) -> None:
        near = {"vector": vector_of(7), "bypass_vector_index": True}
        assert _found(table, 1, **near) == [7]
        assert _found(table, 1, distance_type="cosine", **near) == [7]
        assert _found(table, 1, distance_type="dot", **near) == [39]

    def test_tags_and_branches_are_made_listed_and_deleted(self, table: CaseTable) -> None:
        table.call("insert_into_table", items([40]))
        table.call("create_table_tag", tag="last", version=2)
        assert table.call("get_table_tag_version", tag="last").version == 2
        table.call("update_table_tag", tag="last", version=1)
        assert table.call("list_table_tags").tags["last"].version == 1
        table.call("create_table_branch", name="dev")
        assert list(table.call("list_table_branches").branches) == ["dev"]
        assert table.ids("dev") == list(range(41))
        table.call("delete_table_branch", name="dev")
        table.call("delete_table_tag", tag="last")
        assert not table.dataset().branches.list()
        assert not table.dataset().tags.list()

    def test_versions_are_created_described_restored_and_deleted(self, table: CaseTable) -> None:
        table.call("create_table_version", **table.stage())
        assert table.ids() == [*IDS, 100]
        assert table.call("describe_table_version", version=2).version.version == 2
        table.call("create_table_branch", name="dev", from_version=1)
        table.call("insert_into_table", items([40]), branch="dev")
        table.call("restore_table", version=1)
        assert (table.ids(), table.ids("dev")) == (list(IDS), list(range(41)))
        listed = table.call("list_table_versions").versions
        assert {each.version for each in listed} == {1, 2, 3}
        transaction = table.ns.call("describe_transaction", [*table.id, "3"])
        assert transaction.properties["operation"] == "Restore"
        first, second = ([{"start_version": n, "end_version": n + 1}] for n in (1, 2))
        assert table.call("batch_delete_table_versions", ranges=second).deleted_count == 1
        with table.unchanged(), refused(INVALID, naming="dev"):
            table.call("batch_delete_table_versions", ranges=first)

    @needs("alter_transaction")
    def test_a_transaction_stays_as_it_ended(self, table: CaseTable) -> None:
        def alter(status: str) -> Any:
            actions = [{"setStatusAction": {"status": status}}]
            return table.ns.call("alter_transaction", [*table.id, "1"], actions=actions)

        assert alter("Succeeded").status.upper() == "SUCCEEDED"
        with refused(ErrorCode.UNSUPPORTED, INVALID):
            alter("Canceled")

    @needs("managed_tables")
    def test_several_tables_are_committed_together(self, shared: Namespace) -> None:
        ns = shared
        tables = [CaseTable(ns, properties={"managed_by": "impl"}) for _ in range(2)]
        for operation in BATCH_OPERATIONS:
            if not why_absent(ns.target, operation):
                entries = [{"id": each.id, **each.stage()} for each in tables]
                ns.call(operation, None, **batch(operation, entries))
        assert tables[0].ids() == tables[1].ids()


def _query_fields(k: int = 100, **options: Any) -> dict[str, Any]:
    """Return the fields of a query: ``vector`` is one, ``text`` a string in the column ``text``."""
    if (text := options.pop("text", None)) is not None:
        options["full_text_query"] = {"string_query": {"query": text, "columns": ["text"]}}
    return {"k": k, "vector": {"single_vector": options.pop("vector", None)}, **options}


def _found(table: CaseTable, k: int = 100, **options: Any) -> list[int]:
    """Run a query; return the ids of its rows."""
    answer = table.call("query_table", **_query_fields(k, **options))
    return sorted(pa.ipc.open_file(answer.data).read_all()["id"].to_pylist())


# -- missing tables, branches and data -------------------------------------------------------------


class EveryOperationCases(DataOperationCases):
    """The `DATA_OPERATIONS` on a table, a branch or data that does not exist."""

    def test_data_of_a_missing_table_is_table_not_found(self, shared: Namespace) -> None:
        missing, code = shared.missing_table(), ErrorCode.TABLE_NOT_FOUND
        calls = calls_of(shared, DATA_OPERATIONS)
        shared.refuse(calls, [missing], code, naming=missing[-1])

    def test_data_in_a_missing_namespace_is_namespace_not_found(self, shared: Namespace) -> None:
        missing, code = shared.missing_namespace(), ErrorCode.NAMESPACE_NOT_FOUND
        calls = calls_of(shared, DATA_OPERATIONS)
        shared.refuse(calls, [[*missing, "t"]], code, naming=missing[-1])

    @needs("make_foreign_table")
    def test_data_of_a_foreign_table_is_invalid_input(self, shared: Namespace) -> None:
        foreign = shared.foreign(unique_name())
        calls = calls_of(shared, DATA_OPERATIONS)
        shared.refuse(calls, [foreign], ErrorCode.INVALID_INPUT, naming=foreign[-1])

    @pytest.fixture(scope="class")
    @classmethod
    def declared(cls, shared_namespace: Namespace) -> list[str]:
        """The identifier of a table that has no data."""
        table_id = shared_namespace.missing_table()
        shared_namespace.declare_table(table_id)
        return table_id

    def test_data_of_a_declared_table_is_invalid_table_state(
        self, shared: Namespace, declared: list[str]
    ) -> None:
        strict = {*DATA_OPERATIONS} - LENIENT_ON_DECLARED - {*NOT_FOUND_ON_DECLARED}
        calls = calls_of(shared, sorted(strict))
        shared.refuse(calls, [declared], BAD_STATE, naming=declared[-1])

    def test_a_declared_table_has_no_version_and_no_tag(
        self, shared: Namespace, declared: list[str]
    ) -> None:
        calls = calls_of(shared, NOT_FOUND_ON_DECLARED)
        shared.compare(
            {
                name: answer_of(call, declared, (BAD_STATE, NOT_FOUND_ON_DECLARED[name]))
                for name, call in calls.items()
            }
        )
        assert not shared.call("list_table_versions", declared).versions
        assert not shared.call("list_table_tags", declared).tags
        assert not shared.call("list_table_branches", declared).branches

    def test_data_of_a_missing_branch_is_branch_not_found(
        self, shared: Namespace, table: CaseTable
    ) -> None:
        calls = calls_of(shared, BRANCH_OPERATIONS, branch="nobranch")
        table.call("create_table_tag", tag="first", version=1)
        with table.unchanged():
            code = ErrorCode.TABLE_BRANCH_NOT_FOUND
            shared.refuse(calls, [table.id], code, naming="nobranch")

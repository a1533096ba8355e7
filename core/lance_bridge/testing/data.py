"""Cases: create_table from an Arrow IPC stream, and count_table_rows."""

from __future__ import annotations

import pyarrow as pa
import pytest
from lance_namespace import ErrorCode

from .build import SCHEMA, ipc, ipc_without_batches, malformed_streams, rows
from .cases import Cases, needs
from .expect import refused
from .space import Space
from .storage import same_place

ALREADY_EXISTS = ErrorCode.TABLE_ALREADY_EXISTS
NAMESPACE_NOT_FOUND = ErrorCode.NAMESPACE_NOT_FOUND
NOT_FOUND = ErrorCode.TABLE_NOT_FOUND
NO_VERSION = ErrorCode.TABLE_VERSION_NOT_FOUND
NO_COLUMN = ErrorCode.TABLE_COLUMN_NOT_FOUND
INVALID = ErrorCode.INVALID_INPUT


class DataCases(Cases):
    """Tables with rows."""

    # -- create_table ----------------------------------------------------------------------------

    def test_create_table_writes_the_rows_and_says_where(self, space: Space) -> None:
        answer = space.api.create_table(space.table(), rows(range(4)))
        assert answer.version == 1
        assert same_place(answer.location or "", space.location(space.table()))
        assert space.ids(space.table()) == [0, 1, 2, 3]
        assert space.names() == ["t"]

    def test_create_table_keeps_types_and_nested_values(self, space: Space) -> None:
        content = pa.table(
            {
                "vector": pa.array([[0.5, 1.5], [2.5, 3.5]], pa.list_(pa.float32(), 2)),
                "inner": pa.array([{"a": 1, "b": None}, None]),
                "when": pa.array([0, None], pa.timestamp("us", tz="UTC")),
            }
        )
        space.api.create_table(space.table(), content)
        answer = space.api.describe_table(space.table(), load_detailed_metadata=True)
        assert answer.var_schema is not None
        assert [field.name for field in answer.var_schema.fields] == content.schema.names
        assert space.api.count(space.table(), predicate="inner.a = 1") == 1

    @needs("table_properties")
    def test_create_table_keeps_table_properties(self, space: Space) -> None:
        space.api.create_table(space.table(), rows(range(3)), properties={"author": "Ines"})
        properties = space.api.describe_table(space.table()).properties or {}
        assert properties.get("author") == "Ines"

    @pytest.mark.parametrize("mode", [None, "Create", "create", "CREATE"])
    def test_create_table_under_a_taken_name_is_table_already_exists(
        self, space: Space, mode: str | None
    ) -> None:
        table_id = space.with_rows("taken")
        with refused(ALREADY_EXISTS, naming="taken"):
            space.api.create_table(table_id, rows(range(9)), mode=mode)
        assert space.ids(table_id) == [0, 1, 2]

    @pytest.mark.parametrize("mode", ["ExistOk", "exist_ok", "EXIST_OK", "existok"])
    def test_create_table_exist_ok_keeps_the_existing_table(self, space: Space, mode: str) -> None:
        table_id = space.with_rows()
        before = space.location(table_id)
        answer = space.api.create_table(table_id, rows(range(9)), mode=mode)
        assert same_place(answer.location or before, before)
        assert space.ids(table_id) == [0, 1, 2]

    @pytest.mark.parametrize("mode", ["Overwrite", "overwrite", "OVERWRITE"])
    def test_create_table_overwrite_replaces_the_rows(self, space: Space, mode: str) -> None:
        table_id = space.with_rows()
        answer = space.api.create_table(table_id, rows(range(9)), mode=mode)
        assert same_place(answer.location or "", space.location(table_id))
        assert space.ids(table_id) == list(range(9))
        assert space.names() == ["t"]

    def test_create_table_overwrite_can_change_the_schema(self, space: Space) -> None:
        table_id = space.with_rows()
        space.api.create_table(table_id, pa.table({"id": ["x"]}), mode="Overwrite")
        answer = space.api.describe_table(table_id, load_detailed_metadata=True)
        assert answer.var_schema is not None
        assert [field.type.type for field in answer.var_schema.fields] == ["utf8"]

    @pytest.mark.parametrize("mode", ["ExistOk", "Overwrite"])
    def test_every_create_table_mode_makes_a_missing_table(self, space: Space, mode: str) -> None:
        space.api.create_table(space.table(), rows(range(3)), mode=mode)
        assert space.ids(space.table()) == [0, 1, 2]

    def test_create_table_with_an_unknown_mode_is_invalid_input(self, space: Space) -> None:
        table_id = space.with_rows()
        for name in ("t", "fresh"):
            with refused(INVALID, naming="Append"):
                space.api.create_table(space.table(name), rows(range(9)), mode="Append")
        assert space.names() == ["t"]
        assert space.ids(table_id) == [0, 1, 2]

    def test_create_table_completes_a_declared_table_or_is_table_already_exists(
        self, space: Space
    ) -> None:
        declared = space.api.declare_table(space.table()).location or ""
        if not space.features.create_completes:
            with refused(ALREADY_EXISTS, naming="t"):
                space.api.create_table(space.table(), rows(range(3)))
            return
        space.api.create_table(space.table(), rows(range(3)))
        assert same_place(space.location(space.table()), declared)
        assert space.ids(space.table()) == [0, 1, 2]

    @pytest.mark.parametrize("mode", ["ExistOk", "Overwrite"])
    def test_create_table_in_other_modes_completes_a_declared_table(
        self, space: Space, mode: str
    ) -> None:
        space.api.declare_table(space.table())
        space.api.create_table(space.table(), rows(range(3)), mode=mode)
        assert space.ids(space.table()) == [0, 1, 2]

    def test_create_table_in_a_missing_namespace_is_namespace_not_found(self, space: Space) -> None:
        missing = space.missing_namespace()
        with refused(NAMESPACE_NOT_FOUND, naming=missing[-1]):
            space.api.create_table([*missing, "t"], rows(range(3)))

    # -- streams ---------------------------------------------------------------------------------

    @pytest.mark.parametrize("fault", malformed_streams())
    def test_create_table_from_a_malformed_stream_is_invalid_input(
        self, space: Space, fault: str
    ) -> None:
        with refused(INVALID):
            space.api.create_table(space.table(), malformed_streams()[fault])
        assert space.names() == []
        with refused(NOT_FOUND):
            space.api.describe_table(space.table())

    @pytest.mark.parametrize("fault", malformed_streams())
    def test_create_table_overwrite_from_a_malformed_stream_keeps_the_rows(
        self, space: Space, fault: str
    ) -> None:
        table_id = space.with_rows()
        with refused(INVALID):
            space.api.create_table(table_id, malformed_streams()[fault], mode="Overwrite")
        assert space.ids(table_id) == [0, 1, 2]

    def test_a_failed_create_table_can_be_repeated(self, space: Space) -> None:
        for stream in malformed_streams().values():
            with refused(INVALID):
                space.api.create_table(space.table(), stream)
        assert space.ids(space.with_rows()) == [0, 1, 2]

    @pytest.mark.parametrize("batches", ["none", "one without rows"])
    def test_create_table_from_a_stream_without_rows_makes_an_empty_table(
        self, space: Space, batches: str
    ) -> None:
        stream = ipc_without_batches() if batches == "none" else ipc(rows([]))
        space.api.create_table(space.table(), stream)
        assert space.api.count(space.table()) == 0
        answer = space.api.describe_table(space.table(), load_detailed_metadata=True)
        assert answer.var_schema is not None
        assert [field.name for field in answer.var_schema.fields] == SCHEMA.names

    # -- count_table_rows ------------------------------------------------------------------------

    def test_count_counts_all_rows(self, space: Space) -> None:
        assert space.api.count(space.with_rows(ids=range(10))) == 10

    def test_count_with_a_predicate_counts_those_rows(self, space: Space) -> None:
        table_id = space.with_rows(ids=range(10))
        assert space.api.count(table_id, predicate="id >= 4 AND word != 'word 5'") == 5
        assert space.api.count(table_id, predicate="id < 0") == 0

    def test_count_of_a_version_counts_the_rows_it_had(self, space: Space) -> None:
        table_id = space.with_rows()
        space.storage.write(space.location(table_id), rows(range(4)), mode="append")
        assert space.api.count(table_id) == 7
        assert space.api.count(table_id, version=1) == 3
        assert space.api.count(table_id, version=2, predicate="id = 1") == 2

    def test_count_of_a_missing_version_is_table_version_not_found(self, space: Space) -> None:
        with refused(NO_VERSION, naming="99"):
            space.api.count(space.with_rows(), version=99)

    @pytest.mark.parametrize("predicate", ["id >>> ", "((", "id = 'x", "select 1", "id + 1"])
    def test_count_with_a_bad_predicate_is_invalid_input(
        self, space: Space, predicate: str
    ) -> None:
        with refused(INVALID):
            space.api.count(space.with_rows(), predicate=predicate)

    def test_count_by_an_unknown_column_names_it(self, space: Space) -> None:
        with refused(INVALID, NO_COLUMN, naming="nocolumn"):
            space.api.count(space.with_rows(), predicate="nocolumn = 1")

    def test_count_of_a_missing_table_is_table_not_found(self, space: Space) -> None:
        with refused(NOT_FOUND, naming="nowhere"):
            space.api.count(space.table("nowhere"))

    def test_count_in_a_missing_namespace_is_namespace_not_found(self, space: Space) -> None:
        missing = space.missing_namespace()
        with refused(NAMESPACE_NOT_FOUND, naming=missing[-1]):
            space.api.count([*missing, "t"])

    def test_count_of_a_declared_table_says_that_it_has_no_data(self, space: Space) -> None:
        space.api.declare_table(space.table())
        with refused(ErrorCode.INVALID_TABLE_STATE, NOT_FOUND, naming="t"):
            space.api.count(space.table())

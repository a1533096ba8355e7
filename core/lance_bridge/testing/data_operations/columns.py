"""Cases: adding, altering, dropping and filling columns; metadata of the schema and of fields."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from lance_namespace import ErrorCode

from ..cases import needs
from .case_table import CaseTable, DataOperationCases, thin
from .items import IDS, SCHEMA

INVALID = ErrorCode.INVALID_INPUT
NO_COLUMN = ErrorCode.TABLE_COLUMN_NOT_FOUND
UNSUPPORTED = ErrorCode.UNSUPPORTED


def add(table: CaseTable, *entries: dict[str, Any], **more: Any) -> Any:
    """Call AlterTableAddColumns."""
    return table.call("alter_table_add_columns", new_columns=list(entries), **more)


def alter(table: CaseTable, *entries: dict[str, Any]) -> Any:
    """Call AlterTableAlterColumns."""
    return table.call("alter_table_alter_columns", alterations=list(entries))


class ColumnCases(DataOperationCases):
    """Operations on the columns of a table."""

    # -- add -------------------------------------------------------------------------------------

    @thin
    def test_a_column_is_added_with_the_values_of_its_expression(self, table: CaseTable) -> None:
        answer = add(table, {"name": "twice", "expression": "id * 2"})
        assert answer.version == table.dataset().version
        assert table.values("twice") == [number * 2 for number in IDS]

    def test_columns_are_added_together(self, table: CaseTable) -> None:
        add(
            table,
            {"name": "x", "expression": "inner.x"},
            {"name": "shout", "expression": "upper(word)"},
            {"name": "one", "expression": "1"},
        )
        assert table.dataset().schema.names == [*SCHEMA.names, "x", "shout", "one"]
        row = table.rows()[5]
        assert (row["x"], row["shout"], row["one"]) == (10, "PEAR", 1)

    @pytest.mark.parametrize(
        ("sql", "kind"),
        [("INT", pa.int32()), ("DOUBLE", pa.float64()), ("STRING", pa.string())],
        ids=str,
    )
    def test_a_column_of_typed_nulls_is_added(
        self, table: CaseTable, sql: str, kind: pa.DataType
    ) -> None:
        add(table, {"name": "empty", "expression": f"CAST(NULL AS {sql})"})
        assert table.dataset().schema.field("empty").type == kind
        assert set(table.values("empty")) == {None}

    def test_an_added_column_over_an_unknown_one_names_it(self, shared_table: CaseTable) -> None:
        with shared_table.refuses(NO_COLUMN, naming="nocolumn"):
            add(shared_table, {"name": "new", "expression": "nocolumn + 1"})

    @pytest.mark.parametrize(
        "entry",
        [
            {"name": "id", "expression": "1"},
            {"name": "", "expression": "1"},
            {"name": "_rowid", "expression": "1"},
            {"name": "new", "expression": "id +"},
            {"name": "new", "expression": "nosuchfunction(id)"},
            {"name": "new", "expression": "1; drop table t"},
            {"name": "new", "expression": "CAST(word AS INT)"},
            {"name": "new"},
        ],
        ids=str,
    )
    def test_a_column_that_cannot_be_added_is_invalid_input(
        self, shared_table: CaseTable, entry: dict[str, str]
    ) -> None:
        with shared_table.refuses(INVALID):
            add(shared_table, {"name": "good", "expression": "1"}, entry)

    # -- computed columns ------------------------------------------------------------------------

    @thin
    @needs("alter_table_backfill_columns")
    def test_a_computed_column_is_filled_by_a_backfill(self, table: CaseTable) -> None:
        add(table, {"name": "twice", "computed": "id * 2"})
        assert set(table.values("twice")) == {None}
        answer = table.call("alter_table_backfill_columns", column="twice", where="id < 10")
        assert answer.job_id
        assert table.values("twice")[9:11] == [18, None]
        table.call("alter_table_backfill_columns", column="twice")
        assert table.values("twice") == [number * 2 for number in IDS]

    @needs("alter_table_backfill_columns")
    def test_a_backfill_of_an_unknown_column_names_it(self, shared_table: CaseTable) -> None:
        with shared_table.refuses(NO_COLUMN, naming="nocolumn"):
            shared_table.call("alter_table_backfill_columns", column="nocolumn")

    @needs("alter_table_backfill_columns")
    def test_a_backfill_of_a_column_that_is_not_computed_is_invalid_input(
        self, shared_table: CaseTable
    ) -> None:
        with shared_table.refuses(INVALID, naming="word"):
            shared_table.call("alter_table_backfill_columns", column="word")

    def test_a_column_of_a_function_in_an_image_is_refused_by_name(
        self, shared_table: CaseTable
    ) -> None:
        virtual = {
            "input_columns": ["id"],
            "outputs": [],
            "image": "i",
            "udf": "u",
            "udf_name": "n",
            "udf_version": "1",
        }
        with shared_table.refuses(UNSUPPORTED, naming="virtual_column"):
            add(shared_table, {"name": "new", "virtual_column": virtual})

    # -- alter -----------------------------------------------------------------------------------

    @thin
    def test_a_column_is_renamed(self, table: CaseTable) -> None:
        answer = alter(table, {"path": "word", "rename": "noun"})
        assert answer.version == table.dataset().version
        assert table.values("noun")[:2] == ["apple", "pear"]
        assert "word" not in table.dataset().schema.names

    def test_a_column_gets_another_type(self, table: CaseTable) -> None:
        alter(table, {"path": "n", "data_type": {"type": "int64"}})
        assert table.dataset().schema.field("n").type == pa.int64()
        assert table.values("n")[8:11] == [8, None, 10]

    def test_a_required_column_may_become_nullable(self, table: CaseTable) -> None:
        alter(table, {"path": "id", "nullable": True})
        assert table.dataset().schema.field("id").nullable

    def test_columns_are_altered_together(self, table: CaseTable) -> None:
        alter(table, {"path": "word", "rename": "noun"}, {"path": "inner.x", "rename": "y"})
        names = table.dataset().schema.names
        assert "noun" in names
        assert table.rows()[5]["inner"] == {"y": 10}

    def test_an_alteration_of_an_unknown_column_names_it(self, shared_table: CaseTable) -> None:
        with shared_table.refuses(NO_COLUMN, naming="nocolumn"):
            alter(
                shared_table,
                {"path": "word", "rename": "noun"},
                {"path": "nocolumn", "rename": "x"},
            )

    @pytest.mark.parametrize(
        "entry",
        [
            {"path": "word", "rename": "text"},
            {"path": "word", "rename": ""},
            {"path": "word", "data_type": {"type": "int64"}},
            {"path": "word", "data_type": {"type": "nosuchtype"}},
            {"path": "n", "nullable": False},
            {"path": "word"},
        ],
        ids=str,
    )
    def test_an_alteration_that_cannot_be_is_invalid_input(
        self, shared_table: CaseTable, entry: dict[str, Any]
    ) -> None:
        with shared_table.refuses(INVALID):
            alter(shared_table, entry)

    # -- drop ------------------------------------------------------------------------------------

    @thin
    def test_columns_are_dropped(self, table: CaseTable) -> None:
        answer = table.call("alter_table_drop_columns", columns=["word", "inner"])
        assert answer.version == table.dataset().version
        kept = [name for name in SCHEMA.names if name not in ("word", "inner")]
        assert table.dataset().schema.names == kept
        assert table.ids() == list(IDS)

    def test_a_drop_of_an_unknown_column_names_it(self, shared_table: CaseTable) -> None:
        with shared_table.refuses(NO_COLUMN, naming="nocolumn"):
            shared_table.call("alter_table_drop_columns", columns=["word", "nocolumn"])

    @pytest.mark.parametrize("columns", [[], SCHEMA.names], ids=["none", "all"])
    def test_a_drop_of_no_column_or_of_all_is_invalid_input(
        self, shared_table: CaseTable, columns: list[str]
    ) -> None:
        with shared_table.refuses(INVALID):
            shared_table.call("alter_table_drop_columns", columns=columns)

    # -- metadata --------------------------------------------------------------------------------

    @thin
    def test_metadata_of_the_schema_is_replaced(self, table: CaseTable) -> None:
        first = {"author": "Ines", "unit": "m"}
        answer = table.call("update_table_schema_metadata", metadata=first)
        assert answer.metadata == first
        table.call("update_table_schema_metadata", metadata={"unit": "km"})
        assert table.dataset().schema.metadata == {b"unit": b"km"}

    @thin
    @needs("update_field_metadata")
    def test_metadata_of_a_field_is_merged_or_replaced(self, table: CaseTable) -> None:
        def update(metadata: dict[str, str | None], **more: Any) -> Any:
            entry = {"path": "word", "metadata": metadata, **more}
            return table.call("update_field_metadata", updates=[entry])

        def now() -> dict[bytes, bytes]:
            return dict(table.dataset().schema.field("word").metadata or {})

        answer = update({"unit": "m", "author": "Ines"})
        assert answer.version == table.dataset().version
        update({"unit": None, "more": "x"})
        assert now() == {b"author": b"Ines", b"more": b"x"}
        update({"unit": "km"}, replace=True)
        assert now() == {b"unit": b"km"}

    @needs("update_field_metadata")
    def test_metadata_of_an_unknown_field_names_it(self, shared_table: CaseTable) -> None:
        entries = [
            {"path": "word", "metadata": {"unit": "m"}},
            {"path": "nocolumn", "metadata": {"unit": "m"}},
        ]
        with shared_table.refuses(NO_COLUMN, naming="nocolumn"):
            shared_table.call("update_field_metadata", updates=entries)

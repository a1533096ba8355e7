"""Cases: adding, altering, dropping and filling columns; metadata of the schema and of fields."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from lance_namespace import ErrorCode

from ..cases import Refusals, needs
from .case_table import BadRequest, CaseTable, DataOperationCases, SharedTable, bad
from .items import IDS, SCHEMA

NO_COLUMN = ErrorCode.TABLE_COLUMN_NOT_FOUND
UNSUPPORTED = ErrorCode.UNSUPPORTED

_VIRTUAL = {
    "input_columns": ["id"],
    "outputs": [],
    "image": "i",
    "udf": "u",
    "udf_name": "n",
    "udf_version": "1",
}


def add(table: CaseTable, *entries: dict[str, Any], **more: Any) -> Any:
    """Call AlterTableAddColumns."""
    return table.call("alter_table_add_columns", new_columns=list(entries), **more)


def alter(table: CaseTable, *entries: dict[str, Any]) -> Any:
    """Call AlterTableAlterColumns."""
    return table.call("alter_table_alter_columns", alterations=list(entries))


def _bad_add(*codes: ErrorCode, naming: str = "", **entry: Any) -> BadRequest:
    good = {"name": "good", "expression": "1"}
    return bad("alter_table_add_columns", *codes, naming=naming, new_columns=[good, entry])


def _bad_alter(*codes: ErrorCode, naming: str = "", **entry: Any) -> BadRequest:
    entries = [{"path": "word", "rename": "noun"}, entry] if codes else [entry]
    return bad("alter_table_alter_columns", *codes, naming=naming, alterations=entries)


BAD_ADDITIONS = {
    "over an unknown column": _bad_add(NO_COLUMN, name="new", expression="nocolumn + 1"),
    "a name that exists": _bad_add(name="id", expression="1"),
    "an empty name": _bad_add(name="", expression="1"),
    "a name of Lance's own": _bad_add(name="_rowid", expression="1"),
    "an expression that ends early": _bad_add(name="new", expression="id +"),
    "an unknown function": _bad_add(name="new", expression="nosuchfunction(id)"),
    "two statements": _bad_add(name="new", expression="1; drop table t"),
    "a cast that fails": _bad_add(name="new", expression="CAST(word AS INT)"),
    "neither expression nor function": _bad_add(name="new"),
    "a function in an image": _bad_add(
        UNSUPPORTED, naming="virtual_column", name="new", virtual_column=_VIRTUAL
    ),
}
BAD_ALTERATIONS = {
    "of an unknown column": _bad_alter(NO_COLUMN, path="nocolumn", rename="x"),
    "a name that exists": _bad_alter(path="word", rename="text"),
    "an empty name": _bad_alter(path="word", rename=""),
    "a type that words are not of": _bad_alter(path="word", data_type={"type": "int64"}),
    "an unknown type": _bad_alter(path="word", data_type={"type": "nosuchtype"}),
    "required, where it has nulls": _bad_alter(path="n", nullable=False),
    "nothing": _bad_alter(path="word"),
}
BAD_COLUMNS = {
    "drop of an unknown column": bad(
        "alter_table_drop_columns", NO_COLUMN, columns=["word", "nocolumn"]
    ),
    "drop of none": bad("alter_table_drop_columns", columns=[]),
    "drop of all": bad("alter_table_drop_columns", columns=SCHEMA.names),
    "backfill of an unknown column": bad(
        "alter_table_backfill_columns", NO_COLUMN, column="nocolumn"
    ),
    "backfill of a column that is not computed": bad(
        "alter_table_backfill_columns", naming="word", column="word"
    ),
    "metadata of an unknown field": bad(
        "update_field_metadata",
        NO_COLUMN,
        updates=[{"path": path, "metadata": {"unit": "m"}} for path in ("word", "nocolumn")],
    ),
}


class ColumnCases(DataOperationCases):
    """Operations on the columns of a table."""

    # -- add -------------------------------------------------------------------------------------

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

    def test_columns_of_typed_nulls_are_added(self, table: CaseTable) -> None:
        types = {"INT": pa.int32(), "DOUBLE": pa.float64(), "STRING": pa.string()}
        add(table, *({"name": sql, "expression": f"CAST(NULL AS {sql})"} for sql in types))
        schema = table.dataset().schema
        assert {sql: schema.field(sql).type for sql in types} == types
        assert {value for sql in types for value in table.values(sql)} == {None}

    @needs("alter_table_backfill_columns")
    def test_a_computed_column_is_filled_by_a_backfill(self, table: CaseTable) -> None:
        add(table, {"name": "twice", "computed": "id * 2"})
        assert set(table.values("twice")) == {None}
        answer = table.call("alter_table_backfill_columns", column="twice", where="id < 10")
        assert answer.job_id
        assert table.values("twice")[9:11] == [18, None]
        table.call("alter_table_backfill_columns", column="twice")
        assert table.values("twice") == [number * 2 for number in IDS]

    # -- alter and drop --------------------------------------------------------------------------

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
        assert "noun" in table.dataset().schema.names
        assert table.rows()[5]["inner"] == {"y": 10}

    def test_columns_are_dropped(self, table: CaseTable) -> None:
        answer = table.call("alter_table_drop_columns", columns=["word", "inner"])
        assert answer.version == table.dataset().version
        kept = [name for name in SCHEMA.names if name not in ("word", "inner")]
        assert table.dataset().schema.names == kept
        assert table.ids() == list(IDS)

    # -- metadata --------------------------------------------------------------------------------

    def test_metadata_of_the_schema_is_replaced(self, table: CaseTable) -> None:
        first = {"author": "Ines", "unit": "m"}
        answer = table.call("update_table_schema_metadata", metadata=first)
        assert answer.metadata == first
        table.call("update_table_schema_metadata", metadata={"unit": "km"})
        assert table.dataset().schema.metadata == {b"unit": b"km"}

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

    # -- what is refused -------------------------------------------------------------------------

    def test_bad_additions_of_columns_are_refused(
        self, shared_table: SharedTable, refusals: Refusals
    ) -> None:
        self.refuse(refusals, shared_table, BAD_ADDITIONS)

    def test_bad_alterations_of_columns_are_refused(
        self, shared_table: SharedTable, refusals: Refusals
    ) -> None:
        self.refuse(refusals, shared_table, BAD_ALTERATIONS)

    def test_other_bad_requests_on_columns_are_refused(
        self, shared_table: SharedTable, refusals: Refusals
    ) -> None:
        self.refuse(refusals, shared_table, BAD_COLUMNS)

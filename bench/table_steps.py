"""The operations inside a table that are measured, each beside the same call of pylance."""

from __future__ import annotations

from typing import Any

import lance
import pyarrow as pa
from lance_namespace import (
    AlterTableAddColumnsRequest,
    AlterTableAlterColumnsRequest,
    AlterTableDropColumnsRequest,
    AnalyzeTableQueryPlanRequest,
    CountTableRowsRequest,
    CreateTableRequest,
    DeleteFromTableRequest,
    ExplainTableQueryPlanRequest,
    InsertIntoTableRequest,
    MergeInsertIntoTableRequest,
    QueryTableRequest,
    UpdateFieldMetadataRequest,
    UpdateTableRequest,
    UpdateTableSchemaMetadataRequest,
)
from lance_namespace_urllib3_client.models import (
    AddColumnsEntry,
    AlterColumnsEntry,
    QueryTableRequestColumns,
    QueryTableRequestFullTextQuery,
    QueryTableRequestVector,
    StringFtsQuery,
    UpdateFieldMetadataEntry,
)

from bench.pairs import Step, Table, on
from bench.table_rows import read, stream, vector

ROWS = 1000
_FEW = 100
_COLUMNS = ["id", "price"]
_FILTER = "price > 10.0 AND id < 500"
_NEW_PRICE = "source.price > target.price"


def changes() -> list[Step]:
    """Return the steps that write rows, in their order, the one that makes the table first."""
    return [
        Step(
            "create_table",
            lambda ns, t: ns.create_table(CreateTableRequest(id=t.id), stream(ROWS)),
            lambda place: lance.write_dataset(read(stream(ROWS)), place),
            _same_version,
            makes_table=True,
        ),
        Step(
            "insert, append",
            lambda ns, t: ns.insert_into_table(InsertIntoTableRequest(id=t.id), stream(_FEW, ROWS)),
            on(lambda ds: _after(ds, ds.insert(read(stream(_FEW, ROWS))))),
            _same_version,
        ),
        Step("merge", _merge, on(_raw_merge), _same_merge),
        Step("merge, with a filter", _merge_if, on(_raw_merge_if), _same_merge),
        Step(
            "update",
            lambda ns, t: ns.update_table(
                UpdateTableRequest(id=t.id, updates=[["price", "price * 2"]], predicate="id < 10")
            ),
            on(lambda ds: ds.update({"price": "price * 2"}, where="id < 10")),
            lambda ours, raw: bool(ours.updated_rows == raw["num_rows_updated"] == 10),
        ),
        Step(
            "delete",
            lambda ns, t: ns.delete_from_table(DeleteFromTableRequest(id=t.id, predicate="id < 5")),
            on(lambda ds: _after(ds, ds.delete("id < 5"))),
            _same_version,
        ),
    ]


def overwrite() -> Step:
    """Return the step that replaces all rows."""
    return Step(
        "insert, overwrite",
        lambda ns, t: ns.insert_into_table(
            InsertIntoTableRequest(id=t.id, mode="Overwrite"), stream(ROWS)
        ),
        on(lambda ds: _after(ds, ds.insert(read(stream(ROWS)), mode="overwrite"))),
        _same_version,
    )


def _after(dataset: Any, _: object) -> Any:
    return dataset


def _same_version(ours: Any, raw: Any) -> bool:
    return bool(ours.version == raw.version)


def _merge(namespace: Any, table: Table) -> Any:
    request = MergeInsertIntoTableRequest(
        id=table.id,
        on=["id"],
        when_matched_update_all=True,
        when_not_matched_insert_all=True,
    )
    return namespace.merge_insert_into_table(request, stream(_FEW, ROWS + _FEW // 2))


def _raw_merge(dataset: Any) -> Any:
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    return merge.execute(read(stream(_FEW, ROWS + _FEW // 2)))


def _merge_if(namespace: Any, table: Table) -> Any:
    request = MergeInsertIntoTableRequest(
        id=table.id,
        on=["id"],
        when_matched_update_all_filt=_NEW_PRICE,
        when_not_matched_insert_all=True,
    )
    return namespace.merge_insert_into_table(request, stream(_FEW, ROWS + _FEW))


def _raw_merge_if(dataset: Any) -> Any:
    merge = dataset.merge_insert("id").when_matched_update_all(_NEW_PRICE)
    merge = merge.when_not_matched_insert_all()
    return merge.execute(read(stream(_FEW, ROWS + _FEW)))


def _same_merge(ours: Any, raw: Any) -> bool:
    told = (ours.num_updated_rows, ours.num_inserted_rows)
    return told == (raw["num_updated_rows"], raw["num_inserted_rows"])


# -- reading ---------------------------------------------------------------------------------------


def reads() -> list[Step]:
    """Return the steps that read rows."""
    return [
        Step(
            "count",
            lambda ns, t: ns.count_table_rows(CountTableRowsRequest(id=t.id)).count,
            on(lambda ds: ds.count_rows()),
            lambda ours, raw: bool(ours == raw),
        ),
        Step(
            "count, with a predicate",
            lambda ns, t: (
                ns.count_table_rows(CountTableRowsRequest(id=t.id, predicate=_FILTER)).count
            ),
            on(lambda ds: ds.count_rows(_FILTER)),
            lambda ours, raw: bool(ours == raw),
        ),
        Step(
            "query, filter",
            lambda ns, t: ns.query_table(_query(t, filter=_FILTER)).data,
            on(lambda ds: ds.to_table(columns=_COLUMNS, filter=_FILTER, limit=10)),
            _same_rows,
        ),
        nearest("query, vector"),
        Step(
            "explain a query",
            lambda ns, t: ns.explain_table_query_plan(
                ExplainTableQueryPlanRequest(id=t.id, query=_query(t, filter=_FILTER))
            ),
            on(lambda ds: _filtered(ds).explain_plan()),
            _same_plan,
        ),
        Step(
            "analyze a query",
            lambda ns, t: ns.analyze_table_query_plan(
                AnalyzeTableQueryPlanRequest(**_query(t, filter=_FILTER).model_dump())
            ),
            on(lambda ds: _filtered(ds).analyze_plan()),
            _same_plan,
        ),
    ]


def nearest(name: str) -> Step:
    """Return the step that searches by a vector, with an index if there is one."""
    wanted = vector(77)
    search = {"column": "vector", "q": pa.array(wanted, pa.float32()), "k": 10}
    return Step(
        name,
        lambda ns, t: (
            ns.query_table(_query(t, vector=QueryTableRequestVector(single_vector=wanted))).data
        ),
        on(lambda ds: ds.to_table(columns=[*_COLUMNS, "_distance"], nearest=search)),
        _same_rows,
    )


def full_text() -> Step:
    """Return the step that searches by a word."""
    wanted = QueryTableRequestFullTextQuery(
        string_query=StringFtsQuery(query="lamp", columns=["title"])
    )
    search = {"query": "lamp", "columns": ["title"]}
    return Step(
        "query, full text",
        lambda ns, t: ns.query_table(_query(t, full_text_query=wanted)).data,
        on(lambda ds: ds.to_table(columns=[*_COLUMNS, "_score"], full_text_query=search, limit=10)),
        lambda ours, raw: pa.ipc.open_file(ours).read_all().num_rows == raw.num_rows == 10,
    )


def _query(table: Table, **options: Any) -> QueryTableRequest:
    empty = QueryTableRequestVector(single_vector=[])
    columns = QueryTableRequestColumns(column_names=_COLUMNS)
    return QueryTableRequest(
        **{"id": table.id, "k": 10, "vector": empty, "columns": columns, **options}
    )


def _filtered(dataset: Any) -> Any:
    return dataset.scanner(columns=_COLUMNS, filter=_FILTER, limit=10)


def _same_rows(ours: bytes, raw: pa.Table) -> bool:
    found = pa.ipc.open_file(ours).read_all()
    return bool(found.num_rows == 10 and found["id"].to_pylist() == raw["id"].to_pylist())


def _same_plan(ours: str, raw: str) -> bool:
    """Compare how the plans begin: what follows has places and times."""
    return ours.replace(",", ":").split(":", 1)[0] == raw.replace(",", ":").split(":", 1)[0] != ""


# -- columns and metadata --------------------------------------------------------------------------


def columns() -> list[Step]:
    """Return the steps that change columns and metadata."""
    return [
        Step(
            "add columns",
            lambda ns, t: ns.alter_table_add_columns(
                AlterTableAddColumnsRequest(
                    id=t.id, new_columns=[AddColumnsEntry(name="gross", expression="price * 1.2")]
                )
            ),
            on(lambda ds: _after(ds, ds.add_columns({"gross": "price * 1.2"}))),
            _same_version,
        ),
        Step(
            "alter columns",
            lambda ns, t: ns.alter_table_alter_columns(
                AlterTableAlterColumnsRequest(
                    id=t.id, alterations=[AlterColumnsEntry(path="gross", rename="total")]
                )
            ),
            on(lambda ds: _after(ds, ds.alter_columns({"path": "gross", "name": "total"}))),
            _same_version,
        ),
        Step(
            "drop columns",
            lambda ns, t: ns.alter_table_drop_columns(
                AlterTableDropColumnsRequest(id=t.id, columns=["total"])
            ),
            on(lambda ds: _after(ds, ds.drop_columns(["total"]))),
            _same_version,
        ),
        Step(
            "schema metadata",
            lambda ns, t: (
                ns.update_table_schema_metadata(
                    UpdateTableSchemaMetadataRequest(id=t.id, metadata={"owner": "bench"})
                ).metadata
            ),
            on(lambda ds: ds.update_schema_metadata({"owner": "bench"}, replace=True)),
            lambda ours, raw: bool(ours == raw == {"owner": "bench"}),
        ),
        Step(
            "field metadata",
            lambda ns, t: ns.update_field_metadata(
                UpdateFieldMetadataRequest(
                    id=t.id,
                    updates=[UpdateFieldMetadataEntry(path="price", metadata={"unit": "EUR"})],
                )
            ),
            on(lambda ds: _after(ds, ds.update_field_metadata({"price": {"unit": "EUR"}}))),
            _same_version,
        ),
    ]

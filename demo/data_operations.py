"""The demo's data operations: merge, search, tag and branch a table by its name alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from lance_namespace import (
    CountTableRowsRequest,
    CreateTableBranchRequest,
    CreateTableTagRequest,
    GetTableTagVersionRequest,
    LanceNamespace,
    MergeInsertIntoTableRequest,
    QueryTableRequest,
    RestoreTableRequest,
    UpdateTableRequest,
)
from lance_namespace_urllib3_client.models import QueryTableRequestVector

from demo.spark_source import DIMENSIONS, LANCE_SCHEMA
from demo.steps import MORE_ROWS, ROWS, TABLE_ID, Demo

ALL_ROWS = ROWS + MORE_ROWS
NEW_ID = ALL_ROWS
VECTOR = [1.5] * DIMENSIONS
TAG, BRANCH = "before-the-sale", "sale"
PRICE = 60


def merge_and_search(demo: Demo) -> None:
    """Merge rows by key and search by vector, without opening a dataset."""
    story, namespace = demo.story, demo.namespace
    story.step(
        "Merge rows into it, and search it, by name alone",
        "The namespace does the work: a client sends requests and rows, and opens no dataset. "
        "One of these two rows is in the table already.",
    )
    story.call(
        f"ns.merge_insert_into_table(MergeInsertIntoTableRequest(id={TABLE_ID},\n"
        "    on=['id'], when_matched_update_all=True, when_not_matched_insert_all=True),\n"
        "    rows)"
    )
    request = MergeInsertIntoTableRequest(
        id=TABLE_ID, on=["id"], when_matched_update_all=True, when_not_matched_insert_all=True
    )
    merged = namespace.merge_insert_into_table(request, _rows())
    found = merged.num_updated_rows, merged.num_inserted_rows
    story.check("rows updated and inserted", found, (1, 1))
    story.call(
        f"answer = ns.query_table(QueryTableRequest(id={TABLE_ID}, k=2,\n"
        "    vector={'single_vector': vector}, filter=\"category = 'lamp'\", prefilter=True))\n"
        "pa.ipc.open_file(answer.data).read_all()"
    )
    query = QueryTableRequest(
        id=TABLE_ID,
        k=2,
        prefilter=True,
        vector=QueryTableRequestVector(single_vector=VECTOR),
        filter="category = 'lamp'",
    )
    nearest = pa.ipc.open_file(namespace.query_table(query).data).read_all()
    story.check("the nearest lamps", sorted(nearest["id"].to_pylist()), [0, NEW_ID])


def _rows() -> pa.Table:
    """Return one row of the table with other values, and a new one."""
    row = {"category": "lamp", "price": 1.0, "title": "lamp, on sale", "embedding": VECTOR}
    return pa.Table.from_pylist([{"id": 0, **row}, {"id": NEW_ID, **row}], LANCE_SCHEMA)


def tag_and_branch(demo: Demo) -> None:
    """Name a version, change a branch, and take the table back to an earlier version."""
    story, namespace = demo.story, demo.namespace
    story.step(
        "Tag a version, try a sale on a branch, and restore an earlier version",
        "The tag names this version. Changes on the branch are not visible in the table. "
        "Restoring an earlier version makes it the latest one again.",
    )
    story.call(
        f'ns.create_table_tag(CreateTableTagRequest(id={TABLE_ID}, tag="{TAG}", version=4))\n'
        f'ns.create_table_branch(CreateTableBranchRequest(id={TABLE_ID}, name="{BRANCH}"))\n'
        f'ns.update_table(UpdateTableRequest(id={TABLE_ID}, branch="{BRANCH}",\n'
        '    updates=[["price", "price / 2"]]))'
    )
    dear = _count(namespace, predicate=f"price > {PRICE}")
    namespace.create_table_tag(CreateTableTagRequest(id=TABLE_ID, tag=TAG, version=4))
    namespace.create_table_branch(CreateTableBranchRequest(id=TABLE_ID, name=BRANCH))
    sale = UpdateTableRequest(id=TABLE_ID, branch=BRANCH, updates=[["price", "price / 2"]])
    story.check("rows updated", namespace.update_table(sale).updated_rows, ALL_ROWS + 1)
    story.call(
        f"ns.count_table_rows(CountTableRowsRequest(id={TABLE_ID},\n"
        f'    branch="{BRANCH}", predicate="price > {PRICE / 2:g}")).count'
    )
    on_branch = _count(namespace, branch=BRANCH, predicate=f"price > {PRICE / 2:g}")
    story.check(f"rows above {PRICE / 2:g} on the branch, as above {PRICE} before", on_branch, dear)
    still = _count(namespace, predicate=f"price > {PRICE}")
    story.check(f"rows above {PRICE} in the table, as before", still, dear)
    story.call(f"ns.restore_table(RestoreTableRequest(id={TABLE_ID}, version=3))")
    namespace.restore_table(RestoreTableRequest(id=TABLE_ID, version=3))
    story.check("rows after restoring version 3", _count(namespace), ALL_ROWS)
    version = namespace.get_table_tag_version(GetTableTagVersionRequest(id=TABLE_ID, tag=TAG))
    story.check("version of the tag", version.version, 4)
    story.check("rows in that version", _count(namespace, version=version.version), ALL_ROWS + 1)


def _count(namespace: LanceNamespace, **options: Any) -> int | None:
    return namespace.count_table_rows(CountTableRowsRequest(id=TABLE_ID, **options)).count

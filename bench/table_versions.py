"""More of the operations inside a table that are measured: indices, versions, tags, branches."""

from __future__ import annotations

from typing import Any

import lance
from lance_namespace import (
    CreateTableBranchRequest,
    CreateTableIndexRequest,
    CreateTableTagRequest,
    DeleteTableBranchRequest,
    DeleteTableTagRequest,
    DescribeTableIndexStatsRequest,
    DescribeTableVersionRequest,
    DescribeTransactionRequest,
    DropTableIndexRequest,
    GetTableStatsRequest,
    GetTableTagVersionRequest,
    ListTableBranchesRequest,
    ListTableIndicesRequest,
    ListTableTagsRequest,
    ListTableVersionsRequest,
    RestoreTableRequest,
    UpdateTableTagRequest,
)

from bench import table_steps
from bench.pairs import Step, on


def steps() -> list[Step]:
    """Return all steps of a round, in an order in which they can be done."""
    return [
        *table_steps.changes(),
        *table_steps.reads(),
        *table_steps.columns(),
        *_indices(),
        *_versions(),
        *_tags(),
        *_branches(),
        table_steps.overwrite(),
    ]


def _indices() -> list[Step]:
    return [
        Step(
            "create index, scalar",
            lambda ns, t: ns.create_table_scalar_index(
                CreateTableIndexRequest(id=t.id, column="id", index_type="BTREE", name="by_id")
            ),
            on(lambda ds: ds.create_scalar_index("id", "BTREE", name="by_id")),
            _done,
        ),
        Step(
            "create index, vector",
            lambda ns, t: ns.create_table_index(
                CreateTableIndexRequest(
                    id=t.id, column="vector", index_type="IVF_FLAT", name="near", num_partitions=2
                )
            ),
            on(lambda ds: ds.create_index("vector", "IVF_FLAT", name="near", num_partitions=2)),
            _done,
        ),
        Step(
            "create index, full text",
            lambda ns, t: ns.create_table_scalar_index(
                CreateTableIndexRequest(id=t.id, column="title", index_type="FTS", name="words")
            ),
            on(lambda ds: ds.create_scalar_index("title", "INVERTED", name="words")),
            _done,
        ),
        Step(
            "list indices",
            lambda ns, t: ns.list_table_indices(ListTableIndicesRequest(id=t.id)).indexes,
            on(lambda ds: ds.describe_indices()),
            lambda ours, raw: {e.index_name for e in ours} == {e.name for e in raw},
        ),
        Step(
            "index statistics",
            lambda ns, t: ns.describe_table_index_stats(
                DescribeTableIndexStatsRequest(id=t.id, index_name="by_id")
            ),
            on(lambda ds: ds.stats.index_stats("by_id")),
            lambda ours, raw: bool(ours.num_indexed_rows == raw["num_indexed_rows"]),
        ),
        table_steps.nearest("query, vector, indexed"),
        table_steps.full_text(),
        Step(
            "drop index",
            lambda ns, t: ns.drop_table_index(DropTableIndexRequest(id=t.id, index_name="by_id")),
            on(lambda ds: ds.drop_index("by_id")),
            _done,
        ),
    ]


def _done(*_: object) -> bool:
    """Accept any answer: what was done shows in the steps that come after."""
    return True


def _versions() -> list[Step]:
    return [
        Step(
            "list versions",
            lambda ns, t: ns.list_table_versions(ListTableVersionsRequest(id=t.id)).versions,
            on(lambda ds: ds.versions()),
            lambda ours, raw: [e.version for e in ours] == [e["version"] for e in raw],
        ),
        Step(
            "describe version",
            lambda ns, t: (
                ns.describe_table_version(DescribeTableVersionRequest(id=t.id, version=2)).version
            ),
            lambda place: lance.dataset(place, version=2),
            lambda ours, raw: bool(ours.version == raw.version),
        ),
        Step(
            "restore",
            lambda ns, t: ns.restore_table(RestoreTableRequest(id=t.id, version=2)),
            lambda place: _restored(lance.dataset(place, version=2)),
            lambda ours, raw: bool(ours.transaction_id and raw.count_rows() == 1100),
        ),
        Step(
            "table statistics",
            lambda ns, t: ns.get_table_stats(GetTableStatsRequest(id=t.id)),
            on(lambda ds: (ds.stats.dataset_stats(), ds.stats.data_stats())),
            lambda ours, raw: bool(ours.fragment_stats.num_fragments == raw[0]["num_fragments"]),
        ),
        Step(
            "transaction, by version",
            lambda ns, t: ns.describe_transaction(DescribeTransactionRequest(id=[*t.id, "2"])),
            on(lambda ds: ds.read_transaction(2)),
            lambda ours, raw: bool(ours.status == "Succeeded" and raw.read_version == 1),
        ),
        Step(
            "transaction, by id",
            lambda ns, t: ns.describe_transaction(
                DescribeTransactionRequest(id=[*t.id, t.answers["restore"].transaction_id])
            ),
            on(lambda ds: ds.read_transaction(ds.version)),
            lambda ours, raw: bool(ours.status == "Succeeded" and raw is not None),
        ),
    ]


def _restored(dataset: Any) -> Any:
    dataset.restore()
    return dataset


def _tags() -> list[Step]:
    return [
        Step(
            "create tag",
            lambda ns, t: ns.create_table_tag(
                CreateTableTagRequest(id=t.id, tag="first", version=1)
            ),
            on(lambda ds: ds.tags.create("first", 1)),
            _done,
        ),
        Step(
            "get tag",
            lambda ns, t: (
                ns.get_table_tag_version(GetTableTagVersionRequest(id=t.id, tag="first")).version
            ),
            on(lambda ds: ds.tags.get_version("first")),
            lambda ours, raw: bool(ours == raw == 1),
        ),
        Step(
            "list tags",
            lambda ns, t: ns.list_table_tags(ListTableTagsRequest(id=t.id)).tags,
            on(lambda ds: ds.tags.list()),
            lambda ours, raw: list(ours) == list(raw) == ["first"],
        ),
        Step(
            "update tag",
            lambda ns, t: ns.update_table_tag(
                UpdateTableTagRequest(id=t.id, tag="first", version=2)
            ),
            on(lambda ds: ds.tags.update("first", 2)),
            _done,
        ),
        Step(
            "delete tag",
            lambda ns, t: ns.delete_table_tag(DeleteTableTagRequest(id=t.id, tag="first")),
            on(lambda ds: ds.tags.delete("first")),
            _done,
        ),
    ]


def _branches() -> list[Step]:
    return [
        Step(
            "create branch",
            lambda ns, t: ns.create_table_branch(CreateTableBranchRequest(id=t.id, name="draft")),
            on(lambda ds: ds.create_branch("draft", ds.version)),
            _done,
        ),
        Step(
            "list branches",
            lambda ns, t: ns.list_table_branches(ListTableBranchesRequest(id=t.id)).branches,
            on(lambda ds: ds.branches.list()),
            lambda ours, raw: list(ours) == list(raw) == ["draft"],
        ),
        Step(
            "delete branch",
            lambda ns, t: ns.delete_table_branch(DeleteTableBranchRequest(id=t.id, name="draft")),
            on(lambda ds: ds.branches.delete("draft")),
            _done,
        ),
    ]

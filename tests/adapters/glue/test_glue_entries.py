"""Entries have the fields that other tools require, and the columns that each commit publishes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import lance
import pyarrow as pa
import pytest
from conformance.glue_target import MARKS, lance_entry
from lance_namespace.errors import ConcurrentModificationError, InvalidInputError
from servers.glue_server import GlueServer
from servers.http_proxy import Answer, HttpProxy

from lance_bridge.entry import TableEntry
from lance_bridge.hive_entries import INPUT_FORMAT, OUTPUT_FORMAT, SERDE
from lance_bridge.registry import require_lance_bridge
from lance_bridge.testing.calls import Calls
from lance_bridge_doctor import Kind, diagnose_namespace, diagnose_table

from .conftest import BUCKET, Connect, catalog_at, declare, raw, raw_table

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec(
        "common.md#fields-for-other-tools", "glue.md#table", "common.md#published-columns"
    ),
]

OURS: dict[str, Any] = {
    "Columns": [],
    "InputFormat": INPUT_FORMAT,
    "OutputFormat": OUTPUT_FORMAT,
    "SerdeInfo": {"SerializationLibrary": SERDE},
}
INCOMPLETE: dict[str, dict[str, Any]] = {
    "earlier entries of ours": {},
    "no storage descriptor but a location": {"Columns": None},
    "only an input format": {"InputFormat": "their.InputFormat"},
    "only a SerDe": {"SerdeInfo": {"SerializationLibrary": "their.SerDe"}},
    "a SerDe without a class": {"SerdeInfo": {"Name": "s", "Parameters": {"a": "b"}}},
    "no output format": {
        "InputFormat": "their.InputFormat",
        "SerdeInfo": {"SerializationLibrary": "their.SerDe", "Parameters": {"a": "b"}},
        "Columns": [{"Name": "id", "Type": "bigint"}],
    },
}
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "vector": pa.array([[0.0] * 4] * 3, pa.list_(pa.float32(), 4)),
    }
)
COLUMNS = [("id", "bigint"), ("vector", "array<float>")]
ON = {"publish.columns": "true"}
WRITERS = 4


def entry_of(calls: Calls, *path: str) -> TableEntry:
    tables = require_lance_bridge(calls.client, "glue").tables
    return tables.load_entry(tables.path_of(path))


def refused_by_aws_client(table: dict[str, Any]) -> list[str]:
    """Return which fields are missing that AWS's client for Spark and Hive, or Athena, requires.

    Source: ``HiveTableValidator`` of the client, awslabs' repository.
    """
    descriptor = table.get("StorageDescriptor") or {}
    required = {
        "TableType": table.get("TableType"),
        "PartitionKeys": table.get("PartitionKeys"),
        "InputFormat": descriptor.get("InputFormat"),
        "OutputFormat": descriptor.get("OutputFormat"),
        "SerdeInfo": descriptor.get("SerdeInfo"),
        "SerializationLibrary": (descriptor.get("SerdeInfo") or {}).get("SerializationLibrary"),
    }
    return [name for name, value in required.items() if value is None]


def make_incomplete(server: GlueServer, database: str, name: str = "t", **fields: Any) -> None:
    place = f"s3://{BUCKET}/{database}/{name}"
    entry = lance_entry(name, place, {"StorageDescriptor": fields})
    raw_table(server, database, entry.pop("Name"), **entry)


def test_a_new_entry_has_all_fields_that_other_tools_require(
    calls: Calls, server: GlueServer, database: str
) -> None:
    declare(calls, database)
    made = raw(server, database, "t")
    assert refused_by_aws_client(made) == []
    place = {"Location": f"s3://{BUCKET}/{database}/t"}
    assert made["StorageDescriptor"] == {**OURS, **place}
    assert entry_of(calls, database, "t").record.problems == ()


@pytest.mark.parametrize("fields", INCOMPLETE.values(), ids=INCOMPLETE)
def test_a_change_adds_what_is_missing_and_keeps_the_rest_with_no_further_call(
    calls: Calls, server: GlueServer, proxy: HttpProxy, database: str, fields: dict[str, Any]
) -> None:
    make_incomplete(server, database, **fields)
    assert refused_by_aws_client(raw(server, database, "t")) != []
    entry = entry_of(calls, database, "t")
    assert entry.record.problems
    proxy.reset()
    entry.set_properties({"team": "sales"})
    assert proxy.counts == {"GetTable": 1, "UpdateTable": 1}
    changed = raw(server, database, "t")
    assert refused_by_aws_client(changed) == []
    kept = {key: value for key, value in fields.items() if value is not None}
    serde = {"SerdeInfo": {**OURS["SerdeInfo"], **kept.get("SerdeInfo", {})}}
    place = {"Location": f"s3://{BUCKET}/{database}/t"}
    assert changed["StorageDescriptor"] == {**OURS, **place, **kept, **serde}
    assert entry_of(calls, database, "t").record.problems == ()


@pytest.mark.parametrize("kind", MARKS)
def test_entries_of_other_implementations_are_completed(
    calls: Calls, server: GlueServer, database: str, kind: str
) -> None:
    fields = lance_entry("t", f"s3://{BUCKET}/{database}/t", MARKS[kind])
    before = raw_table(server, database, fields.pop("Name"), **fields)
    entry = entry_of(calls, database, "t")
    is_complete = "InputFormat" in before["StorageDescriptor"]
    assert bool(entry.record.problems) != is_complete
    entry.refresh_entry()
    after = raw(server, database, "t")
    descriptor = before["StorageDescriptor"]
    assert {key: after["StorageDescriptor"][key] for key in descriptor} == descriptor
    assert before["Parameters"].items() <= after["Parameters"].items()
    assert (after == before) if is_complete else refused_by_aws_client(after) == []


def test_rename_and_overwrite_complete_an_entry(
    calls: Calls, server: GlueServer, database: str
) -> None:
    make_incomplete(server, database, "renamed")
    calls.rename_table([database, "renamed"], "new")
    assert refused_by_aws_client(raw(server, database, "new")) == []
    make_incomplete(server, database, "replaced")
    place = f"s3://{BUCKET}/{database}/elsewhere"
    calls.register_table([database, "replaced"], place, mode="Overwrite")
    replaced = raw(server, database, "replaced")
    assert refused_by_aws_client(replaced) == []
    assert replaced["StorageDescriptor"]["Location"] == place


def test_a_complete_entry_is_not_written_again(
    calls: Calls, server: GlueServer, proxy: HttpProxy, database: str
) -> None:
    declare(calls, database)
    before = raw(server, database, "t")
    entry = entry_of(calls, database, "t")
    proxy.reset()
    assert entry.refresh_entry() == entry
    assert proxy.counts == {"GetTable": 1}
    assert raw(server, database, "t") == before


def test_a_change_by_another_client_is_kept_when_an_entry_is_completed(
    calls: Calls, server: GlueServer, proxy: HttpProxy, database: str
) -> None:
    make_incomplete(server, database)
    entry = entry_of(calls, database, "t")
    foreign = raw(server, database, "t")
    own = ("Name", "TableType", "Parameters", "StorageDescriptor")
    table = {**{k: v for k, v in foreign.items() if k in own}, "Owner": "sales"}
    table["Parameters"] = {**table["Parameters"], "team": "sales"}
    server.glue.update_table(DatabaseName=database, TableInput=table)
    proxy.reset()
    entry.refresh_entry()
    assert proxy.counts["UpdateTable"] == 1
    changed = raw(server, database, "t")
    assert refused_by_aws_client(changed) == []
    assert (changed["Owner"], changed["Parameters"]["team"]) == ("sales", "sales")


def test_an_entry_that_others_keep_changing_is_a_conflict(
    calls: Calls, server: GlueServer, proxy: HttpProxy, database: str
) -> None:
    make_incomplete(server, database)
    entry = entry_of(calls, database, "t")
    for _ in range(3):
        proxy.fail_next("UpdateTable", Answer.of_aws("ConcurrentModificationException"))
    with pytest.raises(ConcurrentModificationError, match=f"{database}.t"):
        entry.refresh_entry()
    assert refused_by_aws_client(raw(server, database, "t")) != []


def test_entries_that_are_not_lances_are_never_completed(
    calls: Calls, server: GlueServer, proxy: HttpProxy, database: str
) -> None:
    place = {"StorageDescriptor": {"Location": f"s3://{BUCKET}/{database}/other"}}
    iceberg = {"Parameters": {"table_type": "ICEBERG"}}
    for name, fields in {"plain": {}, "iceberg": iceberg}.items():
        before = raw_table(server, database, name, **place, **fields)
        entry = entry_of(calls, database, name)
        assert entry.record.problems == ()
        with pytest.raises(InvalidInputError, match="not a Lance table"):
            entry.refresh_entry()
        catalog = catalog_at(proxy.endpoint, server)
        changed = entry.record.with_properties({**entry.record.properties, "a": "b"})
        catalog.alter_table(changed)
        after = raw(server, database, name)
        assert after["StorageDescriptor"] == before["StorageDescriptor"]


@pytest.mark.spec("cli.md#findings")
def test_the_doctor_finds_incomplete_entries_of_lance_tables_only(
    connect: Connect, server: GlueServer, database: str
) -> None:
    calls = connect()
    declare(calls, database, "whole")
    make_incomplete(server, database, "old")
    raw_table(server, database, "other", StorageDescriptor={"Location": f"s3://{BUCKET}/other"})
    found = [
        each
        for each in diagnose_namespace(calls.client, "prod").findings
        if each.kind is Kind.INCOMPLETE_ENTRY
    ]
    [finding] = [each for each in found if each.subject.startswith(database)]
    assert finding.subject == f"{database}.old"
    assert "no input format, no output format, no SerDe" in finding.message
    assert finding.command == f"lance-bridge table refresh-entry prod {database}.old"
    entry_of(calls, database, "old").refresh_entry()
    again = diagnose_namespace(calls.client, "prod").findings
    kinds = {each.kind for each in again if each.subject == finding.subject}
    assert kinds == {Kind.DECLARED_ONLY}


# -- published columns -----------------------------------------------------------------------------


def shown(server: GlueServer, *path: str) -> tuple[list[tuple[str, str]], str | None, str | None]:
    """Return what other tools see of a table: its columns, rows and size."""
    found = raw(server, *path)
    columns = found["StorageDescriptor"]["Columns"]
    parameters = found["Parameters"]
    return (
        [(each["Name"], each["Type"]) for each in columns],
        parameters.get("numRows"),
        parameters.get("totalSize"),
    )


def find_outdated(calls: Calls, *path: str) -> list[str]:
    namespace = require_lance_bridge(calls.client, "prod")
    found = diagnose_table(namespace, "prod", path)
    assert {each.kind for each in found} <= {Kind.OUTDATED_COLUMNS}
    return [f"{each.message}: {each.command}" for each in found]


def refresh(calls: Calls, *path: str) -> None:
    tables = require_lance_bridge(calls.client, "prod").tables
    tables.load(tables.path_of(path)).refresh_entry()


def insert(calls: Calls, path: list[str]) -> None:
    calls.call("insert_into_table", path, ROWS)


def delete(calls: Calls, path: list[str]) -> None:
    calls.call("delete_from_table", path, predicate="id = 1")


def update(calls: Calls, path: list[str]) -> None:
    given = {"updates": [["id", "id + 1"]], "properties": {"team": "sales"}}
    assert calls.call("update_table", path, **given).properties["team"] == "sales"


def merge(calls: Calls, path: list[str]) -> None:
    calls.call(
        "merge_insert_into_table", path, ROWS.slice(0, 1), on=["id"],
        when_matched_update_all=True, when_not_matched_insert_all=True,
    )  # fmt: skip


def add_column(calls: Calls, path: list[str]) -> None:
    columns = [{"name": "twice", "expression": "id * 2"}]
    calls.call("alter_table_add_columns", path, new_columns=columns)


def drop_column(calls: Calls, path: list[str]) -> None:
    calls.call("alter_table_drop_columns", path, columns=["vector"])


def overwrite(calls: Calls, path: list[str]) -> None:
    calls.create_table(path, pa.table({"name": ["a"]}), mode="Overwrite")


CHANGES: dict[Callable[[Calls, list[str]], None], tuple[list[tuple[str, str]], str]] = {
    insert: (COLUMNS, "6"),
    delete: (COLUMNS, "2"),
    update: (COLUMNS, "3"),
    merge: (COLUMNS, "3"),
    add_column: ([*COLUMNS, ("twice", "bigint")], "3"),
    drop_column: (COLUMNS[:1], "3"),
    overwrite: ([("name", "string")], "1"),
}


@pytest.mark.parametrize("managed", [{}, {"managed_by": "impl"}], ids=["storage", "managed"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.__name__)
def test_every_commit_writes_columns_rows_and_size(
    calls: Calls,
    server: GlueServer,
    database: str,
    *,
    managed: dict[str, str],
    change: Callable[[Calls, list[str]], None],
) -> None:
    path = [database, "t"]
    calls.create_table(path, ROWS, properties={**ON, **managed})
    columns, rows, size = shown(server, *path)
    assert (columns, rows) == (COLUMNS, "3")
    assert int(size or 0) > 0
    change(calls, path)
    assert shown(server, *path)[:2] == CHANGES[change]
    assert find_outdated(calls, *path) == []
    properties = calls.describe_table(path).properties or {}
    assert properties["publish.columns"] == "true"
    assert not properties.keys() & {"numRows", "totalSize"}


def test_without_the_property_nothing_is_written_and_no_call_is_made(
    calls: Calls, server: GlueServer, proxy: HttpProxy, database: str
) -> None:
    counts = []
    for name, properties in {"a": None, "b": {"publish.columns": "false"}}.items():
        calls.create_table([database, name], ROWS, properties=properties)
        proxy.reset()
        insert(calls, [database, name])
        counts.append(proxy.counts)
        assert shown(server, database, name) == ([], None, None)
    assert counts == [{"GetTable": 2}] * 2  # also after the commit to the storage


def test_a_commit_that_is_published_makes_three_further_calls(
    calls: Calls, proxy: HttpProxy, database: str
) -> None:
    calls.create_table([database, "t"], ROWS, properties=ON)
    proxy.reset()
    insert(calls, [database, "t"])
    assert proxy.counts == {"GetTable": 2 + 2, "UpdateTable": 1}


def test_a_namespace_has_its_new_tables_publish_unless_they_say_otherwise(
    calls: Calls, server: GlueServer, proxy: HttpProxy, database: str
) -> None:
    name = f"{database}_on"
    calls.create_namespace([name], properties={"publish.columns": "TRUE"})
    proxy.reset()
    calls.create_table([name, "created"], ROWS)
    location = calls.describe_table([name, "created"]).location
    calls.register_table([name, "registered"], str(location))
    calls.declare_table([name, "declared"])
    calls.create_table([name, "off"], ROWS, properties={"publish.columns": "false"})
    assert shown(server, name, "created")[0] == COLUMNS
    assert shown(server, name, "registered")[0] == COLUMNS
    assert shown(server, name, "off")[0] == []
    assert shown(server, name, "declared")[0] == []
    insert(calls, [name, "declared"])
    assert shown(server, name, "declared")[:2] == (COLUMNS, "3")


@pytest.mark.parametrize(
    "answer",
    ["ConcurrentModificationException", "AccessDeniedException", "InvalidInputException", "lost"],
)
def test_a_failure_to_publish_fails_no_commit_and_the_doctor_finds_it(
    calls: Calls,
    server: GlueServer,
    proxy: HttpProxy,
    database: str,
    caplog: pytest.LogCaptureFixture,
    *,
    answer: str,
) -> None:
    path = [database, "t"]
    calls.create_table(path, ROWS, properties=ON)
    before = shown(server, *path)
    refusal = Answer.of_aws(answer, status=500 if answer == "lost" else 400)
    proxy.fail_next("UpdateTable", refusal, times=float("inf"))
    with caplog.at_level(logging.WARNING, "lance_bridge"):
        insert(calls, path)
    assert calls.count(path) == 6
    assert f"The entry of table '{database}.t' still has the columns" in caplog.text
    assert shown(server, *path) == before
    proxy.reset()
    [finding] = find_outdated(calls, *path)
    assert "has the columns of version 1, and the latest version is 2" in finding
    assert finding.endswith(f"lance-bridge table refresh-entry prod {database}.t")
    refresh(calls, *path)
    assert shown(server, *path)[:2] == (COLUMNS, "6")
    assert find_outdated(calls, *path) == []


def test_the_doctor_finds_writes_past_the_library_and_columns_that_others_removed(
    calls: Calls, server: GlueServer, database: str
) -> None:
    path = [database, "t"]
    calls.create_table(path, ROWS, properties=ON)
    place = str(calls.describe_table(path).location)
    lance.write_dataset(ROWS, place, mode="append", storage_options=server.storage_options)
    assert "the columns of version 1, and the latest version is 2" in find_outdated(calls, *path)[0]
    refresh(calls, *path)
    entry: dict[str, Any] = raw(server, *path)
    kept = ("Name", "TableType", "Parameters", "StorageDescriptor", "PartitionKeys")
    changed = {key: entry[key] for key in kept}
    changed["StorageDescriptor"] = {**entry["StorageDescriptor"], "Columns": []}
    server.glue.update_table(DatabaseName=database, TableInput=changed)
    assert "has 0 columns, and the table has 2" in find_outdated(calls, *path)[0]
    refresh(calls, *path)
    assert find_outdated(calls, *path) == []
    tables = require_lance_bridge(calls.client, "prod").tables
    tables.load((database, "t")).add_properties({"publish.columns": "false"})
    assert "though it should have none" in find_outdated(calls, *path)[0]
    refresh(calls, *path)
    assert shown(server, *path) == ([], None, None)
    assert find_outdated(calls, *path) == []


def test_an_overwritten_registration_shows_no_columns_of_other_data(
    calls: Calls, server: GlueServer, database: str
) -> None:
    path = [database, "t"]
    calls.create_table(path, ROWS, properties=ON)
    calls.create_table([database, "other"], pa.table({"name": ["a"]}))
    place = str(calls.describe_table([database, "other"]).location)
    calls.register_table(path, place, mode="Overwrite")
    assert shown(server, *path) == ([], None, None)
    calls.register_table(path, place, mode="Overwrite", properties=ON)
    assert shown(server, *path)[:2] == ([("name", "string")], "1")


def test_statistics_are_never_marked_as_accurate(
    calls: Calls, server: GlueServer, database: str
) -> None:
    """Hive answers count(*) from them only if they are."""
    path = [database, "t"]
    calls.create_table(path, ROWS, properties=ON)
    entry = raw(server, *path)
    kept = ("Name", "TableType", "Parameters", "StorageDescriptor", "PartitionKeys")
    changed = {key: entry[key] for key in kept}
    changed["Parameters"] |= {"COLUMN_STATS_ACCURATE": '{"BASIC_STATS":"true"}'}
    server.glue.update_table(DatabaseName=database, TableInput=changed)
    insert(calls, path)
    parameters = raw(server, *path)["Parameters"]
    assert parameters["numRows"] == "6"
    assert "COLUMN_STATS_ACCURATE" not in parameters


@pytest.mark.parametrize("managed", [{}, {"managed_by": "impl"}], ids=["storage", "managed"])
def test_concurrent_writers_lose_no_commit_and_the_last_one_is_published(
    calls: Calls, server: GlueServer, database: str, *, managed: dict[str, str]
) -> None:
    path = [database, "t"]
    calls.create_table(path, ROWS, properties={**ON, **managed})
    with ThreadPoolExecutor(WRITERS) as threads:
        done = [threads.submit(insert, calls, path) for _ in range(WRITERS * 3)]
    assert [each.exception() for each in done] == [None] * len(done)
    assert calls.count(path) == 3 * (1 + len(done))
    assert shown(server, *path)[:2] == (COLUMNS, str(3 * (1 + len(done))))
    assert find_outdated(calls, *path) == []

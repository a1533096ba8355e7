"""Entries have the fields that other tools require, and get them with the next change if not."""

from __future__ import annotations

from typing import Any

import pytest
from conformance.glue_target import MARKS, lance_entry
from lance_namespace.errors import ConcurrentModificationError, InvalidInputError
from servers.glue_server import GlueServer
from servers.http_proxy import Answer, HttpProxy

from lance_bridge.entry import TableEntry
from lance_bridge.hive_entries import INPUT_FORMAT, OUTPUT_FORMAT, SERDE
from lance_bridge.registry import require_lance_bridge
from lance_bridge.testing.calls import Calls
from lance_bridge_doctor import Kind, diagnose_namespace

from .building import BUCKET, Connect, catalog_at, declare, raw, raw_table

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("common.md#fields-for-other-tools", "glue.md#table"),
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
    theirs = before["StorageDescriptor"]
    assert {key: after["StorageDescriptor"][key] for key in theirs} == theirs
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
    theirs = raw(server, database, "t")
    own = ("Name", "TableType", "Parameters", "StorageDescriptor")
    table = {**{k: v for k, v in theirs.items() if k in own}, "Owner": "sales"}
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

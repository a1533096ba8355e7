"""What the service answers about tables and namespaces: entries, time travel, counts, deletes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from core.memory_catalog import CAPABILITIES, MemoryCatalog, Moment

from lance_bridge.catalog import LATEST, NamespaceWords, TableRecord
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.managed_state import State
from lance_bridge.table import Table
from lance_bridge_spark.source.options import (
    CATALOG_OPTION,
    ENTRY_OPTION,
    TABLE_OPTION,
    WRITE_OPTION,
)
from lance_bridge_spark.source.worker_calls import LanceError

from .. import source_helpers
from .service_requests import (
    ID,
    NAME,
    NAMESPACE,
    TABLE,
    VECTOR,
    Service,
    fault_of_change,
    fields_of,
    struct,
)

pytestmark = pytest.mark.quick


# -- describing ----------------------------------------------------------------------------------


def test_a_created_table_is_described_with_columns_comments_and_properties(
    service: Service,
) -> None:
    key = {**ID, "nullable": False, "metadata": {"comment": "the key"}}
    inner = {**NAME, "name": "city", "metadata": {"comment": "where"}}
    place = {**NAME, "name": "place", "type": {"type": "struct", "fields": [inner]}}
    service.create(TABLE, key, place, comment="All orders", team="sales", owner="spark")
    answer = service.ask("load_table", table=TABLE)
    fields = fields_of(answer)
    assert fields["id"] == key
    assert fields["place"]["type"]["fields"] == [inner]
    assert answer["properties"] == {
        "comment": "All orders",
        "team": "sales",
        "provider": "lance",
        "location": answer["properties"]["location"],
    }
    assert (answer["version"], answer["rows"]) == (1, 0)


def test_vectors_are_made_by_property_or_metadata_and_described_in_metadata(
    service: Service,
) -> None:
    by_metadata = {**VECTOR, "name": "w", "metadata": {"arrow.fixed-size-list.size": 3}}
    answer = service.create(TABLE, ID, VECTOR, by_metadata, **{"vector.v": "16"})
    schema = service.dataset(TABLE).schema
    assert schema.field("v").type == pa.list_(pa.float32(), 16)
    assert schema.field("w").type == pa.list_(pa.float32(), 3)
    assert fields_of(answer)["v"]["metadata"] == {"arrow.fixed-size-list.size": 16}
    assert fields_of(answer)["v"]["type"]["type"] == "array"


def test_lengths_of_strings_are_kept_for_spark_to_check(service: Service) -> None:
    answer = service.create(TABLE, {**NAME, "type": "varchar(10)"}, {**ID, "type": "char(3)"})
    fields = fields_of(answer).values()
    assert [each["type"] for each in fields] == ["string", "string"]
    assert [each["metadata"] for each in fields] == [
        {"__CHAR_VARCHAR_TYPE_STRING": "varchar(10)"},
        {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"},
    ]
    assert service.dataset(TABLE).schema.types == [pa.string(), pa.string()]


@pytest.mark.spec("spark.md#unsupported-statements")
@pytest.mark.parametrize(
    ("properties", "code", "word"),
    [
        ({"provider": "parquet"}, 13, "USING lance"),
        ({"external": "true"}, 0, "EXTERNAL"),
        ({"vector.v": "x"}, 13, "vector.v"),
        ({"vector.id": "3"}, 13, "id"),
        ({"vector.none": "3"}, 13, "none"),
        ({"lance_bridge.id": "3"}, 13, "reserved"),
        ({"table_type": "iceberg"}, 13, "table_type"),
        ({"location": "relative/path"}, 13, "relative/path"),
    ],
)
def test_a_definition_that_cannot_be_is_refused_and_leaves_no_entry(
    service: Service, properties: dict[str, str], code: int, word: str
) -> None:
    found = service.refusal(
        "create_table", table=TABLE, schema=struct(ID, VECTOR), properties=properties
    )
    assert found[0] == code
    assert word in found[1]
    assert not service.server.tables


def test_describing_takes_one_call_to_the_catalog(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.create(TABLE)
    calls: list[str] = []
    for name in ("load_table", "load_namespace", "scan_tables", "list_namespaces"):
        monkeypatch.setattr(MemoryCatalog, name, _counted(calls, name))
    service.ask("load_table", table=TABLE)
    assert calls == ["load_table"]


@pytest.mark.spec("spark.md#commits")
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_statement_that_writes_loads_the_entry_to_resolve_its_table_to_commit_and_after_it(
    service: Service, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    service.create(TABLE, ID)
    calls: list[str] = []
    monkeypatch.setattr(MemoryCatalog, "load_table", _counted(calls, "load_table"))
    write(service, service.ask("load_table", table=TABLE), 1, 2, mode=mode)
    assert calls == ["load_table"] * 3
    assert service.ids_in(TABLE) == [1, 2]


@pytest.mark.spec("managed.md#writes-that-overlap-the-conversion", "spark.md#commits")
def test_a_write_to_a_table_that_becomes_managed_meanwhile_is_part_of_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.server.capabilities = replace(service.server.capabilities, no_alter="")
    service.create(TABLE, ID)
    write(service, service.ask("load_table", table=TABLE), 1)
    committing = Table.committing

    def manage_before_commit(table: Table, *args: Any, **options: Any) -> Any:
        service.catalog.connect().manage_table(TABLE)
        return committing(table, *args, **options)

    loaded = service.ask("load_table", table=TABLE)
    monkeypatch.setattr(Table, "committing", manage_before_commit)
    write(service, loaded, 2)
    record = service.server.tables[tuple(TABLE)]
    assert record.is_managed
    assert State.from_text(record.properties[LATEST]).version == 3
    assert service.ids_in(TABLE) == [1, 2]


@pytest.mark.spec("common.md#writes-that-overlap-a-drop", "spark.md#commits")
def test_a_write_to_a_table_that_is_deregistered_meanwhile_fails(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.create(TABLE, ID)
    reread = Table.reread_after_commit

    def reread_late(table: Table, version: int) -> Table:
        del service.server.tables[tuple(TABLE)]
        return reread(table, version)

    monkeypatch.setattr(Table, "reread_after_commit", reread_late)
    with pytest.raises(LanceError, match="dropped, deregistered or renamed while it was written"):
        write(service, service.ask("load_table", table=TABLE), 1)


@pytest.mark.spec("spark.md#commits")
def test_a_statement_whose_table_was_moved_since_it_was_resolved_writes_where_it_is_now(
    service: Service, tmp_path: Path
) -> None:
    service.create(TABLE, ID)
    loaded = service.ask("load_table", table=TABLE)
    record = service.server.tables[tuple(TABLE)]
    moved = Path(loaded["properties"]["location"]).rename(tmp_path / "moved.lance")
    service.server.tables[tuple(TABLE)] = replace(record, location=str(moved))
    write(service, loaded, 1)
    assert service.ids_in(TABLE) == [1]


@pytest.mark.spec("spark.md#commits")
def test_a_statement_whose_table_was_dropped_or_made_again_since_it_was_resolved_fails(
    service: Service,
) -> None:
    service.create(TABLE, ID)
    loaded = service.ask("load_table", table=TABLE)
    service.ask("drop_table", table=TABLE, purge=True)
    with pytest.raises(LanceError, match="LANCE_TABLE_NOT_FOUND"):
        write(service, loaded, 1)
    service.create(TABLE, ID)
    with pytest.raises(LanceError, match="was dropped: write again"):
        write(service, loaded, 1)
    assert service.ids_in(TABLE) == []


@pytest.mark.spec("spark.md#commits")
def test_the_entry_of_a_table_that_its_catalog_manages_is_loaded_for_the_write(
    service: Service,
) -> None:
    service.create(TABLE, ID, managed_by="impl")
    loaded = service.ask("load_table", table=TABLE)
    assert loaded["entry"] is None
    write(service, loaded, 1)
    write(service, loaded, 2)
    assert service.ask("load_table", table=TABLE)["rows"] == 2


def write(service: Service, loaded: Mapping[str, Any], *ids: int, mode: str = "append") -> None:
    """Write rows to ``TABLE`` as a statement does that has loaded it."""
    options: dict[str, Any] = {
        CATALOG_OPTION: service.address,
        TABLE_OPTION: TABLE,
        WRITE_OPTION: {"mode": mode},
    }
    if loaded["entry"] is not None:
        options[ENTRY_OPTION] = loaded["entry"]
    source_helpers.write(options, pa.table({"id": pa.array(ids, pa.int64())}))


def _counted(calls: list[str], name: str) -> Callable[..., Any]:
    method: Callable[..., Any] = getattr(MemoryCatalog, name)

    def call(*args: Any, **options: Any) -> Any:
        calls.append(name)
        return method(*args, **options)

    return call


def test_rows_and_bytes_are_those_of_the_version(service: Service) -> None:
    service.create(TABLE)
    service.append(TABLE, 1, 2, 3)
    answer = service.ask("load_table", table=TABLE)
    assert (answer["rows"], answer["version"]) == (3, 2)
    assert answer["bytes"] > 0
    assert service.ask("load_table", table=TABLE, version="1")["rows"] == 0


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.spec("spark.md#tables-of-other-formats")
def test_tables_of_others_are_hidden_from_lists_and_named_when_asked_for(service: Service) -> None:
    service.create(TABLE)
    service.server.tables["db", "hive"] = TableRecord(
        ("db", "hive"), "/x", entry_type="MANAGED_TABLE"
    )
    assert service.ask("list_tables", namespace=NAMESPACE) == {"tables": ["t"]}
    for op in ("load_table", "table_exists", "drop_table"):
        code, message = service.refusal(op, table=["db", "hive"], purge=False)
        assert code == 13
        assert "'db.hive' is not a Lance table but an entry of type MANAGED_TABLE" in message


def test_a_namespace_of_namespaces_holds_no_tables(service: Service) -> None:
    assert service.ask("list_tables", namespace=[]) == {"tables": []}
    assert service.refusal("list_tables", namespace=["none"])[0] == 1


def test_missing_tables_and_namespaces_have_their_own_errors(service: Service) -> None:
    assert service.refusal("load_table", table=["db", "none"])[0] == 4
    assert service.refusal("load_table", table=["none", "t"])[0] == 1
    assert service.ask("table_exists", table=["db", "none"]) == {"exists": False}
    assert service.ask("table_exists", table=["none", "t"]) == {"exists": False}
    code, message = service.refusal("load_table", table=["t"])
    assert code == 13
    assert "has 1 name;" in message


@pytest.mark.parametrize("to", [["u"], ["db", "u"], ["prod", "db", "u"]])
def test_a_table_is_renamed_by_name_path_or_full_name(service: Service, to: list[str]) -> None:
    service.create(TABLE)
    service.append(TABLE, 7)
    service.ask("rename_table", table=TABLE, to=to)
    assert service.ids_in(["db", "u"]) == [7]
    assert service.ask("table_exists", table=TABLE) == {"exists": False}
    service.create(TABLE)
    assert service.refusal("rename_table", table=TABLE, to=to)[0] == 5


def test_a_dropped_table_takes_its_data_along(service: Service) -> None:
    service.create(TABLE)
    place = Path(service.ask("load_table", table=TABLE)["properties"]["location"])
    assert place.exists()
    service.ask("drop_table", table=TABLE, purge=False)
    assert not place.exists()
    assert service.refusal("drop_table", table=TABLE, purge=True)[0] == 4


# -- locations -----------------------------------------------------------------------------------


def test_a_table_is_made_at_a_given_location_and_not_on_data_that_is_there(
    service: Service, tmp_path: Path
) -> None:
    place = str(tmp_path / "mine.lance")
    assert service.create(TABLE, location=place)["properties"]["location"] == place
    again = ["db", "again"]
    code, message = service.refusal(
        "create_table", table=again, schema=struct(ID), properties={"location": place}
    )
    assert code == 5
    assert place in message
    assert list(service.server.tables) == [("db", "t")]
    assert service.ask("load_table", table=TABLE)["rows"] == 0


@pytest.mark.spec("spark.md#statements")
def test_without_columns_a_location_names_the_table_that_lies_there(
    service: Service, tmp_path: Path
) -> None:
    place = str(tmp_path / "there.lance")
    lance.write_dataset(pa.table({"id": [1, 2]}), place)
    nothing = struct()
    answer = service.ask(
        "create_table", table=TABLE, schema=nothing, properties={"location": place}
    )
    assert answer["rows"] == 2
    for properties in ({"location": str(tmp_path / "none.lance")}, {}):
        code, message = service.refusal(
            "create_table", table=["db", "u"], schema=nothing, properties=properties
        )
        assert code == 13
        assert "no columns" in message


# -- time travel ---------------------------------------------------------------------------------


@pytest.mark.spec("spark.md#time-travel")
def test_versions_are_read_by_number_tag_and_branch(service: Service) -> None:
    service.create(TABLE)
    service.append(TABLE, 1)
    service.append(TABLE, 2)
    there = service.dataset(TABLE)
    there.tags.create("release", 2)
    there.create_branch("dev", 1)
    there.create_branch("release", 1)
    assert service.ask("load_table", table=TABLE, version="2")["version"] == 2
    tagged = service.ask("load_table", table=TABLE, version="release")
    assert (tagged["version"], tagged["chosen"], "branch" in tagged) == (2, True, False)
    branch = service.ask("load_table", table=TABLE, version="dev")
    assert (branch["branch"], branch["rows"], "chosen" in branch) == ("dev", 0, False)
    assert service.refusal("load_table", table=TABLE, version="9")[0] == 11
    assert service.refusal("load_table", table=TABLE, version="none")[0] == 8
    assert service.refusal("load_table", table=TABLE, version="0")[0] == 13


@pytest.mark.spec("spark.md#time-travel")
def test_options_of_a_relation_choose_a_version_too(service: Service) -> None:
    service.create(TABLE)
    service.append(TABLE, 1)
    there = service.dataset(TABLE)
    there.tags.create("release", 1)
    there.create_branch("dev", 1)
    for options, rows in (({"version": "1"}, 0), ({"tag": "release"}, 0), ({"limit": "5"}, 1)):
        assert service.ask("load_table", table=TABLE, options=options)["rows"] == rows
    answer = service.ask("load_table", table=TABLE, options={"branch": "dev"})
    assert (answer["branch"], answer["rows"]) == ("dev", 0)
    moment = {"timestamp": "2001-01-01"}
    assert service.refusal("load_table", table=TABLE, options=moment, zone="UTC")[0] == 11
    assert service.refusal("load_table", table=TABLE, options={"versoin": "1"})[0] == 13


@pytest.mark.spec("spark.md#what-is-pushed-down")
def test_the_answer_names_columns_whose_values_spark_does_not_have_as_stored(
    service: Service, tmp_path: Path
) -> None:
    same = {
        "i": pa.int32(), "f": pa.float64(), "s": pa.large_string(), "t": pa.timestamp("us", "UTC"),
        "v": pa.list_(pa.float32(), 2), "m": pa.decimal128(10, 2), "l": pa.list_(pa.int64()),
    }  # fmt: skip
    other = {
        "u": pa.uint8(), "h": pa.float16(), "ns": pa.timestamp("ns"), "d": pa.date64(),
        "du": pa.duration("us"), "b": pa.binary(4), "n": pa.struct([pa.field("u", pa.uint32())]),
        "k": pa.dictionary(pa.int8(), pa.string()), "x": pa.decimal256(50, 1),
    }  # fmt: skip
    place = str(tmp_path / "types.lance")
    lance.write_dataset(pa.schema({**same, **other}).empty_table(), place)
    args = {"table": TABLE, "schema": struct(), "properties": {"location": place}}
    assert service.ask("create_table", **args)["converted"] == list(other)


@pytest.mark.spec("spark.md#time-travel")
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_timestamp_means_the_last_version_at_or_before_it(
    service: Service, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        before = time.time_ns() // 1000 - 1
        service.create(TABLE)
        first = time.time_ns() // 1000 + 1
        service.append(TABLE, 1)
        second = time.time_ns() // 1000 + 1
        versions = [
            service.ask("load_table", table=TABLE, timestamp_us=each)["version"]
            for each in (first, second, second + 10**12)
        ]
        assert versions == [1, 2, 2]
        code, message = service.refusal("load_table", table=TABLE, timestamp_us=before)
        assert code == 11
        assert "no version at or before" in message
        assert service.refusal("load_table", table=TABLE, timestamp_us=-(10**17))[0] == 11
    finally:
        monkeypatch.undo()
        time.tzset()


# -- rows ----------------------------------------------------------------------------------------


def test_fragments_with_rows_are_found_at_a_version(service: Service) -> None:
    service.create(TABLE)
    for ids in ((1, 2), (3, 4), (5, 6)):
        service.append(TABLE, *ids)
    at = {"table": TABLE, "version": 4}
    assert service.ask("fragments", **at, filter=None) == {"fragments": [0, 1, 2]}
    assert service.ask("fragments", **at, filter="id in (2, 5, 6)") == {"fragments": [0, 2]}
    assert service.ask("fragments", **at, filter="id > 9") == {"fragments": []}
    assert service.refusal("fragments", table=TABLE, version=9, filter=None)[0] == 11


def test_deleting_and_truncating_make_versions(service: Service) -> None:
    service.create(TABLE)
    service.append(TABLE, 1, 2, 3)
    assert service.ask("delete_where", table=TABLE, where="id = 2") == {"version": 3}
    assert service.ids_in(TABLE) == [1, 3]
    assert service.ask("truncate", table=TABLE) == {"version": 4}
    assert service.ids_in(TABLE) == []
    assert service.ask("load_table", table=TABLE, version="3")["rows"] == 2
    assert service.refusal("delete_where", table=TABLE, where="none = 2")[0] == 12


@pytest.mark.spec("spark.md#row-level-changes")
def test_deletes_that_race_lose_none_of_each_other(service: Service) -> None:
    service.create(TABLE)
    service.append(TABLE, *range(20))
    answers: list[dict[str, Any]] = []

    def delete(one: int) -> None:
        args = {"table": TABLE, "where": f"id = {one}"}
        answers.append(service.respond("delete_where", args))

    threads = [threading.Thread(target=delete, args=(one,)) for one in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert len(answers) == 6
    assert not [each for each in answers if "error" in each]
    assert service.ids_in(TABLE) == list(range(6, 20))


def test_rows_for_a_table_that_was_dropped_do_not_go_to_the_next_one_of_its_name(
    service: Service,
) -> None:
    location = service.create(TABLE)["properties"]["location"]
    rows = pa.table({"id": pa.array([1], pa.int64()), "name": ["n1"]})
    writer, messages = source_helpers.begun(
        {CATALOG_OPTION: service.address, TABLE_OPTION: TABLE}, rows
    )
    service.ask("drop_table", table=TABLE, purge=False)
    assert service.create(TABLE)["properties"]["location"] == location
    with pytest.raises(LanceError, match="was dropped"):
        writer.commit(messages)
    assert service.ids_in(TABLE) == []


def test_an_unknown_operation_is_refused(service: Service) -> None:
    assert service.refusal("vacuum", table=TABLE)[0] == 13


# -- namespaces ------------------------------------------------------------------------------------


def _properties(service: Service, namespace: list[str]) -> dict[str, str]:
    return dict(service.ask("load_namespace", namespace=namespace)["properties"])


def test_namespaces_are_made_listed_and_dropped(service: Service) -> None:
    service.ask("create_namespace", namespace=["a"], properties={"team": "x", "owner": "spark"})
    assert service.ask("list_namespaces", namespace=[]) == {"namespaces": [["a"], ["db"]]}
    assert service.ask("list_namespaces", namespace=["a"]) == {"namespaces": []}
    assert _properties(service, ["a"]) == {"team": "x"}
    assert service.refusal("create_namespace", namespace=["a"], properties={})[0] == 2
    service.ask("drop_namespace", namespace=["a"], cascade=False)
    for op in ("load_namespace", "list_namespaces", "drop_namespace"):
        assert service.refusal(op, namespace=["a"])[0] == 1


def test_nested_namespaces_are_listed_by_their_whole_paths(service: Service) -> None:
    service.server.capabilities = replace(CAPABILITIES, no_alter="", no_rename="")
    for path in (["eu"], ["eu", "shop"], ["eu", "shop", "sales"]):
        service.ask("create_namespace", namespace=path, properties={})
    assert service.ask("list_namespaces", namespace=["eu"]) == {"namespaces": [["eu", "shop"]]}
    assert service.ask("list_tables", namespace=["eu", "shop"]) == {"tables": []}
    service.create(["eu", "shop", "sales", "t"])
    assert service.ask("list_tables", namespace=["eu", "shop", "sales"]) == {"tables": ["t"]}


def test_only_a_cascade_drops_a_namespace_with_tables(service: Service) -> None:
    service.create(TABLE)
    assert service.refusal("drop_namespace", namespace=NAMESPACE, cascade=False)[0] == 3
    service.ask("drop_namespace", namespace=NAMESPACE, cascade=True)
    assert service.ask("list_namespaces", namespace=[]) == {"namespaces": []}


def test_properties_are_set_and_unset_and_the_rest_stays(service: Service) -> None:
    service.ask("create_namespace", namespace=["a"], properties={"k": "1", "l": "2"})
    reserved = {
        key: value
        for key, value in service.server.namespaces["a",].properties.items()
        if key.startswith("lance_bridge.")
    }
    assert reserved
    service.ask("alter_namespace", namespace=["a"], set={"k": "3", "m": "4"}, unset=["l"])
    assert _properties(service, ["a"]) == {"k": "3", "m": "4"}
    assert service.server.namespaces["a",].properties.items() >= reserved.items()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"set": {"lance_bridge.id": "x"}}, 13),
        ({"unset": ["lance_bridge.id"]}, 13),
        ({"set": {"LANCE_BRIDGE.id": "x"}}, 13),
        ({"unset": ["Lance_Bridge.id"]}, 13),
        ({"set": {"": "x"}}, 13),
        ({"namespace": ["none"], "set": {"k": "v"}}, 1),
        ({"namespace": [], "set": {"k": "v"}}, 13),
    ],
)
def test_what_cannot_change_of_a_namespace_is_refused(
    service: Service, changes: dict[str, object], code: int
) -> None:
    args = {"namespace": NAMESPACE, "set": {}, "unset": [], **changes}
    assert service.refusal("alter_namespace", **args)[0] == code
    assert not service.server.effects


def test_a_catalog_without_changes_of_namespaces_gives_its_reason(service: Service) -> None:
    service.server.capabilities = replace(
        service.server.capabilities, no_namespace_changes="it is frozen"
    )
    code, message = service.refusal(
        "alter_namespace", namespace=NAMESPACE, set={"k": "v"}, unset=[]
    )
    assert code == 0
    assert "it is frozen" in message


def test_a_change_whose_reply_is_lost_is_found_to_have_happened(service: Service) -> None:
    service.server.fault = fault_of_change("alter_namespace", OutcomeUnknownError("lost"), "after")
    service.ask("alter_namespace", namespace=NAMESPACE, set={"k": "v"}, unset=[])
    assert service.server.effects == ["alter_namespace"]
    assert _properties(service, NAMESPACE) == {"k": "v"}


def test_a_catalog_that_keeps_its_comment_is_found_out(service: Service) -> None:
    _call(service, NamespaceWords("description"))
    given = {"comment": "Orders"}
    service.ask("create_namespace", namespace=["a"], properties=given)
    before = service.server.namespaces["a",]

    def keep(name: str, moment: Moment) -> None:
        if (name, moment) == ("alter_namespace", "after"):
            service.server.namespaces["a",] = before

    service.server.fault = keep
    changes = {"set": {"comment": "All"}, "unset": []}
    code, message = service.refusal("alter_namespace", namespace=["a"], **changes)
    assert code == 0
    assert "comment" in message
    assert _properties(service, ["a"]) == given


WORDS = (
    NamespaceWords("database.description", "database.location-uri", "database.owner"),
    NamespaceWords("description"),
    NamespaceWords(),
)


@pytest.mark.parametrize("words", WORDS)
def test_comment_and_location_have_the_names_that_the_catalog_gives_them(
    service: Service, words: NamespaceWords
) -> None:
    _call(service, words)
    given = {"comment": "Orders", "location": "/lake/a"}
    owner = {"owner": "me"} if words.owner else {}
    service.ask("create_namespace", namespace=["a"], properties={**given, "owner": "me"})
    stored = service.server.namespaces["a",].properties
    assert (stored[words.comment], stored[words.location]) == ("Orders", "/lake/a")
    assert _properties(service, ["a"]) == {**given, **owner}
    service.ask("alter_namespace", namespace=["a"], set={"comment": "All"}, unset=[])
    assert service.server.namespaces["a",].properties[words.comment] == "All"


def _call(service: Service, words: NamespaceWords) -> None:
    service.server.capabilities = replace(service.server.capabilities, namespace_words=(words,))

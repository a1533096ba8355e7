"""The doctor finds tables without data, and inconsistent entries; its commands fix them."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import lance
import pytest
from lance_namespace import DeclareTableRequest
from servers.hive_raw import raw_client

from lance_bridge.catalog import LATEST
from lance_bridge.declarations import DECLARED_AT
from lance_bridge.hive_entries import SERDE
from lance_bridge_doctor import Kind

from .conftest import ORDERS, Lake
from .findings import die_at, fix, mark, the_only
from .running import answer_of, pasted, run

pytestmark = [pytest.mark.servers, pytest.mark.spec("cli.md#findings")]


# -- tables without data ---------------------------------------------------------------------------


@pytest.mark.parametrize("properties", [{}, {"managed_by": "impl"}], ids=["storage", "managed"])
def test_a_table_whose_directory_was_deleted_is_deregistered(
    lake: Lake, properties: dict[str, str]
) -> None:
    name = lake.create("orders", **properties)
    shutil.rmtree(lake.place("orders"))
    found = the_only(Kind.LOCATION_GONE)
    assert found["subject"] == name
    fix(found)
    assert lake.tables() == []


def test_an_entry_for_an_empty_location_is_deregistered(lake: Lake, tmp_path: Path) -> None:
    run("table", "register", "prod", lake.name("gone"), str(tmp_path / "nothing.lance"))
    fix(the_only(Kind.LOCATION_GONE))


@pytest.mark.spec("cli.md#doctor", "docs/how-to/recover.md#versions-that-bypassed-the-catalog")
def test_a_declared_table_without_files_is_dropped_unless_it_is_recent(lake: Lake) -> None:
    die_at(lake, "write_first")
    assert lake.tables() == ["t"]
    assert answer_of("doctor", "prod")["findings"] == []
    found = the_only(Kind.DECLARED_ONLY)
    assert found["subject"] == lake.name("t")
    place = lake.place("t")
    fix(found)
    assert lake.tables() == []
    assert not place.exists()


def test_a_declared_table_with_uncommitted_files_is_dropped_with_them(lake: Lake) -> None:
    lake.namespace.declare_table(DeclareTableRequest(id=[lake.database, "t"]))
    data = lake.place("t") / "data"
    data.mkdir(parents=True)
    written = data / "1f6a43f4-5d0b-4a5e-9d0c-6c1f0a9b7e21.lance"
    written.write_bytes(b"uncommitted rows")
    fix(the_only(Kind.DECLARED_ONLY, "1 files"))
    assert not data.exists()


def test_a_table_that_lost_its_versions_keeps_its_other_files(lake: Lake) -> None:
    lake.create("orders")
    lake.append("orders")
    place = lake.place("orders")
    shutil.rmtree(place / "_versions")
    fix(the_only(Kind.LOCATION_GONE, "files that only a table with versions has"))
    assert len(list((place / "data").iterdir())) == 2


def test_a_table_written_since_the_diagnosis_is_not_dropped(lake: Lake) -> None:
    lake.namespace.declare_table(DeclareTableRequest(id=[lake.database, "t"]))
    found = the_only(Kind.DECLARED_ONLY)
    lance.write_dataset(ORDERS, str(lake.place("t")))
    done = pasted(found["command"])
    assert done.exit_code == 1
    assert "now has data" in done.stderr
    assert run("table", "count", "prod", lake.name("t")).stdout == "5\n"


# -- inconsistent entries --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ({}, {"managed_by": "impl"}, "managed_by=impl"),
        ({}, {"managed_by": "another"}, "managed_by=another"),
        ({"managed_by": "impl"}, {LATEST: "nonsense"}, "nonsense"),
    ],
    ids=["no version", "another manager", "unreadable version"],
)
def test_an_inconsistent_entry_is_recreated(
    lake: Lake, before: dict[str, str], after: dict[str, str], message: str
) -> None:
    lake.create("orders", **before)
    mark(lake, "orders", **after)
    fix(the_only(Kind.INCONSISTENT_ENTRY, message))
    assert run("table", "count", "prod", lake.name("orders")).stdout == "5\n"


def test_a_managed_table_marked_as_storage_managed_is_managed_again(lake: Lake) -> None:
    lake.create("orders", managed_by="impl")
    mark(lake, "orders", managed_by="storage")
    fix(the_only(Kind.INCONSISTENT_ENTRY, "commits bypass the catalog"))
    assert answer_of("table", "describe", "prod", lake.name("orders"))["managed_versioning"]


def test_an_entry_whose_latest_version_is_gone_is_recreated(lake: Lake) -> None:
    name = lake.create("orders", managed_by="impl")
    names = name.split(".")
    lance.write_dataset(ORDERS, namespace_client=lake.namespace, table_id=names, mode="append")
    manifests = sorted((lake.place("orders") / "_versions").glob("*.manifest"))
    manifests[0].unlink()
    fix(the_only(Kind.INCONSISTENT_ENTRY, "Version 2, the latest by its entry, is gone"))
    assert run("table", "count", "prod", name).stdout == "5\n"


def test_a_table_that_the_metastore_owns_is_made_external(lake: Lake) -> None:
    lake.create("orders")
    mark(lake, "orders", entry_type="MANAGED_TABLE")
    fix(the_only(Kind.INCONSISTENT_ENTRY, "MANAGED_TABLE"))
    with raw_client(lake.metastore.port) as client:
        assert client.get_table(lake.database, "orders").tableType == "EXTERNAL_TABLE"
    assert run("table", "count", "prod", lake.name("orders")).stdout == "5\n"


@pytest.mark.spec("cli.md#table", "common.md#fields-for-other-tools")
def test_an_entry_without_formats_is_completed_and_no_entry_of_others(lake: Lake) -> None:
    name = lake.create("orders")
    with raw_client(lake.metastore.port) as client:
        for table in ("orders", "theirs"):
            found = client.get_table(lake.database, "orders")
            found.sd.inputFormat = found.sd.outputFormat = None
            found.sd.serdeInfo.serializationLib = None
            if table == "theirs":
                found.tableName, found.parameters = table, {"EXTERNAL": "TRUE"}
                found.sd.location += "-theirs"
                client.create_table(found)
            else:
                client.alter_table(lake.database, table, found)
        before = client.get_table(lake.database, "theirs")
    found = the_only(Kind.INCOMPLETE_ENTRY, "no input format, no output format, no SerDe")
    assert found["subject"] == name
    fix(found)
    with raw_client(lake.metastore.port) as client:
        assert client.get_table(lake.database, "orders").sd.serdeInfo.serializationLib == SERDE
        assert client.get_table(lake.database, "theirs") == before
    assert answer_of("table", "refresh-entry", "prod", name) == {"table": name, "corrected": []}
    theirs = run("table", "refresh-entry", "prod", lake.name("theirs"), code=1)
    assert "not a Lance table" in theirs.stderr


@pytest.mark.spec("cli.md#table", "common.md#published-columns")
def test_published_columns_of_an_earlier_version_are_written_again(lake: Lake) -> None:
    name = lake.create("orders", **{"publish.columns": "true"})
    lake.append("orders")
    fix(the_only(Kind.OUTDATED_COLUMNS, "of version 1, and the latest version is 2"))
    with raw_client(lake.metastore.port) as client:
        found = client.get_table(lake.database, "orders")
        assert found.parameters["numRows"] == "10"
        types = [each.type for each in found.sd.cols]
        assert types == ["bigint", "float", "array<float>"]
        found.sd.cols = found.sd.cols[:1]
        client.alter_table(lake.database, "orders", found)
    finding = the_only(Kind.OUTDATED_COLUMNS, "has 1 columns, and the table has 3")
    corrected = answer_of("table", "refresh-entry", "prod", name)
    assert corrected == {"table": name, "corrected": ["columns"]}
    assert "nothing to correct" in pasted(finding["command"]).stdout


def test_out_of_band_versions_are_adopted(lake: Lake) -> None:
    lake.create("orders", managed_by="impl")
    lake.append("orders")
    found = the_only(
        Kind.OUT_OF_BAND, f"without the catalog by lance {lance.__version__}: versions 2."
    )
    assert "managed discard prod" in found["message"]
    fix(found)
    assert run("table", "count", "prod", lake.name("orders")).stdout == "10\n"


@pytest.mark.parametrize("is_replaced", [False, True], ids=["adopted", "discarded"])
def test_quarantined_versions_are_adopted_until_a_commit_replaces_them(
    lake: Lake, *, is_replaced: bool
) -> None:
    name = lake.create("orders", managed_by="impl")
    lake.append("orders")
    at: dict[str, Any] = {"namespace_client": lake.namespace, "table_id": name.split(".")}
    if is_replaced:
        lance.write_dataset(ORDERS, mode="append", **at)
    else:
        assert lance.dataset(**at).count_rows() == 5
    fix(the_only(Kind.OUT_OF_BAND, "1 quarantined"))
    assert run("table", "count", "prod", name).stdout == "10\n"


def test_an_entry_with_a_time_in_the_future_is_found(lake: Lake) -> None:
    lake.create("orders")
    mark(lake, "orders", **{DECLARED_AT: str(int((time.time() + 3600) * 1000))})
    found = the_only(Kind.CLOCK_SKEW)
    assert found["subject"] == lake.name("orders")
    assert "ahead of" in found["message"]

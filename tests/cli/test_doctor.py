"""The doctor: what it finds on a real metastore, its commands that fix it, and missing data."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pytest
from lance_namespace import DeclareTableRequest
from lance_namespace.errors import InvalidInputError
from servers.hive_entries import raw_client
from servers.processes import run_command
from typer.testing import CliRunner

from lance_bridge.catalog import LATEST
from lance_bridge.connection import DECLARED_AT
from lance_bridge.hive_entries import SERDE
from lance_bridge.testing.calls import ipc
from lance_bridge_cli.app import app
from lance_bridge_doctor import Diagnosis, Kind, diagnose

from .conftest import ORDERS, Lake
from .program import answer_of, pasted, run, run_without

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("cli.md#doctor", "cli.md#findings", "common.md#presence-of-data"),
]

NOW = ["--idle", "0m"]
COMMANDS = (
    ["table", "head"],
    ["table", "count"],
    ["table", "describe"],
    ["table", "query", "--where", "id = 1"],
    ["table", "versions"],
)


def diagnosis(*more: str) -> dict[str, Any]:
    """What the doctor answers; its exit code says whether it found something."""
    done = CliRunner().invoke(app, ["doctor", "prod", *NOW, *more, "--output", "json"])
    answer: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == (3 if answer["findings"] else 0), done.stderr
    return answer


def findings() -> list[dict[str, Any]]:
    """What the doctor finds."""
    found: list[dict[str, Any]] = diagnosis()["findings"]
    return found


def the_only(kind: Kind, said: str = "") -> dict[str, Any]:
    [found] = findings()
    assert found["kind"] == kind.value
    assert said in found["message"]
    return found


def fix(found: dict[str, Any], answer: str = "") -> None:
    """Run the command of a finding; it must help."""
    done = pasted(found["command"], answer)
    assert done.exit_code == 0, f"{found['command']}\n{done.output}"
    assert findings() == []


DYING = """
import os, signal, sys
import pyarrow as pa
from lance_namespace import CreateTableRequest
from lance_bridge.testing.calls import ipc
from lance_bridge.dataset import create
from lance_bridge_hive import HiveNamespace
uri, root, database = sys.argv[1:]
create.{step}  # else there is no such step any more
create.{step} = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
with HiveNamespace(uri=uri, root=root) as namespace:
    namespace.create_table(CreateTableRequest(id=[database, "t"]), ipc(pa.table({{"a": [1]}})))
"""


def die_at(lake: Lake, step: str) -> None:
    """Create a table in a process that is killed at a step."""
    arguments = [lake.metastore.uri, str(lake.root), lake.database]
    program = DYING.format(step=step)
    run_command(sys.executable, "-c", program, *arguments, code=-signal.SIGKILL)


def mark(lake: Lake, table: str, entry_type: str | None = None, **properties: str) -> None:
    """Change an entry as others do."""
    with raw_client(lake.metastore.port) as client:
        found = client.get_table(lake.database, table)
        found.parameters.update(properties)
        if entry_type is not None:
            found.tableType = entry_type
            found.parameters.pop("EXTERNAL", None)
        client.alter_table(lake.database, table, found)


def test_a_healthy_catalog_has_no_findings(lake: Lake) -> None:
    lake.create("orders")
    lake.create("held", managed_by="impl")
    assert findings() == []
    answer = run("doctor", "prod", *NOW)
    assert "no problems found; checked 2 tables" in answer.stdout


# -- the connection --------------------------------------------------------------------------------


def test_a_wrong_address_is_unreachable_until_it_is_set(lake: Lake) -> None:
    properties = {"root": str(lake.root), "client.retry-timeout": "0"}
    lake.set("prod", impl="hive", uri="thrift://127.0.0.1:1", **properties)
    found = the_only(Kind.UNREACHABLE)
    assert (found["subject"], found["command"]) == ("prod", "lance-bridge config set prod uri")
    fix(found, f"{lake.metastore.uri}\n")


def test_a_catalog_named_by_implementation_is_fixed_with_another_address(lake: Lake) -> None:
    given = ("-p", "uri=thrift://127.0.0.1:1", "-p", "client.retry-timeout=0")
    [found] = answer_of("doctor", "hive", *given, code=3)["findings"]
    command = found["command"].replace("<uri>", lake.metastore.uri)
    assert command != found["command"]
    assert pasted(command).exit_code == 0


def test_an_unknown_property_is_unset_and_a_missing_one_is_set(lake: Lake) -> None:
    lake.set("prod", impl="hive", uri=lake.metastore.uri, user="me")
    fix(the_only(Kind.CONFIGURATION, "has no property 'user'"))
    lake.set("prod", impl="hive")
    fix(the_only(Kind.CONFIGURATION), f"{lake.metastore.uri}\n")


@pytest.mark.usefixtures("lake")
def test_a_missing_extra_is_found_with_its_install_command() -> None:
    [done] = run_without(["hmsclient"], ["doctor", "prod", "-o", "json"])
    assert done.code == 3, done.stderr
    [found] = json.loads(done.stdout)["findings"]
    assert found["kind"] == Kind.MISSING_EXTRA.value
    assert found["command"] == "pip install 'lance-bridge[hive]'"
    assert findings() == []


# -- data without an entry -------------------------------------------------------------------------


@pytest.mark.spec("docs/how-to/recover.md#versions-that-bypassed-the-catalog")
def test_data_whose_entry_was_dropped_is_registered(lake: Lake) -> None:
    name = lake.create("orders")
    place = lake.place("orders")
    with raw_client(lake.metastore.port) as client:
        client.drop_table(lake.database, "orders", False)
    found = the_only(Kind.ORPHANED_DATA)
    assert found["subject"] == str(place)
    fix(found)
    assert run("table", "count", "prod", name).stdout == "5\n"


def test_data_in_a_namespaces_location_is_registered_there_under_a_free_name(
    lake: Lake, tmp_path: Path
) -> None:
    lake.create("orders")
    place = tmp_path / lake.database / "orders.lance"
    lance.write_dataset(ORDERS, str(place))
    odd = tmp_path / lake.database / "Odd name-1.lance"
    lance.write_dataset(ORDERS, str(odd))
    found = findings()
    assert {each["subject"] for each in found} == {str(place), str(odd)}
    for each in found:
        assert pasted(each["command"]).exit_code == 0, each["command"]
    assert findings() == []
    assert lake.tables() == ["odd_name_1", "orders", "orders_2"]


def test_data_of_a_missing_database_is_registered_in_a_new_one(lake: Lake) -> None:
    database = f"{lake.database}_lost"
    lake.databases.append(database)
    place = lake.root / f"{database}.db" / "orders.lance"
    lance.write_dataset(ORDERS, str(place))
    found = the_only(Kind.ORPHANED_DATA)
    assert "ns create" in found["command"]
    fix(found)
    assert run("table", "count", "prod", f"{database}.orders").stdout == "5\n"


def test_recent_data_and_other_directories_are_skipped(lake: Lake, tmp_path: Path) -> None:
    lance.write_dataset(ORDERS, str(tmp_path / lake.database / "young.lance"))
    other = tmp_path / lake.database / "parquet_table"
    other.mkdir(parents=True)
    (other / "part-0.parquet").write_bytes(b"rows of others")
    assert answer_of("doctor", "prod")["findings"] == []
    assert [Path(each["subject"]).name for each in findings()] == ["young.lance"]


# -- pages, and what is not known ------------------------------------------------------------------


def test_a_diagnosis_in_pages_finds_everything(lake: Lake) -> None:
    for name in ("a", "b", "c"):
        lake.create(name)
        shutil.rmtree(lake.place(name))
        lance.write_dataset(ORDERS, str(lake.root / f"{lake.database}.db" / f"lost_{name}.lance"))
    found: list[str] = []
    token, pages = "", 0
    while pages == 0 or token:
        more = ["--page-token", token] if token else []
        # A page may have none but directories that other tests have left, in which nothing is.
        answer = diagnosis("--limit", "2", *more)
        assert answer["tables"] + answer["directories"] <= 2
        found += [each["subject"].rpartition("/")[2] for each in answer["findings"]]
        token, pages = answer["page_token"] or "", pages + 1
    expected = [lake.name(each) for each in "abc"]
    assert found == [*expected, *(f"lost_{each}.lance" for each in "abc")]
    assert pages >= 3  # directories of others are looked at, too


def test_unreachable_storage_is_a_finding_and_not_absence(lake: Lake) -> None:
    dead = {"storage.aws_endpoint": "http://127.0.0.1:1", "storage.aws_region": "us-east-1"}
    keys = {"storage.aws_access_key_id": "x", "storage.aws_secret_access_key": "y"}
    rest = {"storage.client_max_retries": "0", "storage.client_retry_timeout": "1"}
    lake.set("prod", impl="hive", uri=lake.metastore.uri, **dead, **keys, **rest)
    run("table", "register", "prod", lake.name("far"), "s3://bucket/far.lance")
    found = the_only(Kind.STORAGE)
    assert found["subject"] == lake.name("far")
    assert found["command"] == "lance-bridge config set prod storage.aws_endpoint"


def test_diagnose_returns_findings_in_python(lake: Lake) -> None:
    lake.create("orders")
    shutil.rmtree(lake.place("orders"))
    found = diagnose("hive", {"uri": lake.metastore.uri, "root": str(lake.root)})
    assert isinstance(found, Diagnosis)
    [each] = found.findings
    assert each.kind is Kind.LOCATION_GONE
    assert f"-p uri={lake.metastore.uri}" in each.command
    with pytest.raises(InvalidInputError, match="limit"):
        diagnose("prod", limit=0)
    with pytest.raises(InvalidInputError, match="page_token"):
        diagnose("prod", page_token="nonsense")


def test_no_printed_command_contains_a_secret(lake: Lake) -> None:
    lake.create("orders")
    shutil.rmtree(lake.place("orders"))
    secret = "storage.aws_secret_access_key=hunter2"
    done = run("doctor", "prod", "-p", secret, "-p", "storage.aws_region=here", code=3)
    assert "hunter2" not in done.output
    assert "storage.aws_region=here" in done.stdout


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


def test_a_latest_version_that_is_gone_is_restored(lake: Lake) -> None:
    name = lake.create("orders", managed_by="impl")
    names = name.split(".")
    lance.write_dataset(ORDERS, namespace_client=lake.namespace, table_id=names, mode="append")
    manifest = sorted((lake.place("orders") / "_versions").glob("*.manifest"))[0]
    backup = manifest.rename(lake.root / "backup")
    found = the_only(Kind.INCONSISTENT_ENTRY, "Version 2, the latest by its entry, is gone")
    assert "only older ones are there: restore its manifest" in found["message"]
    assert pasted(found["command"]).exit_code == 3
    backup.rename(manifest)
    assert findings() == []
    assert run("table", "count", "prod", name).stdout == "10\n"


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
        for table in ("orders", "foreign"):
            found = client.get_table(lake.database, "orders")
            found.sd.inputFormat = found.sd.outputFormat = None
            found.sd.serdeInfo.serializationLib = None
            if table == "foreign":
                found.tableName, found.parameters = table, {"EXTERNAL": "TRUE"}
                found.sd.location += "-foreign"
                client.create_table(found)
            else:
                client.alter_table(lake.database, table, found)
        before = client.get_table(lake.database, "foreign")
    found = the_only(Kind.INCOMPLETE_ENTRY, "no input format, no output format, no SerDe")
    assert found["subject"] == name
    fix(found)
    with raw_client(lake.metastore.port) as client:
        assert client.get_table(lake.database, "orders").sd.serdeInfo.serializationLib == SERDE
        assert client.get_table(lake.database, "foreign") == before
    assert answer_of("table", "refresh-entry", "prod", name) == {"table": name, "corrected": []}
    foreign = run("table", "refresh-entry", "prod", lake.name("foreign"), code=1)
    assert "not a Lance table" in foreign.stderr


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
    assert "Nothing else has the rows of version 2 (1 data file, 5 rows)" in found["message"]
    fix(found)
    assert run("table", "count", "prod", lake.name("orders")).stdout == "10\n"


@pytest.mark.parametrize("is_replaced", [False, True], ids=["adopted", "appended"])
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
    assert run("table", "count", "prod", name).stdout == ("15\n" if is_replaced else "10\n")


def test_an_entry_with_a_time_in_the_future_is_found(lake: Lake) -> None:
    lake.create("orders")
    mark(lake, "orders", **{DECLARED_AT: str(int((time.time() + 3600) * 1000))})
    found = the_only(Kind.CLOCK_SKEW)
    assert found["subject"] == lake.name("orders")
    assert "ahead of" in found["message"]


# -- tables whose files are gone -------------------------------------------------------------------


def refused(*command: str, place: Path) -> None:
    """Require a command to fail with the location and the way out, in one line."""
    said = run(*command, code=1).stderr
    assert f"is missing: there is no version at {place}, " in said
    assert "Restore the files there, or deregister or drop the table and create it again" in said
    assert "no data yet" not in said


@pytest.mark.parametrize("is_empty", [False, True], ids=["no directory", "an empty directory"])
@pytest.mark.parametrize("properties", [{}, {"managed_by": "impl"}], ids=["storage", "managed"])
def test_commands_say_that_the_data_is_missing(
    lake: Lake, properties: dict[str, str], is_empty: bool
) -> None:
    name = lake.create("orders", **properties)
    place = lake.place("orders")
    shutil.rmtree(place)
    if is_empty:
        place.mkdir()
    for command, *options in ((" ".join(each[:2]), *each[2:]) for each in COMMANDS):
        refused(*command.split(), "prod", name, *options, place=place)
    assert lake.place("orders") == place
    listed = answer_of("table", "list", "prod", lake.database, "--with-data")["tables"]
    assert listed == [{"table": name}]
    for mode in ("create", "exist_ok", "overwrite"):
        request = api.CreateTableRequest(id=[lake.database, "orders"], mode=mode)
        with pytest.raises(api.InvalidTableStateError, match="is missing"):
            lake.namespace.create_table(request, ipc(ORDERS))
    with pytest.raises(api.InvalidTableStateError, match="is missing"):
        lake.namespace.insert_into_table(
            api.InsertIntoTableRequest(id=[lake.database, "orders"]), ipc(ORDERS)
        )
    with pytest.raises(Exception, match="is missing"):
        lance.write_dataset(
            ORDERS, namespace_client=lake.namespace, table_id=[lake.database, "orders"]
        )
    assert [*place.rglob("*")] == []
    assert place.exists() is is_empty
    found = the_only(Kind.LOCATION_GONE, f"there is no version at {place}")
    fix(found)
    lake.create("orders")
    assert run("table", "count", "prod", name).stdout == "5\n"


def test_a_directory_above_that_is_gone_is_unreachable(lake: Lake, tmp_path: Path) -> None:
    """As when a disk is not mounted."""
    name = lake.create("orders")
    place = lake.place("orders")
    shutil.move(place.parent, tmp_path / "unmounted")
    for command in ("head", "count"):
        said = run("table", command, "prod", name, code=1).stderr
        assert "check that its disk is mounted" in said
        assert "is missing" not in said
    the_only(Kind.STORAGE, "check that its disk is mounted")
    shutil.move(tmp_path / "unmounted", place.parent)
    assert run("table", "count", "prod", name).stdout == "5\n"


def test_a_table_that_was_never_written_is_only_declared(lake: Lake) -> None:
    lake.namespace.declare_table(api.DeclareTableRequest(id=[lake.database, "empty"]))
    name = lake.name("empty")
    assert "is declared and has no data yet" in run("table", "head", "prod", name, code=1).stderr
    assert answer_of("table", "describe", "prod", name)["only_declared"]
    assert answer_of("table", "list", "prod", lake.database, "--with-data")["tables"] == []


def test_a_wrong_location_is_noticed_when_it_is_registered(lake: Lake, tmp_path: Path) -> None:
    place = tmp_path / "typo.lance"
    name = lake.name("orders")
    done = run("table", "register", "prod", name, str(place))
    assert f"{place} has no Lance table" in done.stderr
    refused("table", "count", "prod", name, place=place)
    fix(the_only(Kind.LOCATION_GONE))


# -- several entries for one table ----------------------------------------------------------------


@pytest.mark.spec("managed.md#the-mark-of-the-manager")
def test_a_second_entry_of_a_managed_table_is_deregistered(lake: Lake) -> None:
    lake.create("orders")
    run("table", "register", "prod", lake.name("second"), str(lake.place("orders")))
    lake.namespace.tables.load_by_id([lake.database, "orders"]).manage()  # from another catalog
    found = the_only(Kind.MANAGED_ELSEWHERE, f"managed by '{lake.name('orders')}' of thrift:")
    assert found["subject"] == lake.name("second")
    fix(found)


@pytest.mark.spec("managed.md#the-mark-of-the-manager", "cli.md#table")
def test_an_entry_that_only_reads_is_no_finding_until_nobody_manages(lake: Lake) -> None:
    lake.create("orders", managed_by="impl")
    second = ["table", "register", "prod", lake.name("second"), str(lake.place("orders"))]
    refused = CliRunner().invoke(app, second)
    assert refused.exit_code != 0
    assert "--force" in refused.stderr
    run(*second, "--force")
    assert findings() == []
    run("managed", "end", "prod", lake.name("orders"))
    found = the_only(Kind.INCONSISTENT_ENTRY, "It only reads")
    assert found["subject"] == lake.name("second")
    fix(found)

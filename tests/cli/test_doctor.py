"""The doctor finds what is wrong on a real metastore, and the command that it gives fixes it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import lance
import pytest
from lance_namespace.errors import InvalidInputError
from servers.hive_raw import raw_client

from lance_bridge_doctor import Diagnosis, Kind, diagnose

from .conftest import ORDERS, Lake
from .findings import NOW, diagnosis, findings, fix, the_only
from .running import answer_of, pasted, run, run_without

pytestmark = [pytest.mark.servers, pytest.mark.spec("cli.md#doctor", "cli.md#findings")]


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

"""Suggestions for names that do not exist, and conversions of tables that are not Lance tables."""

from __future__ import annotations

from pathlib import Path

import lance_namespace as api
import pytest
from servers.hive_entries import raw_client, raw_table

from lance_bridge_cli.suggestions import similar
from lance_bridge_hive import HiveNamespace

from .conftest import Lake
from .program import pasted, run, said

pytestmark = [pytest.mark.quick, pytest.mark.spec("cli.md#exit-codes")]

PARQUET = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat"
DELTA = {"spark.sql.sources.provider": "delta"}

# -- names that do not exist -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "names", "expected"),
    [
        ("ordesr", ["orders", "notes"], ["orders"]),
        ("ORDERS_2", ["orders_1", "orders_2", "other"], ["orders_2", "orders_1"]),
        ("x", ["orders"], []),
    ],
)
def test_similar_names_are_found(name: str, names: list[str], expected: list[str]) -> None:
    assert similar(name, names) == expected


@pytest.mark.servers
@pytest.mark.parametrize("command", [["head"], ["describe"], ["count"], ["drop", "--yes"]])
def test_a_misspelt_table_gets_a_suggestion(lake: Lake, command: list[str]) -> None:
    lake.create("orders")
    lake.create("notes")
    error = said(run("table", *command, "prod", lake.name("ordesr"), code=1).stderr)
    wrong, right = lake.name("ordesr"), lake.name("orders")
    assert error == f"lance-bridge: Table not found: {wrong}: did you mean '{right}'?"
    far = said(run("table", *command, "prod", lake.name("zzz"), code=1).stderr)
    assert "did you mean" not in far
    assert "check its spelling" in far


@pytest.mark.servers
def test_a_misspelt_namespace_gets_a_suggestion(lake: Lake) -> None:
    wrong = f"{lake.database}x"
    for command in (["table", "head"], ["table", "list"], ["ns", "describe"]):
        name = f"{wrong}.orders" if command == ["table", "head"] else wrong
        error = said(run(*command, "prod", name, code=1).stderr)
        assert error.startswith(f"lance-bridge: Namespace not found: {wrong}: did you mean '")
        assert f"'{lake.database}'" in error


@pytest.mark.servers
def test_a_suggestion_costs_one_listing_and_fails_without_a_trace(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create("orders")
    listed: list[list[str]] = []
    real = HiveNamespace.list_tables

    def count(self: HiveNamespace, request: api.ListTablesRequest) -> api.ListTablesResponse:
        listed.append(request.id or [])
        return real(self, request)

    def refuse(_self: HiveNamespace, request: api.ListTablesRequest) -> api.ListTablesResponse:
        raise api.PermissionDeniedError(f"no listing of {request.id}")

    command = ["table", "head", "prod", lake.name("ordesr")]
    monkeypatch.setattr(HiveNamespace, "list_tables", count)
    assert "did you mean" in run(*command, code=1).stderr
    assert listed == [[lake.database]]
    monkeypatch.setattr(HiveNamespace, "list_tables", refuse)
    error = said(run(*command, code=1).stderr)
    assert "did you mean" not in error
    assert error.startswith(f"lance-bridge: Table not found: {lake.name('ordesr')}. ")


@pytest.mark.servers
@pytest.mark.spec("cli.md#several-catalogs-at-once")
def test_names_in_a_federation_get_suggestions(lake: Lake) -> None:
    lake.create("orders")
    lake.set("all", impl="federated", catalogs="prod")
    name = lake.name("ordesr")
    error = said(run("table", "head", "all", f"prod.{name}", code=1).stderr)
    assert error.endswith(f"prod.{name}: did you mean 'prod.{lake.name('orders')}'?")
    error = said(run("table", "head", "all", f"prodd.{name}", code=1).stderr)
    assert error.endswith("Namespace not found: prodd: did you mean 'prod'?")


# -- tables of other formats -----------------------------------------------------------------------


@pytest.mark.servers
@pytest.mark.parametrize(
    ("format_", "input_format", "parameters"),
    [("Parquet", PARQUET, {}), ("Delta", None, DELTA), ("", None, {})],
    ids=["parquet", "delta", "unknown"],
)
def test_a_table_of_another_format_names_it_and_the_conversion(
    lake: Lake, tmp_path: Path, format_: str, input_format: str | None, parameters: dict[str, str]
) -> None:
    _add_foreign(lake, tmp_path, "EXTERNAL_TABLE", input_format, parameters)
    name = lake.name("foreign")
    error = said(run("table", "head", "prod", name, code=1).stderr)
    kind = f"an entry of type EXTERNAL_TABLE{f' ({format_})' if format_ else ''}"
    assert f"'{name}' is not a Lance table but {kind}. To convert it: " in error
    command = error.partition("To convert it: ")[2]
    assert command == f"lance-bridge migrate convert prod --include {name}"
    assert pasted(f"{command} --help").exit_code == 0


@pytest.mark.servers
def test_a_view_is_named_as_one_without_a_conversion(lake: Lake, tmp_path: Path) -> None:
    _add_foreign(lake, tmp_path, "VIRTUAL_VIEW", None, {})
    error = said(run("table", "head", "prod", lake.name("foreign"), code=1).stderr)
    assert error.endswith("not a Lance table but an entry of type VIRTUAL_VIEW (view)")


@pytest.mark.servers
def test_the_conversion_repeats_properties_but_no_secret(lake: Lake, tmp_path: Path) -> None:
    _add_foreign(lake, tmp_path, "EXTERNAL_TABLE", PARQUET, {})
    given = ["-p", f"uri={lake.metastore.uri}", "-p", "storage.aws_secret_access_key=hunter2"]
    error = run("table", "head", "hive", lake.name("foreign"), *given, code=1).stderr
    assert f"-p uri={lake.metastore.uri}" in error
    assert "hunter2" not in error
    assert "<storage.aws_secret_access_key>" in error


def _add_foreign(
    lake: Lake, tmp_path: Path, type_: str, input_format: str | None, parameters: dict[str, str]
) -> None:
    entry = raw_table(lake.database, "foreign", str(tmp_path / "foreign"))
    entry.tableType, entry.parameters = type_, {"EXTERNAL": "TRUE", **parameters}
    entry.sd.inputFormat = input_format
    with raw_client(lake.metastore.port) as client:
        client.create_table(entry)

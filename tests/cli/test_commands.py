"""The main commands on each catalog: what they do, their exit codes, and examples of their help."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
import yaml
from servers.glue_server import GlueServer
from servers.unity import OPEN_SOURCE_0_6, UnityServer

import lance_bridge
from lance_bridge.arrow_types import schema_to_json
from lance_bridge.testing.calls import ipc
from lance_bridge_cli.app import app
from lance_bridge_doctor import Kind
from lance_bridge_server.access.authentication import ApiKeyFile

from .conftest import ORDERS, Lake
from .program import (
    COMMANDS,
    Terminal,
    answer_of,
    at_terminal,
    examples,
    pasted,
    program,
    run,
    said,
    started,
)

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("cli.md#commands", "cli.md#findings", "cli.md#table"),
]

BUCKET = "cli-tests"
KEY = "0123456789abcdef"
URI, DATA = "thrift://metastore:9083", "/data/"
EXITS = {"managed check": 3}
"""Commands whose examples find something."""


# -- catalogs --------------------------------------------------------------------------------------


@pytest.mark.spec("cli.md#catalogs")
def test_catalogs_list_shows_implementations_and_configured_catalogs(lake: Lake) -> None:
    lake.set("broken", impl="hive", url="thrift://nowhere:1")
    answer = answer_of("catalogs", "list")
    assert {each["impl"] for each in answer["installed"]} == set(lance_bridge.catalogs())
    configured = {each["catalog"]: each for each in answer["configured"]}
    assert lake.metastore.uri in configured["prod"]["connection"]
    assert "no property 'url'" in configured["broken"]["problem"]
    assert "prod" in run("catalogs", "list").stdout


@pytest.mark.spec("cli.md#catalogs")
def test_catalogs_test_shows_server_and_capabilities(lake: Lake) -> None:
    answer = answer_of("catalogs", "test", "prod", "--calls", "2")
    assert (answer["server"], answer["version"]) == ("Hive Metastore", "2 or 3")
    assert answer["connection"] == lake.namespace.namespace_id()
    assert 0 < answer["fastest_call_ms"] <= answer["first_call_ms"]
    able = answer["capabilities"]
    assert able["names_of_a_table"] == "database.table"
    assert able["hold_versions_of_tables"] == "yes"
    assert "Hive Metastore" in run("catalogs", "test", "prod").stdout


# -- namespaces ------------------------------------------------------------------------------------


@pytest.mark.spec("cli.md#ns")
def test_a_namespace_is_created_described_listed_and_dropped(lake: Lake) -> None:
    name = f"{lake.database}_more"
    lake.databases.append(name)
    created = run("ns", "create", "prod", name, "--set", "comment=mine", "--exist-ok")
    assert "created" in created.stdout
    assert run("ns", "create", "prod", name, code=1).stderr.count("already exists") == 1
    assert "exists" in run("ns", "create", "prod", name, "--exist-ok").stdout
    assert answer_of("ns", "describe", "prod", name)["properties"]["comment"] == "mine"
    listed = answer_of("ns", "list", "prod")["namespaces"]
    assert {"namespace": name} in listed
    run("ns", "drop", "prod", name, "--yes")
    assert {"namespace": name} not in answer_of("ns", "list", "prod")["namespaces"]


@pytest.mark.spec("cli.md#ns")
def test_a_namespace_with_tables_is_dropped_only_with_cascade(lake: Lake) -> None:
    lake.create("orders")
    place = lake.place("orders")
    refused = run("ns", "drop", "prod", lake.database, "--yes", code=1)
    assert "not empty" in refused.stderr
    run("ns", "drop", "prod", lake.database, "--cascade", "--yes")
    assert not place.exists()


# -- tables ----------------------------------------------------------------------------------------


def test_declared_tables_are_listed_unless_with_data_is_given(lake: Lake) -> None:
    lake.create("orders")
    lake.namespace.declare_table(api.DeclareTableRequest(id=[lake.database, "empty"]))
    names = [each["table"] for each in answer_of("table", "list", "prod")["tables"]]
    assert {lake.name("orders"), lake.name("empty")} <= set(names)
    answer = answer_of("table", "list", "prod", "--with-data")
    assert lake.name("empty") not in [each["table"] for each in answer["tables"]]


def test_a_table_is_described_with_sql_types_and_statistics(lake: Lake) -> None:
    name = lake.create("orders", owner_team="shop")
    answer = answer_of("table", "describe", "prod", name)
    assert answer["location"] == str(lake.place("orders"))
    assert answer["properties"] == {"owner_team": "shop"}
    assert [each["name"] for each in answer["schema"]] == ORDERS.column_names
    assert answer["statistics"]["num_rows"] == 5
    assert "float[2]" in run("table", "describe", "prod", name).stdout
    lake.namespace.declare_table(api.DeclareTableRequest(id=[lake.database, "empty"]))
    empty = answer_of("table", "describe", "prod", lake.name("empty"))
    assert empty["only_declared"]
    assert "statistics" not in empty
    columns = {"price": pa.decimal128(10, 2), "at": pa.timestamp("ms", "UTC")}
    typed = lake.create("typed", pa.schema(columns).empty_table())
    types = [each["sql_type"] for each in answer_of("table", "describe", "prod", typed)["schema"]]
    assert types == ["decimal(10,2)", "timestamp(ms, UTC)"]
    assert all(each in run("table", "describe", "prod", typed).stdout for each in types)


def test_rows_are_shown_counted_and_found(lake: Lake) -> None:
    name = lake.create("orders")
    head = answer_of("table", "head", "prod", name, "-n", "2", "-c", "id")
    assert head == [{"id": 0}, {"id": 1}]
    csv = run("table", "head", "prod", name, "--limit", "2", "--output", "csv").stdout
    assert csv == 'id,price,vector\n0,0.5,"[0.0, 0.0]"\n1,1.5,"[1.0, 0.0]"\n'
    assert answer_of("table", "count", "prod", name, "--where", "price > 2")["rows"] == 3
    assert run("table", "count", "prod", name).stdout == "5\n"
    found = answer_of("table", "query", "prod", name, "--where", "price > 2", "-c", "id")
    assert [each["id"] for each in found] == [2, 3, 4]
    near = answer_of("table", "query", "prod", name, "--vector", "[3, 0]", "--limit", "1")
    assert [each["id"] for each in near] == [3]
    shown = run("table", "query", "prod", name, "--where", "id = 4").stdout
    assert "4.5" in shown


def test_versions_tags_and_indices_are_listed_and_an_older_version_is_read(lake: Lake) -> None:
    name = lake.create("orders")
    lake.append("orders")
    assert run("table", "count", "prod", name).stdout == "10\n"
    assert run("table", "count", "prod", name, "--version", "1").stdout == "5\n"
    missing = run("table", "head", "prod", name, "--version", "9", code=1)
    assert "9" in missing.stderr
    lance.dataset(str(lake.place("orders"))).tags.create("first", 1)
    run("maintain", "index", "prod", name, "id")
    versions = answer_of("table", "versions", "prod", name, "--latest-first")["versions"]
    assert [each["version"] for each in versions] == [3, 2, 1]
    [tag] = answer_of("table", "tags", "prod", name)["tags"]
    assert (tag["tag"], tag["version"]) == ("first", 1)
    [index] = answer_of("table", "indices", "prod", name)["indices"]
    assert (index["index"], index["kind"], index["indexed_rows"]) == ("id_idx", "BTREE", 10)


def test_a_table_is_registered_renamed_and_deregistered(lake: Lake, tmp_path: Path) -> None:
    place = str(tmp_path / "elsewhere.lance")
    lance.write_dataset(ORDERS, place)
    run("table", "register", "prod", lake.name("old"), place)
    assert run("table", "register", "prod", lake.name("old"), place, code=1)
    run("table", "rename", "prod", lake.name("old"), lake.name("new"))
    assert lake.tables() == ["new"]
    answer = answer_of("table", "deregister", "prod", lake.name("new"))
    assert answer["location"] == place
    assert lake.tables() == []
    assert lance.dataset(place).count_rows() == 5


def test_table_drop_deletes_data_unless_only_declared_is_required(lake: Lake) -> None:
    name = lake.create("orders")
    place = lake.place("orders")
    refused = run("table", "drop", "prod", name, "--if-only-declared", "--yes", code=1)
    assert "has data" in refused.stderr
    assert lake.tables() == ["orders"]
    run("table", "drop", "prod", name, "--yes")
    assert lake.tables() == []
    assert not place.exists()


@pytest.mark.spec("cli.md#confirmation")
@pytest.mark.parametrize(
    "command", [["table", "drop"], ["ns", "drop"], ["managed", "discard"]], ids=" ".join
)
def test_without_a_terminal_a_drop_needs_yes(lake: Lake, command: list[str]) -> None:
    lake.create("orders")
    name = lake.database if command[0] == "ns" else lake.name("orders")
    refused = run(*command, "prod", name, code=2)
    assert "--yes" in refused.stderr
    assert lake.tables() == ["orders"]


@pytest.mark.spec("cli.md#confirmation")
def test_a_drop_is_confirmed_refused_or_interrupted(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["table", "drop", "prod", lake.create("orders")]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", Terminal("n\n"))
        assert app(command, standalone_mode=False) == 1
    assert at_terminal(command, "\x03")[0] == 130
    assert lake.tables() == ["orders"]
    code, shown = at_terminal(command, "y\n")
    assert (code, lake.tables()) == (0, [])
    assert "Drop table" in shown


@pytest.mark.spec("cli.md#config")
def test_a_typed_value_is_not_echoed(config: Path) -> None:
    run("config", "set", "prod", "impl=hive", "uri=http://localhost:10001/metastore")
    before = config.read_text()
    command = ["config", "set", "prod", "http.token"]
    assert at_terminal(command, "\x03")[0] == 130
    assert config.read_text() == before
    code, shown = at_terminal(command, "hunter2\n")
    assert code == 0
    assert "hunter2" not in shown
    assert yaml.safe_load(config.read_text())["catalogs"]["prod"]["http.token"] == "hunter2"


# -- names and properties --------------------------------------------------------------------------


@pytest.mark.spec("cli.md#names")
def test_names_are_quoted_as_in_spark(lake: Lake) -> None:
    name = lake.create("orders")
    quoted = ".".join(f"`{part}`" for part in name.split("."))
    assert run("table", "count", "prod", quoted).stdout == "5\n"
    dotted = run("table", "count", "prod", f"{lake.database}.`a.b`", code=1)
    assert "'a.b'" in dotted.stderr
    for malformed in ("a..b", "a.`b", ".", ""):
        assert "is not a name" in run("table", "count", "prod", malformed, code=2).stderr


@pytest.mark.spec("cli.md#which-catalog")
def test_properties_override_the_configuration_file(lake: Lake) -> None:
    lake.set("prod", impl="hive", uri="thrift://127.0.0.1:1")
    name = lake.create("orders")
    answer = run("table", "count", "prod", name, "-p", f"uri={lake.metastore.uri}")
    assert answer.stdout == "5\n"
    assert run("table", "count", "prod", name, "-p", "uri", code=2).stderr.count("key=value") == 1


# -- what goes where -------------------------------------------------------------------------------


@pytest.mark.spec("cli.md#exit-codes", "cli.md#output")
def test_standard_output_has_only_the_answer(lake: Lake) -> None:
    name = lake.create("orders")
    done = program("table", "head", "prod", name, "--output", "json")
    assert done.returncode == 0
    assert [row["id"] for row in json.loads(done.stdout)] == [0, 1, 2, 3, 4]
    assert done.stderr == ""
    failed = run("table", "head", "prod", lake.name("nope"), "--output", "json", code=1)
    assert failed.stdout == ""
    assert failed.stderr.startswith("lance-bridge: ")
    assert "Traceback" not in failed.stderr


@pytest.mark.spec("cli.md#table")
def test_a_missing_column_error_lists_the_columns(lake: Lake) -> None:
    name = lake.create("orders")
    for command in ("query", "count"):
        error = said(run("table", command, "prod", name, "--where", "prize > 2", code=1).stderr)
        assert error.endswith("there is no column prize; its columns are id, price, vector")


@pytest.mark.spec("cli.md#table")
def test_registering_a_location_without_a_table_says_so(lake: Lake, tmp_path: Path) -> None:
    location = str(tmp_path / "typo.lance")
    done = run("table", "register", "prod", lake.name("typo"), location)
    assert done.stdout == f"{lake.name('typo')}: registered at {location}\n"
    error = said(done.stderr)
    assert f"{location} has no Lance table" in error
    run(*error.rpartition("lance-bridge ")[2].split())
    assert lake.tables() == []
    lance.write_dataset(ORDERS, location)
    assert run("table", "register", "prod", lake.name("right"), location).stderr == ""
    assert answer_of("table", "count", "prod", lake.name("right"))["rows"] == 5


# -- on Glue and on Unity --------------------------------------------------------------------------


def configure(config: Path, **properties: str) -> None:
    config.write_text(yaml.safe_dump({"catalogs": {"prod": properties}}))


@pytest.fixture(scope="module")
def glue_server() -> Iterator[GlueServer]:
    with GlueServer() as running:
        yield running


@pytest.fixture
def glue(config: Path, glue_server: GlueServer) -> GlueServer:
    """Glue and S3, as the catalog ``prod``, with a database ``sales`` and nothing else."""
    glue_server.reset()
    glue_server.make_bucket(BUCKET)
    options = {f"storage.{key}": value for key, value in glue_server.storage_options.items()}
    root, properties = f"s3://{BUCKET}/lake", glue_server.properties
    configure(config, impl="glue", root=root, max_retries="0", **properties, **options)
    run("ns", "create", "prod", "sales")
    return glue_server


@pytest.fixture
def unity(config: Path, tmp_path: Path) -> Iterator[UnityServer]:
    """Unity, as the catalog ``prod``, with a schema ``lake.sales``."""
    with UnityServer(OPEN_SOURCE_0_6) as server:
        server.add_catalog("lake")
        configure(config, impl="unity", host=server.url, root=str(tmp_path / "root"))
        run("ns", "create", "prod", "lake.sales")
        yield server


def create(*names: str) -> None:
    with lance_bridge.connect("prod") as namespace:  # type: ignore[attr-defined]
        namespace.create_table(api.CreateTableRequest(id=list(names)), ipc(ORDERS))


def pass_through(namespace: str) -> None:
    """Run the main commands on a table ``orders`` of a namespace."""
    name, new = f"{namespace}.orders", f"{namespace}.old_orders"
    assert answer_of("table", "list", "prod")["tables"] == [{"table": name}]
    assert run("table", "count", "prod", name).stdout == "5\n"
    assert len(answer_of("table", "head", "prod", name, "-n", "2")) == 2
    assert answer_of("table", "describe", "prod", name)["statistics"]["num_rows"] == 5
    assert len(answer_of("table", "versions", "prod", name)["versions"]) == 1
    assert run("table", "schema", "prod", name).stdout.startswith("id\tbigint\t")
    assert run("table", "location", "prod", name).stdout.strip()
    run("table", "rename-column", "prod", name, "price", "cost")
    assert "cost" in run("table", "schema", "prod", name).stdout
    run("table", "rename-column", "prod", name, "cost", "price")
    run("ns", "properties", "set", "prod", namespace, "team=shop")
    assert run("ns", "properties", "get", "prod", namespace, "team").stdout == "shop\n"
    run("maintain", "index", "prod", name, "id")
    assert answer_of("maintain", "compact", "prod", name)["tasks"] == 0
    assert answer_of("maintain", "clean-up", "prod", name, "--dry-run")["versions"] == 0
    assert answer_of("doctor", "prod", "--idle", "0m")["tables"] == 1
    location = answer_of("table", "deregister", "prod", name)["location"]
    [found] = answer_of("doctor", "prod", "--idle", "0m", code=3)["findings"]
    assert (found["kind"], found["subject"]) == (Kind.ORPHANED_DATA.value, location)
    assert pasted(found["command"]).exit_code == 0
    assert answer_of("doctor", "prod", "--idle", "0m")["findings"] == []
    run("table", "deregister", "prod", name)
    run("table", "register", "prod", new, location)
    run("table", "drop", "prod", new, "--yes")
    assert answer_of("table", "list", "prod")["tables"] == []
    run("ns", "drop", "prod", namespace, "--yes")


@pytest.mark.spec("cli.md#catalogs")
@pytest.mark.usefixtures("glue")
def test_the_main_commands_on_glue() -> None:
    answer = answer_of("catalogs", "test", "prod")
    assert (answer["server"], answer["region"]) == ("AWS Glue", "us-east-1")
    create("sales", "orders")
    pass_through("sales")


@pytest.mark.spec("cli.md#catalogs")
@pytest.mark.usefixtures("unity")
def test_the_main_commands_on_unity() -> None:
    answer = answer_of("catalogs", "test", "prod")
    assert (answer["server"], answer["dialect"]) == ("Unity Catalog", "open source")
    create("lake", "sales", "orders")
    pass_through("lake.sales")


def test_a_name_with_two_entries_is_a_finding(unity: UnityServer) -> None:
    create("lake", "sales", "orders")
    [whole] = unity.state.tables()
    place = {"storage_location": f"{whole.info['storage_location']}-2"}
    other = unity.add_table("lake", "sales", "orders", properties={"table_type": "lance"}, **place)
    found, *more = answer_of("doctor", "prod", code=3)["findings"]
    assert (found["kind"], found["subject"]) == (Kind.BROKEN_NAME.value, "lake.sales.orders")
    assert found["command"] == "lance-bridge doctor prod"
    for entry in (whole, other):
        assert f"{entry.id} at {entry.info['storage_location']}" in found["message"]
    assert more == []
    unity.remove_table("lake", "sales", "orders")
    run("table", "register", "prod", "lake.sales.orders", whole.info["storage_location"])
    assert pasted(found["command"]).exit_code == 0


@pytest.mark.parametrize(
    ("prefix", "kind", "subject"),
    [("", Kind.REFUSED, "prod"), ("storage.aws_", Kind.STORAGE, "sales.orders")],
    ids=["of the catalog", "of the storage"],
)
def test_refused_credentials_are_a_finding(
    glue: GlueServer, prefix: str, kind: Kind, subject: str
) -> None:
    create("sales", "orders")
    key, secret = f"{prefix}access_key_id", f"{prefix}secret_access_key"
    with glue.known_keys_only():
        run("config", "set", "prod", f"{key}=AKIAWRONGWRONGWRONG0")
        found = answer_of("doctor", "prod", "--idle", "0m", code=3)["findings"]
        assert {each["kind"] for each in found} == {kind.value}
        assert subject in {each["subject"] for each in found}
        assert found[0]["command"] == f"lance-bridge config set prod {key} {secret}"
        right = glue.properties
        answer = f"{right['access_key_id']}\n{right['secret_access_key']}\n"
        assert pasted(found[0]["command"], answer).exit_code == 0
        assert answer_of("doctor", "prod", "--idle", "0m")["findings"] == []


@pytest.mark.usefixtures("glue")
def test_an_unwritten_declaration_is_found_without_files() -> None:
    with lance_bridge.connect("prod") as namespace:  # type: ignore[attr-defined]
        namespace.declare_table(api.DeclareTableRequest(id=["sales", "never"]))
    [found] = answer_of("doctor", "prod", "--idle", "0m", code=3)["findings"]
    assert found["kind"] == Kind.DECLARED_ONLY.value
    assert pasted(found["command"]).exit_code == 0
    assert answer_of("table", "list", "prod")["tables"] == []


@pytest.mark.parametrize(("seconds", "words"), [(3600, "ahead of"), (-3600, "behind")])
def test_a_server_whose_clock_is_wrong_is_found(
    unity: UnityServer, monkeypatch: pytest.MonkeyPatch, seconds: int, words: str
) -> None:
    assert answer_of("doctor", "prod")["findings"] == []
    right = BaseHTTPRequestHandler.date_time_string

    def wrong(self: BaseHTTPRequestHandler, timestamp: float | None = None) -> str:
        import time  # noqa: PLC0415

        return right(self, int((timestamp or time.time()) + seconds))

    monkeypatch.setattr(BaseHTTPRequestHandler, "date_time_string", wrong)
    [found] = answer_of("doctor", "prod", code=3)["findings"]
    assert (found["kind"], found["subject"]) == (Kind.CLOCK_SKEW.value, unity.url)
    assert words in found["message"]
    assert found["command"] == "sudo timedatectl set-ntp true"
    monkeypatch.undo()


def test_an_unreadable_namespace_is_a_finding_and_no_data_is_called_orphaned(
    unity: UnityServer, tmp_path: Path
) -> None:
    create("lake", "sales", "orders")
    lance.write_dataset(ORDERS, str(tmp_path / "root" / "lake" / "sales.db" / "lost.lance"))
    unity.refuse("GET /tables*")
    found = answer_of("doctor", "prod", "--idle", "0m", code=3)["findings"]
    assert {each["kind"] for each in found} == {Kind.CATALOG.value}
    assert [each["subject"] for each in found] == ["lake.sales", "prod"]
    assert pasted(found[0]["command"]).exit_code == 1
    unity.allow_all()
    assert pasted(found[0]["command"]).exit_code == 0
    assert found[1]["command"] == "lance-bridge doctor prod"
    [lost] = answer_of("doctor", "prod", "--idle", "0m", code=3)["findings"]
    assert lost["kind"] == Kind.ORPHANED_DATA.value


# -- examples --------------------------------------------------------------------------------------


@pytest.fixture
def sales(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """The catalog that examples are about: ``prod``, with a database ``sales``."""
    monkeypatch.chdir(tmp_path)
    for name in ("sales", "attic"):
        lake.namespace.create_namespace(api.CreateNamespaceRequest(id=[name]))
    lake.databases += ["sales", "attic", "archive"]
    lake.database = "sales"
    for name in ("orders", "drafts", "scratch"):
        lake.create(name)
    lance.write_dataset(ORDERS, str(tmp_path / "data" / "old_orders.lance"))
    columns = schema_to_json(ORDERS.schema, exact=True).to_dict()
    (tmp_path / "data" / "columns.json").write_text(json.dumps(columns))
    lake.create("embeddings")
    return lake


def _registered(lake: Lake) -> None:
    location = str(lake.config.parent / "data" / "old_orders.lance")
    request = api.RegisterTableRequest(id=["sales", "old_orders"], location=location)
    lake.namespace.register_table(request)


def _managed(lake: Lake) -> None:
    lake.namespace.manage_table(["sales", "embeddings"])


def _past_the_catalog(lake: Lake) -> None:
    _managed(lake)
    lake.append("embeddings")


def _with_key(lake: Lake) -> None:
    file = ApiKeyFile(lake.config.parent / "data" / "keys.json")
    key, _ = file.add("ann")
    file.path.write_text(file.path.read_text().replace(key.split("_")[1], KEY))


def _with_staging(lake: Lake) -> None:
    run("config", "set", "staging", "impl=hive", f"uri={lake.metastore.uri}")


def _with_season(_lake: Lake) -> None:
    for noun, name in (("table", "sales.orders"), ("ns", "sales")):
        run(noun, "properties", "set", "prod", name, "season=winter")


def _dropped(lake: Lake) -> None:
    if "scratch" not in lake.tables():
        lake.create("scratch")
    retention = ["ns", "properties", "set", "prod", "sales"]
    run(*retention, "drop.retention=7d")
    run("table", "drop", "prod", "sales.scratch", "--yes")
    run(*retention, "drop.retention=0")
    lake.create("scratch")


BEFORE: dict[str, Callable[[Lake], None]] = {
    "table deregister": _registered,
    "table undrop": _dropped,
    "table purge": _dropped,
    "config remove": _with_staging,
    "keys list": _with_key,
    "table properties remove": _with_season,
    "ns properties remove": _with_season,
    "keys revoke": _with_key,
    "managed end": _managed,
    "managed check": _past_the_catalog,
    "managed adopt": _past_the_catalog,
    "managed discard": _past_the_catalog,
}
"""What some examples need besides."""


@pytest.mark.parametrize("words", [each for each in COMMANDS if each[0] == "managed"], ids=" ".join)
def test_every_example_of_managed_tables_runs(sales: Lake, words: tuple[str, ...]) -> None:
    require_examples(sales, words)


def test_every_other_example_runs(sales: Lake) -> None:
    for words in COMMANDS:
        if words != ("metastore", "start") and words[0] != "managed":
            require_examples(sales, words)


def require_examples(sales: Lake, words: tuple[str, ...]) -> None:
    name = " ".join(words)
    if name in BEFORE:
        BEFORE[name](sales)
    for example in examples(*words):
        command = example.replace(URI, sales.metastore.uri)
        done = pasted(command.replace(DATA, f"{sales.config.parent}/data/"))
        assert done.exit_code == EXITS.get(name, 0), f"{command}\n{done.output}"


@pytest.mark.spec("cli.md#metastore")
def test_the_example_of_the_metastore_runs() -> None:
    for example in examples("metastore", "start"):
        with started(*shlex.split(example)[1:]) as running:
            assert running.process.stdout is not None
            lines = iter(running.process.stdout.readline, "")
            uri = next(line.strip() for line in lines if line.startswith("thrift://"))
            assert "default" in run("ns", "list", "hive", "-p", f"uri={uri}").stdout
            code, _, error = running.interrupt()
        assert code == 0
        assert "Traceback" not in error

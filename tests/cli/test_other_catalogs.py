"""One pass of the main commands on Glue and on Unity, and what only their doctor finds."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import lance
import lance_namespace as api
import pytest
import yaml
from servers.glue_server import GlueServer
from servers.unity import OPEN_SOURCE_0_6, UnityServer

import lance_bridge
from lance_bridge.testing.build import ipc
from lance_bridge_doctor import Kind

from .conftest import ORDERS
from .running import answer_of, pasted, run

pytestmark = [pytest.mark.servers, pytest.mark.spec("cli.md#findings")]

BUCKET = "cli-tests"


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

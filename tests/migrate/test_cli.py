"""The command line of migrations: planned and shown by default, carried out with --execute."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance_namespace as api
import pytest
import typer
import yaml
from cli.running import answer_of, at_terminal, examples, pasted, run
from migrate.building import make_theirs, register_rows, write
from migrate.places import Place, files
from servers.replies import replying

from lance_bridge_cli.app import app
from lance_bridge_cli.output import Output
from lance_bridge_migrate import Address, Item, Plan
from lance_bridge_migrate.commands.output import print_plan
from lance_bridge_migrate.plan import blocker, now, warning
from lance_bridge_migrate.store import Migrations

pytestmark = pytest.mark.servers

ID = "20260101-120000-register-0a1b2c"
"""What the examples call a migration."""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Migrations:
    """The migrations of the state directory that the environment names."""
    monkeypatch.setenv("LANCE_BRIDGE_STATE", str(tmp_path / "state"))
    return Migrations()


@pytest.fixture
def prod(hive: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A Hive Metastore that the configuration file calls ``prod``."""
    config = tmp_path / "catalogs.yaml"
    config.write_text(yaml.safe_dump({"catalogs": {"prod": {"impl": "hive", **hive.properties}}}))
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(config))
    return hive


@pytest.mark.spec("docs/how-to/migrate.md#every-migration", "migration.md#from-python")
def test_a_migration_from_its_plan_to_its_undoing(
    prod: Place, lake: Path, state: Migrations
) -> None:
    write(lake, "a", "b")
    before = files(lake)
    command = ["migrate", "register", str(lake), "prod", "--namespace", prod.prefix]
    shown = run(*command)
    assert "Nothing was changed" in shown.stdout
    assert prod.entries() == {}
    [id] = state.ids()
    assert f"lance-bridge migrate resume {id}" in shown.stdout
    assert answer_of("migrate", "show", id)["id"] == id
    done = answer_of("migrate", "resume", id, "--verify", "sample")
    assert (done["state"], done["counts"]) == ("done", {"done": 3})
    assert set(prod.entries()) == {prod.prefix, f"{prod.prefix}.a", f"{prod.prefix}.b"}
    [line] = answer_of("migrate", "list")
    assert (line["migration"], line["state"], line["items"]) == (id, "done", "3 done")
    assert answer_of("migrate", "show", id)["state"] == "done"
    verified = answer_of("migrate", "verify", id, "--level", "checksums")
    assert verified["items"]["a"]["verified"] == "checksums"
    assert answer_of("migrate", "undo", id)["state"] == "undone"
    assert prod.entries() == {}
    assert files(lake) == before


@pytest.mark.spec("migration.md#from-python", "migration.md#plan")
def test_a_plan_with_blocked_tables_ends_with_3_and_is_refused(prod: Place, lake: Path) -> None:
    write(lake, "good", "bad name")
    command = ["migrate", "register", str(lake), "prod", "-n", prod.prefix]
    planned = run(*command, code=3).stdout
    assert "blocker" in planned
    [hint] = re.findall(r"lance-bridge (migrate resume .*)", planned)
    refused = run(*command, "--execute", code=1)
    assert "--skip-blocked" in refused.stderr
    assert prod.entries() == {}
    done = answer_of(*command, "--execute", "--skip-blocked", "--at-once", "2")
    assert done["counts"] == {"done": 2, "blocked": 1}
    again = answer_of("migrate", "undo", done["plan"]["id"])
    assert again["state"] == "undone"
    assert answer_of(*hint.split())["counts"] == {"done": 2, "blocked": 1}


@pytest.mark.spec("migration.md#running")
def test_a_command_is_run_at_the_end(prod: Place, lake: Path, tmp_path: Path) -> None:
    write(lake, "a", "b")
    said = tmp_path / "said"
    script = f'echo "$LANCE_BRIDGE_MIGRATION $LANCE_BRIDGE_MIGRATION_STATE" >> {said}'
    command = ["migrate", "register", str(lake), "prod", "-n", prod.prefix, "--execute"]
    done = answer_of(*command, "--when-done", script)
    assert said.read_text() == f"{done['plan']['id']} done\n"
    failed = run("migrate", "resume", done["plan"]["id"], "--when-done", "echo output; exit 7")
    assert "exit code 7" in failed.stderr
    assert "output" not in failed.stdout


@pytest.mark.spec("migration.md#running")
def test_the_result_is_posted_at_the_end_and_a_failure_of_that_is_no_failure(
    prod: Place, lake: Path
) -> None:
    write(lake, "a", "b")
    command = ["migrate", "register", str(lake), "prod", "-n", prod.prefix, "--execute"]
    with replying() as server:
        server.status, server.location = 204, "/elsewhere"
        url = f"{server.address}/hook?key=s3cr3t-key"
        done = answer_of(*command, "--when-done-url", url)
        again = ["migrate", "resume", done["plan"]["id"]]
        [result] = map(json.loads, server.bodies)
        for server.status in (500, 302):
            server.bodies.clear()
            shown = run(*again, "--when-done-url", url).stderr
            assert f"--when-done-url: 127.0.0.1 answered with status {server.status}" in shown
            assert "s3cr3t" not in shown
            assert len(server.bodies) == 1
    assert (result["migration"], result["state"]) == (done["plan"]["id"], "done")
    assert {tuple(each["target"]) for each in result["items"]} >= {
        prod.table("a"), prod.table("b"),
    }  # fmt: skip
    assert {each["state"] for each in result["items"]} == {"done"}
    shown = run(*again, "--when-done-url", url).stderr
    assert "127.0.0.1 did not respond: " in shown
    assert "s3cr3t" not in shown
    shown = run(*again, "--when-done-url", f"{url}ü").stderr
    assert "127.0.0.1 was not called: percent-encode the characters" in shown
    assert "s3cr3t" not in shown
    assert "http://" in run(*again, "--when-done-url", "ftp://x/y", code=2).stderr


@pytest.mark.spec("migration.md#running")
def test_a_run_says_what_it_does_keeps_the_stacks_of_failures_and_says_how_to_continue(
    prod: Place, lake: Path, tmp_path: Path, state: Migrations
) -> None:
    write(lake, "a", "b")
    planned = run("migrate", "register", str(lake), "prod", "-n", prod.prefix)
    assert "planning register" in planned.stderr
    [id] = state.ids()
    register_rows(prod, "a", tmp_path / "other.lance")
    failed = run("migrate", "resume", id, "--stop-on-error", "--at-once", "1", code=1)
    assert "comparing 2 sources with the plan" in failed.stderr
    assert "migrating 3 items, 1 at a time" in failed.stderr
    log = state.get(id).directory / "log.txt"
    assert f"the stack traces of the failures are in {log}" in failed.stderr
    assert "Traceback" in log.read_text()
    assert "Traceback" not in failed.stderr
    assert "The run was stopped after the failure of" in failed.stdout
    assert f"lance-bridge migrate resume {id}" in failed.stdout
    assert f"lance-bridge migrate undo {id}" in failed.stdout


@pytest.mark.spec("migration.md#plan")
def test_a_plan_shows_what_it_knows_and_problems_with_their_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    item = Item(
        source=("db", "t"),
        target=("db", "new"),
        facts={"source": {"format": "parquet"}},
        rows=1_234_567,
        bytes=400_000_000,
        problems=(
            warning("char(3) becomes a string without a limit to its length", "code"),
            warning("It has no files"),
        ),
    )
    bad = Item(
        source=("s",),
        target=("db", "s"),
        problems=(blocker("Column 'bad' has the type void", "bad"),),
    )
    where = Address(name="hive")
    items = (item, bad)
    plan = Plan(id=ID, type="convert", created=now(), source=where, target=where, items=items)
    print_plan(plan, Output.TEXT)
    shown = capsys.readouterr().out
    assert re.search(r"db.t +db.new +parquet +1,234,567 +400.0 MB +to do", shown)
    assert re.search(r"estimated time +about 0:00:21", shown)
    assert [line for line in shown.splitlines() if line.startswith(("warning", "blocker"))] == [
        "warning: db.new, column 'code': char(3) becomes a string without a limit to its length",
        "warning: db.new: It has no files",
        "blocker: db.s: Column 'bad' has the type void",
    ]


@pytest.mark.spec("migration.md#from-python")
def test_what_differs_ends_with_3_and_what_failed_with_1(
    prod: Place, lake: Path, tmp_path: Path, state: Migrations
) -> None:
    write(lake, "a")
    command = ["migrate", "register", str(lake), "prod", "-n", prod.prefix]
    run(*command, "--execute")
    [id] = state.ids()
    with prod.connect() as namespace:
        namespace.deregister_table(api.DeregisterTableRequest(id=list(prod.table("a"))))
    assert "entry" in run("migrate", "verify", id, code=3).stdout
    run("migrate", "undo", id)
    run(*command)
    [planned] = set(state.ids()) - {id}
    register_rows(prod, "a", tmp_path / "other.lance")
    failed = run("migrate", "resume", planned, code=1)
    assert "after the plan was made" in failed.stdout
    assert "after the plan was made" in failed.stderr


@pytest.mark.spec("migration.md#undoing")
def test_undoing_what_others_changed_is_refused_unless_it_is_left_alone(
    prod: Place, lake: Path, state: Migrations
) -> None:
    write(lake, "a")
    run("migrate", "register", str(lake), "prod", "-n", prod.prefix, "--execute")
    [id] = state.ids()
    with prod.connect() as namespace:
        namespace.deregister_table(api.DeregisterTableRequest(id=list(prod.table("a"))))
        request = api.RegisterTableRequest(id=list(prod.table("a")), location=f"{lake}/a.lance")
        namespace.register_table(request)
    assert "was created since" in run("migrate", "undo", id, code=1).stderr
    run("migrate", "undo", id, "--skip-changed", code=1)
    assert f"{prod.prefix}.a" in prod.entries()


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "nothing"],
        ["resume", "../x"],
        ["properties", "prod", "--to", "theirs"],
        ["management", "prod", "--to", "nobody"],
        ["register", "relative", "prod", "-n", "db"],
        ["register", "/data", "prod", "-n", "a.b"],
    ],
)
def test_errors_are_printed_without_a_traceback(prod: Place, arguments: list[str]) -> None:
    failed = run("migrate", *arguments, code=1)
    assert failed.stderr.startswith("lance-bridge: ")
    assert failed.stdout == ""
    assert prod.entries() == {}


@pytest.mark.spec("migration.md#plan")
def test_no_secret_is_shown_or_kept(prod: Place, glue: Place, state: Migrations) -> None:
    prod.make_namespace()
    secret = glue.properties["secret_access_key"]
    properties = [f"{key}={value}" for key, value in glue.properties.items()]
    given = [word for each in properties for word in ("-p", each)]
    pattern = f"{prod.prefix}*"
    shown = run("migrate", "entries", "prod", "glue", "-i", pattern, *given, "-o", "json")
    [id] = state.ids()
    assert secret not in shown.stdout
    assert json.loads(shown.stdout)["target"]["name"] == "glue"
    kept = [each.read_text() for each in state.get(id).directory.iterdir()]
    assert not any(secret in text for text in kept)
    assert "secret_access_key" in run("migrate", "resume", id, code=1).stderr
    only = ["-p", f"secret_access_key={secret}"]
    assert answer_of("migrate", "resume", id, *only)["state"] == "done"


def test_at_a_terminal_there_is_a_bar_and_elsewhere_there_is_none(prod: Place, lake: Path) -> None:
    write(lake, "a", "b")
    command = ["migrate", "register", str(lake), "prod", "-n", prod.prefix, "--execute"]
    code, shown = at_terminal(command, "")
    assert code == 0
    assert "3/3" in shown
    quiet = run("migrate", "list")
    assert quiet.stderr == ""


# -- examples ------------------------------------------------------------------------------------


def commands() -> Iterator[str]:
    program: Any = typer.main.get_command(app)
    context = typer.Context(program)
    yield from sorted(program.get_command(context, "migrate").list_commands(context))


WITH_SPARK = ("convert", "catch-up", "export")
"""Commands whose examples `test_cli_spark` runs."""
OURS = tuple(each for each in commands() if each not in WITH_SPARK)


def test_every_command_has_an_example_of_itself() -> None:
    assert set(WITH_SPARK) < set(commands())
    for command in commands():
        found = examples("migrate", command)
        assert found, command
        assert all(each.startswith(f"lance-bridge migrate {command}") for each in found)


def _add_catalog(tmp_path: Path, glue: Place) -> None:
    config = tmp_path / "catalogs.yaml"
    content = yaml.safe_load(config.read_text())
    content["catalogs"]["backup"] = {"impl": "glue", **glue.properties}
    config.write_text(yaml.safe_dump(content))


@pytest.fixture
def two_catalogs(prod: Place, glue: Place, tmp_path: Path) -> None:
    """The catalogs that the examples name, and tables that they are about."""
    register_rows(prod, "orders")
    make_theirs(prod, "upper_case_type")
    _add_catalog(tmp_path, glue)


AFTER_A_RUN = ("verify", "undo")
"""Commands that need one."""


@pytest.mark.spec("docs/how-to/migrate.md#every-migration", "migration.md#from-python")
@pytest.mark.parametrize("command", OURS)
@pytest.mark.usefixtures("two_catalogs")
def test_every_example_runs(prod: Place, tmp_path: Path, state: Migrations, command: str) -> None:
    tables = tmp_path / "data" / "tables"
    write(tables, "new")
    run("migrate", "register", str(tables), "prod", "-n", prod.prefix)
    [id] = state.ids()
    if command in AFTER_A_RUN:
        run("migrate", "resume", id)
    for example in examples("migrate", command):
        text = example.replace("sales", prod.prefix).replace(ID, id)
        done = pasted(text.replace("/data/", f"{tmp_path}/data/"))
        assert done.exit_code == 0, f"{text}\n{done.output}"

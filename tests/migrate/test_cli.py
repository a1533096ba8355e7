"""The command line of migrations: plans are shown, carried out with --execute; secrets are not."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance_namespace as api
import pytest
import typer
import yaml
from cli.program import PROGRAM, answer_of, at_terminal, examples, pasted, program, run
from core.secret_search import Secrets, command_lines, log_everything
from servers.glue_server import GlueServer
from servers.replies import reply_server

from lance_bridge.exit_codes import FAILED
from lance_bridge_cli.app import app
from lance_bridge_cli.output import Output
from lance_bridge_migrate import Address, Item, Plan
from lance_bridge_migrate.commands.output import print_plan
from lance_bridge_migrate.plan import blocker, now, warning
from lance_bridge_migrate.record import Migrations

from .places import (
    Place,
    add_rows,
    files,
    make_foreign_table,
    make_parquet_table,
    read_by_name,
    register_rows,
    write,
)

pytestmark = [pytest.mark.servers, pytest.mark.spec("migration.md#convert", "migration.md#plan")]

ID = "20260101-120000-register-0a1b2c"
"""What the examples call a migration."""
ID_PATTERN = re.compile(r"\d{8}-\d{6}-[a-z-]+-[0-9a-f]{6}")
Command = Callable[..., str]
SETTING = "spark.hadoop.fs.azure.account.key.box"
"""A setting of Spark's own, whose secret Spark's own patterns do not know."""


@pytest.fixture
def configured(
    hive: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Place]:
    """Writes a configuration file that calls the metastore ``prod``; names it and a state."""

    def configure(**more: str) -> Place:
        config = tmp_path / "catalogs.yaml"
        catalogs = {"prod": {"impl": "hive", **hive.properties, **more}}
        config.write_text(yaml.safe_dump({"catalogs": catalogs}))
        monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(config))
        monkeypatch.setenv("LANCE_BRIDGE_STATE", str(tmp_path / "state"))
        return hive

    return configure


@pytest.fixture
def prod(configured: Callable[..., Place]) -> Place:
    return configured()


@pytest.fixture
def state(prod: Place) -> Migrations:  # noqa: ARG001 - it sets the environment
    """The migrations of the state directory that the environment names."""
    return Migrations()


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
    done = answer_of(*command, "--execute", "--skip-blocked", "--parallelism", "2")
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
    with reply_server() as server:
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
    failed = run("migrate", "resume", id, "--stop-on-error", "--parallelism", "1", code=1)
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
    assert "db.t\tdb.new\tparquet\t1,234,567\t400.0 MB\tto do" in shown
    assert "estimated time\tabout 0:00:21" in shown
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
        ["properties", "prod", "--to", "foreign"],
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
"""Commands whose examples tests with Spark run."""
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
    make_foreign_table(prod, "upper_case_type")
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


# -- commands that move data by Spark --------------------------------------------------------------


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """Where the files of ``sales.orders`` are."""
    return tmp_path / "warehouse" / "orders"


@pytest.fixture
def with_orders(configured: Callable[..., Place], tmp_path: Path, orders: Path) -> Place:
    """A Hive Metastore that the configuration file calls ``prod``, with a table of Parquet."""
    hive = configured(root=str(tmp_path / "lance"))
    make_parquet_table(hive.port, hive.prefix, "orders", orders)
    add_rows(orders, 0, 10)
    return hive


@pytest.fixture
def paste(with_orders: Place, tmp_path: Path) -> Command:
    """Runs a command as it is printed, with the names of this test; returns what it says."""

    def run(command: str, id: str = "", *, code: int = 0) -> str:
        text = command.replace("sales", with_orders.prefix).replace("/data/", f"{tmp_path}/data/")
        words = shlex.split(ID_PATTERN.sub(id, text) if id else text)
        done = program(*words[1:], seconds=300)
        assert done.returncode == code, f"{text}\n{done.stdout}\n{done.stderr[-3000:]}"
        return done.stdout

    return run


@pytest.mark.slow
def test_sparks_own_messages_are_in_a_log_file_that_is_named(
    with_orders: Place, tmp_path: Path
) -> None:
    planned = program("migrate", "convert", "prod", "--include", f"{with_orders.prefix}.orders",
                      "--name", "{table}_lance", seconds=300)  # fmt: skip
    log = tmp_path / "state" / "spark.log"
    assert f"Spark's own log is {log}" in planned.stderr
    done = program("migrate", "resume", _id_in(planned.stdout), seconds=300)
    assert done.returncode == 0, done.stderr
    for shown in (planned, done):
        assert all(line.startswith("lance-bridge: ") for line in shown.stderr.splitlines())
    assert log.read_text().count("Setting default log level") == 2
    assert log.stat().st_mode & 0o077 == 0


def _id_in(shown: str) -> str:
    return str(ID_PATTERN.findall(shown)[0])


@pytest.mark.slow
def test_the_examples_of_help_run(paste: Command, orders: Path) -> None:
    [convert], [catch_up] = examples("migrate", "convert"), examples("migrate", "catch-up")
    first = _id_in(paste(f"{convert} --execute --index id:BTREE --cast name=binary"))
    add_rows(orders, 10, 12)
    assert "Nothing was changed" in paste(catch_up, first)
    [export] = examples("migrate", "export")
    assert "Nothing was changed" in paste(export)


@pytest.mark.slow
@pytest.mark.parametrize("impl", ["glue", "unity"])
def test_files_are_converted_into_the_other_catalogs(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, impl: str
) -> None:
    place: Place = request.getfixturevalue(impl)
    config = tmp_path / "catalogs.yaml"
    properties = {"impl": impl, **place.properties, "root": str(tmp_path / "lance")}
    config.write_text(yaml.safe_dump({"catalogs": {"other": properties}}))
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(config))
    source = tmp_path / "files"
    source.mkdir()
    add_rows(source, 0, 7)
    database = ".".join((*place.outer, place.prefix))
    where = ["--path", str(source), "--table", "t", "--namespace", database]
    words = ["migrate", "convert", "other", *where, "--execute", "--verify", "checksums"]
    done = program(*words, "--output", "json", "--state", str(tmp_path / "state"), seconds=300)
    assert done.returncode == 0, done.stderr[-3000:]
    record = json.loads(done.stdout)
    assert (record["state"], record["counts"]) == ("done", {"done": 2})
    assert sorted(read_by_name(place, (*place.outer, place.prefix, "t"))["id"].to_pylist()) == [
        *range(7)
    ]


@pytest.mark.servers
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--path", "/data/none"], "--table"),
        (["--vector", "embedding"], "key=value"),
        (["--vector", "embedding=many"], "number of 1 or more"),
        (["--index", "id"], "column:KIND"),
        (["--cast", "id"], "key=value"),
    ],
)
@pytest.mark.usefixtures("with_orders")
def test_misuse_is_reported_before_spark_starts(more: list[str], said: str) -> None:
    done = program("migrate", "convert", "prod", *more)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.servers
@pytest.mark.usefixtures("with_orders")
def test_without_java_the_message_says_what_is_missing(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    done = program(
        *("migrate", "convert", "prod", "--path", str(tmp_path), "--table", "t", "-n", "db"),
        environment={"JAVA_HOME": str(empty), "SPARK_CONF_DIR": str(empty)},
    )
    assert done.returncode == 1
    assert "JAVA_HOME" in done.stderr
    assert "Traceback" not in done.stderr


# -- secrets ---------------------------------------------------------------------------------------


class Program:
    """Runs commands whose processes log all they do at DEBUG, and keeps what they say."""

    def __init__(self, left: Path, environment: dict[str, str]) -> None:
        self.left = left
        log_everything(left / "python")
        inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        path = os.pathsep.join([str(left / "python"), *filter(None, inherited)])
        logs = {"LANCE_LOG": "debug", "RUST_LOG": "debug", "PYTHONPATH": path}
        self.environment = {**os.environ, **logs, "TMPDIR": str(left / "tmp"), **environment}
        (left / "tmp").mkdir()
        self.runs = 0

    def __call__(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [PROGRAM, *words],
            cwd=self.left,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=1200,
        )
        assert done.returncode == code, f"{words}\n{done.stdout}\n{done.stderr[-4000:]}"
        self.runs += 1
        said = f"{done.stdout}\n{done.stderr}"
        (self.left / f"said-{self.runs}.txt").write_text(said)
        return said


def catalogs(tmp_path: Path, hive: Place, glue: GlueServer, secrets: Secrets) -> Path:
    """Return a configuration file: the metastore with a file of secrets, Glue with its own."""
    file = tmp_path / "secrets.yaml"
    file.write_text(yaml.safe_dump(secrets.storage("hive")))
    prod = {"impl": "hive", **hive.properties, "root": str(tmp_path / "lance")}
    given = {**glue.properties, "secret_access_key": secrets.new("glue key"), "root": "s3://lake/x"}
    options = {f"storage.{key}": value for key, value in glue.storage_options.items()}
    options["storage.aws_secret_access_key"] = secrets.new("glue storage key")
    other = {"impl": "glue", **given, **options}
    config = tmp_path / "catalogs.yaml"
    entries = {"prod": {**prod, "secrets.file": str(file)}, "other": other}
    config.write_text(yaml.safe_dump({"catalogs": entries}))
    return config


@pytest.fixture
def secrets() -> Secrets:
    return Secrets()


@pytest.fixture
def logged(hive: Place, tmp_path: Path, secrets: Secrets) -> Iterator[Program]:
    """The command, with the catalogs ``prod`` and ``other`` and a state directory."""
    left = tmp_path / "left"
    (left / "events").mkdir(parents=True)
    with GlueServer() as glue:
        glue.make_bucket("lake")
        environment = {
            "LANCE_BRIDGE_CONFIG": str(catalogs(tmp_path, hive, glue, secrets)),
            "LANCE_BRIDGE_STATE": str(left / "state"),
            "LANCE_BRIDGE_OTHER_SESSION_TOKEN": secrets.new("glue token"),
        }
        yield Program(left, environment)


def ids(logged: Program) -> list[str]:
    return sorted(path.name for path in (logged.left / "state" / "migrations").iterdir())


@pytest.mark.slow
def test_no_secret_is_in_what_migrations_between_catalogs_leave_behind(
    hive: Place, tmp_path: Path, secrets: Secrets, logged: Program
) -> None:
    write(tmp_path / "lake", "a")
    option = f"storage.azure_storage_account_key={secrets.new('source option')}"
    with command_lines(os.getpid()) as lines:
        logged(
            *("migrate", "register", str(tmp_path / "lake"), "prod", "-n", hive.prefix),
            *("-s", option, "--execute"),
        )
        logged("migrate", "copy", "prod", "other", "-i", f"{hive.prefix}.*", "--execute")
        logged("migrate", "report", ids(logged)[-1])
        wrong = f"endpoint=http://{secrets.new('wrong')}@h"
        logged("migrate", "resume", ids(logged)[-1], "-p", wrong, code=FAILED)
        logged("config", "show")
    assert len(ids(logged)) == 2
    assert secrets.found_in("\n".join(lines).encode()) == {"source option", "wrong"}
    assert secrets.found_below(logged.left) == {}


@pytest.mark.slow
def test_no_secret_is_in_what_a_conversion_by_spark_leaves_behind(
    hive: Place, tmp_path: Path, secrets: Secrets, logged: Program
) -> None:
    left, source = logged.left, tmp_path / "warehouse" / "orders"
    make_parquet_table(hive.port, hive.prefix, "orders", source)
    add_rows(source, 0, 10)
    spark = ["-c", "spark.eventLog.enabled=true", "-c", "spark.eventLog.compress=false"]
    spark += ["-c", f"spark.eventLog.dir=file://{left / 'events'}"]
    spark += ["-c", f"spark.local.dir={left / 'tmp'}"]
    spark += ["-c", f"{SETTING}={secrets.new('setting')}"]
    with command_lines(os.getpid()) as lines:
        convert = ["migrate", "convert", "prod", "-i", f"{hive.prefix}.orders", *spark]
        logged(*convert, "--name", "{table}_lance", "--execute", "--verify", "checksums")
        logged("migrate", "report", *ids(logged))
    assert any("org.apache.spark.deploy.SparkSubmit" in line for line in lines)
    [log] = [path for path in (left / "events").rglob("events*") if path.is_file()]
    assert SETTING.encode() in log.read_bytes()
    assert secrets.found_in("\n".join(lines).encode()) == {"setting"}
    assert secrets.found_below(left) == {}

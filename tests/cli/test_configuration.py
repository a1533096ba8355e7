"""The configuration file: shown without secrets, and changed in one step with comments kept."""

from __future__ import annotations

import csv
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from lance_bridge import LanceBridgeNamespace, catalogs
from lance_bridge.registry import find
from lance_bridge_cli.configuration import HIDDEN

from .program import answer_of, run

pytestmark = [pytest.mark.quick, pytest.mark.spec("cli.md#config")]

URI = "uri=thrift://localhost:9083"
WITH_COMMENTS = """\
# our catalogs
catalogs:
  prod:  # the one that matters
    impl: hive
    uri: thrift://old:9083  # moves in May
    catalog_levels: true

  other:
    impl: unity
    host: http://unity:8080
"""


@pytest.mark.parametrize("is_there", [False, True], ids=["created", "changed"])
def test_config_set_makes_the_file_private(config: Path, *, is_there: bool) -> None:
    if is_there:
        config.write_text(WITH_COMMENTS)
        config.chmod(0o644)
    run("config", "set", "prod", "impl=hive", URI)
    prod = yaml.safe_load(config.read_text())["catalogs"]["prod"]
    assert (prod["impl"], prod["uri"]) == ("hive", "thrift://localhost:9083")
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert [each.name for each in config.parent.iterdir()] == [config.name]


def test_config_set_keeps_comments_and_other_catalogs(config: Path) -> None:
    config.write_text(WITH_COMMENTS)
    run("config", "set", "prod", "uri=thrift://new:9083", "root=/data: 1")
    shown = run("config", "set", "prod", "--unset", "catalog_levels").stdout
    assert shown == f"prod: catalog_levels unset in {config}\n"
    run("config", "set", "third", "impl=glue", "region=eu-west-1")
    changed = WITH_COMMENTS.replace("//old", "//new").replace(
        "    catalog_levels: true\n", "    root: '/data: 1'\n"
    )
    assert config.read_text() == changed + "  third:\n    impl: glue\n    region: eu-west-1\n"


def test_config_remove_keeps_comments_and_other_catalogs(config: Path) -> None:
    config.write_text(WITH_COMMENTS)
    assert "config remove prod" in run("config", "set", "prod", "--unset", "impl", code=1).stderr
    for command in ("remove", "show"):
        assert "no catalog 'nope'" in run("config", command, "nope", code=1).stderr
    assert config.read_text() == WITH_COMMENTS
    run("config", "remove", "prod")
    rest = "  other:\n    impl: unity\n    host: http://unity:8080\n"
    assert config.read_text() == f"# our catalogs\ncatalogs:\n\n{rest}"
    run("config", "remove", "other")
    assert not yaml.safe_load(config.read_text())["catalogs"]
    run("config", "set", "prod", "impl=hive", URI)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing yet\n",
        "catalogs: {prod: {impl: hive, uri: 'thrift://a:1'}, other: {impl: glue}}",
        "catalogs: {}\n",
    ],
)
def test_config_set_and_remove_change_any_form_of_yaml(config: Path, text: str) -> None:
    config.write_text(text)
    others = {"other": {"impl": "glue"}} if "other" in text else {}
    run("config", "set", "prod", "impl=hive", URI)
    prod = {"impl": "hive", "uri": "thrift://localhost:9083"}
    assert yaml.safe_load(config.read_text())["catalogs"] == {"prod": prod, **others}
    run("config", "remove", "prod")
    assert (yaml.safe_load(config.read_text())["catalogs"] or {}) == others


def test_invalid_properties_are_refused_and_not_written(config: Path) -> None:
    config.write_text(WITH_COMMENTS)
    unknown = run("config", "set", "prod", "url=thrift://x:1", code=1)
    assert "has no property 'url': did you mean 'uri'?" in unknown.stderr
    unknown = run("config", "set", "prod", "zzz=1", code=1)
    assert all(f" {key}," in unknown.stderr for key in ("uri", "root", "auth.password"))
    run("config", "set", "prod", "client.pool-size=none", code=1)
    assert "required" in run("config", "set", "prod", "--unset", "uri", code=1).stderr
    assert "impl=" in run("config", "set", "fourth", "root=/data", code=1).stderr
    assert "another name" in run("config", "set", "hive", "impl=hive", URI, code=1).stderr
    relative = run("config", "set", "files", "impl=dir", "root=./lake", code=1)
    assert f"give root={Path('lake').absolute()}" in relative.stderr
    run("config", "set", "prod", code=2)
    run("config", "set", "prod", "=x", code=2)
    assert config.read_text() == WITH_COMMENTS


def test_a_failed_write_leaves_the_file_unchanged(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text(WITH_COMMENTS)

    def full(_handle: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("lance_bridge_cli.configuration.os.fsync", full)
    failed = run("config", "set", "prod", "root=/data", code=1)
    assert "no space left" in failed.stderr
    assert config.read_text() == WITH_COMMENTS
    assert [each.name for each in config.parent.iterdir()] == [config.name]


def test_a_link_to_the_file_stays_a_link(config: Path, tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "real.yaml"
    real.parent.mkdir()
    real.write_text(WITH_COMMENTS)
    config.symlink_to(real)
    run("config", "set", "prod", "root=/data")
    assert config.is_symlink()
    assert "root: /data" in real.read_text()


def test_secrets_are_hidden_wherever_they_come_from(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {
        "impl": "hive",
        "uri": "http://me:hunter1@localhost:1/metastore",
        "auth.password": "hunter2",
        "storage.aws_secret_access_key": "hunter3",
    }
    far = {"impl": "rest", "header.token": "hunter5"}
    config.write_text(yaml.safe_dump({"catalogs": {"prod": properties, "far": far}}))
    monkeypatch.setenv("LANCE_BRIDGE_PROD_HTTP_TOKEN", "hunter4")
    monkeypatch.setenv("LANCE_BRIDGE_PROD_ROOT", "/data")
    answer = run("config", "show")
    assert "hunter" not in answer.output + run("config", "show", "-o", "json").output
    found = answer_of("config", "show", "prod")["catalogs"]["prod"]
    assert found["auth.password"] == {"value": HIDDEN, "from": "file"}
    assert found["http.token"] == {"value": HIDDEN, "from": "environment"}
    assert found["root"] == {"value": "/data", "from": "environment"}
    assert found["uri"]["value"] == f"http://{HIDDEN}@localhost:1/metastore"
    assert str(config) in answer.stdout


@pytest.mark.spec("cli.md#output")
def test_config_show_and_catalogs_list_print_csv(config: Path) -> None:
    config.write_text(yaml.safe_dump({"catalogs": {"prod": {"impl": "hive", "root": "/a,b"}}}))
    shown = run("config", "show", "-o", "csv").stdout
    assert list(csv.reader(shown.splitlines())) == [
        ["catalog", "property", "value", "from"],
        ["prod", "impl", "hive", "file"],
        ["prod", "root", "/a,b", "file"],
    ]
    listed = list(csv.DictReader(run("catalogs", "list", "-o", "csv").stdout.splitlines()))
    assert [each["impl"] for each in listed if each["class"]] == sorted(catalogs())
    [prod] = [each for each in listed if not each["class"]]
    assert (prod["catalog"], prod["impl"], prod["connection"]) == ("prod", "hive", "")
    assert "uri" in prod["problem"]


@pytest.mark.usefixtures("config")
def test_a_key_alone_reads_its_value_from_the_input() -> None:
    run("config", "set", "prod", "impl=hive", "uri=http://localhost:10001/metastore")
    answer = run("config", "set", "prod", "http.token", answer="hunter2\n")
    assert "hunter2" not in answer.output
    assert "http.token" in run("config", "show", "prod").stdout
    run("config", "set", "prod", "http.token", answer="", code=2)


def test_a_malformed_catalog_does_not_affect_the_others(config: Path) -> None:
    config.write_text(
        "catalogs:\n  good:\n    impl: hive\n    uri: thrift://h:1\n"
        "  twice: {impl: hive, uri: thrift://a:1, uri: thrift://b:1}\n  bad: 3\n"
    )
    run("config", "set", "good", "root=/lake")
    shown = run("config", "show")
    assert "/lake" in shown.stdout
    assert "'uri' is duplicated" in shown.stderr
    assert "'bad' must be a mapping" in shown.stderr
    assert "'bad' must be a mapping" in run("config", "show", "bad", code=1).stderr
    assert "'bad' must be a mapping" in run("config", "set", "bad", "impl=hive", code=1).stderr
    listed = {row["catalog"]: row for row in answer_of("catalogs", "list")["configured"]}
    assert listed["good"]["problem"] == ""
    assert "'uri' is duplicated" in listed["twice"]["problem"]
    assert "bad: 3" in config.read_text()
    assert "uri: thrift://a:1, uri: thrift://b:1" in config.read_text()


# -- the properties of an implementation ----------------------------------------------------------


@pytest.mark.spec("cli.md#catalogs")
@pytest.mark.parametrize("impl", sorted(catalogs()))
def test_every_property_has_an_example_that_is_valid(impl: str) -> None:
    catalog = find(impl)
    assert issubclass(catalog, LanceBridgeNamespace)
    examples: dict[str, Any] = {each.key: each.example for each in catalog.config_type.declared()}
    assert all(examples.values())

    examples |= {"storage.*": {"aws_region": "us-east-1"}, "no.such.property": ""}
    examples |= {"credentials.*": {"region": "us-east-1"}}
    with pytest.raises(ValidationError) as error:
        catalog.config_type.model_validate(examples)
    refused = {each["loc"] for each in error.value.errors() if each["loc"]}
    assert refused == {("no.such.property",)}


@pytest.mark.spec("cli.md#catalogs")
def test_the_properties_of_an_implementation_of_ours_are_listed() -> None:
    assert "pylance's own" in run("catalogs", "properties", "dir", code=2).stderr
    assert "known catalogs" in run("catalogs", "properties", "nonsense", code=1).stderr
    rows = {each["name"]: each for each in answer_of("catalogs", "properties", "hive")}
    text = run("catalogs", "properties", "hive").stdout
    csv_text = run("catalogs", "properties", "hive", "-o", "csv").stdout
    markdown = run("catalogs", "properties", "hive", "-o", "markdown").stdout.splitlines()

    assert rows["uri"]["default"] == "required"
    assert rows["auth.password"]["secret"] is True
    assert rows["client.pool-size"]["example"] == "16"
    assert all(name in text for name in rows)
    assert [each["name"] for each in csv.DictReader(csv_text.splitlines())] == list(rows)
    assert markdown[:2] == [
        "| name | default | secret | meaning | example |",
        "| --- | --- | --- | --- | --- |",
    ]
    assert len(markdown) == len(rows) + 2
    assert next(each for each in markdown if each.startswith("| auth.mechanism")).endswith(
        "| plain |"
    )


def test_the_options_of_a_vendor_of_credentials_are_set(config: Path) -> None:
    role = "credentials.role_arn=arn:aws:iam::123456789012:role/lake"
    run("config", "set", "prod", "impl=hive", "uri=thrift://h:1", role, code=1)
    assert not config.exists()
    run("config", "set", "prod", "impl=hive", "uri=thrift://h:1", "credentials.vendor=aws", role)
    assert "role_arn: arn:aws:iam::123456789012:role/lake" in config.read_text()


# -- the default catalog ---------------------------------------------------------------------------


@pytest.mark.spec("cli.md#which-catalog")
@pytest.mark.parametrize(
    "text",
    [
        WITH_COMMENTS,
        f"default: other\n{WITH_COMMENTS}",
        "catalogs: {prod: {impl: hive, uri: 'thrift://a:1'}, other: {impl: glue}}",
        "{default: other, catalogs: {prod: {impl: glue}, other: {impl: glue}}}",
    ],
    ids=["comments", "replaced", "flow", "flow replaced"],
)
def test_a_default_catalog_is_set_shown_and_unset(config: Path, text: str) -> None:
    config.write_text(text)
    before = yaml.safe_load(text)["catalogs"]
    run("config", "default", "prod")
    content = yaml.safe_load(config.read_text())
    assert (content["default"], content["catalogs"]) == ("prod", before)
    assert run("config", "default").stdout == "prod\n"
    assert answer_of("config", "show")["default"] == "prod"
    assert "default: prod" in run("config", "show").stdout.splitlines()
    listed = {row["catalog"]: row for row in answer_of("catalogs", "list")["configured"]}
    assert [name for name, row in listed.items() if row["default"]] == ["prod"]
    run("config", "default", "--unset")
    content = yaml.safe_load(config.read_text())
    assert content == {"catalogs": before}
    assert "has no default catalog" in run("config", "default", code=1).stderr


def test_setting_a_default_keeps_comments(config: Path) -> None:
    config.write_text(WITH_COMMENTS)
    run("config", "default", "prod")
    expected = WITH_COMMENTS.replace("catalogs:\n", "default: prod\ncatalogs:\n")
    assert config.read_text() == expected
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    run("config", "default", "--unset")
    assert config.read_text() == WITH_COMMENTS
    run("config", "default", "prod")
    run("config", "remove", "prod")
    assert "default" not in yaml.safe_load(config.read_text())


def test_a_default_that_is_not_configured_is_refused(config: Path) -> None:
    config.write_text(WITH_COMMENTS)
    error = run("config", "default", "prd", code=1).stderr
    assert "has no catalog 'prd': did you mean 'prod'?" in error
    run("config", "default", "prod", "--unset", code=2)
    assert config.read_text() == WITH_COMMENTS


def test_without_a_file_there_is_no_default(config: Path) -> None:
    run("config", "default", code=1)
    run("config", "default", "--unset")
    assert not config.exists()


@pytest.mark.spec("cli.md#which-catalog")
def test_the_default_catalog_is_used_if_exactly_one_argument_is_missing(config: Path) -> None:
    config.write_text(WITH_COMMENTS)
    missing = run("table", "head", "sales.orders", code=2).stderr
    assert "Missing argument" in missing
    run("config", "set", "prod", "impl=dir", "root=/lake", "--unset", "uri", "--unset",
        "catalog_levels")  # fmt: skip
    run("config", "default", "prod")
    for command in (
        ["table", "list"],
        ["table", "head", "sales.orders"],
        ["table", "head", "-n", "3", "sales.orders"],
        ["table", "rename", "sales.orders", "sales.old"],
        ["table", "properties", "set", "sales.orders", "a=b"],
        ["catalogs", "test"],
    ):
        # The commands refuse pylance's own directories, by name.
        assert "'prod'" in run(*command, code=2).stderr, command
    for command in (
        ["table", "list", "nothing"],
        ["table", "head", "nothing", "sales.orders"],
        ["table", "rename", "nothing", "sales.orders", "sales.old"],
    ):
        assert "no catalog 'nothing'" in run(*command, code=1).stderr, command
    assert "Missing argument" in run("table", "rename", "sales.orders", code=2).stderr


@pytest.mark.spec("cli.md#which-catalog")
@pytest.mark.parametrize(
    "command",
    [
        ["table", "rename", "prod", "sales.orders"],
        ["table", "rename", "other", "sales.orders"],
        ["table", "rename", "hive", "sales.orders"],
        ["table", "rename", "federated", "sales.orders"],
        ["table", "rename", "dir", "sales.orders"],
        ["table", "properties", "set", "prod", "sales.orders"],
        ["ns", "describe", "other"],
    ],
    ids=" ".join,
)
def test_the_default_catalog_is_not_used_if_a_catalog_is_given(
    config: Path, command: list[str]
) -> None:
    config.write_text(f"default: prod\n{WITH_COMMENTS}")
    assert "Missing argument" in run(*command, code=2).stderr


@pytest.mark.spec("cli.md#which-catalog", "cli.md#confirmation")
@pytest.mark.parametrize(
    "command",
    [
        ["table", "drop", "staging"],
        ["ns", "drop", "staging", "--cascade"],
        ["managed", "discard", "sales.orders", "--versions", "2"],
    ],
    ids=" ".join,
)
def test_commands_that_drop_never_use_the_default_catalog(config: Path, command: list[str]) -> None:
    config.write_text(f"default: prod\n{WITH_COMMENTS}")
    for given in (command, [*command, "--yes"]):
        assert "Missing argument" in run(*given, code=2).stderr

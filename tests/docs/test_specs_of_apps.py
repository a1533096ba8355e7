"""The specs of apps and ``docs/errors.md`` say what the code does: names and defaults are compared.

Those are commands, exit codes, findings, errors, migrations, and keys of the configuration.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args

import lance
import pyarrow as pa
import pytest
from cli.program import COMMANDS
from lance_namespace.errors import ErrorCode
from lancedb.namespace import AsyncLanceNamespaceDBConnection, LanceNamespaceDBConnection
from lancedb.table import AsyncBranches, AsyncTable, AsyncTags, Branches, LanceTable, Tags
from pydantic import BaseModel

from lance_bridge import exit_codes
from lance_bridge_doctor import Kind
from lance_bridge_federated import children
from lance_bridge_migrate import Level, migration_type
from lance_bridge_migrate.endpoints import Selection
from lance_bridge_migrate.migration import MIGRATION_TYPES
from lance_bridge_migrate.run import RunOptions
from lance_bridge_server.access.authentication import Principal
from lance_bridge_server.access.policies import GROUPS, CedarAuthorizer
from lance_bridge_server.config import (
    CertificateSettings,
    OidcSettings,
    ProviderLoginSettings,
    ProxySettings,
    ServerSettings,
    SettingsSource,
)
from lance_bridge_server.errors import STATUS_BY_CODE

from .operation_samples import new_namespace
from .specs import DOCUMENTS, REPOSITORY, Spec, names_used_for

pytestmark = pytest.mark.checks

CLI_SPEC = DOCUMENTS["cli"]
MIGRATION_SPEC = DOCUMENTS["migration"]
SERVER_SPEC = DOCUMENTS["server"]
SPEC = REPOSITORY / "specs" / "clients.md"
CLASSES: dict[str, tuple[type[Any], type[Any]]] = {
    "connection": (LanceNamespaceDBConnection, AsyncLanceNamespaceDBConnection),
    "table": (LanceTable, AsyncTable),
    "tags": (Tags, AsyncTags),
    "branches": (Branches, AsyncBranches),
}
"""By the head of the first column of a table in the spec: LanceDB's classes."""
SECTIONS = {
    "connection": "clients.md#the-connection",
    "table": "clients.md#the-table",
    "tags": "clients.md#tags",
    "branches": "clients.md#branches",
}
"""Of these tables."""
WORKS, NO, ABSENT = "works", "no", "none"
every_table = pytest.mark.parametrize("name", CLASSES)


def first_cells(title: str, first: str, spec: Spec = CLI_SPEC) -> list[str]:
    return [row[0].strip("`") for row in spec.rows(title, first)]


@pytest.mark.spec("cli.md#commands")
def test_every_command_is_documented() -> None:
    listed = first_cells("Commands", "command")

    assert sorted(listed) == sorted(map(" ".join, COMMANDS))
    assert len(listed) > 28


@pytest.mark.spec("cli.md#exit-codes")
def test_exit_codes_are_those_of_the_code() -> None:
    codes = (exit_codes.FAILED, exit_codes.MISUSED, exit_codes.FOUND, exit_codes.INTERRUPTED)
    assert first_cells("Exit Codes", "code") == [str(code) for code in (0, *codes)]


@pytest.mark.spec("cli.md#findings")
def test_every_kind_of_finding_is_documented_and_tested() -> None:
    assert first_cells("Findings", "finding") == [kind.value for kind in Kind]
    used = {name for names in names_used_for("cli.md#findings").values() for name in names}
    assert [kind for kind in Kind if not used & {kind.name, kind.value}] == []


# -- docs/errors.md --------------------------------------------------------------------------------


ROWS = Spec(REPOSITORY / "docs" / "errors.md").rows("Errors", "code")


def test_every_code_has_a_row_with_its_name_and_status() -> None:
    shown = [(int(code), name, int(status)) for code, name, status, *_ in ROWS]
    names = {code: code.name.title().replace("_", "") for code in ErrorCode}
    assert shown == [(int(code), names[code], STATUS_BY_CODE[code]) for code in ErrorCode]


def test_every_row_says_what_to_do() -> None:
    assert [
        row[0] for row in ROWS if len(row) != 5 or not all(cell.endswith(".") for cell in row[3:])
    ] == []


def test_commands_that_help_exist() -> None:
    known = {" ".join(words) for words in COMMANDS}
    named = re.findall(r"`lance-bridge ([a-z ]+?) CATALOG", " ".join(row[4] for row in ROWS))
    assert len(named) > 5
    assert [each for each in named if each not in known] == []


# -- specs/migration.md ----------------------------------------------------------------------------


def stated(title: str) -> dict[str, str]:
    """Return the options of a section's table, with their defaults."""
    rows = MIGRATION_SPEC.rows(title, "option")
    return {row[0].strip("`"): row[1].strip("`") for row in rows}


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    return str(value) if value else "none"


def declared(options: Any) -> dict[str, str]:
    """Return the options of a model, with their defaults as a spec shows them."""
    return {
        name: "needed"
        if field.is_required()
        else shown(field.get_default(call_default_factory=True))
        for name, field in options.model_fields.items()
    }


def test_every_type_has_a_section_and_every_section_a_type() -> None:
    assert sorted(MIGRATION_SPEC.below("Types")) == sorted(MIGRATION_TYPES)


@pytest.mark.spec("migration.md#selecting-tables")
def test_the_options_of_every_kind_are_those_of_the_code() -> None:
    assert stated("Selecting Tables") == declared(Selection)
    for kind in MIGRATION_TYPES:
        options = migration_type(kind).options_type
        common = Selection.model_fields if issubclass(options, Selection) else {}
        own = {name: each for name, each in declared(options).items() if name not in common}
        assert stated(kind) == own, kind


def test_the_levels_and_the_defaults_of_a_run_are_those_of_the_code() -> None:
    assert first_cells("Verifying", "level", MIGRATION_SPEC) == [each.value for each in Level]
    default = RunOptions()
    text = MIGRATION_SPEC.path.read_text(encoding="utf-8")
    assert f"at the same time ({default.parallelism})" in text
    [row] = [r for r in MIGRATION_SPEC.rows("Verifying", "level") if "default" in r[1]]
    assert row[0] == f"`{default.verify.value}`"


def test_the_python_that_it_shows_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_STATE", str(tmp_path / "state"))
    tables = tmp_path / "tables"
    lance.write_dataset(pa.table({"a": [1]}), str(tables / "t.lance"))
    namespace, server = new_namespace(tmp_path / "lake")
    [snippet] = MIGRATION_SPEC.snippets("python")
    inner = next(path for path in server.namespaces if len(path) == 3)
    snippet = snippet.replace("/data/tables", str(tables)).replace('["sales"]', repr(list(inner)))
    known: dict[str, Any] = {"ns": namespace}
    exec(compile(snippet, MIGRATION_SPEC.path.name, "exec"), known)
    assert known["record"].state.value == "done"
    assert server.effects[-2:] == ["create_table", "drop_table"]


# -- specs/server.md -------------------------------------------------------------------------------


def keys(model: Any, prefix: str = "") -> Iterator[str]:
    """Yield the keys of settings; those of a method of authentication are listed by themselves."""
    if not hasattr(model, "model_fields"):
        yield from (f"{prefix}{name}" for name in model.__dataclass_fields__)
        return
    for name, field in model.model_fields.items():
        if name == "authentication":
            yield f"{name}[]"
            continue
        types = [field.annotation, *get_args(field.annotation)]
        inner = [each for each in types if isinstance(each, type) and _has_fields(each)]
        part = f"{name}[]" if inner and get_args(field.annotation)[:1] == (inner[0],) else name
        part = name if type(None) in get_args(field.annotation) else part
        yield from keys(inner[0], f"{prefix}{part}.") if inner else [f"{prefix}{name}"]


def _has_fields(type_: type) -> bool:
    return issubclass(type_, BaseModel) or hasattr(type_, "__dataclass_fields__")


@pytest.mark.spec("server.md#keys-of-the-configuration")
def test_every_key_of_the_configuration_is_documented() -> None:
    documented = first_cells("Keys of the Configuration", "key", SERVER_SPEC)
    assert documented == list(keys(ServerSettings))
    assert len(documented) > 20


@pytest.mark.spec(
    "server.md#a-trusted-proxy",
    "server.md#client-certificates",
    "server.md#openid-connect",
    "server.md#signing-in",
)
@pytest.mark.parametrize(
    ("title", "first", "settings"),
    [
        ("OpenID Connect", "key", OidcSettings),
        ("Client Certificates", "key", CertificateSettings),
        ("A Trusted Proxy", "key", ProxySettings),
        ("Signing In", "key of `login`", ProviderLoginSettings),
    ],
)
def test_every_key_of_a_method_is_documented(
    title: str, first: str, settings: type[BaseModel]
) -> None:
    expected = [name for name in settings.model_fields if name != "method"]
    assert first_cells(title, first, SERVER_SPEC) == expected


@pytest.mark.spec("server.md#databases", "server.md#the-configuration-file")
def test_the_configuration_of_the_spec_is_read(tmp_path: Path) -> None:
    [text] = SERVER_SPEC.snippets("yaml")
    path = tmp_path / "server.yaml"
    path.write_text(text)
    settings = SettingsSource(path).read()
    assert sorted(settings.catalogs) == ["aws", "prod"]
    assert settings.databases("sales") == ["prod", "sales"]
    assert settings.databases("archive") == ["aws", "sales_2020"]


@pytest.mark.spec("server.md#authorization")
def test_the_policies_of_the_spec_decide(tmp_path: Path) -> None:
    [text] = SERVER_SPEC.snippets("cedar")
    path = tmp_path / "policies.cedar"
    path.write_text(text)
    authorizer = CedarAuthorizer(path)
    analyst = Principal("ann", frozenset({"analysts"}))
    assert authorizer.check(analyst, "query_table", ("prod", "sales", "orders")).allowed
    pay = authorizer.check(analyst, "query_table", ("prod", "pay", "t"))
    assert (pay.allowed, pay.reasons) == (False, ("nobody-reads-pay",))
    loader = Principal("loader")
    assert authorizer.check(loader, "insert_into_table", ("prod", "sales", "orders")).allowed


@pytest.mark.spec("server.md#authorization")
def test_the_groups_of_actions_are_documented() -> None:
    assert tuple(first_cells("Authorization", "group", SERVER_SPEC)) == GROUPS


@pytest.mark.spec("federated.md#connecting")
def test_the_properties_of_a_federation_are_documented() -> None:
    listed = first_cells("Connecting", "property", DOCUMENTS["federated"])
    prefix = f"{children.PREFIX}<name>"
    assert listed == [children.CATALOGS, f"{prefix}.impl", f"{prefix}.<property>"]


# -- specs/clients.md ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One method: what is said of it in its synchronous and its asynchronous form."""

    method: str
    answers: tuple[str, str]
    reason: str


def rows_of(name: str) -> list[Row]:
    """Return the rows of the table whose first column is headed by `name`."""
    lines = SPEC.read_text(encoding="utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {name} |"))
    found = []
    for line in takewhile(lambda line: line.startswith("|"), lines[start + 2 :]):
        method, sync, later, reason = (cell.strip() for cell in line.strip("|").split("|"))
        found.append(Row(method.strip("`"), (sync, later), reason))
    return found


def public(kind: type[Any]) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


@every_table
def test_every_public_method_of_lancedb_is_in_the_document(name: str) -> None:
    rows = rows_of(name)
    methods = [row.method for row in rows]
    assert methods == sorted(set(methods))
    for number, kind in enumerate(CLASSES[name]):
        assert {row.answers[number] for row in rows} <= {WORKS, NO, ABSENT}
        named = {row.method for row in rows if row.answers[number] != ABSENT}
        assert named == public(kind), f"{kind.__name__}: update {SPEC.name}"


@every_table
def test_what_works_is_called_by_a_test_of_its_section_and_other_rows_have_a_reason(
    name: str,
) -> None:
    used: dict[bool, set[str]] = {False: set(), True: set()}
    for file, names in names_used_for(SECTIONS[name]).items():
        used["async" in file.name] |= names
    for row in rows_of(name):
        for answer, is_async in zip(row.answers, (False, True), strict=True):
            assert answer != WORKS or row.method in used[is_async], f"no test uses {row.method}"
        assert NO not in row.answers or len(row.reason.strip(" :,")) > 10, row.method

"""The specs of apps and ``docs/errors.md`` say what the code does: names and defaults are compared.

Those are commands, exit codes, findings, errors, migrations, and keys of the configuration; of
Spark, options, types and functions, and its snippets run, in one session on a real metastore.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args

import lance
import lance_namespace.errors as lance_errors
import pyarrow as pa
import pytest
from cli.program import COMMANDS
from lance_namespace import CreateNamespaceRequest, CreateTableRequest
from lance_namespace.errors import ErrorCode, LanceNamespaceError
from lancedb.namespace import AsyncLanceNamespaceDBConnection, LanceNamespaceDBConnection
from lancedb.table import AsyncBranches, AsyncTable, AsyncTags, Branches, LanceTable, Tags
from pydantic import BaseModel
from servers.metastores import Metastores
from servers.sparks import Spark

import lance_bridge_spark
from lance_bridge import exit_codes
from lance_bridge.dataset import BATCH_ROWS
from lance_bridge.dataset.searches import DEFAULT_K
from lance_bridge.operations.data import NEED_ENGINE
from lance_bridge.testing.calls import ipc
from lance_bridge_cli.help import EXIT_CODES
from lance_bridge_doctor import Kind
from lance_bridge_federated import children
from lance_bridge_hive import HiveNamespace
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
from lance_bridge_spark import schemas
from lance_bridge_spark.source import options
from lance_bridge_spark.source.streams import FAIL
from lance_bridge_spark.source.worker_calls import condition

from .operation_samples import new_namespace
from .snippet_processes import run_snippets
from .specs import DOCUMENTS, REPOSITORY, Spec, names_used_for, operations
from .test_documents import URI

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
    codes = [code for name, code in vars(exit_codes).items() if name.isupper()]
    assert first_cells("Exit Codes", "code") == [str(code) for code in (0, *codes)]
    assert all(f"; {code} " in EXIT_CODES for code in codes)


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


# -- specs/spark.md --------------------------------------------------------------------------------


SPARK_SPEC = DOCUMENTS["spark"]
TEXT = SPARK_SPEC.path.read_text(encoding="utf-8")
OPTION_TABLES = [
    "Choosing a Table",
    *(f"{kind} Options" for kind in ("Read", "Search", "Write", "Stream")),
]
DEFAULTS = {
    "batch_size": BATCH_ROWS,
    "bytes_per_task": options.TASK_BYTES,
    "nearest.k": DEFAULT_K,
    "on_change": FAIL,
}
JAVA_ERRORS = (
    REPOSITORY / "apps/lance_bridge_spark/jvm/src/org/lancebridge/spark/LanceException.java"
)
TYPES = [
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.decimal128(38, 18)),
    *(pa.string(), pa.large_string(), pa.string_view()),
    *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns")),
    *(pa.timestamp("us", "UTC"), pa.timestamp("ns", "Europe/Berlin")),
    *(pa.duration("s"), pa.duration("us")),
    *(pa.list_(pa.int32()), pa.large_list(pa.int32())),
    *(pa.list_(pa.float32(), 2), pa.list_(pa.float16(), 2)),
    pa.dictionary(pa.int8(), pa.string()),
    pa.struct([("a", pa.uint8())]),
    pa.map_(pa.string(), pa.int64()),
]
_OTHER_NAMES = {"float": "float32", "halffloat": "float16", "double": "float64"}
_ARROW_NAMES = {"date32[day]": "date32", "date64[ms]": "date64"}


# -- specs/spark.md: the source --------------------------------------------------------------------


def option_rows() -> dict[str, str]:
    """Every option of the tables, with its documented default."""
    rows = [row for title in OPTION_TABLES for row in SPARK_SPEC.rows(title, "option")]
    assert [name for name, n in Counter(row[0] for row in rows).items() if n > 1] == []
    return {row[0].strip("`"): row[1] for row in rows}


def test_options_and_their_defaults_are_those_of_the_code() -> None:
    stated = option_rows()

    assert sorted(stated) == sorted(options.KNOWN)
    assert {key: stated[key] for key in DEFAULTS} == {k: f"`{v}`" for k, v in DEFAULTS.items()}


def arrow_name(kind: pa.DataType) -> str:
    """What the spec calls a type: as pyarrow writes it, but for elements of lists and maps."""
    text = re.sub(r"<(?:item|element): (\w+)>", r"<\1>", str(kind))
    text = re.sub(r"\b(halffloat|float|double)\b", lambda m: _OTHER_NAMES[m[1]], text)
    return _ARROW_NAMES.get(text, text)


def test_types_are_read_as_the_spec_says() -> None:
    stated = {
        name: re.findall(r"`([^`]+)`", row[1])[0]
        for row in SPARK_SPEC.rows("Reading Types", "in the table")
        for name in re.findall(r"`([^`]+)`", row[0])
    }
    read = schemas.spark_schema(pa.schema([(str(i), kind) for i, kind in enumerate(TYPES)]))

    assert stated == {
        arrow_name(kind): field.dataType.simpleString()
        for kind, field in zip(TYPES, read.fields, strict=True)
    }


def test_types_that_are_refused_are_those_of_the_code() -> None:
    stated = [row[0].strip("`") for row in SPARK_SPEC.rows("Writing Types", "refused")]

    assert sorted(stated) == sorted(schemas._UNSTORABLE)


# -- specs/spark.md: functions, jobs and errors ----------------------------------------------------


def public_classes() -> set[str]:
    names = lance_bridge_spark.__all__
    return {name for name in names if inspect.isclass(getattr(lance_bridge_spark, name))}


def test_every_public_class_is_documented() -> None:
    rows = SPARK_SPEC.rows("Classes of the Functions", "class")

    assert {row[0].strip("`") for row in rows} == public_classes()


def signature(name: str) -> str:
    """A public function with its parameters and their defaults, on one line."""
    found = inspect.signature(getattr(lance_bridge_spark, name))
    plain = [p.replace(annotation=p.empty) for p in found.parameters.values()]
    text = str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return f"{name}{text}".replace("'", '"').replace("datetime.", "")


def test_every_public_function_has_a_section_with_its_signature() -> None:
    for name in {*lance_bridge_spark.__all__} - public_classes():
        assert (3, name) in SPARK_SPEC.headings
        assert f"`{signature(name)}`" in " ".join(SPARK_SPEC.body(name).split())


def test_every_error_has_its_condition_in_python_and_in_java() -> None:
    stated = {
        int(row[0].strip("`")): row[1].strip("`") for row in SPARK_SPEC.rows("Errors", "code")
    }
    kinds: list[Any] = [kind for _, kind in inspect.getmembers(lance_errors, inspect.isclass)]
    made = [kind("x") for kind in kinds if LanceNamespaceError in kind.__mro__[1:]]

    assert stated == {int(error.code): condition(error) for error in made}
    source = JAVA_ERRORS.read_text(encoding="utf-8")
    names = {name: int(code) for name, code in re.findall(r"int (\w+) = (\d+);", source)}
    entries = re.findall(r'Map\.entry\((\w+), new String\[\] \{"(\w+)"', source)
    in_java = {names[key] if key in names else int(key): name for key, name in entries}
    assert in_java == stated


def test_the_operations_that_an_engine_does_are_documented() -> None:
    stated = {row[0] for row in SPARK_SPEC.rows("Namespace Operations by Spark", "operation")}

    assert {operations()[name] for name in stated} == {*NEED_ENGINE, "alter_table_backfill_columns"}


# -- specs/spark.md: snippets ----------------------------------------------------------------------


def snippets(text: str, uri: str) -> list[list[str]]:
    """The language and the text of each snippet, for the database of this test."""
    found = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert {language for language, _ in found} == {"python", "sql"}
    return [[kind, code.replace(URI, uri).replace("sales", DATABASE)] for kind, code in found]


DATABASE = "spark_docs"
TABLES = {
    "articles": pa.table({"id": [1, 2, 3], "title": ["a", "b", "c"]}),
    "films": pa.table({"id": [1, 2], "title": ["M", "Faust"], "year": [1931, 1926]}),
}


@pytest.fixture(scope="module")
def printed(
    metastores: Metastores, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[str, str]]:
    """Each snippet, and what it printed or raised."""
    uri = metastores.get("2.3").uri
    directory = tmp_path_factory.mktemp("snippets")
    with HiveNamespace(uri=uri, root=str(directory / "tables")) as namespace:
        namespace.create_namespace(CreateNamespaceRequest(id=[DATABASE]))
        for name, rows in TABLES.items():
            namespace.create_table(CreateTableRequest(id=[DATABASE, name]), ipc(rows))
    found = snippets(TEXT, uri)
    spark = Spark(
        conf={
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.hive.metastore.uris": uri,
            "spark.sql.catalog.prod.impl": "hive",
            "spark.sql.catalog.prod.uri": uri,
        }
    )
    printed = spark.run(
        "docs.snippet_processes:run_snippets",
        directory,
        seconds=500,
        documents={"spec": found},
        before=[],
    )
    return [(text, out) for (_, text), out in zip(found, printed["spec"], strict=True)]


@pytest.mark.spec("spark.md#searches-in-sql")
@pytest.mark.documents
def test_every_snippet_of_the_spec_runs(printed: list[tuple[str, str]]) -> None:
    require_said(printed)


def require_said(printed: list[tuple[str, str]]) -> None:
    """Check that each snippet printed what its comments say, and nothing else."""
    assert len(printed) > 3
    for text, out in printed:
        expected = re.findall(r"^print\(.*\)  # (.*)$", text, re.MULTILINE)
        assert out.splitlines() == expected, out


def test_a_snippet_that_fails_is_reported() -> None:
    snippets = [["python", "x = 1"], ["python", "print(x)"], ["python", "y"]]
    printed = run_snippets(None, {"one": snippets}, [])
    first, second, third = printed["one"]

    assert (first, second) == ("", "1\n")
    assert "NameError: name 'y' is not defined" in third
    with pytest.raises(AssertionError, match="NameError"):
        require_said([("", ""), ("", ""), ("", ""), ("y", third)])

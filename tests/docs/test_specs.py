"""A spec says what the code does, its snippets work, and each of its sections has a test."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import lance_namespace as api
import pyarrow as pa
import pytest
import yaml
from core.memory_catalog import SERVERS
from lance_namespace.errors import ConcurrentModificationError

import lance_bridge
from lance_bridge import LanceBridgeNamespace
from lance_bridge.operations.data import NEED_ENGINE
from lance_bridge_federated import FederatedNamespace
from lance_bridge_hive import HiveNamespace
from lance_bridge_unity import sql

from .operation_samples import TABLE, new_namespace
from .specs import (
    COMMON_SPEC,
    DOCUMENTS,
    KIT,
    MARKER,
    OPERATIONS_SPEC,
    REPOSITORY,
    SPECS,
    ErrorParagraph,
    Link,
    Operation,
    Spec,
    anchor_of,
    bad_errors,
    codes_of_server,
    common_operations,
    document_of,
    documented_codes,
    error_paragraphs,
    is_implemented,
    links,
    links_in,
    links_of_kit,
    namespace_class,
    operations,
    operations_inside,
    paragraphs,
)

pytestmark = pytest.mark.checks

BASIC_OPERATIONS = [
    "CreateNamespace",
    "ListNamespaces",
    "DescribeNamespace",
    "DropNamespace",
    "DeclareTable",
    "ListTables",
    "DescribeTable",
    "DeregisterTable",
]
TEMPLATE = [
    (2, "Background"),
    (2, "Namespace Implementation Configuration Properties"),
    (2, "Object Mapping"),
    (3, "Namespace"),
    (3, "Table"),
    (2, "Lance Table Identification"),
    (2, "Basic Operations"),
    *((3, operation) for operation in BASIC_OPERATIONS),
]
OBJECT_MAPPING = {
    "Namespace": [
        "The **root namespace** is",
        "A **child namespace** is",
        "The **namespace identifier** is",
        "**Namespace properties** are",
    ],
    "Table": [
        "A **table** is",
        "The **table identifier** is",
        "The **table location** is",
        "**Table properties** are",
    ],
}
"""How the paragraphs of each section begin."""
COMMON_ERRORS = "Errors of Every Operation"
EVERY_CATALOG = error_paragraphs(COMMON_SPEC.body(COMMON_ERRORS))
READING = {"ListNamespaces", "DescribeNamespace", "ListTables", "DescribeTable"}
ONLY_OF_CHANGES = {int(ConcurrentModificationError.code)}
"""Codes that servers give to changes, and to no call that only reads."""
INSIDE = "Operations Inside a Table"
MANAGED = "Implementation-Managed Tables"
every_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
NOT_SHOWN = {
    "Background": "introduces what others made",
    "What Was Tested": "is about tests",
    "Limits and Known Deviations": "says what cannot be done",
    "migration.md#limits": "says what cannot be done",
    "migration.md#speed": "has figures of make bench-migrate",
    "spark.md#parts": "is an overview",
    "clients.md#clients-of-directories-and-rest-only": "says what other clients cannot do",
    "clients.md#lance-namespace-impls": "says what another package cannot do",
}
"""Sections without a test, with the reason: a title in every spec, or one section."""


def operation_names(spec: Spec) -> list[str]:
    return spec.below("Basic Operations") + spec.below("Further Operations")


def shared_operations(spec: Spec) -> list[str]:
    """The operations that are the same on every catalog, so that a spec only refers to them."""
    return [name for name in common_operations() if name not in operation_names(spec)]


def test_every_registered_catalog_has_a_spec_and_every_spec_a_catalog() -> None:
    assert set(SPECS) == set(lance_bridge.catalogs()), "is lance-bridge installed (make venv)?"


@every_spec
def test_a_spec_has_the_form_of_the_template(spec: Spec) -> None:
    [title, *rest] = spec.headings
    assert re.fullmatch(r"Lance .+ Namespace Implementation Spec", title[1])
    assert title[0] == 1
    assert rest[: len(TEMPLATE)] == TEMPLATE
    assert re.search(r"\]\(https://[^)\s]+\)", spec.body("Background"))
    for section, beginnings in OBJECT_MAPPING.items():
        found = paragraphs(spec.body(section))
        assert len(found) == len(beginnings), section
        assert all(map(str.startswith, found, beginnings)), section


@every_spec
def test_a_spec_has_a_row_for_each_property_that_its_catalog_declares(spec: Spec) -> None:
    rows = spec.rows("Namespace Implementation Configuration Properties", "property")
    declared = namespace_class(spec.name).config_type.declared()
    assert [(row[0].strip("`"), row[2] == "yes") for row in rows] == [
        (each.key, each.secret) for each in declared
    ]


@every_spec
def test_every_operation_is_specified_exactly_once(spec: Spec) -> None:
    """Here, or with those that are the same on every catalog, or with the reason why it is not."""
    kind, methods = namespace_class(spec.name), operations()
    unsupported = {name for name, method in methods.items() if method in NEED_ENGINE}
    shared = shared_operations(spec)
    specified = [*operation_names(spec), *shared, *operations_inside()]
    assert sorted((*specified, *unsupported)) == sorted(methods)
    assert [name for name in specified if not is_implemented(kind, methods[name])] == []
    referred = re.findall(r"\[(\w+)\]\(common\.md#\w+\)", spec.body("Further Operations"))
    assert sorted(referred) == sorted(shared)
    assert f"(common.md#{anchor_of(INSIDE)})" in spec.body(INSIDE)


@pytest.mark.spec("common.md#operations-inside-a-table")
def test_the_common_spec_lists_what_is_inside_a_table_and_what_is_unsupported() -> None:
    listed = COMMON_SPEC.body("Unsupported Operations")
    named = {method for name, method in operations().items() if re.search(rf"\b{name}\b", listed)}
    assert named == set(NEED_ENGINE)
    links = re.findall(r"\[(\w+)\]\(operations\.md#(\w+)\)", COMMON_SPEC.body(INSIDE))
    assert sorted(name for name, _ in links) == sorted(operations_inside())
    assert [name for name, anchor in links if anchor != name.lower()] == []


def faults(spec: Spec) -> Iterator[str]:
    """Yield what is wrong with the sections of operations."""
    kind, methods = namespace_class(spec.name), operations()
    for operation in map(spec.operation, operation_names(spec)):
        is_basic = operation.name in BASIC_OPERATIONS
        if not operation.description or not operation.has_numbered_steps:
            yield f"{operation.name} has no description, or no numbered steps"
        for code in documented_codes(kind, methods[operation.name]) - operation.codes:
            yield f"{operation.name} does not describe the error {code}"
        yield from missing_conditions(spec, operation) if is_basic else other_codes(operation)
        yield from bad_errors(operation.name, operation.errors)
    every = spec.operation(COMMON_ERRORS)
    conditions = error_paragraphs(every.text)
    for code in {*codes_of(EVERY_CATALOG), *codes_of_server(spec.name)} - {*codes_of(conditions)}:
        yield f"{COMMON_ERRORS} has no condition for the error {code}"
    if every.details != anchor_of(COMMON_ERRORS):
        yield f"{COMMON_ERRORS} does not link to those of every catalog"
    yield from bad_errors(COMMON_ERRORS, conditions)
    if not (spec.body(MANAGED).strip() and OPERATIONS_SPEC.body(MANAGED).strip()):
        yield "nothing is said of managed tables"


def missing_conditions(spec: Spec, operation: Operation) -> Iterator[str]:
    """Yield the errors for which a basic operation has no condition of its own."""
    common = {*codes_of(COMMON_SPEC.operation(operation.name).errors), *codes_of(EVERY_CATALOG)}
    server = codes_of_server(spec.name)
    if operation.name in READING:
        server -= ONLY_OF_CHANGES
    for code in sorted((common | server) - {*codes_of(operation.errors)}):
        yield f"{operation.name} has no condition for the error {code}"
    if operation.details != anchor_of(operation.name):
        yield f"{operation.name} does not link to its section on every catalog"


def other_codes(operation: Operation) -> Iterator[str]:
    """Yield if an operation refers to its section on every catalog with other codes."""
    common = codes_of(COMMON_SPEC.operation(operation.name).errors)
    if operation.common_errors != (anchor_of(operation.name), common):
        yield f"{operation.name} has other codes on every catalog: {common}"


def codes_of(errors: Iterable[ErrorParagraph]) -> dict[int, str]:
    return {code: name for error in errors for code, name in error.codes.items()}


@every_spec
def test_an_operation_has_steps_and_the_conditions_of_its_errors(spec: Spec) -> None:
    assert list(faults(spec)) == []


def test_errors_of_every_catalog_are_those_of_the_methods() -> None:
    found = {name: COMMON_SPEC.operation(name) for name in common_operations()}
    bad = [each for name, common in found.items() for each in bad_errors(name, common.errors)]
    assert bad == []
    assert [name for name, common in found.items() if not common.errors] == []
    assert list(bad_errors(COMMON_ERRORS, EVERY_CATALOG)) == []
    for spec in SPECS.values():
        for name in shared_operations(spec):
            documented = documented_codes(namespace_class(spec.name), operations()[name])
            assert found[name].has_numbered_steps, name
            assert documented <= found[name].codes, name


# -- the marker `spec` -----------------------------------------------------------------------------


def sections(spec: Spec) -> Iterator[tuple[str, str]]:
    """Yield title and name of each section with a text of its own.

    The title of the document is none, nor is a heading above others, which introduces those.
    """
    following = [level for level, _ in spec.headings[1:]] + [0]
    for (level, title), next_level in zip(spec.headings, following, strict=True):
        if level > 1 and next_level <= level and spec.body(title).strip():
            yield title, f"{spec.path.name}#{anchor_of(title)}"


ALL = {name: title for spec in DOCUMENTS.values() for title, name in sections(spec)}
NEED_NONE = {name for name, title in ALL.items() if {name, title} & {*NOT_SHOWN}}
SHOWN = {link.section for link in links()}


def test_a_test_names_sections_that_exist() -> None:
    assert [str(link) for link in links() if not exists(link)] == []


def exists(link: Link) -> bool:
    document = document_of(link.section)
    return document is not None and link.section.partition("#")[2] in document.anchors


def test_every_section_is_shown_by_a_test_or_needs_none() -> None:
    assert sorted({*ALL} - NEED_NONE - SHOWN) == []
    assert {*NOT_SHOWN} - {*ALL, *ALL.values()} == set()
    assert set() == NEED_NONE & SHOWN


def test_a_section_of_a_catalog_is_shown_by_no_test_of_another() -> None:
    for link in links():
        adapter = re.search(r"/tests/adapters/(\w+)/", str(link.file))
        catalog = link.section.partition(".md")[0]
        assert catalog not in SPECS or not adapter or adapter[1] == catalog, str(link)


def test_a_case_of_the_kit_exists_and_has_no_marker() -> None:
    for link in links_of_kit():
        assert f"def {link.name}(" in link.file.read_text(encoding="utf-8"), str(link)
    assert [path for path in KIT.rglob("*.py") if MARKER in path.read_text("utf-8")] == []


def test_markers_of_functions_classes_and_modules_are_found(tmp_path: Path) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(
        'pytestmark = [pytest.mark.slow, pytest.mark.spec("a.md#a")]\n'
        '@pytest.mark.spec("b.md#b", "c.md#c")\nclass TestIt:\n'
        '    @pytest.mark.spec("d.md#d")\n    def test_it(self): ...\n',
        encoding="utf-8",
    )
    found = {(link.section, link.name) for link in links_in(path)}
    of_class = {("b.md#b", "TestIt"), ("c.md#c", "TestIt")}
    assert found == {("a.md#a", ""), *of_class, ("d.md#d", "test_it")}
    assert not exists(Link("common.md#no-such-section", path, ""))
    assert not exists(Link("no-such.md#names", path, ""))
    assert exists(Link("docs/write-a-catalog.md#what-is-public", REPOSITORY / "tests", ""))


# -- snippets --------------------------------------------------------------------------------------


def test_the_python_of_the_operations_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snippets = OPERATIONS_SPEC.snippets("python")
    namespace, server = new_namespace(tmp_path / "lake")
    rows = pa.table({"id": [3000, 3001], "price": [300.0, 300.1]})
    with pa.ipc.new_stream(str(tmp_path / "rows.arrows"), rows.schema) as writer:
        writer.write_table(rows)
    monkeypatch.chdir(tmp_path)
    known = {"ns": namespace, "api": api, "table": TABLE}

    assert len(snippets) > 1
    for snippet in snippets:
        exec(compile(snippet, OPERATIONS_SPEC.path.name, "exec"), known)
    count = namespace.count_table_rows(api.CountTableRowsRequest(id=TABLE)).count
    assert count == 3002
    assert server.effects == ["create_table"]
    for name in [name for name, each in SERVERS.items() if each is server]:
        del SERVERS[name]


def configure(text: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a text the configuration file."""
    (directory / "config.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(directory / "config.yaml"))


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_the_configuration_file_of_a_spec_is_read(
    spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snippets = spec.snippets("yaml")
    configure("".join(snippets), tmp_path, monkeypatch)

    assert snippets
    for name in yaml.safe_load(snippets[0])["catalogs"]:
        connected = lance_bridge.connect(name)
        assert isinstance(connected, LanceBridgeNamespace)
        assert connected.impl == spec.name
        connected.close()


@pytest.mark.spec("common.md#storage-credentials")
def test_the_vendors_of_the_common_spec_are_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [snippet] = COMMON_SPEC.snippets("yaml")
    configure(snippet, tmp_path, monkeypatch)

    names = yaml.safe_load(snippet)["catalogs"]
    assert len(names) == 5
    for name in names:
        connected = lance_bridge.connect(name)
        assert isinstance(connected, LanceBridgeNamespace)
        assert connected.connection.credentials.is_configured("s3://archive/t.lance")
        connected.close()


def test_the_statements_that_unitys_spec_shows_are_those_that_are_sent() -> None:
    table, some = ("c", "s", "t"), "…"
    made = [
        sql.create_table(table, some, {"table_type": "lance"}),
        sql.set_location(table, some),
        sql.unset_properties(table, [some]),
        sql.set_properties(table, {some: some}),
        sql.rename_table(table, ("c", "s", "u")),
    ]
    [shown] = SPECS["unity"].snippets("sql")

    sent = [statement.replace(r"\u2026", some) for statement in made]
    assert shown.replace(", …)", ")").splitlines() == sent


# -- specs/federated.md ----------------------------------------------------------------------------


SPEC = DOCUMENTS["federated"]


@pytest.mark.spec("federated.md#connecting")
def test_the_configuration_file_connects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [text] = SPEC.snippets("yaml")
    configure(text, tmp_path, monkeypatch)
    for name in ("all", "federated"):
        namespace = lance_bridge.connect(name)
        assert isinstance(namespace, FederatedNamespace)
        assert namespace.catalogs == ["files", "prod"]


@pytest.mark.spec("federated.md#connecting")
def test_the_python_of_federations_runs(tmp_path: Path) -> None:
    [text] = SPEC.snippets("python")
    found: dict[str, Any] = {}
    code = text.replace("/srv/tables", str(tmp_path))
    exec(compile(code, SPEC.path.name, "exec"), found)
    assert str(tmp_path) in code
    assert isinstance(found["hive"], HiveNamespace)
    assert found["ns"].child("files").namespace_id()

"""A catalog without a method that its capabilities promise is refused before it is used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import lance_namespace as api
import pytest
from lance_namespace.errors import UnsupportedOperationError

import lance_bridge
from lance_bridge import Capabilities, Catalog, TableRecord, errors
from lance_bridge.catalog import PORT_VERSION
from lance_bridge_spark.connections import LocationCatalog

from .building import DATASET
from .memory_catalog import CAPABILITIES, MemoryCatalog, MemoryConfig, MemoryNamespace, MemoryServer

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("docs/write-a-catalog.md#what-the-catalog-can-do"),
]

ALL = replace(CAPABILITIES, no_rename="", no_alter="")
BY_COPY = replace(ALL, renames_by_copy=True)


def lacking(*methods: str) -> type[MemoryCatalog]:
    """Return a catalog's class that has the port's own version of these methods."""
    return type("Lacking", (MemoryCatalog,), {name: getattr(Catalog, name) for name in methods})


@pytest.fixture
def connect(
    server: MemoryServer, request: pytest.FixtureRequest
) -> Callable[[type[Catalog], Capabilities], MemoryNamespace]:
    def connected(catalog: type[Catalog], capabilities: Capabilities) -> MemoryNamespace:
        class Namespace(MemoryNamespace):
            def open_catalog(self, config: MemoryConfig) -> Catalog:
                return catalog(config)  # type: ignore[call-arg]  # a MemoryCatalog's

        server.capabilities = capabilities
        return Namespace(uri=request.node.nodeid)

    return connected


@pytest.mark.parametrize(
    ("method", "capabilities", "field"),
    [
        ("rename_table", ALL, "no_rename"),
        ("copy_table", BY_COPY, "no_rename"),
        ("commit_guard", ALL, "no_managed_tables"),
        ("partition_locations", ALL, "has_partitions"),
        ("scan_hidden_tables", ALL, "hides_tables"),
    ],
)
def test_a_method_that_is_promised_and_missing_is_named_when_the_namespace_is_made(
    connect: Any, method: str, capabilities: Capabilities, field: str
) -> None:
    with pytest.raises(TypeError, match=rf"Lacking must implement {method}: .*{field}"):
        connect(lacking(method), capabilities)


@pytest.mark.parametrize(
    ("methods", "capabilities"),
    [
        (("rename_table",), replace(ALL, no_rename="no")),
        (("rename_table",), BY_COPY),
        (("copy_table",), ALL),
        (("rename_table", "copy_table"), replace(BY_COPY, no_rename="no")),
        (("commit_guard",), replace(ALL, no_managed_tables="no")),
        (("commit_guard",), replace(ALL, no_alter="no")),
        (("partition_locations",), replace(ALL, has_partitions=False)),
        (("scan_hidden_tables",), replace(ALL, hides_tables=False)),
    ],
)
def test_a_method_that_is_not_promised_may_be_missing(
    connect: Any, methods: tuple[str, ...], capabilities: Capabilities
) -> None:
    namespace = connect(lacking(*methods), capabilities)
    assert namespace.list_tables(api.ListTablesRequest(id=DATASET)).tables == []


def test_marks_are_loaded_and_altered_or_neither(connect: Any) -> None:
    one = type("Half", (MemoryCatalog,), {"load_ownership": lambda _self, _path: {"a": "b"}})
    with pytest.raises(TypeError, match="both load_ownership and alter_ownership"):
        connect(one, ALL)


@pytest.mark.spec("docs/write-a-catalog.md#the-version-of-the-port")
def test_a_catalog_of_another_version_of_the_port_is_refused(connect: Any) -> None:
    later = type("Later", (MemoryCatalog,), {"port_version": PORT_VERSION + 1})
    with pytest.raises(TypeError, match=r"Later is written for version 2 .* this is version 1"):
        connect(later, ALL)


@pytest.mark.parametrize(
    "call",
    [
        lambda catalog, record: catalog.rename_table(record, ("u",)),
        lambda catalog, record: catalog.copy_table(record, record),
        lambda catalog, record: catalog.commit_guard(record),
    ],
)
def test_what_a_catalog_does_not_implement_is_unsupported_and_named(
    call: Callable[[Catalog, TableRecord], object],
) -> None:
    with pytest.raises(UnsupportedOperationError, match=r"LocationCatalog does not implement \w+"):
        call(LocationCatalog(), TableRecord(("t",)))


def test_what_an_adapter_needs_is_public() -> None:
    assert {
        "GUARD",
        "Column",
        "NamespaceWords",
        "OutcomeUnknownError",
        "errors",
        "select_tables",
    } <= set(lance_bridge.__all__)
    assert {"table_not_found", "namespace_not_empty", "OutcomeUnknownError"} <= set(errors.__all__)
    missing = [name for name in lance_bridge.__all__ if not hasattr(lance_bridge, name)]
    assert missing == []


def test_entries_in_any_order_are_selected_by_name_and_sorted() -> None:
    entries = [
        TableRecord(("n", name), properties={"table_type": kind})
        for name, kind in (("b", "LANCE"), ("B", "lance"), ("a", "parquet"), ("b", "lance"))
    ]

    def names(**options: Any) -> list[str]:
        return [record.path[-1] for record in lance_bridge.select_tables(entries, **options)]

    assert names() == ["B", "a", "b"]
    assert names(lance_only=True) == ["B", "b"]
    assert names(lance_only=True, after="B") == ["b"]
    assert names(after="b") == []


def test_an_entry_is_selected_once_and_every_entry_of_a_name() -> None:
    first, second = (TableRecord(("n", "a"), identity=each) for each in ("1", "2"))
    assert lance_bridge.select_tables([second, first, first]) == [first, second]

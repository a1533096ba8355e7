"""Protected tables and namespaces: what removes or replaces them is refused, without a change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from lance_namespace.errors import InvalidInputError, InvalidTableStateError

from lance_bridge.catalog import NamespaceRecord
from lance_bridge.tables.namespaces import change_properties
from lance_bridge.testing.calls import Calls

from .memory_catalog import (
    CAPABILITIES,
    DATASET,
    TABLE,
    MemoryNamespace,
    count_rows,
    create,
    start_server,
    stream,
)

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#protected-tables-and-namespaces")]

Change = Callable[[Calls, str], object]

REMOVALS: dict[str, Change] = {
    "drop": lambda api, _: api.drop_table(TABLE),
    "deregister": lambda api, _: api.deregister_table(TABLE),
    "create": lambda api, _: api.create_table(TABLE, stream(5), mode="Overwrite"),
    "register": lambda api, place: api.register_table(TABLE, place, mode="Overwrite"),
    "cascade": lambda api, _: api.drop_namespace(DATASET, behavior="Cascade"),
    "outer cascade": lambda api, _: api.drop_namespace(DATASET[:1], behavior="Cascade"),
}


@pytest.fixture
def namespace(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryNamespace:
    """A namespace of a catalog whose entries can change."""
    start_server(request.node.nodeid, replace(CAPABILITIES, no_alter="", no_rename=""))
    return MemoryNamespace(uri=request.node.nodeid, root=str(tmp_path / "lake"))


def protect(namespace: MemoryNamespace, depth: int, value: str) -> None:
    """Set the property of a namespace, from 1 for the outermost one."""
    namespaces, path = namespace.server.namespaces, tuple(DATASET[:depth])
    namespaces[path] = replace(namespaces[path], properties={"protected": value})


def try_all(namespace: MemoryNamespace, other: str) -> None:
    """Try all removals, and check that each is refused and changes nothing."""
    entries, namespaces = dict(namespace.server.tables), dict(namespace.server.namespaces)
    for remove in REMOVALS.values():
        with pytest.raises(InvalidTableStateError, match="protected"):
            remove(Calls(namespace), other)
    assert namespace.server.tables == entries
    assert namespace.server.namespaces == namespaces
    assert count_rows(namespace, TABLE) == 3


@pytest.mark.parametrize("properties", [{"protected": "true"}, {"Protected": "TRUE"}])
def test_a_protected_table_is_neither_removed_nor_replaced(
    namespace: MemoryNamespace, tmp_path: Path, properties: Mapping[str, str]
) -> None:
    create(namespace, TABLE, properties=properties)
    try_all(namespace, str(tmp_path / "other.lance"))


def test_a_protected_namespace_protects_what_is_in_it(
    namespace: MemoryNamespace, tmp_path: Path
) -> None:
    create(namespace, TABLE)
    protect(namespace, 3, "true")
    try_all(namespace, str(tmp_path / "other.lance"))
    with pytest.raises(InvalidTableStateError, match="protected"):
        Calls(namespace).drop_namespace(DATASET)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_protected_namespace_is_not_dropped_with_what_is_below(
    namespace: MemoryNamespace, depth: int
) -> None:
    create(namespace, TABLE)
    protect(namespace, depth, "true")
    namespaces = dict(namespace.server.namespaces)
    with pytest.raises(InvalidTableStateError, match="protected"):
        Calls(namespace).drop_namespace(DATASET[:1], behavior="Cascade")
    assert namespace.server.namespaces == namespaces
    assert count_rows(namespace, TABLE) == 3
    Calls(namespace).drop_table(TABLE)


def test_a_value_of_another_tool_protects(namespace: MemoryNamespace, tmp_path: Path) -> None:
    create(namespace, TABLE)
    protect(namespace, 3, "yes")
    try_all(namespace, str(tmp_path / "other.lance"))


@pytest.mark.parametrize("removal", [name for name in REMOVALS if "cascade" not in name])
def test_a_table_can_be_excluded_from_the_protection_of_its_namespace(
    namespace: MemoryNamespace, tmp_path: Path, removal: str
) -> None:
    create(namespace, TABLE, properties={"protected": "false"})
    protect(namespace, 3, "true")
    REMOVALS[removal](Calls(namespace), str(tmp_path / "other.lance"))


@pytest.mark.parametrize("removal", REMOVALS)
def test_without_the_protection_it_is_removed(
    namespace: MemoryNamespace, tmp_path: Path, removal: str
) -> None:
    create(namespace, TABLE, properties={"protected": "true"})
    namespace.tables.load_by_id(TABLE).set_properties({"protected": "false"})
    protect(namespace, 3, "true")
    protect(namespace, 3, "false")
    REMOVALS[removal](Calls(namespace), str(tmp_path / "other.lance"))


def test_a_protected_table_can_change(namespace: MemoryNamespace) -> None:
    create(namespace, TABLE, properties={"protected": "true"})
    api = Calls(namespace)
    api.call("insert_into_table", TABLE, stream(2))
    assert count_rows(namespace, TABLE) == 5
    api.rename_table(TABLE, "Renamed")
    with pytest.raises(InvalidTableStateError, match="protected"):
        api.drop_table([*DATASET, "Renamed"])


def test_an_empty_namespace_is_not_overwritten(namespace: MemoryNamespace) -> None:
    protect(namespace, 3, "true")
    with pytest.raises(InvalidTableStateError, match="protected"):
        Calls(namespace).create_namespace(DATASET, mode="Overwrite", properties={"a": "b"})
    assert namespace.server.namespaces[tuple(DATASET)].properties == {"protected": "true"}


def test_the_property_is_true_or_false(namespace: MemoryNamespace) -> None:
    for value in ("", "yes", "1"):
        with pytest.raises(InvalidInputError, match="must be true or false"):
            create(namespace, TABLE, properties={"protected": value})
        with pytest.raises(InvalidInputError, match="must be true or false"):
            Calls(namespace).create_namespace(["asia"], properties={"protected": value})


def test_each_namespace_is_read_once(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        create(namespace, [*DATASET, f"t{number}"])
    read: list[tuple[str, ...]] = []
    load = namespace.catalog.load_namespace

    def note_and_load(path: tuple[str, ...]) -> NamespaceRecord:
        read.append(path)
        return load(path)

    monkeypatch.setattr(namespace.catalog, "load_namespace", note_and_load)
    Calls(namespace).drop_namespace(DATASET, behavior="Cascade")
    assert read == [tuple(DATASET)]


def test_a_namespace_is_protected_by_any_spelling_of_the_key(namespace: MemoryNamespace) -> None:
    api = Calls(namespace)
    api.create_namespace(["asia"], properties={"Protected": "TRUE"})
    with pytest.raises(InvalidTableStateError, match="protected"):
        api.drop_namespace(["asia"])
    with pytest.raises(InvalidInputError, match="must be true or false"):
        change_properties(namespace.connection, ("asia",), {"PROTECTED": "yes"}, ())
    change_properties(namespace.connection, ("asia",), {"PROTECTED": "false"}, ())
    api.drop_namespace(["asia"])

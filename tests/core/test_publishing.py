"""The property `publish.columns`: its values, its catalogs, and commits that meet trouble."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lance
import lance_namespace as api
import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    PermissionDeniedError,
    UnsupportedOperationError,
)

from lance_bridge.catalog import Published
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.records import PUBLISHED, check_properties, replace_visible
from lance_bridge.testing.calls import Calls

from .building import DATASET, TABLE, count_rows, create, raising, stream
from .memory_catalog import CAPABILITIES, MemoryCatalog, MemoryNamespace

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#published-columns")]

ON = {"publish.columns": "true"}
ABLE = replace(CAPABILITIES, no_alter="", publishes_columns=True)


@pytest.fixture
def able(namespace: MemoryNamespace) -> MemoryNamespace:
    """A namespace on a catalog whose entries have columns."""
    namespace.server.capabilities = ABLE
    return namespace


def insert(ns: MemoryNamespace) -> None:
    ns.insert_into_table(api.InsertIntoTableRequest(id=TABLE), stream())


def entry(ns: MemoryNamespace) -> tuple[str | None, int | None]:
    """Return the version that the entry has columns of, and its number of rows."""
    record = ns.server.tables[tuple(TABLE)]
    return record.properties.get(PUBLISHED), record.published.rows if record.published else None


@pytest.mark.spec("common.md#table-properties")
@pytest.mark.parametrize("value", ["yes", "", "1", " true", "on"])
def test_other_values_are_refused(namespace: MemoryNamespace, value: str) -> None:
    with pytest.raises(InvalidInputError, match="must be true or false"):
        check_properties({"Publish.Columns": value})
    given = {"publish.columns": value}
    with pytest.raises(InvalidInputError, match="must be true or false"):
        namespace.create_namespace(api.CreateNamespaceRequest(id=["us"], properties=given))


@pytest.mark.spec("common.md#table-properties")
def test_the_value_is_in_lower_case_and_survives_a_redefinition() -> None:
    assert check_properties({"publish.COLUMNS": "True"}) == ON
    assert replace_visible(ON, {"team": "sales"}) == {**ON, "team": "sales"}
    off = {"publish.columns": "false"}
    assert replace_visible(ON, off) == off


@pytest.mark.spec(
    "common.md#createtable", "common.md#declaretable", "common.md#registertable",
    "unity.md#declaretable",
)  # fmt: skip
def test_a_catalog_without_columns_refuses_the_property_of_a_table(
    namespace: MemoryNamespace, tmp_path: Path
) -> None:
    calls = Calls(namespace)
    attempts: list[Callable[[], object]] = [
        lambda: create(namespace, TABLE, properties=ON),
        lambda: calls.declare_table(TABLE, properties=ON),
        lambda: calls.register_table(TABLE, str(tmp_path / "x.lance"), properties=ON),
    ]
    for attempt in attempts:
        with pytest.raises(UnsupportedOperationError, match=r"Leave publish\.columns out"):
            attempt()
    assert namespace.server.tables == {}
    create(namespace, TABLE, properties={"publish.columns": "false"})
    insert(namespace)
    assert count_rows(namespace, TABLE) == 6


def test_a_catalog_without_columns_ignores_the_property_of_a_namespace(
    namespace: MemoryNamespace,
) -> None:
    path = tuple(DATASET)
    namespace.server.namespaces[path] = replace(namespace.server.namespaces[path], properties=ON)
    create(namespace, TABLE)
    assert "publish.columns" not in namespace.server.tables[tuple(TABLE)].properties


def test_a_wrong_value_of_a_namespace_is_named(able: MemoryNamespace) -> None:
    path = tuple(DATASET)
    wrong = {"publish.columns": "yes"}
    able.server.namespaces[path] = replace(able.server.namespaces[path], properties=wrong)
    with pytest.raises(InvalidInputError, match=r"Namespace 'eu\.shop\.sales': .* not 'yes'"):
        create(able, TABLE)
    assert able.server.tables == {}


@pytest.mark.parametrize(
    "error",
    [
        ConcurrentModificationError("always another client"),
        PermissionDeniedError("not yours"),
        OutcomeUnknownError("the reply was lost"),
        KeyError("elementType"),
        RecursionError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_error_of_publishing_fails_a_commit(
    able: MemoryNamespace,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    create(able, TABLE, properties=ON)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "lance_bridge"):
        patch.setattr(MemoryCatalog, "alter_table", raising(error))
        insert(able)
    assert "lance-bridge doctor finds it" in caplog.text
    assert count_rows(able, TABLE) == 6
    assert entry(able) == ("1", 3)
    insert(able)
    assert entry(able) == ("3", 9)


def test_an_unreadable_location_fails_no_commit(
    able: MemoryNamespace, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(able, TABLE, properties=ON)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "lance_bridge"):
        patch.setattr(lance.LanceDataset, "count_rows", raising(OSError("no such disk")))
        insert(able)
    assert "no such disk" in caplog.text
    assert entry(able) == ("1", 3)


@pytest.mark.parametrize("times", [1, 5])
def test_a_change_of_the_entry_at_the_same_time_is_tried_again(
    able: MemoryNamespace, times: int
) -> None:
    create(able, TABLE, properties=ON)
    left = [times]

    def fault(name: str, moment: str) -> None:
        if (name, moment) == ("alter_table", "before") and left[0]:
            left[0] -= 1
            raise ConcurrentModificationError("another client was first")

    able.server.fault = fault
    insert(able)
    assert left == [0]
    assert entry(able) == ("2", 6)


def test_a_later_version_that_was_published_meanwhile_stays(able: MemoryNamespace) -> None:
    """The writer of version 2 reads the entry and the data after version 3 was published."""
    create(able, TABLE, properties=ON)
    table = able.tables.load(tuple(TABLE))
    insert(able)
    insert(able)
    before = able.server.tables[tuple(TABLE)]
    table.publish_after_commit()
    assert able.server.tables[tuple(TABLE)] == before
    assert entry(able) == ("3", 9)


def test_turned_off_it_is_removed(able: MemoryNamespace) -> None:
    create(able, TABLE, properties=ON)
    table = able.tables.load(tuple(TABLE)).add_properties({"publish.columns": "false"})
    assert "should have none" in able.tables.load(tuple(TABLE)).find_outdated_columns()
    refreshed = table.refresh_entry()
    assert refreshed.find_outdated_columns() == ""
    record = able.server.tables[tuple(TABLE)]
    assert record.published == Published()
    assert PUBLISHED not in record.properties

"""The plan of maintenance: policies by properties, what is due, and what cannot be read."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError, NamespaceNotFoundError

from lance_bridge.dataset import (
    SMALL_FRAGMENT,
    Action,
    MaintenancePlan,
    TablePlan,
    compact,
    optimize_indices,
    plan_maintenance,
)
from lance_bridge.maintenance_policy import LEAST_AGE, MaintenancePolicy
from lance_bridge.managed_state import as_second
from lance_bridge.tables.namespaces import change_properties

from .memory_catalog import CAPABILITIES, DATASET, MemoryNamespace, create, start_server

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#maintenance")]

DUE = {"maintenance.min_fragments": "3"}


@pytest.fixture
def namespace(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryNamespace:
    """A namespace of a catalog whose entries can change."""
    start_server(request.node.nodeid, replace(CAPABILITIES, no_alter=""))
    return MemoryNamespace(uri=request.node.nodeid, root=str(tmp_path / "lake"))


def make(ns: MemoryNamespace, name: str, fragments: int = 1, **properties: str) -> str:
    """Create a table of fragments of three rows, and return where it is."""
    given = {f"maintenance.{key}": value for key, value in properties.items()}
    place = create(ns, [*DATASET, name], properties=given or None).location
    assert place is not None
    for _ in range(fragments - 1):
        lance.write_dataset(pa.table({"a": [1, 2, 3]}), place, mode="append")
    return place


def set_on(ns: MemoryNamespace, depth: int, properties: dict[str, str]) -> None:
    """Set the properties of a namespace, from 1 for the outermost one."""
    path = tuple(DATASET[:depth])
    ns.server.namespaces[path] = replace(ns.server.namespaces[path], properties=properties)


def planned(ns: MemoryNamespace, parent: Sequence[str] = ()) -> MaintenancePlan:
    return plan_maintenance(ns.tables, tuple(parent))


def due(ns: MemoryNamespace) -> dict[str, TablePlan]:
    """Return what is due, by the names of tables in the order of the plan."""
    found = planned(ns)
    assert not found.unplanned
    return {each.path[-1]: each for each in found.due}


# -- policies --------------------------------------------------------------------------------------


def test_the_default_joins_fragments_and_deletes_no_version() -> None:
    policy = MaintenancePolicy.of({}, {})
    assert policy.enabled
    assert policy.target_rows == SMALL_FRAGMENT
    assert not policy.deletes_versions


def test_a_property_of_the_table_precedes_that_of_its_namespaces() -> None:
    policy = MaintenancePolicy.of(
        {"maintenance.keep_age": "7d", "maintenance.min_fragments": "50", "owner": "ops"},
        {"Maintenance.Keep_Age": "36h", "maintenance.enabled": "FALSE"},
        {"maintenance.enabled": "true", "maintenance.keep_versions": "5"},
    )
    assert policy == MaintenancePolicy(
        min_fragments=50, keep_age=timedelta(hours=36), keep_versions=5
    )


WRONG = {
    "enabled": ["yes", ""],
    "target_rows": ["0", "-1", "1.5", "many", "²", "9" * 5000],
    "min_fragments": ["1"],
    "deleted_share": ["0", "1", "10%", "nan"],
    "unindexed_rows": ["0"],
    "keep_age": ["7", "59m", "1w", "soon", "d", "9999999d"],
    "keep_versions": ["0"],
    "keep_for": ["7d"],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_refused_by_the_name_of_its_property(
    namespace: MemoryNamespace, name: str
) -> None:
    make(namespace, "t")
    table = namespace.tables.load_by_id([*DATASET, "t"])
    for value in WRONG[name]:
        wrong = {f"maintenance.{name}": value}
        with pytest.raises(InvalidInputError, match=f"'maintenance.{name}'"):
            table.change_properties(wrong, ())
        with pytest.raises(InvalidInputError, match=f"'maintenance.{name}'"):
            change_properties(namespace.tables.connection, tuple(DATASET), wrong, ())
        with pytest.raises(InvalidInputError, match=f"'maintenance.{name}'"):
            MaintenancePolicy.of(wrong)


def test_properties_of_a_namespace_and_of_those_outside_count(namespace: MemoryNamespace) -> None:
    make(namespace, "many", 3)
    make(namespace, "off", 3, enabled="false")
    assert due(namespace) == {}
    set_on(namespace, 1, DUE)
    assert list(due(namespace)) == ["many"]
    assert (planned(namespace).tables, planned(namespace).off) == (1, 1)
    set_on(namespace, 3, {"maintenance.enabled": "false"})
    assert (planned(namespace).due, planned(namespace).off) == ((), 2)


# -- what is due -----------------------------------------------------------------------------------


def test_small_fragments_are_due_from_their_number_on_and_not_after_a_compaction(
    namespace: MemoryNamespace,
) -> None:
    make(namespace, "few", 2, **{"min_fragments": "3"})
    make(namespace, "many", 4, **{"min_fragments": "3"})
    found = due(namespace)
    assert list(found) == ["many"]
    assert found["many"].actions == (Action.COMPACT,)
    assert (found["many"].debt.small_fragments, found["many"].debt.rows) == (4, 12)
    compact(namespace.tables.load_by_id([*DATASET, "many"]))
    assert due(namespace) == {}


def test_fragments_count_as_compaction_selects_them(namespace: MemoryNamespace) -> None:
    place = make(namespace, "t", 2, target_rows="3", min_fragments="2")
    assert due(namespace) == {}  # both are large
    for _ in range(2):
        lance.write_dataset(pa.table({"a": [1]}), place, mode="append")
    lance.write_dataset(pa.table({"a": [1, 2, 3]}), place, mode="append")
    lance.write_dataset(pa.table({"a": [1]}), place, mode="append")
    found = due(namespace)["t"].debt
    done = compact(namespace.tables.load_by_id([*DATASET, "t"]), target_rows=3, dry_run=True)
    assert found.small_fragments == done.fragments_removed == 2


def test_deleted_rows_are_due_above_their_share(namespace: MemoryNamespace) -> None:
    place = make(namespace, "t", deleted_share="0.5", min_fragments="100")
    lance.dataset(place).delete("a = 1")
    assert due(namespace) == {}
    lance.dataset(place).delete("a = 2")
    found = due(namespace)["t"]
    assert (found.actions, found.debt.deleted_rows) == ((Action.COMPACT,), 2)


def test_rows_without_an_index_are_due(namespace: MemoryNamespace) -> None:
    place = make(namespace, "t", unindexed_rows="4")
    lance.dataset(place).create_scalar_index("a", "BTREE")
    lance.write_dataset(pa.table({"a": [1, 2, 3]}), place, mode="append")
    assert due(namespace) == {}
    lance.write_dataset(pa.table({"a": [1, 2, 3]}), place, mode="append")
    found = due(namespace)["t"]
    assert (found.actions, found.debt.unindexed_rows) == ((Action.INDEX,), 6)
    optimize_indices(namespace.tables.load_by_id([*DATASET, "t"]))
    assert due(namespace) == {}


def test_old_versions_are_due_only_if_a_property_says_which_stay(
    namespace: MemoryNamespace,
) -> None:
    places = {
        "age": make(namespace, "age", 5, keep_age="1d"),
        "both": make(namespace, "both", 5, keep_age="1d", keep_versions="3"),
        "never": make(namespace, "never", 5),
        "number": make(namespace, "number", 5, keep_versions="3"),
    }
    assert due(namespace) == {}  # all versions are younger than an hour
    for place in places.values():
        for number, manifest in enumerate(sorted(Path(place, "_versions").glob("*.manifest"))):
            # The name of the latest version sorts first: that is an hour old, and the next a day.
            made = time.time() - number * 86400 - LEAST_AGE.total_seconds() - 1
            os.utime(manifest, (made, made))
    found = due(namespace)
    assert {name: each.debt.old_versions for name, each in found.items()} == {
        "age": 3,
        "both": 2,
        "number": 2,
    }
    assert all(each.actions == (Action.CLEAN_UP,) for each in found.values())


def test_tables_that_gain_most_are_first(namespace: MemoryNamespace) -> None:
    for name, fragments in (("a", 3), ("b", 6), ("c", 4)):
        make(namespace, name, fragments, **{"min_fragments": "3"})
    assert list(due(namespace)) == ["b", "c", "a"]


# -- what cannot be read ---------------------------------------------------------------------------


def test_what_cannot_be_read_is_named_and_the_others_are_planned(
    namespace: MemoryNamespace, tmp_path: Path
) -> None:
    make(namespace, "good", 3, min_fragments="3")
    make(namespace, "wrong")
    path = (*DATASET, "wrong")
    entry = namespace.server.tables[path]
    wrong = {**entry.properties, "maintenance.target_rows": "many"}
    namespace.server.tables[path] = entry.with_properties(wrong)
    damaged = make(namespace, "damaged")
    [manifest] = Path(damaged, "_versions").glob("*.manifest")
    manifest.write_bytes(b"no manifest")
    gone = make(namespace, "gone")
    os.rename(gone, tmp_path / "elsewhere")
    found = planned(namespace)
    assert [each.path[-1] for each in found.due] == ["good"]
    reasons = {each.path[-1]: each.reason for each in found.unplanned}
    assert sorted(reasons) == ["damaged", "gone", "wrong"]
    assert "damaged" in reasons["damaged"]
    assert "missing" in reasons["gone"]
    assert "maintenance.target_rows" in reasons["wrong"]


def test_a_namespace_that_cannot_be_read_is_named(namespace: MemoryNamespace) -> None:
    make(namespace, "t", 3, min_fragments="3")
    namespace.server.closed.add(tuple(DATASET))
    found = planned(namespace)
    assert [each.path for each in found.unplanned] == [tuple(DATASET)]
    assert found.due == ()


def test_a_table_without_data_needs_nothing(namespace: MemoryNamespace) -> None:
    namespace.tables.declare((*DATASET, "declared"), None, None)
    found = planned(namespace)
    assert (found.due, found.unplanned, found.tables) == ((), (), 1)


def test_a_second_entry_for_a_location_is_not_planned(namespace: MemoryNamespace) -> None:
    place = make(namespace, "a", 3, min_fragments="3")
    namespace.tables.add((*DATASET, "b"), place, DUE)
    found = planned(namespace)
    assert [each.path[-1] for each in found.due] == ["a"]
    [second] = found.unplanned
    assert second.path[-1] == "b"
    assert ".a'" in second.reason


def test_an_entry_that_only_reads_needs_nothing(namespace: MemoryNamespace) -> None:
    place = make(namespace, "b", 3, min_fragments="3")
    namespace.tables.add((*DATASET, "a"), place, DUE)
    path = (*DATASET, "a")
    namespace.server.tables[path] = as_second(namespace.server.tables[path], "another catalog")
    assert list(due(namespace)) == ["b"]


def test_only_tables_of_a_namespace_are_read(namespace: MemoryNamespace) -> None:
    make(namespace, "t", 3, min_fragments="3")
    for depth in range(len(DATASET) + 1):
        assert len(planned(namespace, DATASET[:depth]).due) == 1
    with pytest.raises(NamespaceNotFoundError):
        planned(namespace, ["eu", "shop", "other"])
    with pytest.raises(NamespaceNotFoundError):
        planned(namespace, ["us"])


def test_a_managed_table_is_planned_up_to_the_version_that_its_catalog_holds(
    namespace: MemoryNamespace,
) -> None:
    properties = {"managed_by": "impl", "maintenance.min_fragments": "2"}
    place = create(namespace, [*DATASET, "t"], properties=properties).location
    assert place is not None
    lance.write_dataset(pa.table({"a": [1]}), place, mode="append")  # bypasses the catalog
    assert due(namespace) == {}
    lance.write_dataset(
        pa.table({"a": [1, 2, 3]}),
        namespace_client=namespace,
        table_id=[*DATASET, "t"],
        mode="append",
    )
    assert due(namespace)["t"].debt.small_fragments == 2

"""``properties`` and ``management``: what entries say of tables is changed, and changed back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pytest
from lance_namespace.errors import ConcurrentModificationError, InvalidTableStateError
from migrate.sessions import Died, die_before
from servers.glue_server import GlueServer
from servers.hive_entries import MARKS, raw_client

from lance_bridge_hive.catalog import HiveCatalog
from lance_bridge_migrate import State, verify

from .places import (
    Place,
    counts_of,
    files,
    in_place,
    make_foreign_table,
    plan_in_place,
    read_by_name,
    register_rows,
    rows,
    select,
    set_parameter,
    without,
)

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("migration.md#management", "migration.md#properties"),
]

OUR_OWN = ("lance_bridge.migration", "lance_bridge.revision", "transient_lastDdlTime")


@pytest.mark.parametrize("mark", MARKS)
def test_a_table_of_another_implementation_gets_our_properties_and_undoing_restores_it(
    hive: Place, mark: str
) -> None:
    table = make_foreign_table(hive, mark)
    before, data = hive.entries(), files(hive.lake)
    with in_place("properties", hive) as run:
        record = run.execute()
        if not run.migration.plan().to_do:
            assert mark in ("location_with_one_slash", "location_as_plain_path",
                            "location_with_slash_at_the_end", "with_columns")  # fmt: skip
            assert hive.entries() == before
            return
        assert counts_of(record) == {"done": 1}
        entry = hive.entries()[".".join(table)]
        shown = {k: entry["parameters"].get(k) for k in ("table_type", "managed_by", "EXTERNAL")}
        assert shown == {"table_type": "lance", "managed_by": "storage", "EXTERNAL": "TRUE"}
        assert entry["type"] == "EXTERNAL_TABLE"
        assert "external.table.purge" not in entry["parameters"]
        assert read_by_name(hive, table).equals(rows())
        assert counts_of(run.undo()) == {"undone": 1}
    assert without(hive.entries(), *OUR_OWN) == without(before, *OUR_OWN)
    assert files(hive.lake) == data


@pytest.mark.parametrize("managed_by", ["catalog", ""])
def test_our_tables_get_the_properties_of_others_and_stay_readable(
    hive: Place, managed_by: str
) -> None:
    table = register_rows(hive, "ours")
    before = hive.state()
    with in_place("properties", hive, to="others", managed_by=managed_by) as there:
        assert counts_of(there.execute()) == {"done": 1}
        entry = hive.entries()[".".join(table)]
        assert entry["parameters"]["table_type"] == "LANCE"
        assert entry["parameters"].get("managed_by", "") == managed_by
        assert entry["type"] == "EXTERNAL_TABLE"
        assert read_by_name(hive, table).equals(rows())
        back = there.another(**select(hive))
        back.execute()
        mark = ("lance_bridge.migration",)
        assert without(hive.state(), *mark) == without(before, *mark)
        # The first migration's mark is gone: its work was changed by the second.
        with pytest.raises(InvalidTableStateError, match="changed since"):
            there.undo()
        back.undo()
        there.undo()
    assert hive.state() == before


def test_a_table_of_another_implementation_in_glue_gets_our_properties_and_back(
    glue: Place, glue_server: GlueServer
) -> None:
    glue.make_namespace()
    lance.write_dataset(rows(), str(glue.lake / "t.lance"))
    entry = {
        "Name": "foreign",
        "Parameters": {"table_type": "LANCE", "custom": "kept"},
        "StorageDescriptor": {"Columns": [], "Location": f"{glue.lake}/t.lance"},
    }
    glue_server.glue.create_table(DatabaseName=glue.prefix, TableInput=entry)
    before = glue.entries()
    with in_place("properties", glue) as run:
        assert counts_of(run.execute()) == {"done": 1}
        now = glue.state()[f"{glue.prefix}.foreign"]
        assert now["type"] == "EXTERNAL_TABLE"
        assert now["parameters"] == {
            "table_type": "lance", "managed_by": "storage", "EXTERNAL": "TRUE", "custom": "kept",
            "lance_bridge.migration": "*",
        }  # fmt: skip
        run.undo()
    assert glue.entries() == before


def test_where_entries_cannot_change_their_tables_are_blocked(unity: Place) -> None:
    register_rows(unity, "ours")
    [item] = plan_in_place("properties", unity, to="others").items
    assert "no call that changes a table" in item.blockers[0].text


def test_a_table_that_is_dropped_during_planning_is_blocked_alone(
    hive: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_rows(hive, "dropped")
    register_rows(hive, "kept")
    load_ownership = HiveCatalog.load_ownership

    def load(self: HiveCatalog, path: Any) -> Any:
        if path[-1].endswith("dropped"):
            with raw_client(hive.port) as client:
                client.drop_table(*path[-2:], False)
        return load_ownership(self, path)

    monkeypatch.setattr(HiveCatalog, "load_ownership", load)
    plan = plan_in_place("properties", hive, to="others")
    [blocked] = plan.blocked
    assert blocked.source == hive.table("dropped")
    assert [item.source for item in plan.to_do] == [hive.table("kept")]


def test_tables_whose_versions_the_catalog_holds_are_left_alone(hive: Place) -> None:
    table = register_rows(hive, "held")
    with hive.connect() as namespace:
        namespace.manage_table(table)
    [item] = plan_in_place("properties", hive, to="others").items
    assert item.nothing_to_do


def test_an_entry_that_changed_since_the_plan_or_since_the_run_is_not_touched(hive: Place) -> None:
    make_foreign_table(hive, "upper_case_type")
    with in_place("properties", hive) as stale:
        set_parameter(hive, "foreign", "by", "one")
        with pytest.raises(ConcurrentModificationError, match="plan again"):
            stale.execute()
        run = stale.another(**stale.options)
        run.execute()
        set_parameter(hive, "foreign", "by", "two")
        before = hive.entries()
        with pytest.raises(InvalidTableStateError, match="changed since"):
            run.undo()
        assert hive.entries() == before


@pytest.mark.spec("migration.md#undoing")
@pytest.mark.parametrize("is_resumed", [False, True])
def test_what_others_change_after_a_run_was_killed_is_not_undone(
    hive: Place, *, is_resumed: bool
) -> None:
    make_foreign_table(hive, "upper_case_type")
    before = hive.entries()
    with in_place("properties", hive) as run:
        with pytest.raises(Died), die_before("done", "properties"):
            run.execute()
        assert run.undo().state is State.UNDONE
        assert without(hive.entries(), *OUR_OWN) == without(before, *OUR_OWN)
        run.plan_again()
        with pytest.raises(Died), die_before("done", "properties"):
            run.execute()
        set_parameter(hive, "foreign", "by", "others")
        if is_resumed:
            assert counts_of(run.execute()) == {"done": 1}
        changed = hive.entries()
        with pytest.raises(InvalidTableStateError, match="changed since"):
            run.undo()
        assert hive.entries() == changed


@pytest.mark.spec("migration.md#verifying")
def test_verifying_finds_properties_that_others_changed(hive: Place) -> None:
    table = make_foreign_table(hive, "upper_case_type")
    with in_place("properties", hive) as run:
        run.execute()
        with hive.connect() as namespace:
            namespace.deregister_table(api.DeregisterTableRequest(id=list(table)))
        record = verify(run.type, run.endpoints, run.migration)
    assert counts_of(record) == {"differs": 1}


# -- management ------------------------------------------------------------------------------------


@pytest.fixture(params=["hive", "glue"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


def is_managed(place: Place, table: tuple[str, ...]) -> bool:
    with place.connect() as namespace:
        found = namespace.describe_table(api.DescribeTableRequest(id=list(table)))
    return found.managed_versioning is True


def append(place: Place, table: tuple[str, ...]) -> None:
    with place.connect() as namespace:
        lance.write_dataset(
            rows(2, 3), namespace_client=namespace, table_id=list(table), mode="append"
        )


def test_tables_are_converted_to_the_catalog_and_back_without_losing_a_version(
    place: Place,
) -> None:
    table = register_rows(place, "t")
    before, data = place.state(), files(place.lake)
    with in_place("management", place, to="catalog") as run:
        assert counts_of(run.execute()) == {"done": 1}
        assert is_managed(place, table)
        managed = files(place.lake)
        assert managed.pop("t.lance/_versions/.manager.json")
        assert managed == data
        run.undo()
        assert files(place.lake) == data
        assert not is_managed(place, table)
        assert place.state() == before
        run.another(**run.options).execute()
        append(place, table)
        back = run.another(**select(place, to="storage"))
        assert counts_of(back.execute()) == {"done": 1}
    assert not is_managed(place, table)
    assert lance.dataset(str(place.lake / "t.lance")).count_rows() == 5


def test_undoing_keeps_what_was_committed_since(place: Place) -> None:
    table = register_rows(place, "t")
    with in_place("management", place, to="catalog") as run:
        run.execute()
        append(place, table)
        run.undo()
    assert not is_managed(place, table)
    assert read_by_name(place, table).num_rows == 5


def test_versions_written_past_the_catalog_block_the_way_back(place: Place) -> None:
    register_rows(place, "t")
    with in_place("management", place, to="catalog") as run:
        run.execute()
        lance.write_dataset(rows(), str(place.lake / "t.lance"), mode="append")
        plan = plan_in_place("management", place, to="storage")
        assert "adopt or discard" in plan.blocked[0].blockers[0].text
        with pytest.raises(InvalidTableStateError, match="adopt or discard"):
            run.undo()


@pytest.mark.spec("migration.md#plan")
def test_tables_that_are_converted_already_or_cannot_be_are_reported(place: Place) -> None:
    done = register_rows(place, "done")
    branched = register_rows(place, "branched")
    lance.dataset(str(place.lake / "branched.lance")).create_branch("dev")
    with place.connect() as namespace:
        namespace.manage_table(done)
    plan = plan_in_place("management", place, to="catalog")
    found = {item.source: item for item in plan.items}
    assert "holds its versions" in found[done].nothing_to_do
    assert "branches" in found[branched].blockers[0].text


def test_a_catalog_that_cannot_hold_versions_blocks(unity: Place) -> None:
    register_rows(unity, "t")
    plan = plan_in_place("management", unity, to="catalog")
    assert "cannot be managed by the catalog" in plan.blocked[0].blockers[0].text


def test_a_recreated_table_is_neither_converted_nor_converted_back(place: Place) -> None:
    table = register_rows(place, "t")
    with in_place("management", place, to="catalog") as stale, place.connect() as namespace:
        recreate_table(namespace, table, place.lake)
        with pytest.raises(ConcurrentModificationError, match="plan again"):
            stale.execute()
        run = stale.another(**stale.options)
        run.execute()
        recreate_table(namespace, table, place.lake)
        with pytest.raises(InvalidTableStateError, match="is not the table"):
            run.undo()


def recreate_table(namespace: Any, table: tuple[str, ...], lake: Path) -> None:
    namespace.deregister_table(api.DeregisterTableRequest(id=list(table)))
    namespace.register_table(
        api.RegisterTableRequest(id=list(table), location=str(lake / "t.lance"))
    )

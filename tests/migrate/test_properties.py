"""``properties``: entries of other implementations get ours, ours get theirs, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pytest
from lance_namespace.errors import ConcurrentModificationError, InvalidTableStateError
from migrate.building import (
    Run,
    counts_of,
    make_theirs,
    planned,
    read_by_name,
    register_rows,
    rows,
    within,
)
from migrate.places import Place, files, without
from migrate.sparking import Died, dying_before
from servers.glue_server import GlueServer
from servers.hive_raw import MARKS, raw_client

from lance_bridge_hive.catalog import HiveCatalog
from lance_bridge_migrate import Migrations, Record, State, verify

pytestmark = [pytest.mark.servers, pytest.mark.spec("migration.md#properties")]

OUR_OWN = ("lance_bridge.migration", "lance_bridge.revision", "transient_lastDdlTime")


def select(place: Place, **options: Any) -> dict[str, Any]:
    return {"include": [f"{place.prefix}*"], **options}


@pytest.mark.parametrize("mark", MARKS)
def test_a_table_of_another_implementation_gets_our_properties_and_undoing_restores_it(
    hive: Place, lake: Path, migrations: Migrations, mark: str
) -> None:
    hive.make_namespace()
    table = make_theirs(hive, lake, mark)
    before, data = hive.entries(), files(lake)
    with within(hive) as endpoints:
        run = Run("properties", endpoints, migrations)
        plan = run.plan(**select(hive))
        record = run.execute()
        if not plan.to_do:
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
    assert files(lake) == data


@pytest.mark.parametrize("managed_by", ["catalog", ""])
def test_our_tables_get_the_properties_of_others_and_stay_readable(
    hive: Place, lake: Path, migrations: Migrations, managed_by: str
) -> None:
    hive.make_namespace()
    table = register_rows(hive, "ours", lake / "ours.lance")
    before = hive.state()
    with within(hive) as endpoints:
        there = Run("properties", endpoints, migrations)
        there.plan(**select(hive, to="others", managed_by=managed_by))
        assert counts_of(there.execute()) == {"done": 1}
        entry = hive.entries()[".".join(table)]
        assert entry["parameters"]["table_type"] == "LANCE"
        assert entry["parameters"].get("managed_by", "") == managed_by
        assert entry["type"] == "EXTERNAL_TABLE"
        assert read_by_name(hive, table).equals(rows())
        back = Run("properties", endpoints, migrations)
        back.plan(**select(hive))
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
    glue: Place, glue_server: GlueServer, lake: Path, migrations: Migrations
) -> None:
    glue.make_namespace()
    lance.write_dataset(rows(), str(lake / "t.lance"))
    entry = {
        "Name": "theirs",
        "Parameters": {"table_type": "LANCE", "custom": "kept"},
        "StorageDescriptor": {"Columns": [], "Location": f"{lake}/t.lance"},
    }
    glue_server.glue.create_table(DatabaseName=glue.prefix, TableInput=entry)
    before = glue.entries()
    with planned("properties", within(glue), migrations, **select(glue)) as run:
        assert counts_of(run.execute()) == {"done": 1}
        now = glue.state()[f"{glue.prefix}.theirs"]
        assert now["type"] == "EXTERNAL_TABLE"
        assert now["parameters"] == {
            "table_type": "lance", "managed_by": "storage", "EXTERNAL": "TRUE", "custom": "kept",
            "lance_bridge.migration": "*",
        }  # fmt: skip
        run.undo()
    assert glue.entries() == before


def test_where_entries_cannot_change_their_tables_are_blocked(
    unity: Place, lake: Path, migrations: Migrations
) -> None:
    unity.make_namespace()
    register_rows(unity, "ours", lake / "ours.lance")
    with within(unity) as endpoints:
        plan = Run("properties", endpoints, migrations).plan(to="others")
    [item] = plan.items
    assert "no call that changes a table" in item.blockers[0].text


def test_a_table_that_is_dropped_during_planning_is_blocked_alone(
    hive: Place, lake: Path, migrations: Migrations, monkeypatch: pytest.MonkeyPatch
) -> None:
    hive.make_namespace()
    register_rows(hive, "dropped", lake / "dropped.lance")
    register_rows(hive, "kept", lake / "kept.lance")
    load_ownership = HiveCatalog.load_ownership

    def load(self: HiveCatalog, path: Any) -> Any:
        if path[-1].endswith("dropped"):
            with raw_client(hive.port) as client:
                client.drop_table(*path[-2:], False)
        return load_ownership(self, path)

    monkeypatch.setattr(HiveCatalog, "load_ownership", load)
    with within(hive) as endpoints:
        plan = Run("properties", endpoints, migrations).plan(**select(hive, to="others"))
    [blocked] = plan.blocked
    assert blocked.source == hive.table("dropped")
    assert [item.source for item in plan.to_do] == [hive.table("kept")]


def _managed(hive: Place, lake: Path) -> tuple[str, ...]:
    table = register_rows(hive, "held", lake / "held.lance")
    with hive.connect() as namespace:
        namespace.manage_table(table)
    return table


def test_tables_whose_versions_the_catalog_holds_are_left_alone(
    hive: Place, lake: Path, migrations: Migrations
) -> None:
    hive.make_namespace()
    _managed(hive, lake)
    with within(hive) as endpoints:
        plan = Run("properties", endpoints, migrations).plan(**select(hive, to="others"))
    [item] = plan.items
    assert item.nothing_to_do


def change(hive: Place, table: tuple[str, ...], value: str) -> None:
    """Change an entry as another user does."""
    with raw_client(hive.port) as client:
        entry = client.get_table(*table)
        entry.parameters["by"] = value
        client.alter_table(*table, entry)


def test_an_entry_that_changed_since_the_plan_or_since_the_run_is_not_touched(
    hive: Place, lake: Path, migrations: Migrations
) -> None:
    hive.make_namespace()
    table = make_theirs(hive, lake, "upper_case_type")
    with within(hive) as endpoints:
        stale = Run("properties", endpoints, migrations)
        stale.plan(**select(hive))
        change(hive, table, "one")
        with pytest.raises(ConcurrentModificationError, match="plan again"):
            stale.execute()
        run = Run("properties", endpoints, migrations)
        run.plan(**select(hive))
        run.execute()
        change(hive, table, "two")
        before = hive.entries()
        with pytest.raises(InvalidTableStateError, match="changed since"):
            run.undo()
        assert hive.entries() == before


@pytest.mark.spec("migration.md#undoing")
@pytest.mark.parametrize("is_resumed", [False, True])
def test_what_others_change_after_a_run_was_killed_is_not_undone(
    hive: Place, lake: Path, migrations: Migrations, *, is_resumed: bool
) -> None:
    hive.make_namespace()
    table = make_theirs(hive, lake, "upper_case_type")
    before = hive.entries()
    with planned("properties", within(hive), migrations, **select(hive)) as run:
        with pytest.raises(Died), dying_before("done", "properties"):
            run.execute()
        assert run.undo().state is State.UNDONE
        assert without(hive.entries(), *OUR_OWN) == without(before, *OUR_OWN)
        run.plan(**select(hive))
        with pytest.raises(Died), dying_before("done", "properties"):
            run.execute()
        change(hive, table, "others")
        if is_resumed:
            assert counts_of(run.execute()) == {"done": 1}
        changed = hive.entries()
        with pytest.raises(InvalidTableStateError, match="changed since"):
            run.undo()
        assert hive.entries() == changed


@pytest.mark.spec("migration.md#verifying")
def test_verifying_finds_properties_that_others_changed(
    hive: Place, lake: Path, migrations: Migrations
) -> None:
    hive.make_namespace()
    table = make_theirs(hive, lake, "upper_case_type")
    with planned("properties", within(hive), migrations, **select(hive)) as run:
        run.execute()
        with hive.connect() as namespace:
            namespace.deregister_table(api.DeregisterTableRequest(id=list(table)))
        assert _verified(run) == {"differs": 1}


def _verified(run: Run) -> dict[str, int]:
    record: Record = verify(run.type, run.endpoints, run.migration)
    return dict(counts_of(record))

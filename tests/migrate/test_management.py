"""``management``: the versions of tables, moved into the catalog and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pytest
from lance_namespace.errors import ConcurrentModificationError, InvalidTableStateError
from migrate.building import Run, counts_of, planned, read_by_name, register_rows, rows, within
from migrate.places import Place, files

from lance_bridge_migrate import Migrations

pytestmark = [pytest.mark.servers, pytest.mark.spec("migration.md#management")]


@pytest.fixture(params=["hive", "glue"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    found.make_namespace()
    return found


def select(place: Place, to: str) -> dict[str, Any]:
    return {"include": [f"{place.prefix}*"], "to": to}


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
    place: Place, lake: Path, migrations: Migrations
) -> None:
    table = register_rows(place, "t", lake / "t.lance")
    before, data = place.state(), files(lake)
    with planned("management", within(place), migrations, **select(place, "catalog")) as run:
        assert counts_of(run.execute()) == {"done": 1}
        assert is_managed(place, table)
        assert files(lake) == data
        run.undo()
        assert not is_managed(place, table)
        assert place.state() == before
        again = Run("management", run.endpoints, migrations)
        again.plan(**select(place, "catalog"))
        again.execute()
        append(place, table)
        back = Run("management", run.endpoints, migrations)
        back.plan(**select(place, "storage"))
        assert counts_of(back.execute()) == {"done": 1}
    assert not is_managed(place, table)
    assert lance.dataset(str(lake / "t.lance")).count_rows() == 5


def test_undoing_keeps_what_was_committed_since(
    place: Place, lake: Path, migrations: Migrations
) -> None:
    table = register_rows(place, "t", lake / "t.lance")
    with planned("management", within(place), migrations, **select(place, "catalog")) as run:
        run.execute()
        append(place, table)
        run.undo()
    assert not is_managed(place, table)
    assert read_by_name(place, table).num_rows == 5


def test_versions_written_past_the_catalog_block_the_way_back(
    place: Place, lake: Path, migrations: Migrations
) -> None:
    register_rows(place, "t", lake / "t.lance")
    with planned("management", within(place), migrations, **select(place, "catalog")) as run:
        run.execute()
        lance.write_dataset(rows(), str(lake / "t.lance"), mode="append")
        plan = Run("management", run.endpoints, migrations).plan(**select(place, "storage"))
        assert "adopt or discard" in plan.blocked[0].blockers[0].text
        with pytest.raises(InvalidTableStateError, match="adopt or discard"):
            run.undo()


@pytest.mark.spec("migration.md#plan")
def test_tables_that_are_converted_already_or_cannot_be_are_reported(
    place: Place, lake: Path, migrations: Migrations
) -> None:
    done = register_rows(place, "done", lake / "done.lance")
    branched = register_rows(place, "branched", lake / "branched.lance")
    lance.dataset(str(lake / "branched.lance")).create_branch("dev")
    with within(place) as endpoints, place.connect() as namespace:
        namespace.manage_table(done)
        plan = Run("management", endpoints, migrations).plan(**select(place, "catalog"))
    found = {item.source: item for item in plan.items}
    assert "holds its versions" in found[done].nothing_to_do
    assert "branches" in found[branched].blockers[0].text


def test_a_catalog_that_cannot_hold_versions_blocks(
    unity: Place, lake: Path, migrations: Migrations
) -> None:
    unity.make_namespace()
    register_rows(unity, "t", lake / "t.lance")
    with within(unity) as endpoints:
        plan = Run("management", endpoints, migrations).plan(to="catalog")
    assert "cannot be managed by the catalog" in plan.blocked[0].blockers[0].text


def test_a_recreated_table_is_neither_converted_nor_converted_back(
    place: Place, lake: Path, migrations: Migrations
) -> None:
    table = register_rows(place, "t", lake / "t.lance")
    with within(place) as endpoints, place.connect() as namespace:
        stale = Run("management", endpoints, migrations)
        stale.plan(**select(place, "catalog"))
        recreate_table(namespace, table, lake)
        with pytest.raises(ConcurrentModificationError, match="plan again"):
            stale.execute()
        run = Run("management", endpoints, migrations)
        run.plan(**select(place, "catalog"))
        run.execute()
        recreate_table(namespace, table, lake)
        with pytest.raises(InvalidTableStateError, match="is not the table"):
            run.undo()


def recreate_table(namespace: Any, table: tuple[str, ...], lake: Path) -> None:
    namespace.deregister_table(api.DeregisterTableRequest(id=list(table)))
    namespace.register_table(
        api.RegisterTableRequest(id=list(table), location=str(lake / "t.lance"))
    )

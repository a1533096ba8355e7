"""``entries``: the tables of one catalog get entries in another, and stay where they are."""

from __future__ import annotations

from pathlib import Path

import lance
import lance_namespace as api
import pytest
from lance_namespace.errors import ConcurrentModificationError, InvalidInputError
from migrate.building import (
    Run,
    between,
    counts_of,
    planned,
    read_by_name,
    register_rows,
    rows,
    within,
)
from migrate.places import Place, files
from servers.hive_raw import raw_client

from lance_bridge_migrate import Migrations
from lance_bridge_migrate.migrations.registration import Candidate, EntryFacts, plan_items
from lance_bridge_migrate.plan import warning

pytestmark = [pytest.mark.servers, pytest.mark.spec("migration.md#entries", "migration.md#plan")]


@pytest.fixture(params=["hive to glue", "hive to unity", "glue to hive", "unity to hive"])
def endpoints(request: pytest.FixtureRequest) -> tuple[Place, Place]:
    source, target = request.param.split(" to ")
    return request.getfixturevalue(source), request.getfixturevalue(target)


def into(source: Place, target: Place) -> dict[str, tuple[str, ...]]:
    """Return the options for what the test owns."""
    names = ".".join((*source.outer, f"{source.prefix}*"))
    return {"include": (f"{names}.*",), "namespace": target.outer}


@pytest.mark.spec("migration.md#parts")
def test_entries_are_copied_and_neither_source_nor_files_change(
    endpoints: tuple[Place, Place], lake: Path, migrations: Migrations
) -> None:
    source, target = endpoints
    for database in ("one", "two"):
        source.make_namespace(database)
        register_rows(source, "orders", lake / f"{database}.lance", database)
    with source.connect() as namespace:
        request = api.RegisterTableRequest(
            id=list(source.table("kept", "one")),
            location=str(lake / "one.lance"),
            properties={"owner": "somebody"},
        )
        namespace.register_table(request)
    before, data = source.entries(), files(lake)
    found = target.entries()
    with planned("entries", between(source, target), migrations, **into(source, target)) as run:
        record = run.execute(verify="checksums")
        assert counts_of(record) == {"done": 5}
        # Source and target have databases of the same names.
        copies = target.raw(source.prefix)
        assert copies[f"{source.prefix}one.kept"]["parameters"]["owner"] == "somebody"
        copied = (*target.outer, f"{source.prefix}two", "orders")
        assert read_by_name(target, copied).equals(rows())
        run.undo()
    assert target.raw(source.prefix) == found == {}
    assert source.entries() == before
    assert files(lake) == data


def test_all_tables_can_go_into_one_namespace(
    hive: Place, glue: Place, lake: Path, migrations: Migrations
) -> None:
    for database in ("one", "two"):
        hive.make_namespace(database)
    register_rows(hive, "a", lake / "a.lance", "one")
    register_rows(hive, "b", lake / "b.lance", "two")
    with planned(
        "entries",
        between(hive, glue),
        migrations,
        include=[f"{hive.prefix}*"],
        namespace=glue.namespace(),
    ) as run:
        run.execute()
    assert set(glue.entries()) == {glue.prefix, f"{glue.prefix}.a", f"{glue.prefix}.b"}


def test_foreign_entries_are_left_out_and_managed_tables_are_blocked(
    hive: Place, glue: Place, lake: Path, migrations: Migrations, tmp_path: Path
) -> None:
    hive.make_namespace()
    table = register_rows(hive, "held", lake / "held.lance")
    with hive.connect() as namespace:
        namespace.manage_table(table)
    with raw_client(hive.port) as client:
        other = client.get_table(*table)
        other.tableName, other.parameters = "theirs", {"EXTERNAL": "TRUE"}
        other.sd.location = f"file:{tmp_path}/theirs"
        client.create_table(other)
    with between(hive, glue) as connected:
        plan = Run("entries", connected, migrations).plan(**into(hive, glue))
    [item] = plan.items
    assert "management" in item.blockers[0].text
    assert any(note.startswith("1 entries") for note in plan.notes)


def test_a_source_that_changed_since_the_plan_is_refused(
    hive: Place, glue: Place, lake: Path, migrations: Migrations
) -> None:
    hive.make_namespace()
    table = register_rows(hive, "a", lake / "a.lance")
    with (
        planned("entries", between(hive, glue), migrations, **into(hive, glue)) as run,
        hive.connect() as namespace,
    ):
        namespace.deregister_table(api.DeregisterTableRequest(id=list(table)))
        lance.write_dataset(rows(), str(lake / "other.lance"))
        request = api.RegisterTableRequest(id=list(table), location=str(lake / "other.lance"))
        namespace.register_table(request)
        with pytest.raises(ConcurrentModificationError, match="changed since the plan"):
            run.execute()
    assert glue.raw(hive.prefix) == {}


def test_rows_that_are_added_since_the_plan_do_not_make_it_wrong(
    hive: Place, glue: Place, lake: Path, migrations: Migrations
) -> None:
    hive.make_namespace()
    register_rows(hive, "a", lake / "a.lance")
    with planned("entries", between(hive, glue), migrations, **into(hive, glue)) as run:
        lance.write_dataset(rows(2, 3), str(lake / "a.lance"), mode="append")
        assert counts_of(run.execute(verify="sample")) == {"done": 2}


def test_the_same_catalog_twice_is_refused(hive: Place, migrations: Migrations) -> None:
    with within(hive) as connected, pytest.raises(InvalidInputError, match="same catalog"):
        Run("entries", connected, migrations).plan()


def test_without_making_namespaces_their_tables_are_blocked(
    hive: Place, glue: Place, lake: Path, migrations: Migrations
) -> None:
    hive.make_namespace()
    register_rows(hive, "a", lake / "a.lance")
    with between(hive, glue) as connected:
        plan = Run("entries", connected, migrations).plan(**into(hive, glue), make_namespaces=False)
    [item] = plan.items
    assert "does not exist" in item.blockers[0].text


def test_the_name_of_a_table_with_a_warning_is_checked_too(hive: Place, lake: Path) -> None:
    facts = EntryFacts(location=str(lake / "t.lance"))
    candidates = [
        Candidate(("t",), ("A", "T"), facts, problems=(warning("It is not sorted"),)),
        Candidate(("u",), ("a", "b", "u"), facts, problems=(warning("It is not sorted"),)),
    ]
    with hive.connect() as namespace:
        folded, too_deep = plan_items(namespace.tables, candidates, make_namespaces=True)[1:]
    assert (folded.target, folded.blockers) == (("a", "t"), [])
    assert len(too_deep.blockers) == 1

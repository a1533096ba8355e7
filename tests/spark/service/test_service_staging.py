"""Staged tables: nothing is seen before all is there, and what fails leaves nothing."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from core.memory_catalog import MemoryServer
from lance_namespace.errors import PermissionDeniedError, TableNotFoundError

from lance_bridge.catalog import IMPLEMENTATION, MANAGED_BY
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge_spark.addresses import CatalogAddress
from lance_bridge_spark.source.staged_writer import Stage

from .service_requests import (
    ID,
    NAME,
    TABLE,
    append,
    ask,
    create,
    dataset,
    fields_of,
    ids_in,
    losing,
    refusal,
    respond,
    struct,
    write_staged,
)  # fmt: skip

pytestmark = [pytest.mark.quick, pytest.mark.spec("spark.md#create-and-replace-with-a-query")]

Told = dict[str, Any]


def stage(catalog: CatalogAddress, op: str = "stage_create", **properties: str) -> Told:
    """Begin to make ``TABLE`` of a query with one column ``id``."""
    args = {"table": TABLE, "schema": struct(ID), "properties": properties, "or_create": True}
    return dict(ask(catalog, op, **args)["stage"])


def commit(catalog: CatalogAddress, staged: Told) -> None:
    ask(catalog, "commit_staged", table=TABLE, stage=staged, written=True)


def place_of(staged: Told) -> Path:
    return Path(staged["location"])


def files_under(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


# -- new tables ----------------------------------------------------------------------------------


def test_a_new_table_is_seen_when_it_is_committed_and_not_before(
    catalog: CatalogAddress, server: MemoryServer
) -> None:
    staged = stage(catalog, team="sales", comment="All")
    write_staged(catalog, staged, 1, 2, 3)
    assert not server.tables
    assert ask(catalog, "table_exists", table=TABLE) == {"exists": False}
    commit(catalog, staged)
    found = ask(catalog, "load_table", table=TABLE)
    assert (found["rows"], found["version"]) == (3, 1)
    assert found["properties"].items() >= {"team": "sales", "comment": "All"}.items()
    assert server.effects == ["create_table"]
    assert not list(place_of(staged).rglob("*.staged.json"))


def test_the_answer_has_the_columns_as_they_will_be(catalog: CatalogAddress) -> None:
    args = {"table": TABLE, "schema": struct(ID, NAME), "properties": {"k": "v"}}
    staged = ask(catalog, "stage_create", **args)
    assert list(fields_of(staged)) == ["id", "name"]
    assert staged["properties"] == {"k": "v"}


def test_a_query_without_rows_makes_an_empty_table(catalog: CatalogAddress) -> None:
    staged = stage(catalog)
    write_staged(catalog, staged)
    commit(catalog, staged)
    assert ids_in(catalog, TABLE) == []


def test_of_many_that_create_at_once_exactly_one_wins(catalog: CatalogAddress) -> None:
    stages = [stage(catalog) for _ in range(4)]
    for number, staged in enumerate(stages):
        write_staged(catalog, staged, number)
    answers: list[dict[str, Any]] = [{}] * len(stages)
    barrier = threading.Barrier(len(stages))

    def run(number: int) -> None:
        barrier.wait()
        args = {"table": TABLE, "stage": stages[number], "written": True}
        answers[number] = respond(catalog, "commit_staged", args)
        if "error" in answers[number]:
            respond(catalog, "abort_staged", args)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(stages))]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert all("already exists" in a["error"]["message"] for a in answers if "error" in a)
    winners = [number for number, answer in enumerate(answers) if "error" not in answer]
    assert len(winners) == 1
    assert [answer["error"]["code"] for answer in answers if "error" in answer] == [5, 5, 5]
    assert ids_in(catalog, TABLE) == winners
    left = [staged for staged in stages if place_of(staged).exists()]
    assert left == [stages[winners[0]]]


@pytest.mark.parametrize("written", [True, False])
def test_a_failed_query_leaves_nothing_and_can_be_repeated(
    catalog: CatalogAddress, server: MemoryServer, tmp_path: Path, written: bool
) -> None:
    staged = stage(catalog)
    if written:
        write_staged(catalog, staged, 1)
    ask(catalog, "abort_staged", table=TABLE, stage=staged)
    ask(catalog, "abort_staged", table=TABLE, stage=staged)
    assert not server.tables
    assert not files_under(tmp_path)
    again = stage(catalog)
    write_staged(catalog, again, 2)
    commit(catalog, again)
    assert ids_in(catalog, TABLE) == [2]


def test_a_catalog_that_refuses_the_entry_leaves_no_data(
    catalog: CatalogAddress, server: MemoryServer, tmp_path: Path
) -> None:
    staged = stage(catalog)
    write_staged(catalog, staged, 1)
    server.fault = losing("create_table", PermissionDeniedError("not yours"), "before")
    assert refusal(catalog, "commit_staged", table=TABLE, stage=staged, written=True)[0] == 15
    assert not files_under(tmp_path)
    server.fault = None
    ask(catalog, "abort_staged", table=TABLE, stage=staged)


def test_an_entry_whose_reply_is_lost_is_found_and_the_abort_leaves_it(
    catalog: CatalogAddress, server: MemoryServer
) -> None:
    staged = stage(catalog)
    write_staged(catalog, staged, 1)
    server.fault = losing("create_table", OutcomeUnknownError("lost"), "after")
    commit(catalog, staged)
    ask(catalog, "abort_staged", table=TABLE, stage=staged)
    assert ids_in(catalog, TABLE) == [1]


def test_rows_that_have_no_record_are_an_error_and_no_empty_table(
    catalog: CatalogAddress, server: MemoryServer
) -> None:
    staged = stage(catalog)
    assert refusal(catalog, "commit_staged", table=TABLE, stage=staged, written=True)[0] == 18
    assert not server.tables


def test_a_given_location_is_used_and_data_of_others_is_never_deleted(
    catalog: CatalogAddress, server: MemoryServer, tmp_path: Path
) -> None:
    place = tmp_path / "mine.lance"
    staged = stage(catalog, location=str(place))
    write_staged(catalog, staged, 1)
    lance.write_dataset(pa.table({"id": [7, 8]}), str(place))
    assert refusal(catalog, "commit_staged", table=TABLE, stage=staged, written=True)[0] == 5
    ask(catalog, "abort_staged", table=TABLE, stage=staged)
    assert lance.dataset(str(place)).to_table()["id"].to_pylist() == [7, 8]
    assert len(list(place.glob("data/*.lance"))) == 1
    assert not list(place.rglob("*.staged.json"))
    assert not server.tables


@pytest.mark.parametrize("rows", [False, True])
def test_of_a_table_that_gets_no_entry_nothing_stays_at_a_given_location_but_what_was_there(
    catalog: CatalogAddress, tmp_path: Path, rows: bool
) -> None:
    place = tmp_path / "mine"
    for name in ("keep.txt", "data/keep.lance"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("mine")
    location = {"location": str(place)}
    if rows:
        staged = stage(catalog, **location)
        write_staged(catalog, staged, 1, 2)
        create(catalog, TABLE)
        assert refusal(catalog, "commit_staged", table=TABLE, stage=staged, written=True)[0] == 5
        ask(catalog, "abort_staged", table=TABLE, stage=staged)
    else:
        create(catalog, TABLE)
        args = {"table": TABLE, "schema": struct(ID), "properties": location}
        assert refusal(catalog, "create_table", **args)[0] == 5
    left = [str(each.relative_to(place)) for each in place.rglob("*") if each.is_file()]
    assert sorted(left) == ["data/keep.lance", "keep.txt"]


def test_a_managed_table_is_made_and_replaced_through_its_catalog(
    catalog: CatalogAddress, server: MemoryServer
) -> None:
    staged = stage(catalog, **{MANAGED_BY: IMPLEMENTATION})
    write_staged(catalog, staged, 1)
    commit(catalog, staged)
    assert server.tables[tuple(TABLE)].properties[MANAGED_BY] == IMPLEMENTATION
    again = stage(catalog, "stage_replace")
    write_staged(catalog, again, 2)
    commit(catalog, again)
    found = ask(catalog, "load_table", table=TABLE)
    assert (found["version"], found["rows"]) == (2, 1)
    assert '"version": 2' in server.tables[tuple(TABLE)].properties["lance_bridge.latest"]


@pytest.mark.spec("spark.md#unsupported-statements")
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"schema": struct()}, 13),
        ({"table": ["none", "t"]}, 1),
        ({"properties": {"provider": "csv"}}, 13),
        ({"schema": struct({**ID, "type": "interval year to month"})}, 13),
    ],
)
def test_what_cannot_be_made_is_refused_before_the_query_runs(
    catalog: CatalogAddress, tmp_path: Path, change: Told, code: int
) -> None:
    args = {"table": TABLE, "schema": struct(ID), "properties": {}, "or_create": True, **change}
    for op in ("stage_create", "stage_replace"):
        assert refusal(catalog, op, **args)[0] == code
    assert not files_under(tmp_path)


# -- tables that are replaced --------------------------------------------------------------------


def test_a_replaced_table_keeps_its_rows_until_the_commit_and_its_history_after(
    catalog: CatalogAddress,
) -> None:
    create(catalog, TABLE, old="1")
    append(catalog, TABLE, 1, 2)
    staged = stage(catalog, "stage_replace", new="2")
    write_staged(catalog, staged, 7)
    assert ids_in(catalog, TABLE) == [1, 2]
    commit(catalog, staged)
    found = ask(catalog, "load_table", table=TABLE)
    assert list(fields_of(found)) == ["id"]
    assert ids_in(catalog, TABLE) == [7]
    assert "old" not in found["properties"]
    assert found["properties"]["new"] == "2"
    assert ask(catalog, "load_table", table=TABLE, version="2")["rows"] == 2
    assert not list(place_of(staged).rglob("*.staged.json"))


def test_a_replacement_that_has_the_catalog_manage_the_table_keeps_that_and_its_properties(
    catalog: CatalogAddress, server: MemoryServer
) -> None:
    create(catalog, TABLE, old="1")
    staged = stage(catalog, "stage_replace", new="2", **{MANAGED_BY: IMPLEMENTATION})
    write_staged(catalog, staged, 7)
    commit(catalog, staged)
    entry = server.tables[tuple(TABLE)].properties
    assert entry[MANAGED_BY] == IMPLEMENTATION
    assert '"version": 2' in entry["lance_bridge.latest"]
    assert (entry["new"], "old" in entry) == ("2", False)
    found = ask(catalog, "load_table", table=TABLE)
    assert (found["version"], found["rows"]) == (2, 1)


def test_an_aborted_replacement_leaves_the_table_and_no_new_file(catalog: CatalogAddress) -> None:
    create(catalog, TABLE)
    append(catalog, TABLE, 1)
    staged = stage(catalog, "stage_replace")
    before = files_under(place_of(staged))
    write_staged(catalog, staged, 7, 8)
    ask(catalog, "abort_staged", table=TABLE, stage=staged)
    assert files_under(place_of(staged)) == before
    assert ids_in(catalog, TABLE) == [1]


def test_an_abort_after_the_commit_deletes_nothing(catalog: CatalogAddress) -> None:
    create(catalog, TABLE)
    staged = stage(catalog, "stage_replace")
    write_staged(catalog, staged, 7)
    commit(catalog, staged)
    append_after = dataset(catalog, TABLE).version
    ask(catalog, "abort_staged", table=TABLE, stage=staged)
    assert ids_in(catalog, TABLE) == [7]
    assert dataset(catalog, TABLE).version == append_after


def test_a_commit_that_is_repeated_makes_one_version(catalog: CatalogAddress) -> None:
    create(catalog, TABLE)
    staged = stage(catalog, "stage_replace")
    write_staged(catalog, staged, 7)
    for _ in range(2):
        ask(catalog, "commit_staged", table=TABLE, stage=staged)
    assert dataset(catalog, TABLE).version == 2


def test_of_two_replacements_of_one_version_one_fails(catalog: CatalogAddress) -> None:
    create(catalog, TABLE)
    first, second = (stage(catalog, "stage_replace") for _ in range(2))
    write_staged(catalog, first, 1)
    write_staged(catalog, second, 2)
    commit(catalog, second)
    assert refusal(catalog, "commit_staged", table=TABLE, stage=first, written=True)[0] == 14
    ask(catalog, "abort_staged", table=TABLE, stage=first)
    assert ids_in(catalog, TABLE) == [2]


def test_a_replacement_is_refused_where_rows_came_meanwhile(catalog: CatalogAddress) -> None:
    """The query may have read the table itself, without them."""
    create(catalog, TABLE)
    staged = stage(catalog, "stage_replace")
    write_staged(catalog, staged, 1)
    there = dataset(catalog, TABLE)
    lance.write_dataset(
        pa.table({"id": pa.array([7], there.schema.field("id").type)}), there, mode="append"
    )
    assert refusal(catalog, "commit_staged", table=TABLE, stage=staged, written=True)[0] == 14
    assert ids_in(catalog, TABLE) == [7]


def test_replacing_creates_only_where_it_may(catalog: CatalogAddress) -> None:
    args = {"table": TABLE, "schema": struct(ID), "properties": {}}
    assert refusal(catalog, "stage_replace", **args, or_create=False)[0] == 4
    staged = stage(catalog, "stage_replace")
    assert Stage.from_json(staged).replaces == 0
    commit_args = {"table": TABLE, "stage": staged, "written": False}
    ask(catalog, "commit_staged", **commit_args)
    assert ids_in(catalog, TABLE) == []


def test_a_table_that_another_one_has_taken_the_place_of_is_not_replaced(
    catalog: CatalogAddress, tmp_path: Path
) -> None:
    create(catalog, TABLE)
    staged = stage(catalog, "stage_replace")
    write_staged(catalog, staged, 1)
    ask(catalog, "rename_table", table=TABLE, to=["other"])
    create(catalog, TABLE, location=str(tmp_path / "another.lance"))
    assert refusal(catalog, "commit_staged", table=TABLE, stage=staged, written=True)[0] == 19
    assert ids_in(catalog, TABLE) == []


def test_properties_that_cannot_change_are_refused_before_the_query_runs(
    catalog: CatalogAddress, server: MemoryServer
) -> None:
    create(catalog, TABLE)
    server.capabilities = replace(server.capabilities, no_alter="entries never change")
    args = {"table": TABLE, "schema": struct(ID), "or_create": True}
    code, message = refusal(catalog, "stage_replace", **args, properties={"k": "v"})
    assert code == 0
    assert "never change" in message
    staged = ask(catalog, "stage_replace", **args, properties={})["stage"]
    write_staged(catalog, staged, 3)
    commit(catalog, staged)
    assert ids_in(catalog, TABLE) == [3]


def test_rows_of_a_replaced_table_that_is_renamed_at_once_outlive_the_abort(
    catalog: CatalogAddress, server: MemoryServer
) -> None:
    create(catalog, TABLE)
    staged = stage(catalog, "stage_replace", team="sales")
    write_staged(catalog, staged, 7)
    server.fault = losing("alter_table", TableNotFoundError("renamed"), "before")
    assert refusal(catalog, "commit_staged", table=TABLE, stage=staged, written=True)[0] == 4
    server.fault = None
    ask(catalog, "rename_table", table=TABLE, to=["other"])
    ask(catalog, "abort_staged", table=TABLE, stage=staged)
    assert ids_in(catalog, [*TABLE[:-1], "other"]) == [7]

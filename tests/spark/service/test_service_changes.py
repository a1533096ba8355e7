"""What the service does for ALTER TABLE, and for staged tables: what fails leaves nothing.

Also reads and writes that it plans: what tasks get, rows without tasks, commits.
"""

from __future__ import annotations

import json
import pickle
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import PermissionDeniedError, TableNotFoundError

from lance_bridge.catalog import IMPLEMENTATION, MANAGED_BY
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.records import FOREIGN_COMMITS
from lance_bridge_spark.source.options import CATALOG_OPTION, SQL_PREFIX, TABLE_OPTION
from lance_bridge_spark.source.writer import Stage
from lance_bridge_spark.sql import service as sql_service

from .service_requests import ID, NAME, TABLE, Service, fault_of_change, fields_of, struct

pytestmark = [pytest.mark.quick, pytest.mark.spec("spark.md#create-and-replace-with-a-query")]

Told = dict[str, Any]
INNER = {"type": "struct", "fields": [NAME]}
PLACE = {"name": "place", "type": INNER, "nullable": True, "metadata": {}}


# -- staged tables ---------------------------------------------------------------------------------


def stage(service: Service, op: str = "stage_create", **properties: str) -> Told:
    """Begin to make ``TABLE`` of a query with one column ``id``."""
    args = {"table": TABLE, "schema": struct(ID), "properties": properties, "or_create": True}
    return dict(service.ask(op, **args)["stage"])


def staged_rows(service: Service, *ids: int, op: str = "stage_create", **properties: str) -> Told:
    """Begin to make ``TABLE``, and write its rows."""
    staged = stage(service, op, **properties)
    service.write_staged(staged, *ids)
    return staged


def commit(service: Service, staged: Told) -> None:
    service.ask("commit_staged", table=TABLE, stage=staged, written=True)


def refused(service: Service, staged: Told) -> int:
    """Return the code of the error of a commit that must fail."""
    return service.refusal("commit_staged", table=TABLE, stage=staged, written=True)[0]


def abort(service: Service, staged: Told) -> None:
    service.ask("abort_staged", table=TABLE, stage=staged)


def place_of(staged: Told) -> Path:
    return Path(staged["location"])


def files_under(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


# -- new tables ----------------------------------------------------------------------------------


def test_a_new_table_is_seen_when_it_is_committed_and_not_before(service: Service) -> None:
    staged = staged_rows(service, 1, 2, 3, team="sales", comment="All")
    assert not service.server.tables
    assert service.ask("table_exists", table=TABLE) == {"exists": False}
    commit(service, staged)
    found = service.ask("load_table", table=TABLE)
    assert (found["rows"], found["version"]) == (3, 1)
    assert found["properties"].items() >= {"team": "sales", "comment": "All"}.items()
    assert service.server.effects == ["create_table"]
    assert not list(place_of(staged).rglob("*.staged.json"))


def test_the_answer_has_the_columns_as_they_will_be(service: Service) -> None:
    args = {"table": TABLE, "schema": struct(ID, NAME), "properties": {"k": "v"}}
    staged = service.ask("stage_create", **args)
    assert list(fields_of(staged)) == ["id", "name"]
    assert staged["properties"] == {"k": "v"}


def test_of_many_that_create_at_once_exactly_one_wins(service: Service) -> None:
    stages = [stage(service) for _ in range(4)]
    for number, staged in enumerate(stages):
        service.write_staged(staged, number)
    answers: list[dict[str, Any]] = [{}] * len(stages)
    barrier = threading.Barrier(len(stages))

    def run(number: int) -> None:
        barrier.wait()
        args = {"table": TABLE, "stage": stages[number], "written": True}
        answers[number] = service.respond("commit_staged", args)
        if "error" in answers[number]:
            service.respond("abort_staged", args)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(stages))]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert all("already exists" in a["error"]["message"] for a in answers if "error" in a)
    winners = [number for number, answer in enumerate(answers) if "error" not in answer]
    assert len(winners) == 1
    assert [answer["error"]["code"] for answer in answers if "error" in answer] == [5, 5, 5]
    assert service.ids_in(TABLE) == winners
    left = [staged for staged in stages if place_of(staged).exists()]
    assert left == [stages[winners[0]]]


@pytest.mark.parametrize("written", [True, False])
def test_a_failed_query_leaves_nothing_and_can_be_repeated(
    service: Service, tmp_path: Path, written: bool
) -> None:
    staged = stage(service)
    if written:
        service.write_staged(staged, 1)
    abort(service, staged)
    abort(service, staged)
    assert not service.server.tables
    assert not files_under(tmp_path)
    again = staged_rows(service, 2)
    commit(service, again)
    assert service.ids_in(TABLE) == [2]


def test_a_catalog_that_refuses_the_entry_leaves_no_data(service: Service, tmp_path: Path) -> None:
    staged = staged_rows(service, 1)
    service.server.fault = fault_of_change(
        "create_table", PermissionDeniedError("not yours"), "before"
    )
    assert refused(service, staged) == 15
    assert not files_under(tmp_path)
    service.server.fault = None
    abort(service, staged)


def test_an_entry_whose_reply_is_lost_is_found_and_the_abort_leaves_it(service: Service) -> None:
    staged = staged_rows(service, 1)
    service.server.fault = fault_of_change("create_table", OutcomeUnknownError("lost"), "after")
    commit(service, staged)
    abort(service, staged)
    assert service.ids_in(TABLE) == [1]


def test_rows_that_have_no_record_are_an_error_and_no_empty_table(service: Service) -> None:
    staged = stage(service)
    assert refused(service, staged) == 18
    assert not service.server.tables


def test_a_given_location_is_used_and_data_of_others_is_never_deleted(
    service: Service, tmp_path: Path
) -> None:
    place = tmp_path / "mine.lance"
    staged = staged_rows(service, 1, location=str(place))
    lance.write_dataset(pa.table({"id": [7, 8]}), str(place))
    assert refused(service, staged) == 5
    abort(service, staged)
    assert lance.dataset(str(place)).to_table()["id"].to_pylist() == [7, 8]
    assert len(list(place.glob("data/*.lance"))) == 1
    assert not list(place.rglob("*.staged.json"))
    assert not service.server.tables


@pytest.mark.parametrize("rows", [False, True])
def test_of_a_table_that_gets_no_entry_nothing_stays_at_a_given_location_but_what_was_there(
    service: Service, tmp_path: Path, rows: bool
) -> None:
    place = tmp_path / "mine"
    for name in ("keep.txt", "data/keep.lance"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("mine")
    location = {"location": str(place)}
    if rows:
        staged = staged_rows(service, 1, 2, **location)
        service.create(TABLE)
        assert refused(service, staged) == 5
        abort(service, staged)
    else:
        service.create(TABLE)
        args = {"table": TABLE, "schema": struct(ID), "properties": location}
        assert service.refusal("create_table", **args)[0] == 5
    left = [str(each.relative_to(place)) for each in place.rglob("*") if each.is_file()]
    assert sorted(left) == ["data/keep.lance", "keep.txt"]


def test_a_managed_table_is_made_and_replaced_through_its_catalog(service: Service) -> None:
    staged = staged_rows(service, 1, **{MANAGED_BY: IMPLEMENTATION})
    commit(service, staged)
    assert service.server.tables[tuple(TABLE)].properties[MANAGED_BY] == IMPLEMENTATION
    again = staged_rows(service, 2, op="stage_replace")
    commit(service, again)
    found = service.ask("load_table", table=TABLE)
    assert (found["version"], found["rows"]) == (2, 1)
    assert '"version": 2' in service.server.tables[tuple(TABLE)].properties["lance_bridge.latest"]


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
    service: Service, tmp_path: Path, change: Told, code: int
) -> None:
    args = {"table": TABLE, "schema": struct(ID), "properties": {}, "or_create": True, **change}
    for op in ("stage_create", "stage_replace"):
        assert service.refusal(op, **args)[0] == code
    assert not files_under(tmp_path)


# -- tables that are replaced --------------------------------------------------------------------


def test_a_replaced_table_keeps_its_rows_until_the_commit_and_its_history_after(
    service: Service,
) -> None:
    service.create(TABLE, old="1")
    service.append(TABLE, 1, 2)
    staged = staged_rows(service, 7, op="stage_replace", new="2")
    assert service.ids_in(TABLE) == [1, 2]
    commit(service, staged)
    found = service.ask("load_table", table=TABLE)
    assert list(fields_of(found)) == ["id"]
    assert service.ids_in(TABLE) == [7]
    assert "old" not in found["properties"]
    assert found["properties"]["new"] == "2"
    assert service.ask("load_table", table=TABLE, version="2")["rows"] == 2
    assert not list(place_of(staged).rglob("*.staged.json"))


def test_a_replacement_that_has_the_catalog_manage_the_table_keeps_that_and_its_properties(
    service: Service,
) -> None:
    service.create(TABLE, old="1")
    staged = staged_rows(service, 7, op="stage_replace", new="2", **{MANAGED_BY: IMPLEMENTATION})
    commit(service, staged)
    entry = service.server.tables[tuple(TABLE)].properties
    assert entry[MANAGED_BY] == IMPLEMENTATION
    assert '"version": 2' in entry["lance_bridge.latest"]
    assert (entry["new"], "old" in entry) == ("2", False)
    found = service.ask("load_table", table=TABLE)
    assert (found["version"], found["rows"]) == (2, 1)


def test_an_aborted_replacement_leaves_the_table_and_no_new_file(service: Service) -> None:
    service.create(TABLE)
    service.append(TABLE, 1)
    staged = stage(service, "stage_replace")
    before = files_under(place_of(staged))
    service.write_staged(staged, 7, 8)
    abort(service, staged)
    assert files_under(place_of(staged)) == before
    assert service.ids_in(TABLE) == [1]


def test_an_abort_after_the_commit_deletes_nothing(service: Service) -> None:
    service.create(TABLE)
    staged = staged_rows(service, 7, op="stage_replace")
    commit(service, staged)
    append_after = service.dataset(TABLE).version
    abort(service, staged)
    assert service.ids_in(TABLE) == [7]
    assert service.dataset(TABLE).version == append_after


def test_a_commit_that_is_repeated_makes_one_version(service: Service) -> None:
    service.create(TABLE)
    staged = staged_rows(service, 7, op="stage_replace")
    for _ in range(2):
        service.ask("commit_staged", table=TABLE, stage=staged)
    assert service.dataset(TABLE).version == 2


def test_of_two_replacements_of_one_version_one_fails(service: Service) -> None:
    service.create(TABLE)
    first, second = (stage(service, "stage_replace") for _ in range(2))
    service.write_staged(first, 1)
    service.write_staged(second, 2)
    commit(service, second)
    assert refused(service, first) == 14
    abort(service, first)
    assert service.ids_in(TABLE) == [2]


def test_a_replacement_is_refused_where_rows_came_meanwhile(service: Service) -> None:
    """The query may have read the table itself, without them."""
    service.create(TABLE)
    staged = staged_rows(service, 1, op="stage_replace")
    there = service.dataset(TABLE)
    lance.write_dataset(
        pa.table({"id": pa.array([7], there.schema.field("id").type)}), there, mode="append"
    )
    assert refused(service, staged) == 14
    assert service.ids_in(TABLE) == [7]


def test_replacing_creates_only_where_it_may(service: Service) -> None:
    args = {"table": TABLE, "schema": struct(ID), "properties": {}}
    assert service.refusal("stage_replace", **args, or_create=False)[0] == 4
    staged = stage(service, "stage_replace")
    assert Stage.from_json(staged).replaces == 0
    commit_args = {"table": TABLE, "stage": staged, "written": False}
    service.ask("commit_staged", **commit_args)
    assert service.ids_in(TABLE) == []


def test_a_table_that_another_one_has_taken_the_place_of_is_not_replaced(
    service: Service, tmp_path: Path
) -> None:
    service.create(TABLE)
    staged = staged_rows(service, 1, op="stage_replace")
    service.ask("rename_table", table=TABLE, to=["other"])
    service.create(TABLE, location=str(tmp_path / "another.lance"))
    assert refused(service, staged) == 19
    assert service.ids_in(TABLE) == []


def test_properties_that_cannot_change_are_refused_before_the_query_runs(service: Service) -> None:
    service.create(TABLE)
    service.server.capabilities = replace(
        service.server.capabilities, no_alter="entries never change"
    )
    args = {"table": TABLE, "schema": struct(ID), "or_create": True}
    code, message = service.refusal("stage_replace", **args, properties={"k": "v"})
    assert code == 0
    assert "never change" in message
    staged = service.ask("stage_replace", **args, properties={})["stage"]
    service.write_staged(staged, 3)
    commit(service, staged)
    assert service.ids_in(TABLE) == [3]


def test_rows_of_a_replaced_table_that_is_renamed_at_once_outlive_the_abort(
    service: Service,
) -> None:
    service.create(TABLE)
    staged = staged_rows(service, 7, op="stage_replace", team="sales")
    service.server.fault = fault_of_change("alter_table", TableNotFoundError("renamed"), "before")
    assert refused(service, staged) == 4
    service.server.fault = None
    service.ask("rename_table", table=TABLE, to=["other"])
    abort(service, staged)
    assert service.ids_in([*TABLE[:-1], "other"]) == [7]


# -- ALTER TABLE -----------------------------------------------------------------------------------


def add(name: str, kind: Any = "string", **more: Any) -> dict[str, Any]:
    """Return the change that adds a column, or a field by a path with dots."""
    return {"kind": "add_column", "field": name.split("."), "type": json.dumps(kind), **more}


def on(name: str, kind: str, **more: Any) -> dict[str, Any]:
    """Return a change of one column."""
    return {"kind": kind, "field": name.split("."), **more}


def alter(service: Service, *changes: dict[str, Any]) -> dict[str, Any]:
    return service.ask("alter_table", table=TABLE, changes=list(changes))


def refused_change(service: Service, *changes: dict[str, Any]) -> tuple[int, str]:
    before = service.dataset(TABLE).version
    found = service.refusal("alter_table", table=TABLE, changes=list(changes))
    assert service.dataset(TABLE).version == before
    return found


@pytest.mark.spec("spark.md#schema-evolution")
def test_schema_evolution_widens_types_and_narrows_none(service: Service) -> None:
    service.create(TABLE)
    alter(service, add("small", "integer"), add("amount", "decimal(5,2)"))

    def evolve(*changes: dict[str, Any]) -> dict[str, Any]:
        return {"table": TABLE, "changes": list(changes), "evolves": True}

    wider = evolve(
        add("new"),
        on("small", "update_type", type='"long"'),
        on("amount", "update_type", type='"decimal(8,3)"'),
    )
    fields = fields_of(service.ask("alter_table", **wider))
    assert (fields["small"]["type"], fields["amount"]["type"]) == ("long", "decimal(8,3)")
    assert "new" in fields
    before = service.dataset(TABLE).version
    for column, kind in (("small", "integer"), ("small", "string"), ("amount", "decimal(8,2)")):
        narrow = evolve(add("other"), on(column, "update_type", type=json.dumps(kind)))
        code, message = service.refusal("alter_table", **narrow)
        assert (code, "CAST" in message) == (20, True), message
    assert service.dataset(TABLE).version == before


def test_columns_are_added_together_with_comments(service: Service) -> None:
    service.create(TABLE)
    service.append(TABLE, 1)
    answer = alter(
        service,
        add("a", "integer", comment="An A"),
        add("b", {"type": "array", "elementType": "float", "containsNull": True}),
        add("c", "timestamp"),
        add("d", "decimal(10,2)"),
    )
    fields = fields_of(answer)
    assert list(fields) == ["id", "name", "a", "b", "c", "d"]
    assert fields["a"]["metadata"] == {"comment": "An A"}
    assert [fields[each]["type"] for each in "acd"] == ["integer", "timestamp", "decimal(10,2)"]
    assert answer["version"] == 3
    assert answer["rows"] == 1


def test_columns_are_renamed_retyped_loosened_and_dropped(service: Service) -> None:
    number = {**NAME, "name": "n", "type": "integer", "nullable": False}
    service.create(TABLE, ID, NAME, number, PLACE)
    answer = alter(
        service,
        on("name", "rename_column", to="title"),
        on("place.name", "rename_column", to="city"),
        on("n", "update_type", type='"long"'),
    )
    fields = fields_of(answer)
    assert list(fields) == ["id", "title", "n", "place"]
    assert fields["n"] == {**number, "type": "long"}
    assert fields["place"]["type"]["fields"][0]["name"] == "city"
    answer = alter(service, on("n", "update_nullability", nullable=True))
    assert fields_of(answer)["n"]["nullable"]
    answer = alter(service, on("title", "drop_column"), on("gone", "drop_column", if_exists=True))
    assert list(fields_of(answer)) == ["id", "n", "place"]


def test_a_string_that_loses_its_length_is_a_plain_one(service: Service) -> None:
    service.create(TABLE, ID, {**NAME, "type": "varchar(5)"})
    answer = alter(service, on("name", "update_type", type='"varchar(9)"'))
    assert fields_of(answer)["name"]["metadata"] == {"__CHAR_VARCHAR_TYPE_STRING": "varchar(9)"}
    answer = alter(service, on("name", "update_type", type='"string"'))
    assert fields_of(answer)["name"]["metadata"] == {}


def test_comments_of_columns_are_set_and_removed(service: Service) -> None:
    service.create(TABLE, ID, PLACE)
    answer = alter(
        service,
        on("id", "update_comment", comment="the key"),
        on("place.name", "update_comment", comment="where"),
    )
    assert fields_of(answer)["id"]["metadata"] == {"comment": "the key"}
    assert fields_of(answer)["place"]["type"]["fields"][0]["metadata"] == {"comment": "where"}
    assert answer["version"] == 2
    answer = alter(service, on("id", "update_comment", comment=None))
    assert fields_of(answer)["id"]["metadata"] == {}


@pytest.mark.spec("spark.md#unsupported-statements")
@pytest.mark.parametrize(
    ("change", "code", "word"),
    [
        (add("ID"), 13, "exists already"),
        (add("_rowid"), 13, "_rowid"),
        (add("a.b"), 12, "'a'"),
        (add("id.b"), 13, "not a struct"),
        (add("x", nullable=False), 13, "NOT NULL"),
        (add("x", position={"first": True}), 0, "Lance appends columns"),
        (add("x", "interval year to month"), 13, "interval"),
        (on("none", "drop_column"), 12, "none"),
        (on("none", "rename_column", to="x"), 12, "none"),
        (on("id", "rename_column", to="name"), 13, "exists already"),
        (on("id", "update_position", position={"first": True}), 0, "update_position"),
        (on("id", "update_type", type='"string"'), 13, "Cannot cast"),
        (on("place", "update_type", type=json.dumps(INNER)), 0, "plain"),
        (on("none", "update_comment", comment="x"), 12, "none"),
        ({"kind": "set_property", "key": "lance_bridge.id", "value": "x"}, 13, "reserved"),
        ({"kind": "remove_property", "key": "lance_bridge.id"}, 13, "reserved"),
        ({"kind": "remove_property", "key": "table_type"}, 13, "reserved"),
        ({"kind": "set_property", "key": "table_type", "value": "hive"}, 13, "table_type"),
        ({"kind": "set_property", "key": "location", "value": "/x"}, 0, "location"),
        ({"kind": "set_property", "key": FOREIGN_COMMITS, "value": "x"}, 13, "hide, adopt, refuse"),
    ],
)
def test_a_change_that_cannot_be_is_refused_and_nothing_is_changed(
    service: Service, change: dict[str, Any], code: int, word: str
) -> None:
    service.create(TABLE, ID, NAME, PLACE)
    done = list(service.server.effects)
    found = refused_change(service, change)
    assert found[0] == code, found
    assert word in found[1]
    assert service.server.effects == done


def test_an_impossible_change_keeps_those_before_it_from_being_made(service: Service) -> None:
    service.create(TABLE)
    assert refused_change(service, add("x"), add("y", nullable=False))[0] == 13
    assert refused_change(service, on("id", "drop_column"), on("name", "drop_column"))[0] == 13


def test_properties_and_the_comment_are_set_and_removed_in_one_change(service: Service) -> None:
    service.create(TABLE, k="1", l="2")
    answer = alter(
        service,
        {"kind": "set_property", "key": "k", "value": "3"},
        {"kind": "remove_property", "key": "l"},
        {"kind": "set_property", "key": "comment", "value": "All orders"},
    )
    shown = {key: answer["properties"].get(key) for key in ("k", "l", "comment")}
    assert shown == {"k": "3", "l": None, "comment": "All orders"}
    assert service.server.effects.count("alter_table") == 1
    assert service.server.tables[tuple(TABLE)].properties["lance_bridge.id"]
    assert answer["version"] == 1


@pytest.mark.spec("managed.md#commits-that-bypass-the-catalog")
def test_what_is_done_with_foreign_commits_is_set_and_unset(service: Service) -> None:
    service.create(TABLE)
    for kind, found in (("set_property", "adopt"), ("remove_property", "hide")):
        alter(service, {"kind": kind, "key": FOREIGN_COMMITS, "value": "ADOPT"})
        assert service.server.tables[tuple(TABLE)].properties[FOREIGN_COMMITS] == found


@pytest.mark.spec("spark.md#statements")
def test_the_catalog_takes_over_the_versions_of_a_table_and_gives_them_back(
    service: Service,
) -> None:
    service.create(TABLE)
    service.append(TABLE, 1)
    alter(service, {"kind": "set_property", "key": "managed_by", "value": IMPLEMENTATION})
    assert service.server.tables[tuple(TABLE)].properties["managed_by"] == IMPLEMENTATION
    answer = alter(service, add("a"), {"kind": "set_property", "key": "k", "value": "v"}, add("b"))
    assert list(fields_of(answer)) == ["id", "name", "a", "b"]
    assert answer["version"] == 4
    service.ask("delete_where", table=TABLE, where="id = 1")
    assert service.ask("load_table", table=TABLE)["rows"] == 0
    alter(service, {"kind": "set_property", "key": "managed_by", "value": "storage"})
    assert service.server.tables[tuple(TABLE)].properties["managed_by"] == "storage"
    assert service.ids_in(TABLE) == []


LOCAL: dict[str, Any] = {"local_rows": 3, "local_bytes": 1 << 20}


def call(
    service: Service, op: str, parts: list[bytes], **args: Any
) -> tuple[dict[str, Any], list[bytes]]:
    """Return the answer to a call with byte strings, and those of the answer."""
    answer, found = service.call(op, args, parts)
    assert "error" not in answer, answer
    return answer["answer"], found


def options(service: Service, **asked: dict[str, Any]) -> dict[str, str]:
    """Return the options of the data source for a use of ``TABLE``."""
    texts: dict[str, Any] = {CATALOG_OPTION: service.address, TABLE_OPTION: TABLE}
    texts.update({f"{SQL_PREFIX}{key}": value for key, value in asked.items()})
    return {key: json.dumps(value) for key, value in texts.items()}


def test_a_panic_of_lance_is_a_response(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        """As PyO3 names its own."""

    PanicException.__module__ = "pyo3_runtime"

    def fail(*_: object) -> dict[str, Any]:
        raise PanicException("index out of bounds")

    monkeypatch.setitem(sql_service._OPERATIONS, "load_table", fail)
    code, message = service.refusal("load_table")
    assert code == 18
    assert "index out of bounds" in message


def plan(
    service: Service, scan: dict[str, Any] | None = None, **args: Any
) -> tuple[dict[str, Any], list[bytes]]:
    """Plan a read of all columns of ``TABLE`` as it is."""
    loaded = service.ask("load_table", table=TABLE)
    chosen = {"version": loaded["version"], **(scan or {})}
    given = {"schema": loaded["schema"], "loaded": loaded["loaded"], **args}
    return call(service, "plan_read", [], options=options(service, scan=chosen), **given)


def ids_of_tasks(parts: list[bytes]) -> list[int]:
    """Do all tasks as Spark's workers do, and return the ids of their rows."""
    function, _ = pickle.loads(parts[0])
    found: list[int] = []
    for part in parts[1:]:
        given = pa.record_batch([pa.array([part], pa.binary())], ["partition"])
        found += [i for batch in function(iter([given])) for i in batch["id"].to_pylist()]
    return sorted(found)


@pytest.fixture
def rows(service: Service) -> None:
    """Make ``TABLE`` with the ids 0 to 9, in two fragments."""
    service.create(TABLE)
    service.append(TABLE, *range(5))
    service.append(TABLE, *range(5, 10))


@pytest.mark.usefixtures("rows")
def test_many_rows_are_read_by_tasks_and_few_come_at_once(service: Service) -> None:
    answer, parts = plan(service, **LOCAL)
    assert answer == {"local": False, "rows": 10}
    assert ids_of_tasks(parts) == list(range(10))
    answer, [stream] = plan(service, {"limit": 3}, **LOCAL)
    assert answer == {"local": True, "rows": 3}
    assert pa.ipc.open_stream(stream).read_all().num_rows == 3
    assert not plan(service, {"limit": 4}, **LOCAL)[0]["local"]
    assert not plan(service, {"limit": 3}, **{**LOCAL, "local_bytes": 9})[0]["local"]
    assert not plan(service, {"limit": 3})[0]["local"]


@pytest.mark.spec("spark.md#what-is-pushed-down")
@pytest.mark.usefixtures("rows")
def test_rows_that_an_index_knows_come_at_once(service: Service) -> None:
    some = {"filter": "id IN (2, 7)"}
    assert plan(service, some, **LOCAL)[0] == {"local": False, "rows": 10}
    service.dataset(TABLE).create_scalar_index("id", "BTREE")
    answer, [stream] = plan(service, some, **LOCAL)
    assert answer == {"local": True, "rows": 2}
    assert sorted(pa.ipc.open_stream(stream).read_all()["id"].to_pylist()) == [2, 7]
    answer, parts = plan(service, {"filter": "id > 4"}, **LOCAL)
    assert answer == {"local": False, "rows": 5}
    assert ids_of_tasks(parts) == [5, 6, 7, 8, 9]
    service.append(TABLE, 7)
    assert plan(service, some, **LOCAL)[0] == {"local": False, "rows": 11}


@pytest.mark.usefixtures("rows")
def test_a_table_that_was_loaded_is_not_loaded_again(service: Service) -> None:
    loaded = service.ask("load_table", table=TABLE)
    asked = options(service, scan={"version": loaded["version"]})
    given = {"options": asked, "schema": loaded["schema"]}
    service.server.tables.clear()
    _, parts = call(service, "plan_read", [], loaded=loaded["loaded"], **given)
    assert ids_of_tasks(parts) == list(range(10))
    gone = service.respond("plan_read", {**given, "loaded": "another process's"})
    assert gone["error"]["code"] == 4


@pytest.mark.spec("spark.md#the-python-process-of-the-driver")
def test_a_commit_that_is_repeated_adds_its_rows_once(service: Service) -> None:
    service.create(TABLE)
    schema = service.ask("load_table", table=TABLE)["schema"]
    given = {"options": options(service, write={}), "schema": schema, "overwrite": False}
    planned, [task, writer] = call(service, "plan_write", [], **given)
    function, _ = pickle.loads(task)
    columns = [pa.array([1, 2], pa.int64()), pa.array(["a", None])]
    [message] = function(iter([pa.record_batch(columns, ["id", NAME["name"]])]))
    parts = [writer, message.column(0)[0].as_py()]
    for _ in range(2):
        call(service, "commit_write", parts, transaction=planned["transaction"])
    assert service.ids_in(TABLE) == [1, 2]
    committed = service.dataset(TABLE)
    transaction = committed.read_transaction(committed.version)
    assert transaction is not None
    assert transaction.uuid == planned["transaction"]
    call(service, "abort_write", parts)
    assert service.ids_in(TABLE) == [1, 2]


def test_what_no_one_expected_is_an_internal_error(service: Service) -> None:
    code, message = service.refusal("plan_read")
    assert code == 18
    assert "KeyError" in message

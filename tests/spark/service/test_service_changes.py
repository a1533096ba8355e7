"""What the service does for ALTER TABLE."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lance_bridge.catalog import IMPLEMENTATION
from lance_bridge.records import FOREIGN_COMMITS

from .service_requests import ID, NAME, TABLE, Service, fields_of

pytestmark = pytest.mark.quick

INNER = {"type": "struct", "fields": [NAME]}
PLACE = {"name": "place", "type": INNER, "nullable": True, "metadata": {}}


def add(name: str, kind: Any = "string", **more: Any) -> dict[str, Any]:
    """Return the change that adds a column, or a field by a path with dots."""
    return {"kind": "add_column", "field": name.split("."), "type": json.dumps(kind), **more}


def on(name: str, kind: str, **more: Any) -> dict[str, Any]:
    """Return a change of one column."""
    return {"kind": kind, "field": name.split("."), **more}


def alter(service: Service, *changes: dict[str, Any]) -> dict[str, Any]:
    return service.ask("alter_table", table=TABLE, changes=list(changes))


def refused(service: Service, *changes: dict[str, Any]) -> tuple[int, str]:
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
    found = refused(service, change)
    assert found[0] == code, found
    assert word in found[1]
    assert service.server.effects == done


def test_an_impossible_change_keeps_those_before_it_from_being_made(
    service: Service,
) -> None:
    service.create(TABLE)
    assert refused(service, add("x"), add("y", nullable=False))[0] == 13
    assert refused(service, on("id", "drop_column"), on("name", "drop_column"))[0] == 13


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

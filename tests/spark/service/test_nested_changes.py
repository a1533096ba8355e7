"""ALTER TABLE of fields in lists and maps, by Spark's names: ``element``, ``key``, ``value``."""

from __future__ import annotations

import json
from typing import Any

import lance
import pyarrow as pa
import pytest

from .service_requests import ID, NAME, TABLE, VECTOR, Service, fields_of

pytestmark = [pytest.mark.quick, pytest.mark.spec("spark.md#fields-inside-columns")]

STRUCT = {"type": "struct", "fields": [NAME, {**ID, "name": "n"}]}
LIST = {"type": "array", "elementType": STRUCT, "containsNull": True}
OUTER = {"type": "struct", "fields": [{**NAME, "name": "b", "type": LIST}]}
MAP = {"type": "map", "keyType": "string", "valueType": STRUCT, "valueContainsNull": True}
ROWS = [
    {
        "id": 1,
        "st": {"b": [{"name": "x", "n": 7}, None]},
        "l": [{"name": "y", "n": 8}],
        "m": [("k", {"name": "z", "n": 9})],
        "v": [0.0, 1.0],
    },
    {"id": 2, "st": {"b": []}, "l": None, "m": [], "v": None},
]


@pytest.fixture
def table(service: Service) -> Service:
    """A table with lists of structs, a map of structs and vectors, and two rows."""
    columns = [
        ID,
        {**NAME, "name": "st", "type": OUTER},
        {**NAME, "name": "l", "type": LIST},
        {**NAME, "name": "m", "type": MAP},
        VECTOR,
    ]
    service.create(TABLE, *columns, **{"vector.v": "2"})
    dataset = service.dataset(TABLE)
    lance.write_dataset(_rows(ROWS, dataset), dataset, mode="append")
    return service


def _rows(rows: list[dict[str, Any]], dataset: lance.LanceDataset) -> Any:
    return pa.Table.from_pylist(rows, schema=dataset.schema)


def rows_of(service: Service) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.dataset(TABLE).to_table().to_pylist()
    return found


def change(kind: str, path: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "field": path.split("."), **more}


def add(path: str, kind: Any = "integer", **more: Any) -> dict[str, Any]:
    return change("add_column", path, type=json.dumps(kind), **more)


def alter(service: Service, *changes: dict[str, Any]) -> dict[str, Any]:
    return service.ask("alter_table", table=TABLE, changes=list(changes))


def names_in(kind: Any, *path: str) -> list[str]:
    """Return the names of the fields of a struct inside a type of Spark."""
    for name in path:
        if name == "element":
            kind = kind["elementType"]
        else:
            kind = next(each["type"] for each in kind["fields"] if each["name"] == name)
    return [each["name"] for each in kind["fields"]]


def test_a_field_is_added_to_the_structs_in_a_list(table: Service) -> None:
    answer = alter(table, add("st.b.element.z"), add("l.element.z", comment="new"))
    fields = fields_of(answer)
    assert names_in(fields["st"]["type"], "b", "element") == ["name", "n", "z"]
    added = fields["l"]["type"]["elementType"]["fields"][2]
    assert (added["name"], added["type"], added["metadata"]) == ("z", "integer", {"comment": "new"})
    first, second = rows_of(table)
    assert first["st"]["b"][0] == {"name": "x", "n": 7, "z": None}
    assert first["l"] == [{"name": "y", "n": 8, "z": None}]
    assert (second["st"]["b"], second["l"]) == ([], None)


def test_several_fields_are_added_to_the_structs_in_one_list(table: Service) -> None:
    answer = alter(table, add("l.element.y"), add("l.element.z", "string"))
    assert names_in(fields_of(answer)["l"]["type"], "element") == ["name", "n", "y", "z"]
    assert rows_of(table)[0]["l"] == [{"name": "y", "n": 8, "y": None, "z": None}]


def test_a_field_of_the_structs_in_a_list_is_renamed_and_dropped(table: Service) -> None:
    answer = alter(table, change("rename_column", "st.b.element.n", to="number"))
    assert names_in(fields_of(answer)["st"]["type"], "b", "element") == ["name", "number"]
    assert rows_of(table)[0]["st"]["b"][0] == {"name": "x", "number": 7}
    answer = alter(table, change("drop_column", "st.b.element.number"))
    assert names_in(fields_of(answer)["st"]["type"], "b", "element") == ["name"]
    assert rows_of(table)[0]["st"]["b"][0] == {"name": "x"}


def test_a_field_of_the_structs_in_a_list_gets_a_comment(table: Service) -> None:
    answer = alter(table, change("update_comment", "l.element.n", comment="how many"))
    found = fields_of(answer)["l"]["type"]["elementType"]["fields"][1]
    assert found["metadata"] == {"comment": "how many"}


@pytest.mark.parametrize(
    ("refused", "word"),
    [
        (add("m.value.z"), "inside the map 'm'"),
        (add("m.key.z"), "inside the map 'm'"),
        (change("drop_column", "m.value.n"), "inside the map 'm'"),
        (change("rename_column", "m.value.n", to="x"), "inside the map 'm'"),
        (add("st.b.z"), "inside the list 'st.b'"),
        (change("update_type", "l.element.n", type='"double"'), "inside the list 'l'"),
        (change("update_nullability", "l.element.n", nullable=True), "inside the list 'l'"),
        (change("update_type", "v.element", type='"double"'), "inside the vector 'v'"),
    ],
)
def test_a_change_that_lance_cannot_make_says_what_to_do(
    table: Service, refused: dict[str, Any], word: str
) -> None:
    before = table.dataset(TABLE).version
    # A change that could be made comes first: nothing of the statement is done.
    changes = [add("new"), refused]
    code, message = table.refusal("alter_table", table=TABLE, changes=changes)
    assert code == 0
    assert word in message
    assert "add a column of the type that you need, fill it with UPDATE, and drop '" in message
    assert table.dataset(TABLE).version == before


def test_a_field_that_a_struct_in_a_list_has_is_not_added_again(table: Service) -> None:
    for path in ("l.element.n", "l.element.N"):
        code, message = table.refusal("alter_table", table=TABLE, changes=[add(path)])
        assert code == 13
        assert "exists already" in message
    code, _ = table.refusal(
        "alter_table", table=TABLE, changes=[change("drop_column", "l.element.q")]
    )
    assert code == 12

"""UpdateTable: expressions and properties, and what is refused before anything is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors

from .building import TABLE, at_change, raising
from .changing import OLD, column, update
from .memory_catalog import CAPABILITIES, MemoryNamespace, MemoryServer
from .writing import dataset, ipc, make, unchanged

pytestmark = [pytest.mark.quick, pytest.mark.spec("operations.md#updatetable")]


def test_several_columns_are_updated_from_their_own_values_and_others(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    make(namespace, OLD)
    update(namespace, ("id", "id + 1"), ("n", "s.x + 10"), ("word", "'z'"))
    assert column(server, "id") == [2, 3, 4]
    assert column(server, "n") == [11, 12, None]
    assert column(server, "word") == ["z"] * 3


def test_an_expression_that_reads_another_updated_column_is_unsupported_by_name(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    """Lance would take the old value or the new one, as it happens."""
    make(namespace, OLD)
    for expression in ("id", "ID + 1", "n + coalesce(`id`, 1)"):
        with unchanged(server, errors.UnsupportedOperationError, "'n'.* id"):
            update(namespace, ("id", "id + 1"), ("n", expression))


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (("n", "null"), [None] * 3),
        (("n", "3.7"), [3] * 3),
        (("n", "'5'"), [5] * 3),
        (("word", "id"), ["1", "2", "3"]),
        (("`word`", "upper(word)"), ["A", "B", "7"]),
        (("s", "named_struct('x', id)"), [{"x": 1}, {"x": 2}, {"x": 3}]),
        (("n", "s.x"), [1, 2, None]),
        (("n", "id -- why"), [1, 2, 3]),
    ],
    ids=str,
)
def test_an_expression_may_be_of_any_type_that_can_be_cast(
    namespace: MemoryNamespace, server: MemoryServer, pair: tuple[str, str], expected: list[Any]
) -> None:
    make(namespace, OLD)
    update(namespace, pair)
    assert column(server, pair[0].strip("`")) == expected


def test_a_vector_can_be_set_to_one_of_its_dimension_only(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    kind = pa.list_(pa.float32(), 2)
    make(namespace, pa.table({"id": [1], "v": pa.array([[0.0, 0.0]], kind)}))
    update(namespace, ("v", "[1.5, 2.5]"))
    assert column(server, "v") == [[1.5, 2.5]]
    with unchanged(server, errors.InvalidInputError):
        update(namespace, ("v", "[1.5]"))


BAD_EXPRESSIONS = ["sum(id)", "300000000000000000000", "'no number'"]
"""Beside what `test_expressions_everywhere` has."""
FAILING_EXPRESSIONS = ["1 / n", "word", "cast(word as int)"]
"""They fail on a row."""
BAD_UPDATES: list[list[tuple[str, str]]] = [
    [],
    [("n", "1"), ("n", "2")],
    [("n", "1"), ("`n`", "2")],
    [("n.", "1")],
    [("", "1")],
    *([("word", "'z'"), ("n", expression)] for expression in BAD_EXPRESSIONS),
    *([("n", expression)] for expression in FAILING_EXPRESSIONS),
]


def test_what_cannot_be_updated_is_refused_and_nothing_changes(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    make(namespace, OLD)
    for updates in BAD_UPDATES:
        with unchanged(server, errors.InvalidInputError):
            update(namespace, *updates)
    for path in ("nope", "ID", "_rowid", "s.nope", "s.x.y", "x"):
        with unchanged(server, errors.TableColumnNotFoundError, path):
            update(namespace, (path, "1"))
    with unchanged(server, errors.UnsupportedOperationError, r"s\.x.*named_struct"):
        update(namespace, ("s.x", "1"))
    with pytest.raises(ValueError, match="Nested"):  # should Lance learn it: allow it
        dataset(server).update({"s.x": "1"})


def test_a_null_for_a_column_that_forbids_it_is_invalid_input(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    strict = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    make(namespace, pa.table({"id": [1]}, schema=strict))
    with unchanged(server, errors.InvalidInputError):
        update(namespace, ("id", "null"))


# -- properties of an update -----------------------------------------------------------------------


def test_properties_are_added_to_those_of_the_table(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    server.capabilities = replace(CAPABILITIES, no_alter="")
    request = api.CreateTableRequest(id=TABLE, properties={"a": "1", "b": "2"})
    namespace.create_table(request, ipc(OLD))
    answer = update(namespace, ("n", "1"), properties={"b": "3", "c": "4"})
    assert answer.properties == {"a": "1", "b": "3", "c": "4"}
    described = namespace.describe_table(api.DescribeTableRequest(id=TABLE))
    assert described.properties == answer.properties


def test_properties_that_others_set_meanwhile_are_kept(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    """The entry of a managed table is read again, since commits change it."""
    server.capabilities = replace(CAPABILITIES, no_alter="")
    request = api.CreateTableRequest(id=TABLE, properties={"managed_by": "impl", "a": "1"})
    namespace.create_table(request, ipc(OLD))

    def others_set() -> None:
        found = server.tables[tuple(TABLE)]
        changed = found.with_properties({**found.properties, "a": "2", "b": "2"})
        server.tables[tuple(TABLE)] = changed

    at_change(server, "alter_table", "after", others_set)
    answer = update(namespace, ("n", "1"), properties={"c": "3"})
    assert {**(answer.properties or {}), "managed_by": ""} == {
        "managed_by": "", "a": "2", "b": "2", "c": "3"
    }  # fmt: skip


def test_properties_that_cannot_change_are_refused_before_the_rows_are_updated(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    make(namespace, OLD)
    with unchanged(server, errors.UnsupportedOperationError, "Properties"):
        update(namespace, ("n", "1"), properties={"a": "1"})
    with unchanged(server, errors.InvalidInputError, "lance_bridge"):
        update(namespace, ("n", "1"), properties={"lance_bridge.id": "1"})
    assert update(namespace, ("n", "1"), properties={}).properties == {}


def test_where_only_the_properties_fail_the_error_says_that_the_rows_are_updated(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    server.capabilities = replace(CAPABILITIES, no_alter="")
    make(namespace, OLD)
    at_change(server, "alter_table", "before", raising(errors.PermissionDeniedError("not yours")))
    with pytest.raises(errors.PermissionDeniedError, match=r"updated, as version 2.*not yours"):
        update(namespace, ("n", "5"), properties={"a": "1"})
    assert column(server, "n") == [5] * 3

"""The schema that LanceDB's client reads from a description has every type whole."""

from __future__ import annotations

import datetime
from typing import Any

import lance
import lance_namespace as api
import lancedb
import pyarrow as pa
import pytest

from lance_bridge.errors import invalid
from lance_bridge_hive import HiveNamespace
from lance_bridge_server.lancedb.new_columns import new_columns
from lance_bridge_server.lancedb.types import type_from_json

pytestmark = [pytest.mark.servers, pytest.mark.spec("server.md#schemas")]

UNITS = ("s", "ms", "us", "ns")
TYPES: dict[str, pa.DataType] = {
    **{str(each): each for each in (
        pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(),
        pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(),
        pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(4),
        pa.date32(), pa.date64(), pa.decimal128(10, 2), pa.decimal128(38, -2),
        pa.decimal256(60, 5), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
    )},
    **{f"timestamp {unit}": pa.timestamp(unit) for unit in UNITS},
    **{f"timestamp {unit} with zone": pa.timestamp(unit, "Europe/Paris") for unit in UNITS},
    **{f"duration {unit}": pa.duration(unit) for unit in UNITS},
    "offset": pa.timestamp("us", "+02:00"),
    "dictionary": pa.dictionary(pa.int8(), pa.string()),
    "large dictionary": pa.dictionary(pa.uint32(), pa.large_string()),
    "list": pa.list_(pa.timestamp("ms", "UTC")),
    "large list": pa.large_list(pa.field("element", pa.time32("s"), nullable=False)),
    "vector": pa.list_(pa.float32(), 4),
    "vector of halves": pa.list_(pa.float16(), 4),
    "struct": pa.struct([pa.field("a", pa.decimal128(9, 3)),
                         pa.field("b", pa.list_(pa.struct([("c", pa.timestamp("ns", "UTC"))])))]),
}  # fmt: skip


@pytest.fixture
def db(url: str, hive: HiveNamespace, request: pytest.FixtureRequest) -> Any:
    name = f"schema_{abs(hash(request.node.name)):x}"
    hive.create_namespace(api.CreateNamespaceRequest(id=[name]))
    return lancedb.connect(f"db://{name}", api_key="k", host_override=url)


def test_every_type_comes_back_whole(db: Any) -> None:
    schema = pa.schema(
        [
            pa.field(f"c{i}", kind, metadata={"number": str(i)})
            for i, kind in enumerate(TYPES.values())
        ],
        metadata={"owner": "films"},
    )
    assert db.create_table("t", schema.empty_table()).schema.equals(schema, check_metadata=True)


def test_a_column_of_blobs_is_of_bytes(db: Any, hive: HiveNamespace) -> None:
    field = pa.field("film", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    data = pa.table({"film": pa.array([b"x"], field.type)}, pa.schema([field]))
    name = db.db_name
    lance.write_dataset(
        data, namespace_client=hive, table_id=[name, "t"], data_storage_version="2.1"
    )
    assert db.open_table("t").schema.field("film").equals(field, check_metadata=True)


def test_the_schema_is_that_of_the_version(db: Any) -> None:
    table = db.create_table("t", pa.table({"id": [1]}))
    table.add_columns({"at": "arrow_cast(NULL, 'Timestamp(Second, None)')"})
    assert table.schema.field("at").type == pa.timestamp("s")
    table.checkout(1)
    assert table.schema.names == ["id"]


def test_columns_of_nulls_are_added_by_their_schema(db: Any) -> None:
    table = db.create_table("t", pa.table({"id": [1]}))
    kinds = [kind for kind in TYPES.values() if not pa.types.is_null(kind) and _has_sql(kind)]
    fields = [pa.field(f"c{i}", kind) for i, kind in enumerate(kinds)]
    table.add_columns(pa.schema(fields))
    assert [table.schema.field(f"c{i}").type for i in range(len(kinds))] == kinds
    assert len(kinds) > 30


def _has_sql(kind: pa.DataType) -> bool:
    nested = pa.types.is_struct(kind) or pa.types.is_large_list(kind)
    return not nested and not pa.types.is_fixed_size_binary(kind)


def test_a_schema_that_no_expression_has_is_refused() -> None:
    struct = pa.schema([pa.field("s", pa.struct([("a", pa.int64())]))])
    with pytest.raises(Exception, match="cannot be of type struct"):
        new_columns(struct.serialize().to_pybytes())
    with pytest.raises(type(invalid("")), match="not an Arrow schema"):
        new_columns(b"not a schema")


def test_a_column_is_changed_to_another_type(db: Any) -> None:
    at = datetime.datetime(2026, 1, 1)
    data = pa.table({"at": pa.array([at], pa.timestamp("s")), "n": pa.array([1], pa.int32())})
    table = db.create_table("t", data)
    table.alter_columns(
        {"path": "at", "data_type": pa.timestamp("ms")}, {"path": "n", "data_type": pa.int64()}
    )
    assert table.schema.types == [pa.timestamp("ms"), pa.int64()]


@pytest.mark.parametrize(
    ("lance", "specified"),
    [
        ({"type": "string"}, {"type": "utf8"}),
        ({"type": "timestamp:us:-"}, {"type": "timestamp[us]"}),
        ({"type": "timestamp:ns:+02:00"}, {"type": "timestamp[ns, tz=+02:00]"}),
        ({"type": "decimal:128:10:-2"}, {"type": "decimal128", "length": 9998}),
        (
            {"type": "list", "fields": [{"name": "i", "type": {"type": "float"}}]},
            {"type": "list", "fields": [{"name": "i", "type": {"type": "float32"}}]},
        ),
    ],
)
def test_a_type_of_lance_becomes_that_of_the_specification(
    lance: dict[str, Any], specified: dict[str, Any]
) -> None:
    assert type_from_json(lance) == specified

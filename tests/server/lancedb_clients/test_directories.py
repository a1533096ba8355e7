"""LanceDB's client on a directory behind a gateway, where pylance's namespace needs help."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance_namespace as api
import lancedb
import pyarrow as pa
import pytest
from lancedb.pydantic import LanceModel, Vector
from lancedb.remote.errors import HttpError
from server.gateways import serve_namespace

import lance_bridge
from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.redaction import PublicAnswers

pytestmark = [
    pytest.mark.servers,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.spec("server.md#what-is-refused", "server.md#lancedb"),
]

VECTORS = pa.list_(pa.float32(), 2)
ROWS = pa.table({"id": range(9), "vector": pa.array([[float(i), 0.0] for i in range(9)], VECTORS)})


class Film(LanceModel):  # type: ignore[misc]
    id: int
    title: str
    vector: Vector(2)  # type: ignore[valid-type]


@pytest.fixture(params=["in a federation", "hidden options", "the root"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    directory = lance_bridge.connect("dir", {"root": str(tmp_path)})
    name = "lake"
    if request.param == "in a federation":
        served: Any = FederatedNamespace({name: directory})
    elif request.param == "hidden options":
        served = FederatedNamespace({name: PublicAnswers(directory, {})})
    else:
        served = directory
        directory.create_namespace(api.CreateNamespaceRequest(id=[name]))
    with serve_namespace(served) as url:
        once = {"retry_config": {"retries": 0}}
        yield lancedb.connect(f"db://{name}", api_key="k", host_override=url, client_config=once)


def test_a_table_is_created_from_a_schema(db: Any) -> None:
    table = db.create_table("films", schema=Film)
    assert table.schema == Film.to_arrow_schema()
    assert table.search([1.0, 0.0]).to_list() == []
    table.add([Film(id=1, title="M", vector=[1.0, 0.0])])
    assert table.search([1.0, 0.0]).limit(1).to_pydantic(Film)[0].title == "M"
    assert db.create_table("films", schema=Film, exist_ok=True).count_rows() == 1
    with pytest.raises(ValueError, match="already exists"):
        db.create_table("films", schema=Film)
    assert db.create_table("films", schema=Film, mode="overwrite").count_rows() == 0


def test_a_column_gets_another_type(db: Any) -> None:
    table = db.create_table("t", ROWS)
    table.alter_columns({"path": "id", "data_type": pa.int32()})
    table.alter_columns({"path": "id", "rename": "key"})
    assert table.schema.field("key").type == pa.int32()
    with pytest.raises(HttpError, match="cannot change a column to the type fixed_size_list"):
        table.alter_columns({"path": "vector", "data_type": pa.list_(pa.float16(), 2)})


def test_each_of_several_vectors_finds_its_rows(db: Any) -> None:
    table = db.create_table("t", ROWS)
    found = table.search([[3.0, 0.0], [7.0, 0.0]]).limit(2).where("id >= 3").to_list()
    assert sorted((row["query_index"], row["id"]) for row in found) == [
        *((0, 3), (0, 4)), *((1, 6), (1, 7)),
    ]  # fmt: skip


def test_a_search_of_several_vectors_in_each_row_is_refused(db: Any) -> None:
    rows = pa.table({"vector": pa.array([[[1.0, 0.0], [0.0, 1.0]]], pa.list_(VECTORS))})
    table = db.create_table("t", rows)
    with pytest.raises(HttpError, match="several vectors in each row"):
        table.search([[1.0, 0.0], [0.0, 1.0]]).distance_type("cosine").limit(1).to_list()


def test_a_wrong_name_of_a_column_is_a_wrong_request(db: Any) -> None:
    with pytest.raises(ValueError, match=r"\"code\":13.*c\.d cannot contain"):
        db.create_table("t", pa.table({"c.d": [1]}))

"""A Lance table in a database of Glue beside tables of other formats, and what other tools see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from servers.glue_server import GlueServer

from lance_bridge.testing.calls import Calls
from lance_bridge_glue import GlueNamespace

from .conftest import Ask

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

BUCKET = "lakehouse"
DATABASE = "sales"
ROOT = f"s3://{BUCKET}/{DATABASE}"
OURS = [DATABASE, "ours"]
FILES = ["csv", "orc", "parquet"]
OTHER_ROWS = {"id": [1, 2], "name": ["a", "b"]}
ROWS = pa.table(
    {"id": pa.array([1, 2, 3]), "vector": pa.array([[0.0, 1.0]] * 3, pa.list_(pa.float32(), 2))}
)
AskHere = Callable[..., Any]
"""`Ask` with the server's environment."""


@pytest.fixture(scope="module", params=[False, True], ids=["no columns", "published columns"])
def publishes(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def server() -> Iterator[GlueServer]:
    with GlueServer() as running:
        running.make_bucket(BUCKET)
        yield running


@pytest.fixture(scope="module")
def ask_here(server: GlueServer, ask: Ask) -> AskHere:
    """Ask a tool about the database: Parquet, ORC and CSV of AWS SDK for pandas, and Iceberg."""
    server.glue.create_database(DatabaseInput={"Name": DATABASE})
    ask("aws_pandas", "write", server.environment, database=DATABASE, root=ROOT)
    ask(
        "iceberg",
        "write",
        server.environment,
        database=DATABASE,
        root=ROOT,
        catalog=iceberg(server),
    )
    return lambda program, **extra: ask(program, "read", server.environment, **extra)


@pytest.fixture(scope="module", autouse=True)
def ours(
    server: GlueServer,
    ask_here: AskHere,  # noqa: ARG001 - the database
    publishes: bool,
) -> Iterator[None]:
    """The Lance table, which changes nothing of the others."""
    before = entries(server)
    storage = {f"storage.{key}": value for key, value in server.storage_options.items()}
    namespace = GlueNamespace(**server.properties, **storage, root=f"s3://{BUCKET}/lance")
    calls = Calls(namespace)
    properties = {"publish.columns": "true"} if publishes else {}
    calls.create_table(OURS, ROWS, properties=properties)
    yield
    calls.drop_table(OURS)
    assert entries(server) == before


def iceberg(server: GlueServer) -> dict[str, str]:
    """Return the properties of a catalog of PyIceberg, which takes the rest of the environment."""
    return {"type": "glue", "s3.endpoint": server.endpoint}


def entries(server: GlueServer) -> list[dict[str, Any]]:
    """Return all entries of the database."""
    pages = server.glue.get_paginator("get_tables").paginate(DatabaseName=DATABASE)
    return [each for page in pages for each in page["TableList"]]


def test_aws_sdk_for_pandas_lists_all_and_reads_its_own(ask_here: AskHere, publishes: bool) -> None:
    found = ask_here("aws_pandas", database=DATABASE)
    assert found["names"] == found["shown"] == sorted([*FILES, "iceberg", "ours"])
    published = {"id": "bigint", "vector": "array<float>"}
    assert found["types"]["ours"] == (published if publishes else {})
    assert found["rows"]["parquet"]["parquet"] == OTHER_ROWS
    assert found["rows"]["orc"]["orc"] == OTHER_ROWS
    assert found["rows"]["ours"]["parquet"].startswith("ArrowInvalid: Parquet magic bytes")
    assert found["rows"]["ours"]["orc"].startswith("OSError: ")


def test_pyiceberg_lists_its_own_alone_and_refuses_ours(
    ask_here: AskHere, server: GlueServer
) -> None:
    found = ask_here("iceberg", database=DATABASE, root=ROOT, catalog=iceberg(server))
    assert (found["names"], found["rows"]) == (["iceberg"], OTHER_ROWS)
    assert found["exists"] is False
    for call in ("load", "purge", "rename"):
        assert found[call].startswith("NoSuchIcebergTableError: ")


def test_datahub_ingests_all_without_a_failure(
    ask_here: AskHere, server: GlueServer, publishes: bool, tmp_path: Path
) -> None:
    region = server.properties["region"]
    found = ask_here("datahub_glue", region=region, directory=str(tmp_path))
    assert (found["failures"], found["warnings"]) == ([], [])
    assert found["columns"].keys() == {*FILES, "iceberg", "ours"}
    assert [name for name, _ in found["columns"]["parquet"]] == ["id", "name"]
    published = [["id", "bigint"], ["vector", "array<float>"]]
    assert found["columns"]["ours"] == (published if publishes else [])


def test_openmetadata_ingests_all_without_a_failure(
    ask_openmetadata: Ask, server: GlueServer, publishes: bool
) -> None:
    """It takes the SerDe of text files for CSV, and shows no format of a Lance table."""
    found = ask_openmetadata("openmetadata_glue", "read", {}, **server.properties)
    assert (found["errors"], found["warnings"]) == ([], [])
    tables = found["tables"]
    assert tables.keys() == {*FILES, "iceberg", "ours"}
    assert (tables["csv"]["format"], tables["parquet"]["format"]) == ("csv", "parquet")
    published = [["id", "bigint"], ["vector", "array<float>"]]
    assert tables["ours"] == {
        "type": "External",
        "format": None,
        "columns": published if publishes else [],
    }

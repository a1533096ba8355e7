"""Why `prewarm_index` and `prewarm_data` are not served: no request leaves a cache to the next."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import lance_namespace as api
import lancedb
import pytest
from lancedb import index
from lancedb.remote.errors import RetryError
from server.lancedb_clients.trials import rows

from lance_bridge_hive import HiveNamespace

pytestmark = [pytest.mark.servers, pytest.mark.spec("server.md#lancedb")]


@pytest.fixture(scope="module")
def table(url: str, hive: HiveNamespace) -> Any:
    """A table with an index of its ids."""
    hive.create_namespace(api.CreateNamespaceRequest(id=["prewarmed"]))
    once = {"retry_config": {"retries": 0}}
    options: Any = {"host_override": url, "client_config": once}
    db = lancedb.connect("db://prewarmed", api_key="k", **options)
    made = db.create_table("t", rows(400))
    made.create_index("id", config=index.BTree())
    return made


@pytest.fixture
def directory(table: Any, hive: HiveNamespace) -> Path:  # noqa: ARG001 - it must exist
    found = hive.describe_table(api.DescribeTableRequest(id=["prewarmed", "t"])).location
    assert found is not None
    return Path(found.removeprefix("file:"))


@pytest.mark.parametrize("part", ["_indices", "data"])
def test_each_request_reads_the_files_again(table: Any, directory: Path, part: str) -> None:
    query = table.search().where("id = 7").select(["title"])
    assert "ScalarIndexQuery" in query.explain_plan()
    assert query.to_list() == [{"title": "film number7"}]
    files, elsewhere = directory / part, directory / f"{part}-elsewhere"
    files.rename(elsewhere)
    try:
        with pytest.raises(RetryError) as caught:
            query.to_list()
        assert re.search(rf"Not found: \S+/t\.lance/{part}/", str(caught.value.__cause__))
    finally:
        elsewhere.rename(files)
    assert query.to_list() == [{"title": "film number7"}]

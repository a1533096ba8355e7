"""The lines for Spark of the catalog page, run as they stand there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from servers.metastores import Metastores

from lance_bridge_hive import HiveNamespace
from lance_bridge_server.ui.snippets import snippets_for

pytestmark = [pytest.mark.slow, pytest.mark.spec("server.md#the-catalog-page")]
PATH = ["page", "connect_page", "articles"]


def _lines(location: str, *, has_catalog: bool) -> str:
    found = snippets_for(
        "http://h", PATH, location, "api_key", database=None, has_catalog=has_catalog
    )
    return next(each.text for each in found if each.title == "Spark")


def test_the_lines_load_by_location_and_by_name(
    spark: Any, metastores: Metastores, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = metastores.get("2.3").uri
    with HiveNamespace(uri=uri, root=str(tmp_path)) as hive:
        hive.create_namespace(api.CreateNamespaceRequest(id=PATH[1:2]))
        client: dict[str, Any] = {"namespace_client": hive, "table_id": PATH[1:]}
        location = lance.write_dataset(pa.table({"title": ["Black clock 5"]}), **client).uri
        try:
            for has_catalog in (False, True):
                exec(_lines(location, has_catalog=has_catalog), {"spark": spark})
                assert "Black clock 5" in capsys.readouterr().out
            spark.conf.set("spark.sql.catalog.page.impl", "hive")
            spark.conf.set("spark.sql.catalog.page.uri", uri)
            exec(_lines(str(tmp_path / "absent"), has_catalog=True), {"spark": spark})
            assert "Black clock 5" in capsys.readouterr().out
        finally:
            request = api.DropNamespaceRequest(id=PATH[1:2], behavior="Cascade")
            hive.drop_namespace(request)

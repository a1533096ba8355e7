"""Where tables go that are given no location, and no `root` is set: below a storage root."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError
from servers.unity import DIALECTS, UnityServer

from lance_bridge.catalog import NamespaceRecord, TableRecord
from lance_bridge.testing.calls import Calls
from lance_bridge_unity import UnityNamespace

from .building import Connect


@pytest.mark.parametrize("dialect", ["oss-0.4", "oss-0.6"])
@pytest.mark.parametrize("whose", ["catalog", "schema", "schema below a catalog's"])
def test_tables_go_below_the_storage_root_of_their_schema_or_catalog(
    whose: str, dialect: str, tmp_path: Path
) -> None:
    """And not where the server keeps managed tables, which it says is the schema's location."""
    own, outer = f"file://{tmp_path}/own", f"file://{tmp_path}/outer"
    with (
        UnityServer(DIALECTS[dialect]) as server,
        UnityNamespace(host=server.url) as rootless,
    ):
        calls = Calls(rootless)
        of_catalog = {} if whose == "schema" else {"catalog.storage-root": outer}
        of_schema = {} if whose == "catalog" else {"schema.storage-root": own}
        calls.create_namespace(["c"], properties=of_catalog)
        for schema in ("one", "two"):
            calls.create_namespace(["c", schema], properties=of_schema)
            # Two schemas share the root: nothing is written yet that would show the first's place.
            calls.declare_table(["c", schema, "t"])
        below = "outer" if whose == "catalog" else "own"
        for schema in ("one", "two"):
            location = calls.describe_table(["c", schema, "t"]).location
            assert location == f"{tmp_path}/{below}/c/{schema}.db/t.lance"
            calls.create_table(["c", schema, "u"], pa.table({"id": [1]}))
            assert calls.count(["c", schema, "u"]) == 1


@pytest.mark.parametrize("below", ["", "/__unitystorage/x"])
def test_a_location_that_the_server_manages_is_refused_with_what_to_do(
    connect: Connect, below: str
) -> None:
    catalog = connect()
    catalog.create_namespace(NamespaceRecord(("c", "m"), {"schema.storage-root": "file:///data/m"}))
    taken = TableRecord(("c", "m", "t"), f"file:///data/m{below}", {})
    with pytest.raises(InvalidInputError, match=r"managed storage.*set the property 'root'"):
        catalog.create_table(taken)

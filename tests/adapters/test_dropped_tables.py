"""Dropped tables on real catalogs: entries of all kinds are kept, taken back and purged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from servers.glue_server import GlueServer
from servers.metastores import Metastores

from lance_bridge import LanceBridgeNamespace
from lance_bridge.testing.calls import ipc
from lance_bridge_glue import GlueNamespace
from lance_bridge_hive import HiveNamespace

pytestmark = [pytest.mark.servers, pytest.mark.spec("common.md#dropped-tables")]

SPACE = "dropped_tables"
KINDS: dict[str, Mapping[str, str]] = {
    "storage": {},
    "managed": {"managed_by": "impl"},
    "published": {"publish.columns": "true"},
}


@pytest.fixture(params=["2.3", "4.2", "glue"])
def namespace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LanceBridgeNamespace]:
    given = {"root": str(tmp_path / "root"), "drop.retention": "7d"}
    if request.param == "glue":
        with GlueServer() as server, GlueNamespace(**server.properties, **given) as ns:
            yield ns
        return
    metastores: Metastores = request.getfixturevalue("metastores")
    uri = metastores.get(request.param).uri
    with HiveNamespace(uri=uri, **given) as ns:
        yield ns
        for each in ns.tables.dropped((SPACE,)):
            ns.tables.purge(each)
        for name in ns.list_tables(api.ListTablesRequest(id=[SPACE])).tables:
            ns.tables.drop((SPACE, name), purge=True)
        ns.drop_namespace(api.DropNamespaceRequest(id=[SPACE]))


def test_a_table_is_dropped_and_taken_back(namespace: LanceBridgeNamespace) -> None:
    rows = pa.table({"id": [1, 2, 3]})
    namespace.create_namespace(api.CreateNamespaceRequest(id=[SPACE]))
    for kind, properties in KINDS.items():
        id = [SPACE, kind]
        create = api.CreateTableRequest(id=id, properties={"note": "x", **properties})
        namespace.create_table(create, ipc(rows))
        lance.write_dataset(rows, namespace_client=namespace, table_id=id, mode="append")
        before = namespace.tables.load((SPACE, kind))
        namespace.drop_table(api.DropTableRequest(id=id))
        assert namespace.list_tables(api.ListTablesRequest(id=[SPACE])).tables == []
        [found] = namespace.tables.dropped((SPACE,))
        assert found.path == (SPACE, kind)
        namespace.create_table(api.CreateTableRequest(id=id), ipc(rows))
        namespace.tables.undrop((SPACE, kind), (SPACE, f"{kind}_2"))
        for name in (kind, f"{kind}_2"):
            namespace.drop_table(api.DropTableRequest(id=[SPACE, name]))
        after = namespace.tables.undrop((SPACE, f"{kind}_2"), (SPACE, f"{kind}_3"))
        assert (after.location, after.properties) == (before.location, before.properties)
        assert (after.managed is None) == (before.managed is None)
        id = [SPACE, f"{kind}_3"]
        lance.write_dataset(rows, namespace_client=namespace, table_id=id, mode="append")
        assert lance.dataset(namespace_client=namespace, table_id=id).count_rows() == 9
        namespace.tables.drop((SPACE, f"{kind}_3"), purge=True)
        for each in namespace.tables.dropped((SPACE,)):
            namespace.tables.purge(each)
        assert namespace.catalog.list_tables((SPACE,)) == []
        assert not Path(before.uri.removeprefix("file://")).exists()

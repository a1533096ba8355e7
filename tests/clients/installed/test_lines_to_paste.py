"""The lines to paste of `specs/clients.md` run, as they stand there, on a real metastore."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import lance_namespace as api
import pytest
import ray
from clients.catalogs import Backend

pytestmark = pytest.mark.clients

SPEC = Path(__file__).parents[3] / "specs" / "clients.md"
NAMESPACES = ("films", "geneva_system")


@pytest.fixture
def namespaces(hive: Backend) -> Iterator[None]:
    """The namespace `films`; dropped afterwards with what geneva makes beside it."""
    with hive.connect() as namespace:
        namespace.create_namespace(api.CreateNamespaceRequest(id=["films"]))
        yield
        for name in NAMESPACES:
            for table in namespace.list_tables(api.ListTablesRequest(id=[name])).tables:
                namespace.deregister_table(api.DeregisterTableRequest(id=[name, table]))
            namespace.drop_namespace(api.DropNamespaceRequest(id=[name]))
    ray.shutdown()


@pytest.mark.usefixtures("namespaces")
def test_the_lines_to_paste_run_in_their_order(hive: Backend) -> None:
    text = SPEC.read_text(encoding="utf-8").partition("\n## pylance\n")[2]
    snippets = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(snippets) == 8
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    for snippet in snippets:
        exec(snippet.replace("thrift://metastore:9083", hive.properties["uri"]), {})

"""Where a new table goes that is given no location: refused, where no table could be."""

from __future__ import annotations

import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge.catalog import NamespaceRecord

from .building import DATASET, TABLE
from .memory_catalog import MemoryNamespace, MemoryServer


@pytest.fixture
def without_root(server: MemoryServer, request: pytest.FixtureRequest) -> MemoryNamespace:
    """A namespace whose tables go where their namespace says."""
    assert tuple(DATASET) in server.namespaces
    return MemoryNamespace(uri=request.node.nodeid)


@pytest.mark.parametrize(
    "place", ["relative/place", " ", "s3://b/../c", "s3://b/a?x", "hdfs://host/a", "", None]
)
def test_a_namespace_at_a_place_that_lance_cannot_use_needs_a_root(
    without_root: MemoryNamespace, server: MemoryServer, place: str | None
) -> None:
    server.namespaces[tuple(DATASET)] = NamespaceRecord(tuple(DATASET), {}, place)
    with pytest.raises(errors.InvalidInputError, match=r"eu\.shop\.sales.*Set the property 'root'"):
        without_root.declare_table(api.DeclareTableRequest(id=TABLE))
    assert server.tables == {}


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_half_a_character_is_no_text_for_a_namespace_either(
    namespace: MemoryNamespace, server: MemoryServer, text: str
) -> None:
    for properties in ({"key": text}, {text: "value"}):
        request = api.CreateNamespaceRequest(id=["us"], properties=properties)
        with pytest.raises(errors.InvalidInputError, match="unpaired surrogate"):
            namespace.create_namespace(request)
    assert ("us",) not in server.namespaces

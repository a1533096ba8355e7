"""A Lance entry without a location: nothing can be done with it but to deregister it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge.catalog import TableRecord

from .building import DATASET
from .memory_catalog import CAPABILITIES, MemoryNamespace, MemoryServer

NEEDS_A_LOCATION: dict[str, Callable[[MemoryNamespace, list[str]], object]] = {
    "describe": lambda ns, t: ns.describe_table(api.DescribeTableRequest(id=t)),
    "exists": lambda ns, t: ns.table_exists(api.TableExistsRequest(id=t)),
    "count": lambda ns, t: ns.count_table_rows(api.CountTableRowsRequest(id=t)),
    "rename": lambda ns, t: ns.rename_table(api.RenameTableRequest(id=t, new_table_name="other")),
    "drop": lambda ns, t: ns.drop_table(api.DropTableRequest(id=t)),
}


@pytest.mark.parametrize("operation", NEEDS_A_LOCATION)
def test_an_entry_without_a_location_is_in_an_invalid_state(
    namespace: MemoryNamespace, server: MemoryServer, operation: str
) -> None:
    server.capabilities = replace(CAPABILITIES, no_rename="")
    path = (*DATASET, "nowhere")
    server.tables[path] = TableRecord(path, None, {"table_type": "lance"})
    with pytest.raises(errors.InvalidTableStateError, match="nowhere' has no location"):
        NEEDS_A_LOCATION[operation](namespace, list(path))
    assert path in server.tables
    namespace.deregister_table(api.DeregisterTableRequest(id=list(path)))
    assert path not in server.tables

"""Entries that Unity Catalog lists without a name."""

from __future__ import annotations

from servers.http_faults import Answer
from servers.http_proxy import HttpProxy

from lance_bridge.catalog import TableRecord

from .building import Connect


def test_an_entry_without_a_name_is_listed_as_one_that_cannot_be_read(
    connect: Connect, proxy: HttpProxy
) -> None:
    rows = [
        {"name": "good", "table_type": "EXTERNAL"},
        {"table_id": "x7", "table_type": "EXTERNAL"},
    ]
    proxy.fail_next(
        lambda request: "/tables" in request.path, Answer.of_json(200, {"tables": rows})
    )
    found = list(connect().scan_tables(("unity", "default")))
    assert [record.path[-1] for record in found] == ["good", "x7"]
    assert found[1] == TableRecord.unreadable(("unity", "default", "x7"))

"""What a table has beside rows: versions, tags and indices."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated, Any

import typer

from . import api
from .common import CatalogName, Properties, TableName, connected, names_of
from .paging import Limit, PageToken
from .rows import RowsOption, RowsOutput, print_page

_INDEX_COLUMNS = ("index", "kind", "columns", "indexed_rows", "unindexed_rows", "bytes")


def versions(
    catalog: CatalogName,
    table: TableName,
    *,
    latest_first: Annotated[
        bool, typer.Option("--latest-first", help="Begin with the latest.")
    ] = False,
    limit: Limit = None,
    page_token: PageToken = None,
    properties: Properties = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """List a table's versions, and when each was made.

    Example: lance-bridge table versions prod sales.orders --latest-first -n 5
    """
    request = api.ListTableVersionsRequest(
        id=names_of(table), descending=latest_first, limit=limit, page_token=page_token
    )
    with connected(catalog, properties) as namespace:
        found = namespace.list_table_versions(request)
    rows = [
        {
            "version": each.version,
            "made": _moment(each.timestamp_millis),
            "manifest_bytes": each.manifest_size,
        }
        for each in found.versions
    ]
    print_page(output, "versions", ["version", "made", "manifest_bytes"], rows, found.page_token)


def _moment(millis: int | None) -> str | None:
    if millis is None:
        return None
    return datetime.fromtimestamp(millis / 1000, timezone.utc).isoformat(timespec="milliseconds")


def tags(
    catalog: CatalogName,
    table: TableName,
    *,
    limit: Limit = None,
    page_token: PageToken = None,
    properties: Properties = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """List a table's tags, and which version each names.

    Example: lance-bridge table tags prod sales.orders
    """
    request = api.ListTableTagsRequest(id=names_of(table), limit=limit, page_token=page_token)
    with connected(catalog, properties) as namespace:
        found = namespace.list_table_tags(request)
    rows = [
        {"tag": name, "version": each.version, "branch": each.branch}
        for name, each in sorted(found.tags.items())
    ]
    print_page(output, "tags", ["tag", "version", "branch"], rows, found.page_token)


def indices(
    catalog: CatalogName,
    table: TableName,
    *,
    limit: Limit = None,
    page_token: PageToken = None,
    properties: Properties = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """List a table's indices, and how many rows each has and has not.

    Example: lance-bridge table indices prod sales.orders
    """
    request = api.ListTableIndicesRequest(id=names_of(table), limit=limit, page_token=page_token)
    with connected(catalog, properties) as namespace:
        found = namespace.list_table_indices(request)
    rows: list[dict[str, Any]] = [
        {
            "index": each.index_name,
            "kind": each.index_type,
            "columns": ", ".join(each.columns),
            "indexed_rows": each.num_indexed_rows,
            "unindexed_rows": each.num_unindexed_rows,
            "bytes": each.size_bytes,
        }
        for each in found.indexes
    ]
    print_page(output, "indices", _INDEX_COLUMNS, rows, found.page_token)

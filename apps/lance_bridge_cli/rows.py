"""Commands that read a table: its rows, versions, tags and indices."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import api
from .arguments import (
    CatalogName,
    Limit,
    OutputOption,
    PageToken,
    Properties,
    TableName,
    connected_or_federated,
    parse_name,
    usage_error,
)
from .output import (
    Output,
    RowsOption,
    RowsOutput,
    print_data,
    print_page,
    print_result,
    spinner,
)

if TYPE_CHECKING:
    import pyarrow as pa

Version = Annotated[
    int | None, typer.Option("--version", min=1, help="Read this version, not the latest.")
]
Columns = Annotated[
    list[str] | None, typer.Option("--column", "-c", help="Read this column only. Repeatable.")
]
Where = Annotated[str | None, typer.Option("--where", "-w", help="A condition, in SQL.")]

app = typer.Typer()


# -- rows ------------------------------------------------------------------------------------------


@app.command()
def head(
    catalog: CatalogName,
    table: TableName,
    *,
    rows: Annotated[
        int, typer.Option("--rows", "--limit", "-n", min=1, help="Number of rows.")
    ] = 10,
    columns: Columns = None,
    version: Version = None,
    properties: Properties = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """Show a table's first rows.

    Example: lance-bridge table head prod sales.orders -n 3
    """
    fields = {"k": rows, "version": version}
    _print_rows(catalog, properties, output, table=table, fields=fields, columns=columns)


@app.command()
def count(
    catalog: CatalogName,
    table: TableName,
    *,
    where: Where = None,
    version: Version = None,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Count a table's rows, or those that match a condition.

    Example: lance-bridge table count prod sales.orders --where 'price > 2'
    """
    request = api.CountTableRowsRequest(id=parse_name(table), predicate=where, version=version)
    with connected_or_federated(catalog, properties) as namespace, spinner(f"count {table}"):
        rows = namespace.count_table_rows(request).count
    print_result(output, str(rows), {"table": table, "rows": rows})


@app.command()
def query(
    catalog: CatalogName,
    table: TableName,
    *,
    where: Where = None,
    columns: Columns = None,
    vector: Annotated[
        str | None, typer.Option("--vector", help="Find the nearest rows: a JSON array of numbers.")
    ] = None,
    vector_column: Annotated[
        str | None, typer.Option("--vector-column", help="The column with the vectors.")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", help="Find words, through a full-text index.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Number of rows.")] = 10,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Rows to skip first.")] = 0,
    version: Version = None,
    properties: Properties = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """Find rows by a condition, a vector, words, or several of these.

    Example: lance-bridge table query prod sales.orders --where 'price > 2' -c id -c price
    """
    fields: dict[str, Any] = {"k": limit, "offset": offset or None, "filter": where}
    fields |= {"version": version, "vector_column": vector_column}
    if vector is not None:
        fields["vector"] = {"single_vector": _parse_vector(vector)}
    if text is not None:
        fields["full_text_query"] = {"string_query": {"query": text}}
    _print_rows(catalog, properties, output, table=table, fields=fields, columns=columns)


def _parse_vector(text: str) -> list[float]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    is_vector = isinstance(found, list) and all(isinstance(n, int | float) for n in found)
    if not is_vector or not found:
        raise usage_error("--vector must be a JSON array of numbers, such as '[0.5, 1]'")
    return [float(number) for number in found]


def _print_rows(
    catalog: str,
    properties: list[str] | None,
    output: RowsOutput,
    *,
    table: str,
    fields: dict[str, Any],
    columns: list[str] | None,
) -> None:
    from .schemas import batch_to_rows  # noqa: PLC0415 - takes long to import

    given = {key: value for key, value in fields.items() if value is not None}
    given = {"id": parse_name(table), "vector": {}, **given}
    if columns:
        given["columns"] = {"column_names": columns}
    request = api.QueryTableRequest.from_dict(given)
    assert request is not None
    with connected_or_federated(catalog, properties) as namespace:
        with spinner(f"read {table}"):
            reader = read_rows(namespace, request)
            # Read before anything is printed: a query that fails prints no partial result.
            first = [row for batch in islice(reader, 1) for row in batch_to_rows(batch)]
        rest = (row for batch in reader for row in batch_to_rows(batch))
        print_data(output, reader.schema.names, chain(first, rest))


def read_rows(
    namespace: api.LanceNamespace, request: api.QueryTableRequest
) -> pa.RecordBatchReader:
    """Run a query on a namespace of `connected_or_federated`; return a reader of the rows."""
    reader: pa.RecordBatchReader = namespace.query_table_reader(request)  # type: ignore[attr-defined]  # not in the API
    return reader


# -- versions, tags and indices --------------------------------------------------------------------


@app.command()
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
    """List a table's versions, and when each was created.

    Example: lance-bridge table versions prod sales.orders --latest-first -n 5
    """
    request = api.ListTableVersionsRequest(
        id=parse_name(table), descending=latest_first, limit=limit, page_token=page_token
    )
    with connected_or_federated(catalog, properties) as namespace:
        found = namespace.list_table_versions(request)
    rows = [
        (each.version, _format_time(each.timestamp_millis), each.manifest_size)
        for each in found.versions
    ]
    print_page(output, "versions", ["version", "created", "manifest_bytes"], rows, found.page_token)


def _format_time(millis: int | None) -> str | None:
    if millis is None:
        return None
    return datetime.fromtimestamp(millis / 1000, timezone.utc).isoformat(timespec="milliseconds")


@app.command()
def tags(
    catalog: CatalogName,
    table: TableName,
    *,
    limit: Limit = None,
    page_token: PageToken = None,
    properties: Properties = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """List a table's tags, and the version of each.

    Example: lance-bridge table tags prod sales.orders
    """
    request = api.ListTableTagsRequest(id=parse_name(table), limit=limit, page_token=page_token)
    with connected_or_federated(catalog, properties) as namespace:
        found = namespace.list_table_tags(request)
    rows = [(name, each.version, each.branch) for name, each in sorted(found.tags.items())]
    print_page(output, "tags", ["tag", "version", "branch"], rows, found.page_token)


@app.command()
def indices(
    catalog: CatalogName,
    table: TableName,
    *,
    limit: Limit = None,
    page_token: PageToken = None,
    properties: Properties = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """List a table's indices, and how many rows each covers.

    Example: lance-bridge table indices prod sales.orders
    """
    request = api.ListTableIndicesRequest(id=parse_name(table), limit=limit, page_token=page_token)
    with connected_or_federated(catalog, properties) as namespace:
        found = namespace.list_table_indices(request)
    rows = [
        (
            *(each.index_name, each.index_type, ", ".join(each.columns)),
            *(each.num_indexed_rows, each.num_unindexed_rows, each.size_bytes),
        )
        for each in found.indexes
    ]
    columns = ["index", "kind", "columns", "indexed_rows", "unindexed_rows", "bytes"]
    print_page(output, "indices", columns, rows, found.page_token)

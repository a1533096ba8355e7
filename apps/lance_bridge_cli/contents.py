"""What is in a table: the first rows, their number, and queries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import api
from .common import (
    CatalogName,
    OutputOption,
    Properties,
    TableName,
    connected,
    misused,
    names_of,
)
from .output import Output, tell, working
from .rows import RowsOption, RowsOutput, print_data

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_bridge.namespace import LanceBridgeNamespace

Version = Annotated[
    int | None, typer.Option("--version", min=1, help="Read this version, not the latest.")
]
Columns = Annotated[
    list[str] | None, typer.Option("--column", "-c", help="Read this column only. Repeatable.")
]
Where = Annotated[str | None, typer.Option("--where", "-w", help="A condition, in SQL.")]


def head(
    catalog: CatalogName,
    table: TableName,
    *,
    rows: Annotated[int, typer.Option("--rows", "--limit", "-n", min=1, help="How many.")] = 10,
    columns: Columns = None,
    version: Version = None,
    properties: Properties = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """Show a table's first rows.

    Example: lance-bridge table head prod sales.orders -n 3
    """
    fields = {"k": rows, "version": version}
    _show(catalog, properties, output, table=table, fields=fields, columns=columns)


def count(
    catalog: CatalogName,
    table: TableName,
    *,
    where: Where = None,
    version: Version = None,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Count a table's rows, or those that a condition holds for.

    Example: lance-bridge table count prod sales.orders --where 'price > 2'
    """
    names = names_of(table)
    with connected(catalog, properties) as namespace, working(f"count {table}"):
        request = api.CountTableRowsRequest(id=names, predicate=where, version=version)
        rows = namespace.count_table_rows(request).count
    tell(output, str(rows), {"table": table, "rows": rows})


def query(
    catalog: CatalogName,
    table: TableName,
    *,
    where: Where = None,
    columns: Columns = None,
    vector: Annotated[
        str | None, typer.Option("--vector", help="Find what is nearest: a JSON array of numbers.")
    ] = None,
    vector_column: Annotated[
        str | None, typer.Option("--vector-column", help="Where to look for it.")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", help="Find words, through a full-text index.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many rows.")] = 10,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Leave out as many first.")] = 0,
    version: Version = None,
    properties: Properties = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """Find rows: by a condition, by a vector, by words, or by several of these.

    Example: lance-bridge table query prod sales.orders --where 'price > 2' -c id -c price
    """
    fields: dict[str, Any] = {"k": limit, "offset": offset or None, "filter": where}
    fields |= {"version": version, "vector_column": vector_column}
    if vector is not None:
        fields["vector"] = {"single_vector": _numbers(vector)}
    if text is not None:
        fields["full_text_query"] = {"string_query": {"query": text}}
    _show(catalog, properties, output, table=table, fields=fields, columns=columns)


def _numbers(text: str) -> list[float]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    is_vector = isinstance(found, list) and all(isinstance(n, int | float) for n in found)
    if not is_vector or not found:
        raise misused("--vector must be a JSON array of numbers, such as '[0.5, 1]'")
    return [float(number) for number in found]


def _show(
    catalog: str,
    properties: list[str] | None,
    output: RowsOutput,
    *,
    table: str,
    fields: dict[str, Any],
    columns: list[str] | None,
) -> None:
    given = {key: value for key, value in fields.items() if value is not None}
    given = {"id": names_of(table), "vector": {}, **given}
    if columns:
        given["columns"] = {"column_names": columns}
    with connected(catalog, properties) as namespace:
        with working(f"read {table}"):
            reader, first = _begun(namespace, api.QueryTableRequest.from_dict(given))
        print_data(output, reader.schema.names, _rows(reader, first))


def _begun(
    namespace: LanceBridgeNamespace, request: api.QueryTableRequest | None
) -> tuple[pa.RecordBatchReader, pa.RecordBatch | None]:
    """Return a query's rows, of which the first are read: what fails, fails before any is told."""
    assert request is not None
    reader = namespace.query_table_reader(request)
    return reader, next(iter(reader), None)


def _rows(reader: pa.RecordBatchReader, first: pa.RecordBatch | None) -> Iterator[dict[str, Any]]:
    if first is None:
        return
    yield from first.to_pylist()
    for batch in reader:
        yield from batch.to_pylist()

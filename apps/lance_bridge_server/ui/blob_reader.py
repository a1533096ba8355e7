"""Reads the first bytes of blobs for a page: a query returns descriptions of blobs only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import lance
from lance_namespace import LanceNamespace

from lance_bridge import LanceBridgeNamespace, blobs
from lance_bridge.dataset import canonical
from lance_bridge.errors import translate_lance_errors
from lance_bridge.requests import Ref

from ..authorization.accesses import catalog_of
from .cells import HEAD_BYTES, LARGEST_IMAGE
from .time_travel import State
from .ui_request import Part, UiRequest

_THREADS = 8
"""Blobs that are read at once."""
Heads = Mapping[str, Mapping[int, bytes | None]]
"""The first bytes of blobs, by column and row identifier; None for null."""


async def read_heads(
    ui: UiRequest, state: State, wanted: Mapping[str, Sequence[int]], read: Callable[[Heads], Any]
) -> Part[Any]:
    """Return the result of a function on the first bytes of some blobs.

    Blobs that are references to files elsewhere are left out, and so are all blobs of a catalog of
    another library.

    Args:
        wanted: The identifiers of rows, by column.
        read: Gets `Heads`, in the operation's thread.
    """
    method = partial(_read_heads, wanted=wanted, count=HEAD_BYTES)
    fields = {"id": ui.names, "k": 1, "vector": {}, **state.fields}
    return await ui.attempt("query_table", fields, read, method=method)


async def read_image(ui: UiRequest, state: State, column: str, row: int) -> bytes | None:
    """Return a blob that is small enough for an image, or None.

    Raises:
        LanceNamespaceError: The query's own.
    """
    # One byte more shows that it is too large.
    method = partial(_read_heads, wanted={column: [row]}, count=LARGEST_IMAGE + 1)
    fields = {"id": ui.names, "k": 1, "vector": {}, **state.fields}
    found: Heads = await ui.call("query_table", fields, method=method)
    return found.get(column, {}).get(row)


def _read_heads(
    namespace: LanceNamespace, request: Any, wanted: Mapping[str, Sequence[int]], count: int
) -> Heads:
    names = tuple(request.id)
    child: Any = catalog_of(namespace, names)
    if not isinstance(child, LanceBridgeNamespace):
        return {}
    table = child.tables.load_by_id(list(names if child is namespace else names[1:]))
    dataset = table.open(Ref.of(request.version, branch=request.branch))
    with translate_lance_errors(f"The blobs of '{table.name}' could not be read"):
        return {
            column: _heads_of(dataset, column, rows, count)
            for column, rows in wanted.items()
            if column in dataset.schema.names and blobs.is_blob(dataset.schema.field(column))
        }


def _heads_of(
    dataset: lance.LanceDataset, column: str, rows: Sequence[int], count: int
) -> dict[int, bytes | None]:
    inside = blobs.rows_inside(dataset, column, rows)
    files = dataset.take_blobs(canonical((column,)), ids=inside) if inside else []
    with ThreadPoolExecutor(_THREADS) as pool:
        return dict(zip(inside, pool.map(partial(_head_of, count=count), files), strict=True))


def _head_of(file: Any, count: int) -> bytes | None:
    return None if file is None else bytes(file.read_range(0, min(count, file.size())))

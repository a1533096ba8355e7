"""Serves the images that the page of rows shows."""

from __future__ import annotations

from lance_namespace.errors import InvalidInputError
from starlette.responses import Response

from lance_bridge.errors import invalid

from .blob_reader import read_image
from .cells import LARGEST_IMAGE, image_type
from .rendering import PRIVATE_HEADERS
from .row_reader import read_value
from .time_travel import State, requested_state
from .ui_request import UiRequest
from .urls import address

_HEADERS = {**PRIVATE_HEADERS, "Content-Security-Policy": "default-src 'none'; sandbox"}


def image_address(path: list[str], state: State, version: int | None, row: int, column: str) -> str:
    """Return the address of a value.

    Args:
        state: The state of the table on the page.
        version: The table's version in that state. Row identifiers differ between versions.
    """
    at = f"v{version}" if version is not None and state.branch is None else state.text
    return address("image", path, at=at, column=column, row=str(row))


async def send_image(ui: UiRequest) -> Response:
    """Return the image in a cell of a table.

    Raises:
        InvalidInputError: (13) the row, or an image in its column, does not exist.
        LanceNamespaceError: The query's own.
    """
    path, column, row = ui.names, ui.text("column"), ui.text("row")
    if not (row.isascii() and row.isdigit() and len(row) <= 20):
        raise invalid("`row` is the identifier of a row, which is a number")
    state = await requested_state(ui, path)
    data = await read_value(ui, state, column, row)
    if isinstance(data, dict):  # of a blob, a query has a description
        data = await read_image(ui, state, column, int(row))
    is_small = isinstance(data, bytes) and len(data) <= LARGEST_IMAGE
    media_type = image_type(data) if data and is_small else None
    if media_type is None:
        raise InvalidInputError(f"Row {row} has no image in column '{column[:100]}'")
    return Response(data, headers=_HEADERS, media_type=media_type)

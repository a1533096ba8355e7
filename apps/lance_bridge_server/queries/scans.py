"""Scans of tables of pylance's directory, which itself returns all rows of a query at once."""

from __future__ import annotations

from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
from lance.namespace import DirectoryNamespace
from lance_namespace.errors import LanceNamespaceError

from lance_bridge import locations
from lance_bridge.dataset import has_dictionary
from lance_bridge.errors import LANCE_ERRORS

_READ_AHEAD = 32 << 20
"""Bytes that Lance reads ahead. Its default of 2 GiB is larger than most tables."""
_SCAN_FIELDS = frozenset(
    {
        *("columns", "context", "filter", "id", "identity", "k", "offset", "prefilter", "vector"),
        *("version", "with_row_id"),
    }
)
"""Fields of queries that are a scan, if the vector is empty."""


def scan(
    directory: DirectoryNamespace, request: api.QueryTableRequest
) -> pa.RecordBatchReader | None:
    """Return the rows of a query that is a scan of a table on local disk, to be read on demand.

    The directory itself copies all rows into one batch, writes a file of it, and copies that.

    Returns:
        None if the directory has to run the query, also for its error.
    """
    if not _is_scan(request):
        return None
    try:
        return _scan(directory, request)
    except (_NotReadableError, LanceNamespaceError, pa.ArrowException, *LANCE_ERRORS):
        return None


class _NotReadableError(Exception):
    """The table can be read by the directory only."""


def _is_scan(request: api.QueryTableRequest) -> bool:
    """Return whether a query searches nothing, and reads the main branch."""
    given = {name for name, value in request if value is not None}
    vector = request.vector
    aliases = (request.columns.column_aliases if request.columns else None) or {}
    if any("\0" in each for each in aliases):  # at which Arrow would end the process
        return False
    return given <= _SCAN_FIELDS and not (vector.single_vector or vector.multi_vector)


def _scan(directory: DirectoryNamespace, request: api.QueryTableRequest) -> pa.RecordBatchReader:
    """Return the rows of a query that is a scan. The first batch is read here.

    Raises:
        _NotReadableError: the table is not on local disk, the directory manages its versions, or
            the result needs one dictionary for all its batches.
    """
    # Only the directory knows storage options, and the versions that it manages.
    table = directory.describe_table(api.DescribeTableRequest(id=request.id))
    location = table.location
    if location is None or not locations.is_local(location) or table.managed_versioning:
        raise _NotReadableError
    columns = request.columns
    wanted = (columns.column_names or columns.column_aliases) if columns else None
    reader = (
        lance.dataset(locations.for_lance(location), version=request.version)
        .scanner(
            columns=wanted,
            filter=request.filter,
            limit=request.k or None,
            offset=request.offset or None,
            with_row_id=bool(request.with_row_id),
            io_buffer_size=_READ_AHEAD,
        )
        .to_reader()
    )
    if has_dictionary(reader.schema):
        raise _NotReadableError
    return with_first_batch(reader)


def with_first_batch(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Read the first batch, and return a reader of all rows. Raises what reading raises."""
    first = next(iter(reader), None)

    def batches() -> Any:
        if first is not None:
            yield first
            yield from reader

    return pa.RecordBatchReader.from_batches(reader.schema, batches())

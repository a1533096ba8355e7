"""Reading what a table says of itself: its description, and the number of its rows."""

from __future__ import annotations

import uuid

import lance
from lance_namespace import DescribeTableRequest, DescribeTableResponse
from lance_namespace_urllib3_client.models import TableBasicStats

from .. import location as locations
from ..bridge import Bridge
from ..catalog import TableRecord
from ..entries.properties import visible
from ..entries.tables import is_only_declared
from ..errors import display, invalid
from . import schema as schemas
from .dataset import LANCE_FAILURES, LATEST, Ref, brief, open_dataset, translated

_EVALUATION = "Error applying filter expression"
"""What Lance says where a predicate fails on a row, such as a division by zero."""


def describe(
    bridge: Bridge, record: TableRecord, request: DescribeTableRequest
) -> DescribeTableResponse:
    """Answer DescribeTable for an entry that is loaded already.

    The storage is read only where the request needs it: for ``version``, ``tag``, ``branch``,
    ``load_detailed_metadata`` and ``check_declared``. A table without data has no details.

    Raises:
        InvalidInputError: (13) a tag together with a version or a branch.
        TableVersionNotFoundError: (11) ``version`` does not exist.
        TableTagNotFoundError: (8)
        TableBranchNotFoundError: (22)
    """
    ref = Ref.of(request.version, request.tag, request.branch)
    location = record.location or ""
    answer = DescribeTableResponse(
        location=locations.for_lance(location),
        table_uri=locations.table_uri(location) if request.with_table_uri else None,
        storage_options=bridge.storage_options(
            record, vend=request.vend_credentials, write=bridge.config.credentials_write
        ),
        properties=visible(record.properties),
    )
    detailed = bool(request.load_detailed_metadata)
    if detailed:
        answer.table, answer.namespace = record.path[-1], list(record.path[:-1])
    if detailed or request.check_declared:
        answer.is_only_declared = is_only_declared(bridge, record)
    if ref != LATEST or (detailed and not answer.is_only_declared):
        _add_details(bridge, record, request, answer, ref)
    return answer


def _add_details(
    bridge: Bridge,
    record: TableRecord,
    request: DescribeTableRequest,
    answer: DescribeTableResponse,
    ref: Ref,
) -> None:
    dataset = open_dataset(bridge, record, ref, vend=request.vend_credentials)
    if not request.load_detailed_metadata:
        return
    with translated(f"Table '{display(record.path)}' could not be read"):
        counts = dataset.stats.dataset_stats()
        metadata = dataset.metadata
    answer.version = int(dataset.version)
    answer.var_schema = schemas.to_json(dataset.schema)
    answer.metadata = dict(metadata)
    answer.stats = TableBasicStats(
        num_deleted_rows=counts["num_deleted_rows"], num_fragments=counts["num_fragments"]
    )


def count_rows(bridge: Bridge, record: TableRecord, ref: Ref, predicate: str | None) -> int:
    """Return the number of rows, or of those for which ``predicate`` (SQL) holds.

    Source: CountTableRows.

    Raises:
        InvalidInputError: (13) the predicate is not one expression of SQL, names a column that is
            not there, or fails on a row.
        InvalidTableStateError: (19) the table holds no data yet.
        TableVersionNotFoundError: (11)
        TableBranchNotFoundError: (22)
    """
    dataset = open_dataset(bridge, record, ref)
    name = display(record.path)
    if predicate is None:
        with translated(f"Rows of table '{name}' could not be counted"):
            return int(dataset.count_rows())
    return _count_matching(dataset, name, predicate)


def _count_matching(dataset: lance.LanceDataset, name: str, predicate: str) -> int:
    bad = f"Predicate {predicate[:200]!r} does not fit table '{name}'"
    try:
        # Planning reads no rows: what fails here is the predicate.
        dataset.scanner(filter=predicate).explain_plan()
    except LANCE_FAILURES as error:
        raise invalid(f"{bad}: {brief(error)}") from error
    if _is_read_in_part(dataset, predicate):
        raise invalid(f"{bad}: only its beginning is one expression of SQL")
    with translated(f"Rows of table '{name}' could not be counted"):
        try:
            return int(dataset.count_rows(filter=predicate))
        except LANCE_FAILURES as error:
            if _EVALUATION in str(error):
                raise invalid(f"{bad}: {brief(error)}") from error
            raise


def _is_read_in_part(dataset: lance.LanceDataset, predicate: str) -> bool:
    """Return True where Lance takes no notice of the end of a predicate, such as ``; drop …``.

    It plans one that goes on with a column which does not exist only if it does not read so far.
    """
    missing = f"missing_{uuid.uuid4().hex}"
    try:
        # On a line of its own, because the predicate may end in a comment.
        dataset.scanner(filter=f"{predicate}\nand {missing}").explain_plan()
    except LANCE_FAILURES:
        return False
    return True

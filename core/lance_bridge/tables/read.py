"""Reading what a table says of itself: its description, and the number of its rows."""

from __future__ import annotations

from lance_namespace import DescribeTableRequest, DescribeTableResponse
from lance_namespace_urllib3_client.models import TableBasicStats

from .. import location as locations
from ..bridge import Bridge
from ..catalog import TableRecord
from ..entries.properties import visible
from ..entries.tables import is_only_declared
from ..errors import display
from ..managed.state import state_of
from . import expressions
from . import schema as schemas
from .dataset import LATEST, Ref, open_dataset, translated


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
        storage_options=bridge.answer_options(
            record, vend=request.vend_credentials, write=bridge.config.credentials_write
        ),
        properties=visible(record.properties),
        managed_versioning=True if state_of(record) is not None else None,
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
        InvalidInputError: (13) the predicate is not one expression of SQL, or fails on a row.
        TableColumnNotFoundError: (12) it names a column that is not there.
        InvalidTableStateError: (19) the table holds no data yet.
        TableVersionNotFoundError: (11)
        TableBranchNotFoundError: (22)
    """
    dataset = open_dataset(bridge, record, ref)
    name = display(record.path)
    if predicate is not None:
        expressions.check_predicate(dataset, name, predicate)
    with expressions.running(f"Rows of table '{name}' could not be counted"):
        return int(dataset.count_rows(filter=predicate))

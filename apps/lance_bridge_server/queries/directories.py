"""What pylance's namespace of a directory cannot do by itself, although tables can.

It makes no table without rows, knows types by their names only, searches for the first of several
vectors and in a column called ``vector``, takes rows in memory, and returns all rows of a query at
once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import lance
import lance_namespace as api
import pyarrow as pa
from lance.namespace import DirectoryNamespace
from lance_namespace import LanceNamespace
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from lance_namespace_urllib3_client.models import AlterColumnsEntry, QueryTableRequestVector
from pydantic import BaseModel

from lance_bridge import locations
from lance_bridge.dataset import (
    READ_AHEAD,
    Rows,
    check_ranges,
    check_tag_name,
    columns_read,
    default_vector_column,
    has_dictionary,
    needed_versions,
    scan_limits,
)
from lance_bridge.errors import LANCE_ERRORS, display, invalid, unsupported
from lance_bridge_federated import FederatedNamespace

from ..access.permissions import catalog_of
from ..redaction import PublicAnswers

_QUERY_INDEX = pa.field("query_index", pa.int32())


class _NamedType(AlterColumnsEntry):
    """A change of a column to a type that is given by its name."""

    data_type: Any = None


class _NamedTypes(api.AlterTableAlterColumnsRequest):
    alterations: list[_NamedType]  # type: ignore[assignment]


Found = tuple[DirectoryNamespace, list[str]]
"""The directory that a request is about, and the path of the table in it."""


def directory_of(namespace: LanceNamespace, path: Sequence[str]) -> Found | None:
    """Return the directory that a path is in, and the path in it; None for another catalog."""
    while True:
        if isinstance(namespace, PublicAnswers):
            namespace = namespace.namespace
        elif isinstance(namespace, FederatedNamespace) and path:
            namespace, path = catalog_of(namespace, tuple(path)), path[1:]
        else:
            return (namespace, [*path]) if isinstance(namespace, DirectoryNamespace) else None


def create_table(
    namespace: LanceNamespace, found: Found, request: api.CreateTableRequest, rows: Any
) -> api.CreateTableResponse:
    """Create a table, also one without rows."""
    mode = (request.mode or "create").replace("_", "").lower()
    schema = _schema_without_rows(rows)
    if schema is None or mode not in ("create", "existok", "overwrite"):
        return namespace.create_table(request, rows)
    directory, path = found
    try:
        made = lance.write_dataset(
            schema.empty_table(),
            namespace_client=directory,
            table_id=path,
            mode="overwrite" if mode == "overwrite" else "create",
        )
    except TableAlreadyExistsError:
        return namespace.create_table(request, rows)  # without reading rows, it says so, or not
    return api.CreateTableResponse(location=made.uri, version=made.version)


def _schema_without_rows(rows: bytes) -> pa.Schema | None:
    """Return the schema of a stream that has no rows."""
    try:
        with pa.ipc.open_stream(rows) as stream:
            return stream.schema if all(batch.num_rows == 0 for batch in stream) else None
    except (pa.ArrowException, OSError):
        return None  # the namespace says what is wrong


def alter_columns(
    namespace: LanceNamespace, _: Found, request: api.AlterTableAlterColumnsRequest
) -> api.AlterTableAlterColumnsResponse:
    """Change columns, with the names of types in place of their JSON."""
    fields = request.model_dump()
    for each in fields["alterations"]:
        if each["data_type"] is not None:
            each["data_type"] = _name_of(each["data_type"])
    return namespace.alter_table_alter_columns(_NamedTypes(**fields))


def _name_of(data_type: Mapping[str, Any]) -> str:
    name = str(data_type.get("type"))
    if data_type.get("fields") or data_type.get("length"):
        raise unsupported(
            f"This catalog cannot change a column to the type {name}: only to one without "
            "parameters"
        )
    return name


def query_table(namespace: LanceNamespace, found: Found, request: api.QueryTableRequest) -> Any:
    """Query a table, also with several vectors: their rows have the number of the vector.

    Vectors are searched in the only column that has some, as LanceDB's clients expect.
    """
    request = _with_vector_column(found, request)
    vectors = request.vector.multi_vector if request.vector else None
    if not vectors:
        return _query(namespace, found, request)
    _require_one_vector_in_each_row(found, request)
    tables = [
        _rows(_query(namespace, found, request.model_copy(update={"vector": _vector(each)})))
        for each in vectors
    ]
    numbered = [
        table.add_column(0, _QUERY_INDEX, pa.repeat(pa.scalar(i, pa.int32()), table.num_rows))
        for i, table in enumerate(tables)
    ]
    return pa.concat_tables(numbered).to_reader()


QueryT = TypeVar("QueryT", api.QueryTableRequest, api.AnalyzeTableQueryPlanRequest)


def _with_vector_column(found: Found, request: QueryT) -> QueryT:
    vector = request.vector
    has_vector = vector is not None and (vector.single_vector or vector.multi_vector)
    if request.vector_column or not has_vector:
        return request
    directory, path = found
    try:
        schema = lance.dataset(namespace_client=directory, table_id=path).schema
    except (LanceNamespaceError, *LANCE_ERRORS):
        return request  # the namespace says why
    column = default_vector_column(schema, display(path))
    return request.model_copy(update={"vector_column": column})


def explain_plan(
    namespace: LanceNamespace, found: Found, request: api.ExplainTableQueryPlanRequest
) -> str:
    """Explain the plan of a query, which names its column as in `query_table`."""
    query = _with_vector_column(found, request.query)
    return namespace.explain_table_query_plan(request.model_copy(update={"query": query}))


def analyze_plan(
    namespace: LanceNamespace, found: Found, request: api.AnalyzeTableQueryPlanRequest
) -> str:
    """Run a query, which names its column as in `query_table`, and return its plan."""
    return namespace.analyze_table_query_plan(_with_vector_column(found, request))


def _query(namespace: LanceNamespace, found: Found, request: api.QueryTableRequest) -> Any:
    directory, path = found
    reader = scan(directory, request.model_copy(update={"id": path}))
    if reader is not None:
        return reader
    read = getattr(namespace, "query_table_reader", namespace.query_table)
    return read(request)


def _vector(vector: list[float]) -> QueryTableRequestVector:
    return QueryTableRequestVector(single_vector=vector)


def _rows(result: Any) -> pa.Table:
    if isinstance(result, pa.RecordBatchReader):
        return result.read_all()
    return pa.ipc.open_file(getattr(result, "data", result)).read_all()


def _require_one_vector_in_each_row(found: Found, request: api.QueryTableRequest) -> None:
    directory, path = found
    schema = lance.dataset(namespace_client=directory, table_id=path).schema
    index = schema.get_field_index(request.vector_column or "vector")
    if index >= 0 and pa.types.is_list(schema.field(index).type):
        raise unsupported(
            "This catalog cannot search a column that has several vectors in each row"
        )


def create_tag(
    namespace: LanceNamespace, _: Found, request: api.CreateTableTagRequest
) -> api.CreateTableTagResponse:
    """Create a tag, unless its name would keep Lance from listing the tags of the table."""
    check_tag_name(request.tag)
    return namespace.create_table_tag(request)


def create_version(
    _: LanceNamespace, found: Found, request: api.CreateTableVersionRequest
) -> api.CreateTableVersionResponse | None:
    """Create a version: pylance takes a mapping."""
    return api.CreateTableVersionResponse.from_dict(
        found[0].create_table_version(_mapping(found, request))
    )


def describe_version(
    _: LanceNamespace, found: Found, request: api.DescribeTableVersionRequest
) -> api.DescribeTableVersionResponse | None:
    """Describe a version: pylance takes a mapping."""
    return api.DescribeTableVersionResponse.from_dict(
        found[0].describe_table_version(_mapping(found, request))
    )


def delete_versions(
    _: LanceNamespace, found: Found, request: api.BatchDeleteTableVersionsRequest
) -> api.BatchDeleteTableVersionsResponse | None:
    """Delete versions, but none that the table needs: pylance deletes these, too."""
    _require_not_needed(found, request)
    return api.BatchDeleteTableVersionsResponse.from_dict(
        found[0].batch_delete_table_versions(_mapping(found, request))
    )


def _mapping(found: Found, request: BaseModel) -> dict[str, Any]:
    return {**request.model_dump(exclude_none=True), "id": found[1]}


def _require_not_needed(found: Found, request: api.BatchDeleteTableVersionsRequest) -> None:
    """Refuse to delete the latest version, or one that a tag or a branch refers to.

    Raises:
        InvalidInputError: (13)
    """
    table = f"Table '{display(request.id or ())}'"
    try:
        ranges = check_ranges((each.start_version, each.end_version) for each in request.ranges)
    except InvalidInputError as error:
        raise invalid(f"{table}: {error}") from error
    directory, path = found
    branch = None if request.branch in (None, "main") else request.branch
    dataset = lance.dataset(namespace_client=directory, table_id=path)
    if branch is not None:
        dataset = dataset.checkout_version((branch, None))
    needed = {
        **needed_versions(dataset, branch),
        dataset.latest_version: "readers: it is the latest",
    }
    for version, why in sorted(needed.items()):
        if any(version in part for part in ranges):
            raise invalid(f"{table}: version {version} is needed by {why}: exclude it")


METHODS: Final[Mapping[str, Callable[..., Any]]] = {
    "alter_table_alter_columns": alter_columns,
    "analyze_table_query_plan": analyze_plan,
    "create_table": create_table,
    "create_table_tag": create_tag,
    "explain_table_query_plan": explain_plan,
    "query_table": query_table,
    "create_table_version": create_version,
    "describe_table_version": describe_version,
    "batch_delete_table_versions": delete_versions,
}
"""By the names of the namespace's own methods, which they replace."""


# -- rows that are not held in memory --------------------------------------------------------------


def write_stream(
    namespace: LanceNamespace, operation: str, request: Any, rows: Any
) -> BaseModel | None:
    """Write the rows of a file while it is read. Nothing is committed before its end.

    Returns:
        None if the directory has to do it, with rows in memory: only a new table, and an append to
        the main branch of one that has a version, are written here. Nothing has been read then.

    Raises:
        InvalidInputError: (13) bad rows. A table that is new remains as a declared one.
        TableAlreadyExistsError: (5) another client created the table meanwhile.
        OSError, ValueError, RuntimeError: of Lance, such as for another schema.
    """
    write = _STREAMED.get(operation)
    found = directory_of(namespace, request.id or ()) if write else None
    if write is None or found is None or isinstance(rows, bytes):
        return None
    return write(found, request, rows)


def _append(
    found: Found, request: api.InsertIntoTableRequest, rows: Any
) -> api.InsertIntoTableResponse | None:
    if request.branch or (request.mode or "append").lower() != "append":
        return None
    directory, path = found
    try:
        table = lance.dataset(namespace_client=directory, table_id=path)
    except (LanceNamespaceError, *LANCE_ERRORS):
        return None
    checked = Rows.from_data(rows)
    with checked.reraise_source_error():
        written = lance.write_dataset(checked.reader(into=table.schema), table, mode="append")
    return api.InsertIntoTableResponse(
        version=int(written.version), num_inserted_rows=checked.count
    )


def _create(
    found: Found, request: api.CreateTableRequest, rows: Any
) -> api.CreateTableResponse | None:
    directory, path = found
    is_plain = (request.mode or "create").lower() == "create" and not request.properties
    # The directory declares a table with another name at a place that it does not write to.
    if not is_plain or not all(map(_PLAIN_NAME.fullmatch, path)) or not _is_new(directory, path):
        return None
    checked = Rows.from_data(rows)
    checked.require_storable()
    with checked.reraise_source_error():
        made = lance.write_dataset(
            checked.reader(), namespace_client=directory, table_id=path, mode="create"
        )
    return api.CreateTableResponse(location=made.uri, version=int(made.version))


def _is_new(directory: DirectoryNamespace, path: list[str]) -> bool:
    """Return whether a table can be created: it does not exist, and its namespace does."""
    try:
        directory.namespace_exists(api.NamespaceExistsRequest(id=path[:-1]))
        directory.table_exists(api.TableExistsRequest(id=path))
    except TableNotFoundError:
        return True
    except (LanceNamespaceError, *LANCE_ERRORS):
        return False
    return False


_PLAIN_NAME = re.compile(r"\w[\w.-]*", re.ASCII)
_STREAMED: Final[Mapping[str, Callable[..., BaseModel | None]]] = {
    "create_table": _create,
    "insert_into_table": _append,
}


# -- scans -----------------------------------------------------------------------------------------


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
    dataset = lance.dataset(locations.for_lance(location), version=request.version)
    limits = scan_limits(dataset, columns_read(dataset.schema.names, wanted, request.filter))
    reader = dataset.scanner(
        columns=wanted,
        filter=request.filter,
        limit=request.k or None,
        offset=request.offset or None,
        with_row_id=bool(request.with_row_id),
        **{"io_buffer_size": READ_AHEAD, **limits},
    ).to_reader()
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

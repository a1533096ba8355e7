"""Cases: requests as pylance and LanceDB send them; a valid request for every operation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
from lance_namespace import ErrorCode, LanceNamespace

from .build import ipc, items
from .calls import Id, answer_of, code_of, request_model
from .cases import CaseNamespace, Cases, Refusals, needs, why_absent

# -- one request for every operation ---------------------------------------------------------------


_STAGED = {"version": 2, "manifest_path": "no/such/manifest"}
_QUERY: dict[str, Any] = {"k": 10, "vector": {}}
_ENTRY_FIELDS: dict[str, dict[str, Any]] = {
    "declare_table": {},
    "create_table": {},
    "register_table": {},
    "describe_table": {},
    "table_exists": {},
    "count_table_rows": {},
    "rename_table": {"new_table_name": "new"},
    "deregister_table": {},
    "drop_table": {},
}
_DATA_FIELDS: dict[str, dict[str, Any]] = {
    "alter_table_add_columns": {"new_columns": [{"name": "twice", "expression": "id * 2"}]},
    "alter_table_alter_columns": {"alterations": [{"path": "word", "rename": "noun"}]},
    "alter_table_backfill_columns": {"column": "word"},
    "alter_table_drop_columns": {"columns": ["word"]},
    "alter_transaction": {"actions": [{"setStatusAction": {"status": "Succeeded"}}]},
    "analyze_table_query_plan": _QUERY,
    "batch_commit_tables": {},
    "batch_create_table_versions": {},
    "batch_delete_table_versions": {"ranges": [{"start_version": 1, "end_version": 2}]},
    "count_table_rows": {},
    "create_table_branch": {"name": "twig"},
    "create_table_index": {"column": "id", "index_type": "BTREE"},
    "create_table_scalar_index": {"column": "id", "index_type": "BTREE"},
    "create_table_tag": {"tag": "mark", "version": 1},
    "create_table_version": _STAGED,
    "delete_from_table": {"predicate": "id = 0"},
    "delete_table_branch": {"name": "dev"},
    "delete_table_tag": {"tag": "first"},
    "describe_table_index_stats": {"index_name": "id_idx"},
    "describe_table_version": {},
    "describe_transaction": {},
    "drop_table_index": {"index_name": "id_idx"},
    "explain_table_query_plan": {"query": _QUERY},
    "get_table_stats": {},
    "get_table_tag_version": {"tag": "first"},
    "insert_into_table": {},
    "list_table_branches": {},
    "list_table_indices": {},
    "list_table_tags": {},
    "list_table_versions": {},
    "merge_insert_into_table": {
        "on": ["id"],
        "when_matched_update_all": True,
        "when_not_matched_insert_all": True,
    },
    "query_table": _QUERY,
    "restore_table": {"version": 1},
    "update_field_metadata": {"updates": [{"path": "word", "metadata": {"unit": "m"}}]},
    "update_table": {"updates": [["word", "'new'"]]},
    "update_table_schema_metadata": {"metadata": {"author": "Ines"}},
    "update_table_tag": {"tag": "first", "version": 1},
}
_TAKE_ROWS = ("create_table", "insert_into_table", "merge_insert_into_table")
_BATCHES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "batch_create_table_versions": lambda entry: {"entries": [entry]},
    "batch_commit_tables": lambda entry: {"operations": [{"create_table_version": entry}]},
}

ENTRY_OPERATIONS = tuple(_ENTRY_FIELDS)
"""Operations on the entry of a table, and CountTableRows."""
CREATE_TABLE = ("declare_table", "create_table", "register_table")
"""The `ENTRY_OPERATIONS` that make an entry."""
DATA_OPERATIONS = tuple(_DATA_FIELDS)
"""Operations on the data of a table. One may need an index ``id_idx``, the tag ``first`` or the
branch ``dev``."""
TABLE_OPERATIONS = tuple(sorted({*ENTRY_OPERATIONS, *DATA_OPERATIONS}))
NAMESPACE_OPERATIONS = (
    "create_namespace",
    "describe_namespace",
    "namespace_exists",
    "list_namespaces",
    "list_tables",
    "drop_namespace",
)
BRANCH_OPERATIONS = tuple(
    name for name in DATA_OPERATIONS if "branch" in request_model(name).model_fields
)
"""The `DATA_OPERATIONS` whose request has a branch."""

NOT_FOUND_ON_DECLARED: Mapping[str, ErrorCode] = {
    "create_table_tag": ErrorCode.TABLE_VERSION_NOT_FOUND,
    "delete_table_tag": ErrorCode.TABLE_TAG_NOT_FOUND,
    "describe_table_version": ErrorCode.TABLE_VERSION_NOT_FOUND,
    "get_table_tag_version": ErrorCode.TABLE_TAG_NOT_FOUND,
    "restore_table": ErrorCode.TABLE_VERSION_NOT_FOUND,
    "update_table_tag": ErrorCode.TABLE_TAG_NOT_FOUND,
}
"""Operations that may report a missing version or tag for a declared table."""

LENIENT_ON_DECLARED = frozenset(
    {
        # There is nothing to return, or to delete.
        "batch_delete_table_versions",
        "list_table_branches",
        "list_table_tags",
        "list_table_versions",
        # The first write completes the table.
        "batch_commit_tables",
        "batch_create_table_versions",
        "create_table_version",
        "insert_into_table",
        "merge_insert_into_table",
    }
)
"""Operations that need not be refused for a declared table."""


def send(ns: CaseNamespace, operation: str, id: Id, **fields: Any) -> object:
    """Send a valid request for an operation, with this identifier and further fields."""
    if operation in _BATCHES:
        entry = {"id": list(id or []), **_STAGED, **fields}
        return ns.call(operation, None, **_BATCHES[operation](entry))
    if operation.endswith("_transaction"):
        id = [*id, "1"] if id else id
    if operation == "register_table":
        fields["location"] = ns.target.register_location(ns.new_location("anything"))
    data = items(range(2)) if operation in _TAKE_ROWS else None
    good = {**_ENTRY_FIELDS, **_DATA_FIELDS}.get(operation, {})
    return ns.call(operation, id, data, **{**good, **fields})


def calls_of(
    ns: CaseNamespace, operations: Iterable[str], **fields: Any
) -> dict[str, Callable[[Id], object]]:
    """Return each operation as a call with an identifier, with these fields in its request."""

    def bound(name: str) -> Callable[[Id], object]:
        return lambda id: send(ns, name, id, **fields)

    return {name: bound(name) for name in operations}


# -- cases -----------------------------------------------------------------------------------------


_MESSAGES = {
    "describe_table": (ErrorCode.TABLE_NOT_FOUND, "table not found"),
    "describe_namespace": (ErrorCode.NAMESPACE_NOT_FOUND, "namespace not found"),
    "create_namespace": (ErrorCode.NAMESPACE_ALREADY_EXISTS, "namespace already exists"),
}


class _Request(dict[str, Any]):
    """A mapping with `model_dump` that is not a model, as those clients pass it."""

    def model_dump(self) -> dict[str, Any]:
        return dict(self)


def _request(operation: str, **fields: Any) -> _Request:
    """Return a request with all optional fields null, and with a field that the API lacks."""
    return _Request({
        **dict.fromkeys(request_model(operation).model_fields),
        **fields,
        "field_of_a_later_release": None,
    })  # fmt: skip


class ClientCases(Cases):
    """A request that is a mapping has the same result as a model with the same fields."""

    def test_a_table_lives_its_life_through_requests_that_are_mappings(
        self, ns: CaseNamespace
    ) -> None:
        api: Any = ns.client
        table_id = ns.table()
        rows = ipc(pa.table({"a": [1, 2]}))
        api.create_table(_request("create_table", id=table_id, mode="Create"), rows)
        described = api.describe_table(_request("describe_table", id=table_id))
        ns.locations.add(described.location)
        names = api.list_tables(_request("list_tables", id=ns.id)).tables
        assert names == [table_id[-1]]
        api.table_exists(_request("table_exists", id=table_id))
        api.drop_table(_request("drop_table", id=table_id))
        assert ns.names() == []

    @needs("rename", "rename_table")
    def test_a_mapping_without_what_the_operation_needs_is_invalid_input(
        self, ns: CaseNamespace
    ) -> None:
        api: Any = ns.client
        request = _request("rename_table", id=ns.with_rows())
        assert code_of(api.rename_table, request) == ErrorCode.INVALID_INPUT

    def test_the_message_of_an_error_begins_as_clients_expect(
        self, ns: CaseNamespace, refusals: Refusals
    ) -> None:
        """Rust clients see only the text of an error, and decide by it."""
        ids = {
            "describe_table": ns.table(),
            "describe_namespace": ns.missing_namespace(),
            "create_namespace": ns.id,
        }
        complaints = {}
        for name, (code, beginning) in _MESSAGES.items():
            if not why_absent(ns.target, name):
                request, call = _request(name, id=ids[name]), getattr(ns.client, name)
                complaints[name] = answer_of(call, request, [code], beginning)
        refusals.compare(complaints)

    @needs("absent")
    def test_absent_operations_are_unsupported(self, ns: CaseNamespace, refusals: Refusals) -> None:
        codes = [ErrorCode.UNSUPPORTED]
        refusals.compare(
            {
                name: answer_of(partial(_call_bare, ns, name), ns.table(), codes, name)
                for name in sorted(ns.features.absent)
            }
        )

    def test_the_client_describes_its_connection(self, ns: CaseNamespace) -> None:
        first = ns.client.namespace_id()
        assert first
        assert first == ns.target.connect().namespace_id()


def _call_bare(ns: CaseNamespace, name: str, table_id: list[str]) -> object:
    """Call an operation by name with a request that has only an identifier."""
    arguments: list[object] = [request_model(name).model_construct(id=table_id)]
    if "request_data" in inspect.signature(getattr(LanceNamespace, name)).parameters:
        arguments.append(b"")
    result: object = getattr(ns.client, name)(*arguments)
    return result

"""Cases: a request of every operation, with odd or missing identifiers, and as a mapping."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
from lance_namespace import ErrorCode, LanceNamespace

from .calls import Id, answer_of, code_of, ipc, items, refused, request_model, rows, unique_name
from .cases import Cases, Namespace, needs, same_location, why_absent

INVALID = ErrorCode.INVALID_INPUT
NO_NAMESPACE = ErrorCode.NAMESPACE_NOT_FOUND

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
BATCH_OPERATIONS = ("batch_create_table_versions", "batch_commit_tables")

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


def batch(operation: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the fields of one of the `BATCH_OPERATIONS` that creates these versions of tables."""
    if operation == "batch_create_table_versions":
        return {"entries": entries}
    return {"operations": [{"create_table_version": each} for each in entries]}


def send(ns: Namespace, operation: str, id: Id, **fields: Any) -> object:
    """Send a valid request for an operation, with this identifier and further fields."""
    if operation in BATCH_OPERATIONS:
        entry = {"id": list(id or []), **_STAGED, **fields}
        return ns.call(operation, None, **batch(operation, [entry]))
    if operation.endswith("_transaction"):
        id = [*id, "1"] if id else id
    if operation == "register_table":
        fields["location"] = ns.target.register_location(ns.new_location("anything"))
    data = items(range(2)) if operation in _TAKE_ROWS else None
    good = {**_ENTRY_FIELDS, **_DATA_FIELDS}.get(operation, {})
    return ns.call(operation, id, data, **{**good, **fields})


def calls_of(
    ns: Namespace, operations: Iterable[str], **fields: Any
) -> dict[str, Callable[[Id], object]]:
    """Return each operation as a call with an identifier, with these fields in its request."""

    def bound(name: str) -> Callable[[Id], object]:
        return lambda id: send(ns, name, id, **fields)

    return {name: bound(name) for name in operations}


# -- requests as pylance and LanceDB send them -----------------------------------------------------


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

    def test_a_table_lives_its_life_through_requests_that_are_mappings(self, ns: Namespace) -> None:
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
        self, ns: Namespace
    ) -> None:
        api: Any = ns.client
        request = _request("rename_table", id=ns.with_rows())
        assert code_of(api.rename_table, request) == ErrorCode.INVALID_INPUT

    def test_the_message_of_an_error_begins_as_clients_expect(self, ns: Namespace) -> None:
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
        ns.compare(complaints)

    @needs("absent")
    def test_absent_operations_are_unsupported(self, ns: Namespace) -> None:
        codes = [ErrorCode.UNSUPPORTED]
        ns.compare(
            {
                name: answer_of(partial(_call_bare, ns, name), ns.table(), codes, name)
                for name in sorted(ns.features.absent)
            }
        )

    def test_the_client_describes_its_connection(self, ns: Namespace) -> None:
        first = ns.client.namespace_id()
        assert first
        assert first == ns.target.connect().namespace_id()


def _call_bare(ns: Namespace, name: str, table_id: list[str]) -> object:
    """Call an operation by name with a request that has only an identifier."""
    arguments: list[object] = [request_model(name).model_construct(id=table_id)]
    if "request_data" in inspect.signature(getattr(LanceNamespace, name)).parameters:
        arguments.append(b"")
    result: object = getattr(ns.client, name)(*arguments)
    return result


# -- names -----------------------------------------------------------------------------------------


def hostile_names(ns: Namespace) -> list[str]:
    """Return names that every operation refuses: those of the target, and the empty one."""
    return ["", *ns.features.hostile_names]


class IdentifierCases(Cases):
    """Which identifiers work, and that every operation refuses the others."""

    def test_odd_table_names_work(self, ns: Namespace) -> None:
        *names, last = ns.features.good_names
        own = [ns.declare_table(ns.table(name)).location or "" for name in names]
        ns.create_table(ns.table(last), rows(range(3)))
        assert ns.names() == sorted([*names, last])
        assert ns.ids(ns.table(last)) == [0, 1, 2]
        for name, location in zip(names, own, strict=True):
            assert same_location(ns.location(ns.table(name)), location)
        for name in (*names, last):
            ns.drop_table(ns.table(name))
        assert ns.names() == []

    @needs("namespace_changes")
    def test_odd_namespace_names_work(self, ns: Namespace) -> None:
        own = unique_name()
        for name in ns.features.good_names:
            odd = ns.track([*ns.target.parent, f"{name}_{own}"])
            ns.create_namespace(odd)
            ns.namespace_exists(odd)
            location = ns.declare_table([*odd, "t"]).location or ""
            assert same_location(ns.location([*odd, "t"]), location)
            assert odd[-1] in ns.all_namespaces(ns.target.parent)
            ns.drop_table([*odd, "t"])
            ns.drop_namespace(odd)

    @needs("max_table_name")
    def test_the_longest_table_name_works(self, ns: Namespace) -> None:
        longest = "t" * (ns.features.max_table_name or 0)
        table_id = ns.with_rows(longest)
        assert ns.names() == [longest]
        assert ns.ids(table_id) == [0, 1, 2]

    @needs("max_namespace_name", "namespace_changes")
    def test_the_longest_namespace_name_works(self, ns: Namespace) -> None:
        name = unique_name().ljust(ns.features.max_namespace_name or 0, "n")
        longest = ns.track([*ns.target.parent, name])
        ns.create_namespace(longest)
        ns.create_table([*longest, "t"], rows(range(3)))
        assert ns.ids([*longest, "t"]) == [0, 1, 2]

    # -- names that must be refused --------------------------------------------------------------

    def test_a_hostile_table_name_is_invalid_input(self, ns: Namespace) -> None:
        hostile = [ns.table(name) for name in hostile_names(ns)]
        ns.refuse(calls_of(ns, TABLE_OPERATIONS), hostile, INVALID)
        assert ns.names() == []

    def test_a_hostile_namespace_name_of_a_table_is_invalid_input(self, ns: Namespace) -> None:
        parent, table = ns.target.parent, unique_name()
        hostile = [[*parent, name, table] for name in hostile_names(ns)]
        ns.refuse(calls_of(ns, TABLE_OPERATIONS), hostile, INVALID)

    def test_a_hostile_namespace_name_is_invalid_input(self, ns: Namespace) -> None:
        parent = ns.target.parent
        hostile = set(hostile_names(ns))
        # A catalog that accepts such a name may have one already, which the kit must not drop.
        hostile -= set(ns.all_namespaces(parent))
        try:
            identifiers = [[*parent, name] for name in sorted(hostile)]
            ns.refuse(calls_of(ns, NAMESPACE_OPERATIONS), identifiers, INVALID)
        finally:
            made = hostile & set(ns.all_namespaces(parent))
            for name in made:
                ns.track([*parent, name])
        assert not made

    @needs("rename")
    def test_rename_to_a_hostile_name_is_invalid_input(self, ns: Namespace) -> None:
        table_id, names = ns.with_rows(), hostile_names(ns)
        ns.compare(
            {
                repr(name): answer_of(lambda new: ns.rename_table(table_id, new), name, [INVALID])
                for name in names
            }
        )
        assert ns.names() == ["t"]
        assert ns.ids(table_id) == [0, 1, 2]

    @needs("max_table_name")
    def test_an_overlong_table_name_is_invalid_input(self, ns: Namespace) -> None:
        longest = ns.features.max_table_name or 0
        identifiers = [ns.table("t" * length) for length in (longest + 1, 10_000)]
        ns.refuse(calls_of(ns, TABLE_OPERATIONS), identifiers, INVALID)
        assert ns.names() == []

    @needs("max_namespace_name")
    def test_an_overlong_namespace_name_is_invalid_input(self, ns: Namespace) -> None:
        longest = ns.features.max_namespace_name or 0
        identifiers = [[*ns.target.parent, "n" * n] for n in (longest + 1, 10_000)]
        ns.refuse(calls_of(ns, NAMESPACE_OPERATIONS), identifiers, INVALID)

    # -- identifiers of the wrong length ---------------------------------------------------------

    def test_a_table_operation_without_an_identifier_is_invalid_input(self, ns: Namespace) -> None:
        ns.refuse(calls_of(ns, TABLE_OPERATIONS), [None, []], INVALID)

    @needs("fixed_depth")
    def test_a_table_identifier_with_the_wrong_number_of_names_is_invalid_input(
        self, ns: Namespace
    ) -> None:
        longest = [*ns.target.parent, *[unique_name()] * 6]
        wrong = [longest[:depth] for depth in range(1, 7) if depth != len(ns.id) + 1]
        ns.refuse(calls_of(ns, TABLE_OPERATIONS), wrong, INVALID)

    @needs("fixed_depth")
    def test_a_namespace_identifier_with_too_many_names_is_invalid_input(
        self, ns: Namespace
    ) -> None:
        wrong = [[*ns.id, "n"], [*ns.id, "n", "n"]]
        ns.refuse(calls_of(ns, NAMESPACE_OPERATIONS), wrong, INVALID)

    @needs("fixed_depth")
    def test_list_tables_above_the_level_that_holds_tables_is_invalid_input(
        self, ns: Namespace
    ) -> None:
        outer = [ns.id[:depth] for depth in range(len(ns.id))]
        ns.refuse(calls_of(ns, ["list_tables"]), outer, INVALID)

    @needs("fixed_depth", "rename")
    def test_rename_into_a_namespace_of_another_level_is_invalid_input(self, ns: Namespace) -> None:
        table_id = ns.with_rows()
        for wrong in ([*ns.id, "n"], [*ns.id, "n", "n"]):
            with refused(INVALID):
                ns.rename_table(table_id, "new", new_namespace_id=wrong)
        assert ns.names() == ["t"]

    @needs("folds_case")
    def test_a_folding_catalog_finds_tables_in_any_case(self, ns: Namespace) -> None:
        ns.with_rows("MixedCase")
        assert ns.names() == ["mixedcase"]
        shouted = [*ns.target.parent, ns.name.upper(), "MIXEDCASE"]
        for table_id in (ns.table("mixedcase"), ns.table("MixedCase"), shouted):
            ns.table_exists(table_id)
            assert ns.ids(table_id) == [0, 1, 2]
            assert ns.count(table_id) == 3
        assert ns.all_tables(shouted[:-1]) == ["mixedcase"]
        answer = ns.describe_table(shouted, load_detailed_metadata=True, with_table_uri=True)
        assert (answer.table, answer.namespace) == ("mixedcase", ns.id)

    @needs("folds_case", "rename")
    def test_a_folding_catalog_renames_from_and_to_any_case(self, ns: Namespace) -> None:
        ns.with_rows("old")
        ns.rename_table(ns.table("OLD"), "NEW")
        assert ns.names() == ["new"]
        assert ns.ids(ns.table("New")) == [0, 1, 2]

    @needs("folds_case", "namespace_changes")
    def test_a_folding_catalog_finds_namespaces_in_any_case(self, ns: Namespace) -> None:
        shouted = [*ns.target.parent, ns.name.upper()]
        ns.namespace_exists(shouted)
        ns.describe_namespace(shouted)
        with refused(ErrorCode.NAMESPACE_ALREADY_EXISTS, naming=ns.name):
            ns.create_namespace(shouted)
        ns.drop_namespace(shouted)
        assert ns.name not in ns.all_namespaces(ns.target.parent)

    def test_names_that_differ_in_case_are_one_table_or_two(self, ns: Namespace) -> None:
        ns.with_rows("t")
        if ns.features.folds_case:
            with refused(ErrorCode.TABLE_ALREADY_EXISTS, naming="t"):
                ns.with_rows("T", range(5))
            ns.drop_table(ns.table("T"))
            assert ns.names() == []
            return
        ns.with_rows("T", range(5))
        assert ns.names() == ["T", "t"]
        assert ns.ids(ns.table("t")) == [0, 1, 2]
        assert ns.ids(ns.table("T")) == [0, 1, 2, 3, 4]


# -- objects that do not exist ---------------------------------------------------------------------


class MissingCases(Cases):
    """Operations on entries that do not exist."""

    def test_operations_on_a_missing_table_are_table_not_found(self, ns: Namespace) -> None:
        missing = ns.missing_table()
        calls = calls_of(ns, [name for name in ENTRY_OPERATIONS if name not in CREATE_TABLE])
        ns.refuse(calls, [missing], ErrorCode.TABLE_NOT_FOUND, naming=missing[-1])

    def test_operations_on_a_table_of_a_missing_namespace_are_namespace_not_found(
        self, ns: Namespace
    ) -> None:
        missing = ns.missing_namespace()
        calls = calls_of(ns, ENTRY_OPERATIONS)
        ns.refuse(calls, [[*missing, "t"]], NO_NAMESPACE, naming=missing[-1])

    def test_operations_on_a_missing_namespace_are_namespace_not_found(self, ns: Namespace) -> None:
        missing = ns.missing_namespace()
        calls = calls_of(ns, [name for name in NAMESPACE_OPERATIONS if name != "create_namespace"])
        ns.refuse(calls, [missing], NO_NAMESPACE, naming=missing[-1])

    @needs("rename", "rename_across")
    def test_rename_into_a_missing_namespace_is_namespace_not_found(self, ns: Namespace) -> None:
        missing, table_id = ns.missing_namespace(), ns.with_rows()
        with refused(NO_NAMESPACE, naming=missing[-1]):
            ns.rename_table(table_id, "new", new_namespace_id=missing)
        assert ns.ids(table_id) == [0, 1, 2]

    @needs("namespace_changes", "nested_namespaces")
    def test_create_in_a_missing_parent_is_namespace_not_found(self, ns: Namespace) -> None:
        missing = ns.missing_namespace()
        with refused(NO_NAMESPACE, naming=missing[-1]):
            ns.create_namespace([*missing, "child"])

    @needs("namespace_changes")
    def test_drop_of_a_missing_namespace_is_namespace_not_found(self, ns: Namespace) -> None:
        missing = ns.missing_namespace()
        for mode in (None, "Fail", "fail", "FAIL"):
            with refused(NO_NAMESPACE, naming=missing[-1]):
                ns.drop_namespace(missing, mode=mode)

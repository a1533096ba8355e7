"""What operations inside a table have in common, and what methods of managed tables refuse."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from core.memory_catalog import CAPABILITIES, SERVERS, MemoryCatalog, MemoryNamespace, MemoryServer
from lance_namespace import errors

from lance_bridge.catalog import LATEST, TableRecord
from lance_bridge.entry import TableEntry
from lance_bridge.testing.calls import ipc

from .operation_samples import (
    BATCHES,
    DATABASE,
    FIELDS,
    ROWS,
    TABLE,
    TAKE_ROWS,
    call,
    fill,
    new_namespace,
    request_type,
    stage,
)

pytestmark = [
    pytest.mark.checks,
    pytest.mark.spec(
        "operations.md#adopt_out_of_band_versions",
        "operations.md#discard_out_of_band_versions",
        "operations.md#errors-of-finding-the-table",
        "operations.md#fields-of-every-request",
        "operations.md#finding-the-table",
        "operations.md#release_table",
    ),
]

OPERATIONS = sorted(FIELDS)
CREATE_VERSIONS = (*BATCHES, "create_table_version")
BRANCH_FIELDS = {"create_table_branch": "from_branch"}
HAVE_BRANCHES = [
    method
    for method in OPERATIONS
    if "branch" in request_type(method).model_fields or method in (*BATCHES, *BRANCH_FIELDS)
]
VERSION_FIELDS = {"create_table_branch": "from_version"}
HAVE_VERSIONS = [
    method
    for method in OPERATIONS
    if "version" in request_type(method).model_fields or method in VERSION_FIELDS
    if method not in CREATE_VERSIONS
]
HAVE_PAGES = [name for name in OPERATIONS if "page_token" in request_type(name).model_fields]
WITHOUT_DATA = {
    **dict.fromkeys(("list_table_branches", "list_table_tags", "list_table_versions"), None),
    **dict.fromkeys(("create_table_tag", "describe_table_version", "restore_table"), 11),
    **dict.fromkeys(("delete_table_tag", "get_table_tag_version", "update_table_tag"), 8),
    "batch_delete_table_versions": None,
}
"""The code of an operation on a table without data, where it is not 19; None where it answers."""
COMMITS = [
    "alter_table_add_columns",
    "alter_table_alter_columns",
    "alter_table_backfill_columns",
    "alter_table_drop_columns",
    "create_table_index",
    "create_table_scalar_index",
    "delete_from_table",
    "drop_table_index",
    "insert_into_table",
    "merge_insert_into_table",
    "update_field_metadata",
    "update_table",
    "update_table_schema_metadata",
]
METHODS = [
    "adopt_out_of_band_versions",
    "discard_out_of_band_versions",
    "list_out_of_band_versions",
    "manage_table",
    "release_table",
]
OF_MANAGED_TABLES = [name for name in METHODS if name != "manage_table"]
KEY = tuple(TABLE)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MemoryServer]:
    namespace, server = new_namespace(tmp_path / "lake")
    fill(namespace)
    yield server
    SERVERS.pop(name_of(server))


@pytest.fixture
def ns(server: MemoryServer, tmp_path: Path) -> MemoryNamespace:
    return MemoryNamespace(uri=name_of(server), root=str(tmp_path / "lake"))


def name_of(server: MemoryServer) -> str:
    return next(name for name, each in SERVERS.items() if each is server)


def place(ns: MemoryNamespace) -> Path:
    return Path(ns.describe_table(api.DescribeTableRequest(id=TABLE)).location or "")


def staged(ns: MemoryNamespace, method: str) -> dict[str, Any]:
    """Return what a request needs that creates a version, and nothing for others."""
    return stage(place(ns)) if method in CREATE_VERSIONS else {}


@pytest.mark.parametrize("method", OPERATIONS)
def test_an_operation_asks_the_catalog_once_and_again_after_a_commit_to_the_storage(
    ns: MemoryNamespace, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    fields = staged(ns, method)
    asked, load = [], MemoryCatalog.load_table

    def counting(catalog: MemoryCatalog, path: tuple[str, ...]) -> TableRecord:
        asked.append(path)
        return load(catalog, path)

    monkeypatch.setattr(MemoryCatalog, "load_table", counting)
    assert call(ns, method, **fields) is not None
    commits = method in {*COMMITS, *CREATE_VERSIONS, "restore_table"}
    assert asked == [tuple(TABLE)] * (2 if commits else 1)


# -- finding the table -----------------------------------------------------------------------------


def answers(calls: Mapping[Any, Callable[[], object]], naming: str = "") -> dict[Any, str]:
    """Return the error of the API that each call meets, with the message if it lacks ``naming``.

    Args:
        naming: A regular expression.
    """
    found = {}
    for key, make in calls.items():
        try:
            make()
            found[key] = "answered"
        except errors.LanceNamespaceError as error:
            is_named = re.search(naming, str(error)) is not None
            of_api = next(
                each for each in type(error).__mro__ if each.__module__ == errors.__name__
            )
            found[key] = of_api.__name__ + ("" if is_named else f": {error}")
    return found


def require(
    error: type[errors.LanceNamespaceError],
    calls: Mapping[Any, Callable[[], object]],
    naming: str = "",
) -> None:
    """Require the same error of all calls."""
    assert answers(calls, naming) == dict.fromkeys(calls, error.__name__)


def calls_of(
    ns: MemoryNamespace, methods: Iterable[str], table: Sequence[str] = TABLE, **fields: Any
) -> dict[Any, Callable[[], object]]:
    """Return each operation as a call on a table."""
    return {method: partial(call, ns, method, table, **fields) for method in methods}


def test_an_operation_in_a_missing_namespace_is_namespace_not_found(ns: MemoryNamespace) -> None:
    missing = [*DATABASE[:-1], "nope", "orders"]
    require(errors.NamespaceNotFoundError, calls_of(ns, OPERATIONS, missing))


def test_an_operation_on_a_missing_table_is_table_not_found(ns: MemoryNamespace) -> None:
    require(errors.TableNotFoundError, calls_of(ns, OPERATIONS, [*DATABASE, "nope"]))


def test_an_operation_on_what_is_not_lances_is_invalid_input(
    ns: MemoryNamespace, server: MemoryServer
) -> None:
    record = server.tables[tuple(TABLE)]
    server.tables[tuple(TABLE)] = replace(record, properties={"table_type": "ICEBERG"})
    require(errors.InvalidInputError, calls_of(ns, OPERATIONS))


def test_an_operation_without_the_identifier_of_a_table_is_invalid_input(
    ns: MemoryNamespace,
) -> None:
    for names in ([], ["orders"], [*TABLE, "x", "y"]):
        require(errors.InvalidInputError, calls_of(ns, OPERATIONS, names))


def test_an_operation_on_an_entry_without_a_location_is_in_an_invalid_state(
    ns: MemoryNamespace, server: MemoryServer
) -> None:
    record = server.tables[tuple(TABLE)]
    server.tables[tuple(TABLE)] = replace(record, location=None)
    require(errors.InvalidTableStateError, calls_of(ns, OPERATIONS))


# -- what a request names --------------------------------------------------------------------------


def test_an_operation_on_a_missing_branch_is_branch_not_found(ns: MemoryNamespace) -> None:
    calls = {}
    for method in HAVE_BRANCHES:
        fields = {**staged(ns, method), BRANCH_FIELDS.get(method, "branch"): "nope"}
        calls[method] = partial(call, ns, method, **fields)
    require(errors.TableBranchNotFoundError, calls, "nope")


def in_query(method: str, **fields: Any) -> dict[str, Any]:
    """Return fields where a method's request has them: those of a plan are in its query."""
    if method == "explain_table_query_plan":
        return {"query": {**FIELDS["query_table"], **fields}}
    return fields


@pytest.mark.spec("operations.md#describetableversion")
def test_an_operation_on_a_missing_version_is_version_not_found(ns: MemoryNamespace) -> None:
    calls = {}
    for method in (*HAVE_VERSIONS, "explain_table_query_plan"):
        fields = in_query(method, **{VERSION_FIELDS.get(method, "version"): 99})
        calls[method] = partial(call, ns, method, **fields)
    require(errors.TableVersionNotFoundError, calls, "99")


@pytest.mark.spec(
    "operations.md#counttablerows",
    "operations.md#createtablebranch",
    "operations.md#createtabletag",
    "operations.md#describetableversion",
    "operations.md#restoretable",
    "operations.md#updatetabletag",
)
def test_a_version_below_one_is_invalid_input(ns: MemoryNamespace) -> None:
    calls = {}
    for method in (*HAVE_VERSIONS, *CREATE_VERSIONS, "explain_table_query_plan"):
        version = in_query(method, **{VERSION_FIELDS.get(method, "version"): 0})
        calls[method] = partial(call, ns, method, **{**staged(ns, method), **version})
    require(errors.InvalidInputError, calls, "1 or more")


@pytest.mark.spec(
    "operations.md#listtablebranches",
    "operations.md#listtableindices",
    "operations.md#listtabletags",
    "operations.md#listtableversions",
)
def test_a_page_that_cannot_be_is_invalid_input(ns: MemoryNamespace) -> None:
    for page in ({"limit": 0}, {"limit": -1}, {"page_token": "x"}):
        fields: dict[str, Any] = page
        require(errors.InvalidInputError, calls_of(ns, HAVE_PAGES, **fields), "limit|page_token")


NO_SUCH_COLUMN: Mapping[str, Mapping[str, Any]] = {
    "alter_table_add_columns": {"new_columns": [{"name": "x", "expression": "nope"}]},
    "alter_table_alter_columns": {"alterations": [{"path": "nope", "rename": "x"}]},
    "alter_table_backfill_columns": {"column": "nope"},
    "alter_table_drop_columns": {"columns": ["id", "nope"]},
    "count_table_rows": {"predicate": "nope = 1"},
    "create_table_index": {"column": "nope"},
    "create_table_scalar_index": {"column": "nope"},
    "delete_from_table": {"predicate": "nope = 1"},
    "explain_table_query_plan": {"query": {"k": 1, "vector": {}, "filter": "nope = 1"}},
    "analyze_table_query_plan": {"filter": "nope = 1"},
    "merge_insert_into_table": {"on": ["nope"]},
    "query_table": {"filter": "nope = 1"},
    "update_field_metadata": {"updates": [{"path": "nope", "metadata": {"a": "b"}}]},
    "update_table": {"updates": [["nope", "1"]]},
}


@pytest.mark.spec(
    "operations.md#altertablealtercolumns",
    "operations.md#altertabledropcolumns",
    "operations.md#analyzetablequeryplan",
    "operations.md#deletefromtable",
    "operations.md#mergeinsertintotable",
    "operations.md#updatefieldmetadata",
    "operations.md#updatetable",
)
def test_an_operation_on_a_missing_column_is_column_not_found(ns: MemoryNamespace) -> None:
    calls = {name: partial(call, ns, name, **each) for name, each in NO_SUCH_COLUMN.items()}
    require(errors.TableColumnNotFoundError, calls, "nope")


@pytest.mark.spec(
    "operations.md#insertintotable",
    "operations.md#mergeinsertintotable",
    "operations.md#restoretable",
)
def test_an_operation_on_a_table_without_data_says_so(ns: MemoryNamespace) -> None:
    declared = [*DATABASE, "declared"]
    ns.declare_table(api.DeclareTableRequest(id=declared))
    codes: dict[str, int | None] = {}
    for method in sorted({*OPERATIONS} - {*CREATE_VERSIONS}):
        fields = {"branch": "dev"} if method in TAKE_ROWS else {}  # they make the first version
        codes[method] = None
        try:
            call(ns, method, declared, **fields)
        except errors.LanceNamespaceError as error:
            codes[method] = int(error.code)
    assert codes == {method: WITHOUT_DATA.get(method, 19) for method in codes}


@pytest.mark.spec("operations.md#mergeinsertintotable")
def test_a_function_in_a_condition_on_updates_is_unsupported_by_name(ns: MemoryNamespace) -> None:
    with pytest.raises(errors.UnsupportedOperationError, match="function"):
        call(ns, "merge_insert_into_table", when_matched_update_all_filt="abs(source.price) > 1")


# -- conflicts -------------------------------------------------------------------------------------


@pytest.mark.spec(
    "operations.md#altertablealtercolumns",
    "operations.md#altertabledropcolumns",
    "operations.md#deletefromtable",
    "operations.md#droptableindex",
    "operations.md#updatefieldmetadata",
    "operations.md#updatetable",
    "operations.md#updatetableschemametadata",
)
@pytest.mark.parametrize("method", COMMITS)
def test_a_change_of_what_was_overwritten_meanwhile_is_a_concurrent_modification(
    ns: MemoryNamespace, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    uri, behind = str(place(ns)), lance.dataset
    opened = behind(uri).version
    lance.write_dataset(pa.table({"other": [1]}), uri, mode="overwrite")
    monkeypatch.setattr(lance, "dataset", lambda *_, **__: behind(uri, version=opened))
    with pytest.raises(errors.ConcurrentModificationError, match="orders"):
        call(ns, method, rows=ROWS.to_reader())
    monkeypatch.undo()
    assert behind(uri).to_table() == pa.table({"other": [1]})


@pytest.mark.spec("operations.md#restoretable")
def test_concurrent_restores_each_make_a_version_or_fail(ns: MemoryNamespace) -> None:
    before = lance.dataset(str(place(ns))).latest_version

    def restore(_: int) -> int:
        try:
            call(ns, "restore_table")
        except errors.ConcurrentModificationError:
            return 0
        return 1

    with ThreadPoolExecutor(4) as pool:
        done = sum(pool.map(restore, range(8)))
    after = lance.dataset(str(place(ns)))
    assert done >= 1
    assert after.latest_version == before + done
    assert after.count_rows() == ROWS.num_rows


# -- empty tables ----------------------------------------------------------------------------------


@pytest.mark.spec("common.md#createemptytable")
@pytest.mark.filterwarnings("ignore:create_empty_table:DeprecationWarning")
def test_an_empty_table_is_declared_as_declare_table_does(
    ns: MemoryNamespace, server: MemoryServer
) -> None:
    def empty(table: list[str], **fields: Any) -> api.CreateEmptyTableResponse:
        return ns.create_empty_table(api.CreateEmptyTableRequest(id=table, **fields))

    new = [*DATABASE, "new"]
    assert empty(new, properties={"a": "b"}).properties == {"a": "b"}
    described = ns.describe_table(api.DescribeTableRequest(id=new, check_declared=True))
    assert described.is_only_declared
    with pytest.raises(errors.TableAlreadyExistsError):
        empty(TABLE)
    assert empty(TABLE, mode="exist_ok").location == str(place(ns))
    with pytest.raises(errors.UnsupportedOperationError, match="CreateTable"):
        empty(TABLE, mode="Overwrite")
    with pytest.raises(errors.InvalidInputError, match="Unknown mode"):
        empty(new, mode="Maybe")
    with pytest.raises(errors.NamespaceNotFoundError):
        empty(["eu", "nope", "nope", "new"])
    record = server.tables[tuple(new)]
    server.fault = conflict
    with pytest.raises(errors.ConcurrentModificationError):
        empty([*DATABASE, "newer"])
    assert server.tables[tuple(new)] == record


def conflict(change: str, moment: str) -> None:
    """Let each change of an entry meet another one."""
    raise errors.ConcurrentModificationError(f"{change} {moment}")


# -- methods of managed tables, which are beyond the interface -------------------------------------


@pytest.fixture
def able(tmp_path: Path) -> Iterator[tuple[MemoryNamespace, MemoryServer]]:
    """A namespace over a catalog that compares and sets, with a managed table."""
    ns, server = new_namespace(tmp_path / "lake")
    server.capabilities = replace(CAPABILITIES, no_alter="", no_rename="")
    ns.create_table(api.CreateTableRequest(id=TABLE, properties={"managed_by": "impl"}), ipc(ROWS))
    yield ns, server
    for name in [name for name, each in SERVERS.items() if each is server]:
        del SERVERS[name]


Able = tuple[MemoryNamespace, MemoryServer]


@pytest.mark.spec("operations.md#errors-of-finding-the-table")
@pytest.mark.parametrize("method", METHODS)
def test_a_method_of_managed_tables_finds_its_table_or_says_why_not(
    able: Able, method: str
) -> None:
    ns, server = able
    call = getattr(ns, method)
    with pytest.raises(errors.NamespaceNotFoundError):
        call([*DATABASE[:-1], "nope", "orders"])
    with pytest.raises(errors.TableNotFoundError):
        call([*DATABASE, "nope"])
    for names in ([], ["orders"]):
        with pytest.raises(errors.InvalidInputError):
            call(names)
    record = server.tables[KEY]
    server.tables[KEY] = replace(record, properties={"table_type": "ICEBERG"})
    with pytest.raises(errors.InvalidInputError):
        call(TABLE)
    server.tables[KEY] = replace(record, location=None)
    with pytest.raises(errors.InvalidTableStateError):
        call(TABLE)


@pytest.mark.spec("operations.md#list_out_of_band_versions")
@pytest.mark.parametrize("method", OF_MANAGED_TABLES)
def test_a_method_on_a_table_that_its_storage_manages_is_invalid_input(
    able: Able, method: str
) -> None:
    ns, server = able
    ns.release_table(TABLE)
    before = server.tables[KEY]
    with pytest.raises(errors.InvalidInputError, match="managed by its storage"):
        getattr(ns, method)(TABLE)
    assert server.tables[KEY] == before


@pytest.mark.parametrize(
    "method", [name for name in OF_MANAGED_TABLES if not name.startswith("list")]
)
def test_a_method_of_managed_tables_waits_for_no_holder(able: Able, method: str) -> None:
    ns, server = able
    write_past_the_catalog(server)
    record = server.tables[KEY]
    held = {
        **record.properties,
        LATEST: TableEntry(ns.connection, record).managed_state().hold().to_text(),
    }
    server.tables[KEY] = record.with_properties(held)
    named = [[2]] if method.startswith("discard") else []
    with pytest.raises(errors.ConcurrentModificationError, match="try again"):
        getattr(ns, method)(TABLE, *named)
    assert dict(server.tables[KEY].properties) == held


@pytest.mark.spec("operations.md#manage_table")
def test_an_entry_that_others_change_all_the_time_is_not_converted(able: Able) -> None:
    ns, server = able
    ns.release_table(TABLE)
    before = server.tables[KEY]

    def beaten(change: str, moment: str) -> None:
        raise errors.ConcurrentModificationError(f"{change} {moment}")

    server.fault = beaten
    with pytest.raises(errors.ConcurrentModificationError):
        ns.manage_table(TABLE)
    assert server.tables[KEY] == before


def test_versions_with_a_gap_are_not_adopted_without_the_rows_of_the_latest(able: Able) -> None:
    ns, server = able
    for mode in ("append", "overwrite"):
        write_past_the_catalog(server, mode)
    versions = place_of(server) / "_versions"
    (versions / f"{2**64 - 1 - 2:020d}.manifest").unlink()
    with pytest.raises(errors.InvalidTableStateError, match="do not continue"):
        ns.adopt_out_of_band_versions(TABLE)
    assert TableEntry(ns.connection, server.tables[KEY]).managed_state().version == 1


def place_of(server: MemoryServer) -> Path:
    return Path((server.tables[KEY].location or "").removeprefix("file://"))


def write_past_the_catalog(server: MemoryServer, mode: str = "append") -> None:
    rows: pa.Table = ROWS.slice(0, 1)
    lance.write_dataset(rows, str(place_of(server)), mode=mode)

"""Requests in every form that clients send: fields, names, page tokens; and errors in return."""

from __future__ import annotations

import base64
import inspect
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import lance_namespace as api
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace import LanceNamespace, errors
from lance_namespace.errors import InternalError, InvalidInputError, LanceNamespaceError

from lance_bridge import LanceBridgeNamespace, engine
from lance_bridge.catalog import Capabilities, NameRule
from lance_bridge.dotted_names import first_names
from lance_bridge.locations import is_path
from lance_bridge.operations.data import NEED_ENGINE
from lance_bridge.paging import PageRequest, decode_token, encode_token, names_of_all_pages
from lance_bridge.requests import (
    CreateMode,
    DropBehavior,
    DropMode,
    RegisterMode,
    parse_mode,
    parse_namespace,
    parse_table,
    parse_table_namespace,
)
from lance_bridge.testing.calls import Calls, request_model

from .managed_tables import another
from .memory_catalog import TABLE, MemoryNamespace, create, raiser, stream

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec(
        "operations.md#requests-and-responses",
        "common.md#names",
        "common.md#pagination",
        "operations.md#pages",
    ),
]

OPERATIONS = [
    name
    for name, method in inspect.getmembers(LanceNamespace, inspect.isfunction)
    if "request" in inspect.signature(method).parameters
]
LISTED = st.sets(st.text(min_size=1, max_size=4), max_size=12)


class ClientRequest(dict[str, Any]):
    """What the Rust code of pylance and of LanceDB sends: a `dict` with `model_dump`."""

    def model_dump(self) -> dict[str, Any]:
        return dict(self)


def outcome(namespace: MemoryNamespace, operation: str, request: object) -> tuple[str, str]:
    """Return the error of an operation where its namespace does not exist."""
    method = getattr(namespace, operation)
    data = (stream(),) if "request_data" in inspect.signature(method).parameters else ()
    try:
        method(request, *data)
    except errors.LanceNamespaceError as error:
        return type(error).__name__, str(error)
    return "", ""


@pytest.mark.parametrize("make", [ClientRequest, dict], ids=["client", "dict"])
def test_every_operation_takes_a_mapping_as_it_takes_a_model(
    namespace: MemoryNamespace, make: type[dict[str, Any]]
) -> None:
    different = {}
    for operation in OPERATIONS:
        model = request_model(operation)
        given: dict[str, Any] = dict.fromkeys(model.model_fields)
        given |= {"id": ["eu", "shop", "missing", "t"], "from_a_later_release": {"x": 1}}
        given |= REQUIRED.get(operation, {})
        by_mapping = outcome(namespace, operation, make(given))
        by_model = outcome(namespace, operation, model.model_validate(given))
        if by_mapping != by_model:
            different[operation] = (by_mapping, by_model)
    assert not different


REQUIRED: dict[str, dict[str, Any]] = {
    "alter_table_add_columns": {"new_columns": []},
    "alter_table_alter_columns": {"alterations": []},
    "alter_table_backfill_columns": {"column": "a"},
    "alter_table_drop_columns": {"columns": ["a"]},
    "alter_transaction": {"actions": [{}]},
    "analyze_table_query_plan": {"k": 1, "vector": {"single_vector": [1.0]}},
    "batch_commit_tables": {"operations": []},
    "batch_create_table_versions": {"entries": []},
    "batch_delete_table_versions": {"ranges": []},
    "create_materialized_view": {"kind": "query", "source_query": "", "output_schema": ""},
    "create_table_branch": {"name": "b"},
    "create_table_index": {"column": "a", "index_type": "BTREE"},
    "create_table_scalar_index": {"column": "a", "index_type": "BTREE"},
    "create_table_tag": {"tag": "t", "version": 1},
    "create_table_version": {"version": 2, "manifest_path": "m"},
    "delete_from_table": {"predicate": "a = 1"},
    "delete_table_branch": {"name": "b"},
    "delete_table_tag": {"tag": "t"},
    "explain_table_query_plan": {"query": {"k": 1, "vector": {"single_vector": [1.0]}}},
    "get_table_tag_version": {"tag": "t"},
    "merge_insert_into_table": {"on": ["a"]},
    "query_table": {"k": 1, "vector": {"single_vector": [1.0]}},
    "register_table": {"location": "file:///nowhere.lance"},
    "rename_table": {"new_table_name": "n"},
    "restore_table": {"version": 1},
    "update_table": {"updates": [["a", "1"]]},
    "update_table_schema_metadata": {"metadata": {}},
    "update_field_metadata": {"updates": []},
    "update_table_tag": {"tag": "t", "version": 1},
}


def test_a_query_is_answered_by_bytes_that_are_a_response_too(namespace: MemoryNamespace) -> None:
    create(namespace, TABLE, 2)
    fields = {"id": TABLE, "k": 2, "vector": {"single_vector": []}}
    answer: Any = namespace.query_table(api.QueryTableRequest.model_validate(fields))
    by_buffer = pa.ipc.open_file(pa.py_buffer(answer)).read_all()
    assert by_buffer == pa.ipc.open_file(answer.data).read_all()
    assert by_buffer["a"].to_pylist() == [0, 1]
    assert answer.model_dump() == api.QueryTableResponse(data=answer.data).model_dump()


@pytest.mark.parametrize(
    "request_", [None, 5, "x", ["a"], object()], ids=lambda value: type(value).__name__
)
def test_a_request_that_is_neither_model_nor_mapping_is_invalid_input(
    namespace: Any, request_: object
) -> None:
    with pytest.raises(errors.InvalidInputError, match="DescribeTableRequest"):
        namespace.describe_table(request_)


def test_a_field_of_the_wrong_type_is_named_and_its_value_is_not_shown(
    namespace: Any,
) -> None:
    with pytest.raises(errors.InvalidInputError, match=r"version: .*integer") as caught:
        namespace.describe_table(ClientRequest(id=TABLE, version="s3cret"))
    assert "s3cret" not in str(caught.value)


def test_a_failure_without_a_code_leaves_as_an_internal_error(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PanicException(BaseException):
        """As PyO3 names its own."""

    PanicException.__module__ = "pyo3_runtime"
    failures: list[BaseException] = [KeyError("k"), RuntimeError("r"), PanicException("p")]
    for failure in failures:
        monkeypatch.setattr("lance_bridge.tables.namespaces.describe", raiser(failure))
        with pytest.raises(errors.InternalError, match="describe_namespace") as caught:
            namespace.describe_namespace(api.DescribeNamespaceRequest(id=["eu"]))
        assert caught.value.__cause__ is failure


def test_an_interruption_stays_one(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt = raiser(KeyboardInterrupt())
    monkeypatch.setattr("lance_bridge.tables.namespaces.describe", interrupt)
    with pytest.raises(KeyboardInterrupt):
        namespace.describe_namespace(api.DescribeNamespaceRequest(id=["eu"]))


# -- one name, as LanceDB gives it -----------------------------------------------------------------


@pytest.fixture
def by_one_name(namespace: MemoryNamespace) -> MemoryNamespace:
    return another(namespace, **{"default-namespace": "eu.shop.sales"})


def test_one_name_is_a_table_of_the_default_namespace(
    namespace: MemoryNamespace, by_one_name: MemoryNamespace
) -> None:
    create(by_one_name, ["Orders"])
    assert namespace.describe_table(api.DescribeTableRequest(id=TABLE)).location
    assert by_one_name.list_tables(api.ListTablesRequest(id=[])).tables == ["Orders"]
    assert by_one_name.list_namespaces(api.ListNamespacesRequest(id=[])).namespaces == ["eu"]
    dropped = by_one_name.drop_table(api.DropTableRequest(id=["Orders"]))
    assert dropped.id == TABLE
    assert "default-namespace=eu.shop.sales" in by_one_name.namespace_id()
    assert namespace.namespace_id() != by_one_name.namespace_id()


def test_without_a_default_namespace_one_name_is_refused_with_the_property(
    namespace: MemoryNamespace,
) -> None:
    with pytest.raises(errors.InvalidInputError, match="default-namespace"):
        namespace.describe_table(api.DescribeTableRequest(id=["Orders"]))


@pytest.mark.parametrize("name", ["eu", "eu.shop.sales.more", "eu..sales", "eu.shop.a/b"])
def test_a_default_namespace_that_cannot_be_is_refused_when_connecting(
    namespace: MemoryNamespace, name: str
) -> None:
    with pytest.raises(errors.InvalidInputError, match="'default-namespace'"):
        another(namespace, **{"default-namespace": name})


# -- modes -----------------------------------------------------------------------------------------


ALL = [mode for kind in (CreateMode, RegisterMode, DropMode, DropBehavior) for mode in kind]


@pytest.mark.spec("common.md#modes")
def test_a_mode_is_known_in_any_case_and_of_two_words_in_snake_case() -> None:
    for mode in ALL:
        word = str(mode.value)
        for text in (word, word.lower(), word.upper(), word.swapcase()):
            assert parse_mode(type(mode), text, next(iter(type(mode)))) is mode
    for text in ("ExistOk", "exist_ok", "EXIST_OK", "existok", "Exist_Ok"):
        assert parse_mode(CreateMode, text, CreateMode.CREATE) is CreateMode.EXIST_OK
    for default in CreateMode:
        assert parse_mode(CreateMode, None, default) is default


UNKNOWN = ["", " ", "create ", "exist-ok", "replace", "Skip", "_" * 99, "0", "c_r_e_a_t_e"]
UNKNOWN += ["_create", "create_", "exist__ok", "existo_k", "over_write"]


@pytest.mark.spec("common.md#modes")
def test_an_unknown_mode_is_invalid_and_the_known_ones_are_named() -> None:
    for text in UNKNOWN:
        with pytest.raises(InvalidInputError, match="one of Create, ExistOk, Overwrite") as caught:
            parse_mode(CreateMode, text, CreateMode.CREATE)
        assert repr(text[:60]) in str(caught.value)
        assert len(str(caught.value)) < 200
    for kind, text in ((RegisterMode, "ExistOk"), (DropMode, "Cascade"), (DropBehavior, "Fail")):
        with pytest.raises(InvalidInputError, match="Unknown mode"):
            parse_mode(kind, text, next(iter(kind)))


# -- operations ------------------------------------------------------------------------------------


TRAIT = sorted(
    name
    for name, member in inspect.getmembers(api.LanceNamespace, inspect.isfunction)
    if not name.startswith("_")
)


@pytest.mark.spec("common.md#describetable")
def test_no_operation_is_left_to_the_interface() -> None:
    assert len(TRAIT) > 50
    assert set(NEED_ENGINE) < set(TRAIT)
    ours = {name: getattr(LanceBridgeNamespace, name) for name in TRAIT}
    assert [name for name in ours if ours[name] is getattr(api.LanceNamespace, name)] == []


@pytest.mark.spec("common.md#describetable")
@pytest.mark.spec("common.md#unsupported-operations")
@pytest.mark.parametrize("name", sorted(NEED_ENGINE))
def test_an_operation_that_no_catalog_can_do_is_unsupported_by_name(
    namespace: MemoryNamespace, name: str
) -> None:
    request = request_model(name).model_construct(id=TABLE)
    with pytest.raises(errors.UnsupportedOperationError, match=name) as caught:
        getattr(namespace, name)(request)
    assert engine.HOW in str(caught.value)
    assert caught.value.code == errors.ErrorCode.UNSUPPORTED
    assert not namespace.server.effects


@pytest.mark.spec("common.md#describetable")
@pytest.mark.parametrize("ref", [{"tag": "x"}, {"branch": "x"}])
def test_a_tag_or_branch_of_a_table_without_data_is_an_invalid_state(
    namespace: MemoryNamespace, ref: dict[str, Any]
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    with pytest.raises(errors.InvalidTableStateError, match="no data yet"):
        namespace.describe_table(api.DescribeTableRequest(id=TABLE, **ref))


@pytest.mark.spec("common.md#describetable")
@pytest.mark.parametrize("version", [2, 2**63, 2**64, 2**70])
def test_a_version_that_cannot_be_is_not_found(with_table: MemoryNamespace, version: int) -> None:
    with pytest.raises(errors.InvalidInputError, match="1 or more"):
        with_table.describe_table(api.DescribeTableRequest(id=TABLE, version=0))
    with pytest.raises(errors.TableVersionNotFoundError, match=str(version)):
        with_table.describe_table(api.DescribeTableRequest(id=TABLE, version=version))
    with pytest.raises(errors.TableVersionNotFoundError, match=str(version)):
        with_table.count_table_rows(api.CountTableRowsRequest(id=TABLE, version=version))


# -- names -----------------------------------------------------------------------------------------


def rule(noun: str, longest: int) -> NameRule:
    return NameRule(noun, re.compile(r"[A-Za-z0-9_]+"), "letters, digits and '_'", longest)


EXACT = Capabilities(
    namespace_levels=(rule("catalog", 8), rule("schema", 10)), table_rule=rule("table", 12)
)
FOLDING = replace(EXACT, folds_case=True)


def test_identifiers_with_a_name_on_each_level_are_paths() -> None:
    assert parse_namespace(["a"], EXACT) == ("a",)
    assert parse_namespace(["a", "b"], EXACT) == ("a", "b")
    assert parse_table_namespace(["a", "b"], EXACT) == ("a", "b")
    assert parse_table(["a", "b", "c"], EXACT) == ("a", "b", "c")


@pytest.mark.parametrize(
    ("parse", "identifiers", "problem"),
    [
        (parse_namespace, [["a", "b", "c"]], r"3 names; this catalog has 2: \[catalog, schema\]"),
        (
            parse_table_namespace,
            [None, [], ["a"], ["a", "b", "c"]],
            r"tables are in 2: \[catalog, schema\]",
        ),
        (
            parse_table,
            [[], ["a"], ["a", "b"], ["a", "b", "c", "d"]],
            r"^\D*[0124] names?; .*\[catalog, schema, table\]",
        ),
        (parse_table, [None], "`id`"),
        (parse_table, [["a", "b", each] for each in (None, 1, b"a", ["a"])], "must be a string"),
    ],
)
def test_an_identifier_that_cannot_be_is_invalid_and_says_why(
    parse: Callable[..., object], identifiers: list[object], problem: str
) -> None:
    for each in identifiers:
        with pytest.raises(InvalidInputError, match=problem):
            parse(each, EXACT)


@given(st.lists(st.text(max_size=14), max_size=5))
def test_what_gets_through_is_safe_and_anything_else_is_invalid(names: list[str]) -> None:
    safe = len(names) == 3 and all(re.fullmatch(r"[A-Za-z0-9_]+", name) for name in names)
    if safe and all(len(name) <= most for name, most in zip(names, (8, 10, 12), strict=True)):
        assert parse_table(names, FOLDING) == tuple(name.lower() for name in names)
    else:
        with pytest.raises(InvalidInputError):
            parse_table(names, FOLDING)


def test_a_huge_bad_name_does_not_make_a_huge_message() -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_table(["x" * 100_000] * 1000, EXACT)
    assert len(str(caught.value)) < 1000


# -- names in messages -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "text"), [(0, ""), (1, "a"), (2, "a, b"), (3, "a, b and 1 more")]
)
def test_a_message_has_the_first_names_and_the_number_of_others(count: int, text: str) -> None:
    assert first_names(["a", "b", "c"][:count], 2) == text


# -- names of columns and indices that are paths ---------------------------------------------------


PATHS = [
    "../../etc/passwd",
    "/etc/passwd",
    "a/../../b",
    "..",
    ".",
    "\\\\host\\share",
    "..\\x",
    "C:\\x",
    "c:/x",
    "file:///etc/passwd",
    "s3://bucket/x",
    "~/x",
]
NAMES = ["km/h", "a..b", "and/or", "été", "a:b", ".hidden", "x~y", "50%", "C:"]


@pytest.mark.parametrize("name", PATHS)
def test_a_path_is_no_name_of_an_index_or_a_column(with_table: MemoryNamespace, name: str) -> None:
    calls = Calls(with_table)
    changes: dict[str, dict[str, Any]] = {
        "create_table_index": {"column": "a", "index_type": "BTREE", "name": name},
        "alter_table_add_columns": {"new_columns": [{"name": name, "expression": "1"}]},
        "alter_table_alter_columns": {"alterations": [{"path": "a", "rename": name}]},
        "create_table_tag": {"tag": name, "version": 1},
    }
    for operation, fields in changes.items():
        with pytest.raises(InvalidInputError):
            calls.call(operation, TABLE, **fields)
    with pytest.raises(InvalidInputError):
        calls.create_table([*TABLE[:-1], "other"], pa.table({name: [1]}))
    assert is_path(name)
    assert calls.list_tables(TABLE[:-1]).tables == [TABLE[-1]]


@pytest.mark.parametrize("name", NAMES)
def test_other_names_may_have_slashes_dots_and_colons(name: str) -> None:
    assert not is_path(name)


LONG = "a" * 5000


def test_what_a_message_repeats_of_a_request_is_cut(with_table: MemoryNamespace) -> None:
    for predicate in (f"{LONG} = 1", f"`{LONG}` > 1", f"a = '{LONG}", f"a = {LONG}(1)"):
        with pytest.raises(LanceNamespaceError) as failed:
            with_table.count_table_rows(api.CountTableRowsRequest(id=TABLE, predicate=predicate))
        assert len(str(failed.value)) < 1000
        assert "aaa…" in str(failed.value)
        with pytest.raises(LanceNamespaceError) as failed:
            with_table.delete_from_table(api.DeleteFromTableRequest(id=TABLE, predicate=predicate))
        assert len(str(failed.value)) < 1000
    with pytest.raises(LanceNamespaceError) as failed:
        with_table.drop_table_index(api.DropTableIndexRequest(id=TABLE, index_name=LONG))
    assert len(str(failed.value)) < 500


# -- pages -----------------------------------------------------------------------------------------


def page_of(
    names: list[str], limit: int | None, token: str | None, scope: str = "tables"
) -> tuple[list[str], str | None]:
    return PageRequest.parse(scope, limit, token).cut_names(names)


def encoded(content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode()


def decoded(token: str) -> list[object]:
    content: list[object] = json.loads(base64.urlsafe_b64decode(token))
    return content


@given(LISTED, st.integers(1, 13))
def test_pages_of_an_unchanging_list_are_the_sorted_list(names: set[str], limit: int) -> None:
    seen: list[str] = []
    token: str | None = None
    pages = 0
    while pages == 0 or token:
        page, token = page_of(list(names), limit, token)
        assert len(page) <= limit
        assert page or pages == 0
        seen += page
        pages += 1
    assert seen == sorted(names)
    assert pages == max(1, -(-len(names) // limit))


@given(
    LISTED,
    st.lists(st.tuples(LISTED, LISTED), min_size=1, max_size=20),
    st.integers(1, 4),
)
def test_changes_between_pages_neither_repeat_nor_hide_a_name_that_stays(
    names: set[str], changes: list[tuple[set[str], set[str]]], limit: int
) -> None:
    always = set(names)
    ever = set(names)
    seen: list[str] = []
    token: str | None = None
    for added, removed in changes:
        page, token = page_of(list(names), limit, token)
        seen += page
        if token is None:
            break
        names = (names | added) - removed
        always -= removed
        ever |= added
    else:
        while token is not None:
            page, token = page_of(list(names), limit, token)
            seen += page
    assert seen == sorted(set(seen))
    assert always <= set(seen) <= ever


def test_repeated_names_are_listed_once() -> None:
    assert page_of(["a", "a", "b"], None, None) == (["a", "b"], None)


@given(st.text())
def test_any_text_as_a_token_is_invalid_or_the_start(token: str) -> None:
    if not token:
        return
    with pytest.raises(InvalidInputError, match="page_token"):
        page_of(["a"], 1, token)


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_any_json_as_a_token_is_invalid(content: object) -> None:
    with pytest.raises(InvalidInputError, match="page_token"):
        page_of(["a"], 1, encoded(content))


def test_a_token_that_is_cut_or_of_another_version_or_shape_is_invalid() -> None:
    _, token = page_of(["a", "b"], 1, None)
    assert token is not None
    version, scope, last = decoded(token)
    shapes = ([2, scope, last], [version, scope], [version, scope, 1], [version, None, last])
    deep = base64.urlsafe_b64encode(b"[" * 100_000).decode()
    cut = (token[:-1], token[:-4], token + "AAAA", token.replace("W", "*"))
    for bad in (*map(encoded, shapes), *cut, deep):
        with pytest.raises(InvalidInputError, match="page_token"):
            page_of(["a"], 1, bad)


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_token_survives_any_name(one: str, other: str) -> None:
    first, second = sorted({one, other + one})
    page, token = page_of([first, second], 1, None)
    assert page == [first]
    assert token is not None
    assert token.isascii()
    assert page_of([first, second], 1, token) == ([second], None)


def test_what_is_listed_may_be_any_text() -> None:
    scope = "versions of \ud800"
    token = encode_token(scope, ("a",))
    assert decode_token(scope, token) == ("a",)
    with pytest.raises(InvalidInputError, match="page_token"):
        decode_token("versions of ?", token)


class Pages:
    """A listing that answers by what it is asked for: token to names and next token."""

    def __init__(self, pages: dict[str | None, tuple[list[str], str | None]]) -> None:
        self._pages = pages

    def list_tables(self, request: api.ListTablesRequest) -> api.ListTablesResponse:
        names, token = self._pages[request.page_token]
        return api.ListTablesResponse(tables=names, page_token=token)


def test_names_of_all_pages_are_read_to_the_last_page() -> None:
    pages = Pages({None: (["a"], "1"), "1": ([], "2"), "2": (["b"], None)})
    found = names_of_all_pages(pages.list_tables, api.ListTablesRequest(id=[]), "tables")
    assert list(found) == ["a", "b"]


def test_a_listing_that_repeats_a_page_for_ever_is_an_error() -> None:
    pages = Pages({None: (["a"], "1"), "1": (["b"], "1")})
    found = names_of_all_pages(pages.list_tables, api.ListTablesRequest(id=[]), "tables")
    assert [next(found), next(found)] == ["a", "b"]
    with pytest.raises(InternalError, match="repeats itself"):
        next(found)

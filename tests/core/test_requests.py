"""Requests in every form that clients send, and errors of the API alone in return."""

from __future__ import annotations

import inspect
from typing import Any

import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import LanceNamespace, errors
from lance_namespace.errors import InvalidInputError

from lance_bridge import LanceBridgeNamespace, engine
from lance_bridge.operations.compute import UNSUPPORTED
from lance_bridge.requests import CreateMode, DropBehavior, DropMode, RegisterMode, parse_mode
from lance_bridge.testing.calls import request_model

from .building import TABLE, create, raising, stream
from .managing import another
from .memory_catalog import MemoryNamespace

pytestmark = [pytest.mark.quick, pytest.mark.spec("operations.md#requests-and-responses")]

OPERATIONS = [
    name
    for name, method in inspect.getmembers(LanceNamespace, inspect.isfunction)
    if "request" in inspect.signature(method).parameters
]


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
        monkeypatch.setattr("lance_bridge.tables.namespaces.describe", raising(failure))
        with pytest.raises(errors.InternalError, match="describe_namespace") as caught:
            namespace.describe_namespace(api.DescribeNamespaceRequest(id=["eu"]))
        assert caught.value.__cause__ is failure


def test_an_interruption_stays_one(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt = raising(KeyboardInterrupt())
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
    assert set(UNSUPPORTED) < set(TRAIT)
    ours = {name: getattr(LanceBridgeNamespace, name) for name in TRAIT}
    assert [name for name in ours if ours[name] is getattr(api.LanceNamespace, name)] == []


@pytest.mark.spec("common.md#describetable")
@pytest.mark.spec("common.md#unsupported-operations")
@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
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

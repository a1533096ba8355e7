"""The namespace of a federation: its root, errors of catalogs, and operations that reach them."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import threading
import typing
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import lance_namespace as api
import pytest
from lance_namespace import LanceNamespace, errors
from lance_namespace_urllib3_client import models
from pydantic import BaseModel
from servers.processes import returns_in_child

from lance_bridge.errors import (
    OutcomeUnknownError,
    invalid,
    marking_callers_own,
    namespace_not_found,
    table_already_exists,
    table_not_found,
)
from lance_bridge.requests import OrderedQuery, OrderedQueryPlan
from lance_bridge.testing.calls import Calls, collect
from lance_bridge_federated import FederatedNamespace
from lance_bridge_federated.identifiers import ID_FIELDS
from lance_bridge_federated.namespace import operations, request_type

from .conftest import OWN_ID, TOKEN, Broken, Recorder, filled, id_fields, is_id

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("federated.md#threads-processes-and-secrets", "federated.md#identifiers"),
]

TABLE = ["prod", "sales", "orders"]
FULL_ID = ["prod", *OWN_ID]
OPERATIONS = sorted(operations())
BATCHES = ["batch_commit_tables", "batch_create_table_versions"]
OF_ALL = ["list_all_tables"]
ONE_ID = sorted({*OPERATIONS} - {*BATCHES, *OF_ALL})
ROWS = b"rows"
NO_IDS = {
    "columns", "column_names", "input_columns", "namespaces", "on", "tables", "updates",
}  # fmt: skip
"""Lists of strings that are no identifiers. Those of ListAllTables are handled by itself."""


@pytest.fixture
def namespace() -> FederatedNamespace:
    return FederatedNamespace({name: Recorder() for name in ("prod", "aws", "files")})


# -- the root --------------------------------------------------------------------------------------


@pytest.mark.spec("federated.md#the-root")
@pytest.mark.parametrize("id", [None, []])
def test_the_root_has_the_catalogs_as_children_page_by_page_and_no_properties(
    id: list[str] | None, namespace: FederatedNamespace
) -> None:
    found = collect(Calls(namespace).list_namespaces, "namespaces", 1, id=id)
    assert found == namespace.catalogs == ["aws", "files", "prod"]
    namespace.namespace_exists(api.NamespaceExistsRequest(id=id))
    assert namespace.describe_namespace(api.DescribeNamespaceRequest(id=id)).properties == {}
    for operation in ("create_namespace", "drop_namespace"):
        with pytest.raises(errors.InvalidInputError, match="root namespace"):
            getattr(namespace, operation)({"id": id})


@pytest.mark.spec("federated.md#the-root")
@pytest.mark.parametrize("catalog", ["prod", "new"])
@pytest.mark.parametrize(("operation", "done"), [("create", "created"), ("drop", "dropped")])
def test_catalogs_are_neither_created_nor_dropped(
    operation: str, done: str, catalog: str, namespace: FederatedNamespace
) -> None:
    with pytest.raises(errors.UnsupportedOperationError, match=f"'{catalog}' cannot be {done}"):
        getattr(namespace, f"{operation}_namespace")({"id": [catalog]})


@pytest.mark.spec("federated.md#connecting")
def test_a_catalog_itself_can_be_reached(namespace: FederatedNamespace) -> None:
    assert isinstance(namespace.child("prod"), Recorder)
    assert namespace.child("prod") is namespace.child("prod")
    with pytest.raises(errors.NamespaceNotFoundError, match="elsewhere"):
        namespace.child("elsewhere")


@pytest.mark.spec("federated.md#connecting")
def test_a_federation_of_nothing_of_a_bad_name_or_of_what_is_no_namespace_is_refused() -> None:
    with pytest.raises(errors.InvalidInputError, match="at least one catalog"):
        FederatedNamespace({})
    with pytest.raises(errors.InvalidInputError, match="Catalog name 'a/b'"):
        FederatedNamespace({"a/b": Recorder()})
    with pytest.raises(errors.InvalidInputError, match="not both"):
        FederatedNamespace({"a": Recorder()}, catalogs="b")
    wrong: Any = lambda: "hive"  # noqa: E731 - the type is what is tested
    with pytest.raises(errors.InvalidInputError, match="'prod' is a str, not a LanceNamespace"):
        FederatedNamespace({"prod": wrong}).child("prod")


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.spec("federated.md#errors")
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (table_not_found(["sales", "orders"]), "Table not found: prod.sales.orders. Create"),
        (namespace_not_found(["sales"]), "Namespace not found: prod.sales. Create"),
        (
            table_already_exists(["sales", "orders"], "a view"),
            "Table already exists: prod.sales.orders, a view",
        ),
        (
            errors.TableNotFoundError("Table not found: table id 'sales$orders'"),
            "Table not found: prod.sales.orders. Create",
        ),
        (
            invalid("'Sales.Orders' is not a Lance table but a view"),
            "'prod.Sales.Orders' is not a Lance table but a view",
        ),
        (errors.ServiceUnavailableError("timed out"), "timed out (in prod.sales.orders)"),
        (
            OutcomeUnknownError("the reply was lost: sales.orders"),
            "the reply was lost: prod.sales.orders",
        ),
        (
            invalid("sales and orders are words here"),
            "sales and orders are words here (in prod.sales.orders)",
        ),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else type(value).__name__,
)
def test_an_error_of_a_catalog_keeps_its_type_and_names_the_full_identifier(
    error: errors.LanceNamespaceError, text: str
) -> None:
    before = str(error)
    namespace = FederatedNamespace({"prod": Broken(error)})
    with pytest.raises(errors.LanceNamespaceError) as caught:
        namespace.describe_table(api.DescribeTableRequest(id=TABLE))
    assert type(caught.value) is type(error)
    assert caught.value.code == error.code
    assert str(caught.value).startswith(text)
    cause = caught.value.__cause__
    assert cause is error or (cause and cause.__cause__) is error  # of pylance's sentences
    assert str(error) == before


@pytest.mark.spec("federated.md#errors")
def test_an_error_that_is_not_the_api_s_is_internal_unless_the_caller_s_own_rows_raise_it() -> None:
    cause = RuntimeError("odd")
    namespace = FederatedNamespace({"prod": Broken(cause)})
    with pytest.raises(
        errors.InternalError, match="describe_table failed with RuntimeError"
    ) as caught:
        namespace.describe_table(api.DescribeTableRequest(id=TABLE))
    assert "prod.sales.orders" in str(caught.value)
    assert caught.value.__cause__ is cause
    with pytest.raises(RuntimeError), marking_callers_own():
        raise cause
    with pytest.raises(RuntimeError, match=r"^odd$"):
        namespace.insert_into_table(api.InsertIntoTableRequest(id=TABLE), b"")


@pytest.mark.spec("federated.md#errors")
def test_an_error_about_the_new_name_of_a_rename_has_the_catalog() -> None:
    namespace = FederatedNamespace({"prod": Broken(table_already_exists(["archive", "old"]))})
    request = api.RenameTableRequest(
        id=TABLE, new_table_name="old", new_namespace_id=["prod", "archive"]
    )
    with pytest.raises(errors.TableAlreadyExistsError, match=r": prod\.archive\.old\. "):
        namespace.rename_table(request)


# -- made when first used --------------------------------------------------------------------------


@pytest.mark.spec("federated.md#connecting")
def test_a_catalog_that_cannot_be_connected_fails_its_own_requests_only() -> None:
    attempts: list[int] = []

    def connect() -> LanceNamespace:
        attempts.append(1)
        if len(attempts) < 2:
            raise errors.ServiceUnavailableError("no route")
        return Recorder()

    namespace = FederatedNamespace({"prod": connect, "aws": Recorder()})
    assert attempts == []
    request = api.DescribeTableRequest(id=TABLE)
    with pytest.raises(errors.ServiceUnavailableError, match="no route"):
        namespace.describe_table(request)
    namespace.describe_table(api.DescribeTableRequest(id=["aws", "sales", "orders"]))
    namespace.describe_table(request)  # it is tried again
    namespace.describe_table(request)
    assert len(attempts) == 2


def test_threads_share_one_connection() -> None:
    made: list[Recorder] = []
    start, second = threading.Barrier(8), threading.Barrier(2)

    def connect() -> LanceNamespace:
        made.append(Recorder())
        with suppress(threading.BrokenBarrierError):
            second.wait(0.5)  # for another thread that gets here, which none may
        return made[0]

    namespace = FederatedNamespace({"prod": connect})

    def ask(number: int) -> None:
        start.wait(10)
        namespace.describe_table(api.DescribeTableRequest(id=["prod", "sales", str(number)]))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(ask, range(8)))
    [only] = made
    assert sorted(call.request.id[-1] for call in only.calls) == [str(n) for n in range(8)]


def test_a_child_process_connects_while_a_thread_of_its_parent_does() -> None:
    parent, started, gate = os.getpid(), threading.Event(), threading.Event()

    def connect() -> LanceNamespace:
        if os.getpid() == parent:
            started.set()
            gate.wait(20)
        return Recorder()

    namespace = FederatedNamespace({"prod": connect})
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(namespace.child, "prod")
        assert started.wait(20)
        try:
            assert returns_in_child(lambda: namespace.child("prod"))
        finally:
            gate.set()
        assert waiting.result(20) is namespace.child("prod")


# -- identity, copies and pickles ------------------------------------------------------------------


def new_recorder() -> LanceNamespace:
    return Recorder()


def test_equal_federations_copies_and_pickles_have_one_identity() -> None:
    namespace = FederatedNamespace({"b": Recorder(), "a": new_recorder})
    copies = [copy.copy(namespace), copy.deepcopy(namespace)]
    loaded = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(namespace))))
    for each in (*copies, loaded, FederatedNamespace({"a": new_recorder, "b": Recorder()})):
        assert each.namespace_id() == "federated(a=recorder, b=recorder)"
        assert repr(each) == "<FederatedNamespace a, b>"
    for name in ("a", "b"):
        assert isinstance(loaded.child(name), Recorder)
        assert [each.child(name) is namespace.child(name) for each in copies] == [True, True]


class _Unloadable(Recorder):
    def __reduce__(self) -> Any:
        return _fail, ()


def _fail() -> None:
    raise invalid("its secrets are missing")


def test_a_catalog_that_cannot_be_loaded_from_a_pickle_fails_its_own_requests_only() -> None:
    namespace = FederatedNamespace({"a": _Unloadable(), "b": Recorder()})
    loaded = pickle.loads(pickle.dumps(namespace))
    loaded.describe_table(api.DescribeTableRequest(id=["b", "x", "y"]))
    with pytest.raises(errors.InvalidInputError, match="its secrets are missing"):
        loaded.describe_table(api.DescribeTableRequest(id=["a", "x", "y"]))


def test_closing_closes_what_was_connected() -> None:
    closed: list[str] = []

    class Closing(Recorder):
        def close(self) -> None:
            closed.append("a")

    with FederatedNamespace({"a": Closing(), "b": Recorder(), "c": Closing}) as namespace:
        assert namespace.catalogs == ["a", "b", "c"]
    assert closed == ["a"]


# -- operations of the trait, which reach the catalog that their identifier names ------------------


@pytest.fixture
def prod() -> Recorder:
    return Recorder()


@pytest.fixture
def federation(prod: Recorder) -> FederatedNamespace:
    return FederatedNamespace({"prod": prod, "other": Recorder()})


def rows_of(operation: str) -> tuple[bytes, ...]:
    takes = "request_data" in inspect.signature(getattr(LanceNamespace, operation)).parameters
    return (ROWS,) if takes else ()


def request(operation: str, id: list[str] | None) -> Any:
    return request_type(operation).model_construct(id=id)


@pytest.mark.spec("federated.md#operations")
def test_no_method_of_the_trait_is_inherited() -> None:
    names = [name for name in vars(LanceNamespace) if not name.startswith("_")]
    assert len(names) >= 56
    kept = [n for n in names if getattr(FederatedNamespace, n) is getattr(LanceNamespace, n)]
    assert kept == []
    assert set(names) - set(OPERATIONS) == {"namespace_id"}


def test_every_list_of_strings_in_the_api_is_known_as_an_identifier_or_as_none() -> None:
    found = {
        name
        for _, model in inspect.getmembers(models, inspect.isclass)
        if issubclass(model, BaseModel)
        for name, field in model.model_fields.items()
        if is_id(field.annotation)
        and "Dict[" not in str(field.annotation)
        and "models." not in str(field.annotation)
    }
    assert found == ID_FIELDS | NO_IDS


@pytest.mark.parametrize("operation", ONE_ID)
def test_an_operation_is_answered_by_its_catalog_from_an_unchanged_request(
    operation: str, federation: FederatedNamespace, prod: Recorder
) -> None:
    given = request(operation, list(FULL_ID))
    answer = getattr(federation, operation)(given, *rows_of(operation))
    assert given.id == FULL_ID
    [call] = prod.calls
    assert (call.operation, call.request.id, call.rows) == (operation, OWN_ID, rows_of(operation))
    for name in id_fields(type(answer)) if isinstance(answer, BaseModel) else ():
        assert getattr(answer, name) == FULL_ID


@pytest.mark.spec("federated.md#operations")
@pytest.mark.parametrize("operation", [*ONE_ID])
def test_an_unknown_catalog_is_namespace_not_found(
    operation: str, federation: FederatedNamespace, prod: Recorder
) -> None:
    with pytest.raises(errors.NamespaceNotFoundError, match="Namespace not found: elsewhere"):
        getattr(federation, operation)(
            request(operation, ["elsewhere", "a", "b"]), *rows_of(operation)
        )
    assert prod.calls == []


@pytest.mark.spec("federated.md#operations")
@pytest.mark.parametrize(
    "name", ["", "a/b", "..", "a.b", "a$b", "a b", "-a", "a\n", "é", "a" * 129]
)
def test_a_name_that_no_catalog_can_have_is_invalid_input(
    name: str, federation: FederatedNamespace
) -> None:
    with pytest.raises(errors.InvalidInputError, match="Catalog name"):
        federation.table_exists(api.TableExistsRequest(id=[name, "a", "b"]))


@pytest.mark.spec("federated.md#operations")
@pytest.mark.parametrize("id", [None, []])
@pytest.mark.parametrize(
    "operation", [name for name in ONE_ID if "table" in name or "transaction" in name]
)
def test_a_table_needs_an_identifier(
    operation: str, id: list[str] | None, federation: FederatedNamespace
) -> None:
    with pytest.raises(errors.InvalidInputError, match="identifier"):
        getattr(federation, operation)(request(operation, id), *rows_of(operation))


@pytest.mark.spec("federated.md#operations")
def test_a_request_may_be_a_mapping_or_a_keyword_and_a_nested_query_has_no_catalog_either(
    federation: FederatedNamespace, prod: Recorder
) -> None:
    federation.insert_into_table(request=api.InsertIntoTableRequest(id=FULL_ID), request_data=ROWS)
    assert prod.calls.pop().rows == (ROWS,)
    query: Any = {"id": FULL_ID, "query": {"id": FULL_ID, "k": 1, "vector": {}}}
    federation.explain_table_query_plan(query)
    assert prod.calls.pop().request.query.id == OWN_ID
    given: Any = {"id": FULL_ID, "version": 3, "field_of_a_later_release": 1}
    federation.describe_table(given)
    [call] = prod.calls
    assert call.request == api.DescribeTableRequest(id=OWN_ID, version=3)
    with pytest.raises(errors.InvalidInputError, match="new_table_name"):
        federation.rename_table(typing.cast("Any", {"id": FULL_ID}))


@pytest.mark.spec("server.md#what-is-refused")
def test_an_order_of_rows_is_refused_where_the_catalog_would_ignore_it(
    federation: FederatedNamespace, prod: Recorder
) -> None:
    query = OrderedQuery.model_validate(
        {"id": FULL_ID, "k": 1, "vector": {}, "order_by": [{"column_name": "id"}]}
    )
    for ask in (
        lambda: federation.query_table_reader(query),
        lambda: federation.explain_table_query_plan(OrderedQueryPlan(id=FULL_ID, query=query)),
    ):
        with pytest.raises(errors.UnsupportedOperationError, match="order_by"):
            ask()
    assert not prod.calls


# -- several identifiers ---------------------------------------------------------------------------


@pytest.mark.spec("federated.md#requests-with-several-identifiers")
def test_a_table_is_renamed_within_its_catalog_and_into_no_other(
    federation: FederatedNamespace, prod: Recorder
) -> None:
    def rename(new: list[str] | None) -> None:
        federation.rename_table(
            api.RenameTableRequest(id=FULL_ID, new_table_name="new", new_namespace_id=new)
        )

    with pytest.raises(errors.InvalidInputError, match=r"'other\.sales' are in different ones"):
        rename(["other", "sales"])
    with pytest.raises(errors.InvalidInputError, match="root namespace"):
        rename([])
    assert prod.calls == []
    for new, passed in ((["prod", "archive"], ["archive"]), (None, None)):
        rename(new)
        assert prod.calls[-1].request.new_namespace_id == passed


def commit(*catalogs: str) -> api.BatchCommitTablesRequest:
    return api.BatchCommitTablesRequest(
        operations=[
            api.CommitTableOperation(
                deregister_table=api.DeregisterTableRequest(id=[catalog, "sales", str(number)])
            )
            for number, catalog in enumerate(catalogs)
        ]
    )


def versions(*catalogs: str) -> api.BatchCreateTableVersionsRequest:
    return api.BatchCreateTableVersionsRequest(
        entries=[
            api.CreateTableVersionEntry(id=[catalog, "sales", "t"], version=2, manifest_path="m")
            for catalog in catalogs
        ]
    )


@pytest.mark.spec("federated.md#requests-with-several-identifiers")
def test_a_batch_is_answered_by_its_catalog_and_must_have_one(
    federation: FederatedNamespace, prod: Recorder
) -> None:
    with pytest.raises(errors.InvalidInputError, match="One request works in one catalog"):
        federation.batch_commit_tables(commit("prod", "other"))
    with pytest.raises(errors.InvalidInputError, match="One request works in one catalog"):
        federation.batch_create_table_versions(versions("other", "prod"))
    assert prod.calls == []
    federation.batch_commit_tables(commit("prod", "prod"))
    federation.batch_create_table_versions(versions("prod"))
    first, second = (call.request for call in prod.calls)
    ids = [each.deregister_table.id for each in first.operations]
    assert ids == [["sales", "0"], ["sales", "1"]]
    assert [each.id for each in second.entries] == [["sales", "t"]]


def test_the_identifiers_in_the_answer_of_a_batch_have_the_catalog(
    federation: FederatedNamespace, prod: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = api.CommitTableResult(deregister_table=filled(api.DeregisterTableResponse, OWN_ID))
    answered = api.BatchCommitTablesResponse(results=[done, done])
    monkeypatch.setattr(prod, "batch_commit_tables", lambda _request: answered)
    answer = federation.batch_commit_tables(commit("prod", "prod"))
    found = [each.deregister_table.id for each in answer.results if each.deregister_table]
    assert found == [FULL_ID, FULL_ID]


# -- page tokens -----------------------------------------------------------------------------------

LISTINGS = [name for name in ONE_ID if "page_token" in request_type(name).model_fields]
assert {"list_namespaces", "list_tables", "list_table_versions"} <= {*LISTINGS}


@pytest.mark.parametrize("operation", LISTINGS)
def test_a_token_returns_to_its_catalog_and_to_no_other(
    operation: str, federation: FederatedNamespace, prod: Recorder
) -> None:
    call = getattr(federation, operation)
    token = call(request_type(operation)(id=FULL_ID)).page_token
    assert token != TOKEN
    call(request_type(operation)(id=FULL_ID, page_token=token))
    assert prod.calls[-1].request.page_token == TOKEN
    for id, bad in ((["other", *OWN_ID], token), (FULL_ID, TOKEN), (FULL_ID, token[:-4])):
        with pytest.raises(errors.InvalidInputError, match="page_token"):
            call(request_type(operation)(id=id, page_token=bad))

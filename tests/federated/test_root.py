"""The root of a federation, whose children are its catalogs, and the errors of those."""

from __future__ import annotations

import copy
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import lance_namespace as api
import pytest
from core.forking import returns_in_child
from lance_namespace import LanceNamespace, errors

from lance_bridge.errors import (
    OutcomeUnknownError,
    invalid,
    marking_callers_own,
    namespace_not_found,
    table_already_exists,
    table_not_found,
)
from lance_bridge.testing.calls import Calls, collect
from lance_bridge_federated import FederatedNamespace

from .recording import Broken, Recorder

pytestmark = [pytest.mark.quick, pytest.mark.spec("federated.md#threads-processes-and-secrets")]

TABLE = ["prod", "sales", "orders"]


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
            "Table not found: table id 'prod$sales$orders'",
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
    assert caught.value.__cause__ is error
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

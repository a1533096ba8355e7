"""Every operation of the trait reaches the catalog that its identifier names."""

from __future__ import annotations

import inspect
import typing
from typing import Any

import lance_namespace as api
import pytest
from lance_namespace import LanceNamespace, errors
from lance_namespace_urllib3_client import models
from pydantic import BaseModel

from lance_bridge.extended_requests import OrderedQuery, OrderedQueryPlan
from lance_bridge_federated import FederatedNamespace
from lance_bridge_federated.delegation import operations, request_type
from lance_bridge_federated.identifiers import ID_FIELDS

from .recording import OWN_ID, TOKEN, Recorder, filled, id_fields, is_id

pytestmark = [pytest.mark.quick, pytest.mark.spec("federated.md#identifiers")]

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
def prod() -> Recorder:
    return Recorder()


@pytest.fixture
def namespace(prod: Recorder) -> FederatedNamespace:
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
    operation: str, namespace: FederatedNamespace, prod: Recorder
) -> None:
    given = request(operation, list(FULL_ID))
    answer = getattr(namespace, operation)(given, *rows_of(operation))
    assert given.id == FULL_ID
    [call] = prod.calls
    assert (call.operation, call.request.id, call.rows) == (operation, OWN_ID, rows_of(operation))
    for name in id_fields(type(answer)) if isinstance(answer, BaseModel) else ():
        assert getattr(answer, name) == FULL_ID


@pytest.mark.spec("federated.md#operations")
@pytest.mark.parametrize("operation", [*ONE_ID])
def test_an_unknown_catalog_is_namespace_not_found(
    operation: str, namespace: FederatedNamespace, prod: Recorder
) -> None:
    with pytest.raises(errors.NamespaceNotFoundError, match="Namespace not found: elsewhere"):
        getattr(namespace, operation)(
            request(operation, ["elsewhere", "a", "b"]), *rows_of(operation)
        )
    assert prod.calls == []


@pytest.mark.spec("federated.md#operations")
@pytest.mark.parametrize(
    "name", ["", "a/b", "..", "a.b", "a$b", "a b", "-a", "a\n", "é", "a" * 129]
)
def test_a_name_that_no_catalog_can_have_is_invalid_input(
    name: str, namespace: FederatedNamespace
) -> None:
    with pytest.raises(errors.InvalidInputError, match="Catalog name"):
        namespace.table_exists(api.TableExistsRequest(id=[name, "a", "b"]))


@pytest.mark.spec("federated.md#operations")
@pytest.mark.parametrize("id", [None, []])
@pytest.mark.parametrize(
    "operation", [name for name in ONE_ID if "table" in name or "transaction" in name]
)
def test_a_table_needs_an_identifier(
    operation: str, id: list[str] | None, namespace: FederatedNamespace
) -> None:
    with pytest.raises(errors.InvalidInputError, match="identifier"):
        getattr(namespace, operation)(request(operation, id), *rows_of(operation))


@pytest.mark.spec("federated.md#operations")
def test_a_request_may_be_a_mapping_or_a_keyword_and_a_nested_query_has_no_catalog_either(
    namespace: FederatedNamespace, prod: Recorder
) -> None:
    namespace.insert_into_table(request=api.InsertIntoTableRequest(id=FULL_ID), request_data=ROWS)
    assert prod.calls.pop().rows == (ROWS,)
    query: Any = {"id": FULL_ID, "query": {"id": FULL_ID, "k": 1, "vector": {}}}
    namespace.explain_table_query_plan(query)
    assert prod.calls.pop().request.query.id == OWN_ID
    given: Any = {"id": FULL_ID, "version": 3, "field_of_a_later_release": 1}
    namespace.describe_table(given)
    [call] = prod.calls
    assert call.request == api.DescribeTableRequest(id=OWN_ID, version=3)
    with pytest.raises(errors.InvalidInputError, match="new_table_name"):
        namespace.rename_table(typing.cast("Any", {"id": FULL_ID}))


@pytest.mark.spec("server.md#what-is-refused")
def test_an_order_of_rows_is_refused_where_the_catalog_would_ignore_it(
    namespace: FederatedNamespace, prod: Recorder
) -> None:
    query = OrderedQuery.model_validate(
        {"id": FULL_ID, "k": 1, "vector": {}, "order_by": [{"column_name": "id"}]}
    )
    for ask in (
        lambda: namespace.query_table_reader(query),
        lambda: namespace.explain_table_query_plan(OrderedQueryPlan(id=FULL_ID, query=query)),
    ):
        with pytest.raises(errors.UnsupportedOperationError, match="order_by"):
            ask()
    assert not prod.calls


# -- several identifiers ---------------------------------------------------------------------------


@pytest.mark.spec("federated.md#requests-with-several-identifiers")
def test_a_table_is_renamed_within_its_catalog_and_into_no_other(
    namespace: FederatedNamespace, prod: Recorder
) -> None:
    def rename(new: list[str] | None) -> None:
        namespace.rename_table(
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
    namespace: FederatedNamespace, prod: Recorder
) -> None:
    with pytest.raises(errors.InvalidInputError, match="One request works in one catalog"):
        namespace.batch_commit_tables(commit("prod", "other"))
    with pytest.raises(errors.InvalidInputError, match="One request works in one catalog"):
        namespace.batch_create_table_versions(versions("other", "prod"))
    assert prod.calls == []
    namespace.batch_commit_tables(commit("prod", "prod"))
    namespace.batch_create_table_versions(versions("prod"))
    first, second = (call.request for call in prod.calls)
    ids = [each.deregister_table.id for each in first.operations]
    assert ids == [["sales", "0"], ["sales", "1"]]
    assert [each.id for each in second.entries] == [["sales", "t"]]


def test_the_identifiers_in_the_answer_of_a_batch_have_the_catalog(
    namespace: FederatedNamespace, prod: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = api.CommitTableResult(deregister_table=filled(api.DeregisterTableResponse, OWN_ID))
    answered = api.BatchCommitTablesResponse(results=[done, done])
    monkeypatch.setattr(prod, "batch_commit_tables", lambda _request: answered)
    answer = namespace.batch_commit_tables(commit("prod", "prod"))
    found = [each.deregister_table.id for each in answer.results if each.deregister_table]
    assert found == [FULL_ID, FULL_ID]


# -- page tokens -----------------------------------------------------------------------------------

LISTINGS = [name for name in ONE_ID if "page_token" in request_type(name).model_fields]
assert {"list_namespaces", "list_tables", "list_table_versions"} <= {*LISTINGS}


@pytest.mark.parametrize("operation", LISTINGS)
def test_a_token_returns_to_its_catalog_and_to_no_other(
    operation: str, namespace: FederatedNamespace, prod: Recorder
) -> None:
    call = getattr(namespace, operation)
    token = call(request_type(operation)(id=FULL_ID)).page_token
    assert token != TOKEN
    call(request_type(operation)(id=FULL_ID, page_token=token))
    assert prod.calls[-1].request.page_token == TOKEN
    for id, bad in ((["other", *OWN_ID], token), (FULL_ID, TOKEN), (FULL_ID, token[:-4])):
        with pytest.raises(errors.InvalidInputError, match="page_token"):
            call(request_type(operation)(id=id, page_token=bad))

"""Targets of the conformance kit, reached through a gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import lance_namespace as api
from lance.namespace import RestNamespace
from lance_namespace.errors import from_error_code
from lance_namespace_urllib3_client import ApiClient, Configuration, TableApi, TransactionApi
from lance_namespace_urllib3_client.exceptions import ApiException
from server.serving import serving_namespace

from lance_bridge.testing import Target

DEVIATIONS = {
    "test_a_pickled_client_answers_the_same": "pylance's client cannot be pickled",
    "test_a_null_namespace_identifier_is_the_root": "pylance's client sends no request without id",
    "test_a_mapping_without_what_the_operation_needs_is_invalid_input": (
        "pylance's client raises a TypeError before it sends such a request"
    ),
    "test_a_name_that_no_transaction_can_have_is_refused": (
        "pylance's client writes a space in a path as +"
    ),
    "test_an_empty_table_is_a_declared_one": (
        "the specification has no route for CreateEmptyTable, which it has deprecated"
    ),
    "test_absent_operations_are_unsupported[create_materialized_view]": (
        "pylance's client raises an Exception for a request without a view"
    ),
}
"""What pylance's client does differently whatever the server answers."""

ONE_LEVEL = {
    "test_a_hostile_namespace_name_is_invalid_input[list_tables]": (
        "pylance's client takes the names . and .. out of the URL"
    ),
}
"""The same where a namespace has one name, which is all of its identifier."""


class Client(RestNamespace):
    """pylance's client. What its Python class lacks goes through the client of the specification.

    It lacks three operations, loses the actions of AlterTransaction, and takes three requests only
    as mappings.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(uri=uri)  # type: ignore[no-untyped-call]  # pylance has no types
        client = ApiClient(Configuration(host=uri))
        self._generated, self._transactions = TableApi(client), TransactionApi(client)

    def create_table_version(self, request: Any) -> Any:
        answer = super().create_table_version(request.model_dump())
        return api.CreateTableVersionResponse.from_dict(answer)

    def batch_delete_table_versions(self, request: Any) -> Any:
        answer = super().batch_delete_table_versions(request.model_dump())
        return api.BatchDeleteTableVersionsResponse.from_dict(answer)

    def describe_table_version(self, request: Any) -> Any:
        answer = super().describe_table_version(request.model_dump())
        return api.DescribeTableVersionResponse.from_dict(answer)

    def alter_transaction(self, request: Any) -> Any:
        with _translate_errors():
            return self._transactions.alter_transaction(_joined(request.id), request)

    def batch_create_table_versions(self, request: Any) -> Any:
        with _translate_errors():
            return self._generated.batch_create_table_versions(request)

    def batch_commit_tables(self, request: Any) -> Any:
        with _translate_errors():
            return self._generated.batch_commit_tables(request)

    def update_field_metadata(self, request: Any) -> Any:
        with _translate_errors():
            return self._generated.update_field_metadata(_joined(request.id), request)


def _joined(names: list[str] | None) -> str:
    return "$".join(names or []) or "$"


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except ApiException as error:
        found = json.loads(error.body or "")
        raise from_error_code(found["code"], found["error"]) from error


@contextmanager
def over_rest(target: Target, suite: type) -> Iterator[Target]:
    """Serve the namespace of a target, and have its clients connect to the gateway.

    It keeps its features but one: no client of a gateway may repeat a declaration at once.

    Args:
        suite: The class of the cases that run.
    """
    namespace: Any = target.connect()
    with serving_namespace(namespace) as url:
        target.features = replace(target.features, declare_again=False)
        target.connect = lambda: Client(url)  # type: ignore[method-assign]
        known = DEVIATIONS if target.parent else {**DEVIATIONS, **ONE_LEVEL}
        known = {case: why for case, why in known.items() if hasattr(suite, case.split("[")[0])}
        target.deviations = {**target.deviations, **known}
        yield target
    namespace.close()

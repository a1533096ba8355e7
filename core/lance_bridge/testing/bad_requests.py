"""Cases: identifiers of the wrong shape, and operations that are not there."""

from __future__ import annotations

import inspect
import typing

from lance_namespace import ErrorCode, LanceNamespace

from .build import unique_name
from .case_namespace import CaseNamespace
from .cases import Cases, Operations, needs
from .expect import refused
from .names import NAMESPACE_OPERATIONS, TABLE_OPERATIONS, calls_of, check_refused

INVALID = ErrorCode.INVALID_INPUT


class BadRequestCases(Cases):
    """Requests that must be refused before anything is changed."""

    def test_a_table_operation_without_an_identifier_is_invalid_input(
        self, ns: CaseNamespace, operations: Operations
    ) -> None:
        operations.refuse(calls_of(ns, TABLE_OPERATIONS), [None, []], INVALID)

    @needs("fixed_depth")
    def test_a_table_identifier_with_the_wrong_number_of_names_is_invalid_input(
        self, ns: CaseNamespace, operations: Operations
    ) -> None:
        depths = [depth for depth in range(1, 7) if depth != len(ns.id) + 1]
        wrong = [[unique_name()] * depth for depth in depths]
        operations.refuse(calls_of(ns, TABLE_OPERATIONS), wrong, INVALID)

    @needs("fixed_depth")
    def test_a_namespace_identifier_with_too_many_names_is_invalid_input(
        self, ns: CaseNamespace, operations: Operations
    ) -> None:
        wrong = [[*ns.id, "n"], [*ns.id, "n", "n"]]
        operations.refuse(calls_of(ns, NAMESPACE_OPERATIONS), wrong, INVALID)

    @needs("fixed_depth")
    def test_list_tables_above_the_level_that_holds_tables_is_invalid_input(
        self, ns: CaseNamespace
    ) -> None:
        outer = [ns.id[:depth] for depth in range(len(ns.id))]
        check_refused(outer, ns.list_tables)

    @needs("fixed_depth", "rename")
    def test_rename_into_a_namespace_of_another_level_is_invalid_input(
        self, ns: CaseNamespace
    ) -> None:
        table_id = ns.with_rows()
        wrong = [[*ns.id, "n"], [*ns.id, "n", "n"]]
        check_refused(wrong, lambda id: ns.rename_table(table_id, "new", new_namespace_id=id))
        assert ns.names() == ["t"]

    @needs("absent")
    def test_operations_that_are_not_there_are_unsupported(self, ns: CaseNamespace) -> None:
        wrong = {}
        for name in sorted(ns.features.absent):
            try:
                with refused(ErrorCode.UNSUPPORTED, naming=name):
                    _call_bare(ns.client, name, ns.table())
            except AssertionError as error:
                wrong[name] = str(error)
        assert not wrong

    def test_the_client_has_an_identity_for_people(self, ns: CaseNamespace) -> None:
        first = ns.client.namespace_id()
        assert first
        assert first == ns.target.connect().namespace_id()


def _call_bare(namespace: LanceNamespace, name: str, table_id: list[str]) -> object:
    """Call an operation by name with a request that holds nothing but an identifier."""
    operation = getattr(LanceNamespace, name)
    models = typing.get_type_hints(operation)
    arguments: list[object] = [models["request"].model_construct(id=table_id)]
    if "request_data" in inspect.signature(operation).parameters:
        arguments.append(b"")
    result: object = getattr(namespace, name)(*arguments)
    return result

"""Cases: operations on tables and namespaces that do not exist."""

from __future__ import annotations

from lance_namespace import ErrorCode

from .case_namespace import CaseNamespace
from .cases import Cases, Refusals, needs
from .expect import refused
from .requests import CREATE_TABLE, ENTRY_OPERATIONS, NAMESPACE_OPERATIONS, calls_of

NO_NAMESPACE = ErrorCode.NAMESPACE_NOT_FOUND


class MissingCases(Cases):
    """Operations on entries that do not exist."""

    def test_operations_on_a_missing_table_are_table_not_found(
        self, ns: CaseNamespace, refusals: Refusals
    ) -> None:
        missing = ns.missing_table()
        calls = calls_of(ns, [name for name in ENTRY_OPERATIONS if name not in CREATE_TABLE])
        refusals.refuse(calls, [missing], ErrorCode.TABLE_NOT_FOUND, naming=missing[-1])

    def test_operations_on_a_table_of_a_missing_namespace_are_namespace_not_found(
        self, ns: CaseNamespace, refusals: Refusals
    ) -> None:
        missing = ns.missing_namespace()
        calls = calls_of(ns, ENTRY_OPERATIONS)
        refusals.refuse(calls, [[*missing, "t"]], NO_NAMESPACE, naming=missing[-1])

    def test_operations_on_a_missing_namespace_are_namespace_not_found(
        self, ns: CaseNamespace, refusals: Refusals
    ) -> None:
        missing = ns.missing_namespace()
        calls = calls_of(ns, [name for name in NAMESPACE_OPERATIONS if name != "create_namespace"])
        refusals.refuse(calls, [missing], NO_NAMESPACE, naming=missing[-1])

    @needs("rename", "rename_across")
    def test_rename_into_a_missing_namespace_is_namespace_not_found(
        self, ns: CaseNamespace
    ) -> None:
        missing, table_id = ns.missing_namespace(), ns.with_rows()
        with refused(NO_NAMESPACE, naming=missing[-1]):
            ns.rename_table(table_id, "new", new_namespace_id=missing)
        assert ns.ids(table_id) == [0, 1, 2]

    @needs("namespace_changes", "nested_namespaces")
    def test_create_in_a_missing_parent_is_namespace_not_found(self, ns: CaseNamespace) -> None:
        missing = ns.missing_namespace()
        with refused(NO_NAMESPACE, naming=missing[-1]):
            ns.create_namespace([*missing, "child"])

    @needs("namespace_changes")
    def test_drop_of_a_missing_namespace_is_namespace_not_found(self, ns: CaseNamespace) -> None:
        missing = ns.missing_namespace()
        for mode in (None, "Fail", "fail", "FAIL"):
            with refused(NO_NAMESPACE, naming=missing[-1]):
                ns.drop_namespace(missing, mode=mode)

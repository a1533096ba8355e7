"""Cases: identifiers with odd, hostile or overlong names, and of objects that do not exist."""

from __future__ import annotations

from lance_namespace import ErrorCode

from .build import rows, unique_name
from .calls import answer_of, refused
from .cases import CaseNamespace, Cases, Refusals, needs, same_location
from .requests import (
    CREATE_TABLE,
    ENTRY_OPERATIONS,
    NAMESPACE_OPERATIONS,
    TABLE_OPERATIONS,
    calls_of,
)

# -- names -----------------------------------------------------------------------------------------


INVALID = ErrorCode.INVALID_INPUT


def hostile_names(ns: CaseNamespace) -> list[str]:
    """Return names that every operation refuses: those of the target, and the empty one."""
    return ["", *ns.features.hostile_names]


class IdentifierCases(Cases):
    """Which identifiers work, and that every operation refuses the others."""

    # -- names that must work --------------------------------------------------------------------

    def test_odd_table_names_work(self, ns: CaseNamespace) -> None:
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
    def test_odd_namespace_names_work(self, ns: CaseNamespace) -> None:
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
    def test_the_longest_table_name_works(self, ns: CaseNamespace) -> None:
        longest = "t" * (ns.features.max_table_name or 0)
        table_id = ns.with_rows(longest)
        assert ns.names() == [longest]
        assert ns.ids(table_id) == [0, 1, 2]

    @needs("max_namespace_name", "namespace_changes")
    def test_the_longest_namespace_name_works(self, ns: CaseNamespace) -> None:
        name = unique_name().ljust(ns.features.max_namespace_name or 0, "n")
        longest = ns.track([*ns.target.parent, name])
        ns.create_namespace(longest)
        ns.create_table([*longest, "t"], rows(range(3)))
        assert ns.ids([*longest, "t"]) == [0, 1, 2]

    # -- names that must be refused --------------------------------------------------------------

    def test_a_hostile_table_name_is_invalid_input(
        self, ns: CaseNamespace, refusals: Refusals
    ) -> None:
        hostile = [ns.table(name) for name in hostile_names(ns)]
        refusals.refuse(calls_of(ns, TABLE_OPERATIONS), hostile, INVALID)
        assert ns.names() == []

    def test_a_hostile_namespace_name_of_a_table_is_invalid_input(
        self, ns: CaseNamespace, refusals: Refusals
    ) -> None:
        parent, table = ns.target.parent, unique_name()
        hostile = [[*parent, name, table] for name in hostile_names(ns)]
        refusals.refuse(calls_of(ns, TABLE_OPERATIONS), hostile, INVALID)

    def test_a_hostile_namespace_name_is_invalid_input(
        self, ns: CaseNamespace, refusals: Refusals
    ) -> None:
        parent = ns.target.parent
        hostile = set(hostile_names(ns))
        # A catalog that accepts such a name may have one already, which the kit must not drop.
        hostile -= set(ns.all_namespaces(parent))
        try:
            identifiers = [[*parent, name] for name in sorted(hostile)]
            refusals.refuse(calls_of(ns, NAMESPACE_OPERATIONS), identifiers, INVALID)
        finally:
            made = hostile & set(ns.all_namespaces(parent))
            for name in made:
                ns.track([*parent, name])
        assert not made

    @needs("rename")
    def test_rename_to_a_hostile_name_is_invalid_input(
        self, ns: CaseNamespace, refusals: Refusals
    ) -> None:
        table_id, names = ns.with_rows(), hostile_names(ns)
        refusals.compare(
            {
                repr(name): answer_of(lambda new: ns.rename_table(table_id, new), name, [INVALID])
                for name in names
            }
        )
        assert ns.names() == ["t"]
        assert ns.ids(table_id) == [0, 1, 2]

    @needs("max_table_name")
    def test_an_overlong_table_name_is_invalid_input(
        self, ns: CaseNamespace, refusals: Refusals
    ) -> None:
        longest = ns.features.max_table_name or 0
        identifiers = [ns.table("t" * length) for length in (longest + 1, 10_000)]
        refusals.refuse(calls_of(ns, TABLE_OPERATIONS), identifiers, INVALID)
        assert ns.names() == []

    @needs("max_namespace_name")
    def test_an_overlong_namespace_name_is_invalid_input(
        self, ns: CaseNamespace, refusals: Refusals
    ) -> None:
        longest = ns.features.max_namespace_name or 0
        identifiers = [[*ns.target.parent, "n" * n] for n in (longest + 1, 10_000)]
        refusals.refuse(calls_of(ns, NAMESPACE_OPERATIONS), identifiers, INVALID)

    # -- identifiers of the wrong length ---------------------------------------------------------

    def test_a_table_operation_without_an_identifier_is_invalid_input(
        self, ns: CaseNamespace, refusals: Refusals
    ) -> None:
        refusals.refuse(calls_of(ns, TABLE_OPERATIONS), [None, []], INVALID)

    @needs("fixed_depth")
    def test_a_table_identifier_with_the_wrong_number_of_names_is_invalid_input(
        self, ns: CaseNamespace, refusals: Refusals
    ) -> None:
        longest = [*ns.target.parent, *[unique_name()] * 6]
        wrong = [longest[:depth] for depth in range(1, 7) if depth != len(ns.id) + 1]
        refusals.refuse(calls_of(ns, TABLE_OPERATIONS), wrong, INVALID)

    @needs("fixed_depth")
    def test_a_namespace_identifier_with_too_many_names_is_invalid_input(
        self, ns: CaseNamespace, refusals: Refusals
    ) -> None:
        wrong = [[*ns.id, "n"], [*ns.id, "n", "n"]]
        refusals.refuse(calls_of(ns, NAMESPACE_OPERATIONS), wrong, INVALID)

    @needs("fixed_depth")
    def test_list_tables_above_the_level_that_holds_tables_is_invalid_input(
        self, ns: CaseNamespace, refusals: Refusals
    ) -> None:
        outer = [ns.id[:depth] for depth in range(len(ns.id))]
        refusals.refuse(calls_of(ns, ["list_tables"]), outer, INVALID)

    @needs("fixed_depth", "rename")
    def test_rename_into_a_namespace_of_another_level_is_invalid_input(
        self, ns: CaseNamespace
    ) -> None:
        table_id = ns.with_rows()
        for wrong in ([*ns.id, "n"], [*ns.id, "n", "n"]):
            with refused(INVALID):
                ns.rename_table(table_id, "new", new_namespace_id=wrong)
        assert ns.names() == ["t"]

    # -- letter case -----------------------------------------------------------------------------

    @needs("folds_case")
    def test_a_folding_catalog_finds_tables_in_any_case(self, ns: CaseNamespace) -> None:
        ns.create_table(ns.table("MixedCase"), rows(range(3)))
        assert ns.names() == ["mixedcase"]
        shouted = [*ns.target.parent, ns.name.upper(), "MIXEDCASE"]
        for table_id in (ns.table("mixedcase"), ns.table("MixedCase"), shouted):
            ns.table_exists(table_id)
            assert ns.ids(table_id) == [0, 1, 2]
            assert ns.count(table_id) == 3
        assert ns.all_tables(shouted[:-1]) == ["mixedcase"]

    @needs("folds_case")
    def test_a_folding_catalog_answers_with_its_own_spelling(self, ns: CaseNamespace) -> None:
        ns.create_table(ns.table("MixedCase"), rows(range(3)))
        answer = ns.describe_table(
            ns.table("MIXEDCASE"), load_detailed_metadata=True, with_table_uri=True
        )
        assert answer.table == "mixedcase"
        assert answer.namespace == ns.id

    @needs("folds_case")
    def test_names_that_differ_in_case_are_one_table_in_a_folding_catalog(
        self, ns: CaseNamespace
    ) -> None:
        ns.create_table(ns.table("mixedcase"), rows(range(3)))
        with refused(ErrorCode.TABLE_ALREADY_EXISTS, naming="mixedcase"):
            ns.create_table(ns.table("MixedCase"), rows(range(9)))
        ns.drop_table(ns.table("MIXEDCASE"))
        assert ns.names() == []

    @needs("folds_case", "rename")
    def test_a_folding_catalog_renames_from_and_to_any_case(self, ns: CaseNamespace) -> None:
        ns.with_rows("old")
        ns.rename_table(ns.table("OLD"), "NEW")
        assert ns.names() == ["new"]
        assert ns.ids(ns.table("New")) == [0, 1, 2]

    @needs("folds_case", "namespace_changes")
    def test_a_folding_catalog_finds_namespaces_in_any_case(self, ns: CaseNamespace) -> None:
        shouted = [*ns.target.parent, ns.name.upper()]
        ns.namespace_exists(shouted)
        ns.describe_namespace(shouted)
        with refused(ErrorCode.NAMESPACE_ALREADY_EXISTS, naming=ns.name):
            ns.create_namespace(shouted)
        ns.drop_namespace(shouted)
        assert ns.name not in ns.all_namespaces(ns.target.parent)

    def test_names_that_differ_in_case_are_two_tables_elsewhere(self, ns: CaseNamespace) -> None:
        if ns.features.folds_case:
            with refused(ErrorCode.TABLE_ALREADY_EXISTS):
                ns.with_rows("t")
                ns.with_rows("T")
            return
        ns.with_rows("t", range(3))
        ns.with_rows("T", range(5))
        assert ns.names() == ["T", "t"]
        assert ns.ids(ns.table("t")) == [0, 1, 2]
        assert ns.ids(ns.table("T")) == [0, 1, 2, 3, 4]


# -- objects that do not exist ---------------------------------------------------------------------


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

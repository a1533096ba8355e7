"""Cases: what a catalog declares, its connections, and how it reports faults of its server."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from functools import partial

import pytest
from lance_namespace import ErrorCode, UnsupportedOperationError

from ...catalog import Capabilities, Catalog, NameRule, NamespaceRecord, Path, TableRecord
from ...errors import OutcomeUnknownError
from ..calls import answer_of, code_of, refused
from ..cases import needs
from ..concurrency import THREADS, answers_only, check_one_winner, race
from .workspace import (
    CatalogCases,
    Workspace,
    faults_of,
    keeps_location,
    require_same,
    skip_unless,
    with_properties,
)

# -- connections -----------------------------------------------------------------------------------


class ConnectionCases(CatalogCases):
    """One catalog object, and several of them."""

    def test_equal_connections_are_described_alike(self, workspace: Workspace) -> None:
        text = workspace.catalog.describe_connection()
        assert isinstance(text, str)
        assert text, "the description is empty"
        assert workspace.connect().describe_connection() == text
        for shown in workspace.catalog.describe_server().items():
            assert [type(each) for each in shown] == [str, str]

    @needs("other_catalog")
    def test_other_connections_are_described_otherwise(self, workspace: Workspace) -> None:
        other = workspace.target.other_catalog()
        assert other.describe_connection() != workspace.catalog.describe_connection()

    @needs("secrets")
    def test_descriptions_hold_no_secret(self, workspace: Workspace) -> None:
        server = workspace.catalog.describe_server()
        shown = [
            workspace.catalog.describe_connection(),
            repr(workspace.catalog),
            *(f"{key}={value}" for key, value in server.items()),
        ]
        for secret in workspace.target.secrets:
            assert not [text for text in shown if secret in text], "a secret is shown"

    def test_a_closed_catalog_can_be_used_again(self, workspace: Workspace) -> None:
        record = workspace.create()
        for _ in range(2):
            workspace.catalog.close()
            workspace.catalog.close()
            require_same(workspace.catalog.load_table(record.path), record)
        workspace.catalog.close()
        workspace.catalog.drop_table(record)
        assert workspace.names() == []

    def test_a_catalog_that_was_never_used_can_be_closed(self, workspace: Workspace) -> None:
        workspace.connect().close()

    def test_other_connections_see_a_change_at_once(self, workspace: Workspace) -> None:
        other = workspace.connect()
        assert list(other.list_tables(workspace.path)) == []
        record = workspace.create()
        require_same(other.load_table(record.path), record)
        assert list(other.list_tables(workspace.path)) == ["t"]
        if not workspace.capabilities.no_alter:
            changed = workspace.set(record, author="Ines")
            require_same(other.load_table(record.path), changed)
            record = changed
        other.drop_table(record)
        assert workspace.names() == []

    def test_other_connections_see_a_change_of_a_namespace_at_once(
        self, changeable: Workspace
    ) -> None:
        other, path = changeable.connect(), changeable.new_namespace({"a": "1"})
        assert other.load_namespace(path).properties["a"] == "1"
        assert path[-1] in other.list_namespaces(path[:-1])
        record = changeable.catalog.load_namespace(path)
        changeable.catalog.alter_namespace(
            NamespaceRecord(path, {**record.properties, "a": "2"}, record.location)
        )
        assert other.load_namespace(path).properties["a"] == "2"
        changeable.catalog.drop_namespace(path)
        with refused(ErrorCode.NAMESPACE_NOT_FOUND):
            other.load_namespace(path)
        assert path[-1] not in other.list_namespaces(path[:-1])

    def test_each_thread_is_answered_about_its_own_table(self, workspace: Workspace) -> None:
        def work(number: int) -> list[str]:
            wanted = workspace.record(f"t{number}", {"number": str(number)})
            workspace.catalog.create_table(wanted)
            found = [workspace.catalog.load_table(wanted.path) for _ in range(5)]
            return [record.properties["number"] for record in found]

        answers = answers_only(race(work))
        assert answers == [[str(number)] * 5 for number in range(THREADS)]
        assert workspace.names() == sorted(f"t{number}" for number in range(THREADS))

    def test_of_many_creators_of_a_table_one_succeeds(self, workspace: Workspace) -> None:
        records = [workspace.record("t", {"number": str(n)}) for n in range(THREADS)]
        answers = race(lambda number: workspace.catalog.create_table(records[number]))
        winner = check_one_winner(answers, ErrorCode.TABLE_ALREADY_EXISTS)
        found = workspace.catalog.load_table(workspace.table())
        assert found.properties["number"] == str(winner)
        assert workspace.names() == ["t"]

    def test_vended_credentials_are_options_that_say_when_they_end(
        self, workspace: Workspace
    ) -> None:
        for record in (workspace.create(), workspace.record("later")):
            for write in (False, True):
                options = workspace.catalog.vend_credentials(record, write=write) or {}
                assert {type(each) for option in options.items() for each in option} <= {str}
                expires = options.get("expires_at_millis")
                if expires is not None:
                    assert int(expires) > time.time() * 1000, "the credentials have ended"

    @needs("grants")
    def test_vended_credentials_are_for_their_own_table(self, workspace: Workspace) -> None:
        records: list[TableRecord] = [workspace.create("one"), workspace.create("two")]
        records.append(workspace.record("declared"))
        grants = workspace.target.grants
        for record in records:
            location = record.location or ""
            for write in (False, True):
                options = workspace.catalog.vend_credentials(record, write=write)
                assert options is not None, "the target says what is granted; nothing was"
                assert grants(options, location, write=write)
                assert write or not grants(options, location, write=True), "readers may write"
                for other in records:
                    if other is not record:
                        assert not grants(options, other.location or "", write=False)

    @needs("grants")
    def test_credentials_are_for_the_table_that_has_the_name_now(
        self, workspace: Workspace
    ) -> None:
        catalog, first = workspace.catalog, workspace.create("t")
        catalog.vend_credentials(first, write=False)
        catalog.drop_table(first)
        catalog.create_table(workspace.record("t", location=workspace.location("elsewhere")))
        second = catalog.load_table(first.path)
        options = catalog.vend_credentials(second, write=False)
        assert options is not None, "the target says what is granted; nothing was"
        assert workspace.target.grants(options, second.location or "", write=False)


# -- faults ----------------------------------------------------------------------------------------


FAILURE_CODES = (ErrorCode.SERVICE_UNAVAILABLE, ErrorCode.INTERNAL, ErrorCode.THROTTLING)
"""Codes for a server that cannot respond now; never one for something that is missing."""

BUSY_CODES = (ErrorCode.SERVICE_UNAVAILABLE, ErrorCode.THROTTLING)
"""Codes for a busy server, by which callers know that a retry can help."""
CODES: dict[str, Collection[ErrorCode]] = {"be_busy": BUSY_CODES, "be_broken": FAILURE_CODES}


@dataclass(frozen=True)
class Scene:
    """What operations work on: an existing entry, and free names."""

    workspace: Workspace
    table: TableRecord
    namespace: Path
    free: Path

    @classmethod
    def new(cls, workspace: Workspace, name: str) -> Scene:
        """Make a table, and a namespace if the catalog can change it."""
        can_change = not workspace.capabilities.no_namespace_changes
        namespace = workspace.new_namespace({"a": "b"}) if can_change else workspace.path
        return cls(workspace, workspace.create(name), namespace, workspace.missing_namespace())


Operation = Callable[[Catalog, Scene], object]

READS: dict[str, Operation] = {
    "load_table": lambda c, s: c.load_table(s.table.path),
    "load a missing table": lambda c, s: c.load_table(s.workspace.table("missing")),
    "load_namespace": lambda c, s: c.load_namespace(s.namespace),
    "load a missing namespace": lambda c, s: c.load_namespace(s.free),
    "list_namespaces": lambda c, s: list(c.list_namespaces(s.namespace[:-1])),
    "list_tables": lambda c, s: list(c.list_tables(s.table.path[:-1])),
    "list Lance tables": lambda c, s: list(c.list_tables(s.table.path[:-1], lance_only=True)),
    "scan_tables": lambda c, s: list(c.scan_tables(s.table.path[:-1])),
    "scan Lance tables": lambda c, s: list(c.scan_tables(s.table.path[:-1], lance_only=True)),
}


@dataclass(frozen=True)
class Change:
    """A change, whether it was made, and the capability that forbids it, if one does."""

    make: Operation
    was_made: Callable[[Catalog, Scene], bool]
    unless: str = ""


CHANGES: dict[str, Change] = {
    "create_table": Change(
        lambda c, s: c.create_table(s.workspace.record("created")),
        lambda c, s: "created" in c.list_tables(s.workspace.path),
    ),
    "alter_table": Change(
        lambda c, s: c.alter_table(with_properties(s.table, changed="yes")),
        lambda c, s: c.load_table(s.table.path).properties.get("changed") == "yes",
        "no_alter",
    ),
    "rename_table": Change(
        lambda c, s: s.workspace.move(s.table, s.workspace.table("renamed"), c),
        lambda c, s: "renamed" in c.list_tables(s.workspace.path),
        "no_rename",
    ),
    "drop_table": Change(
        lambda c, s: c.drop_table(s.table),
        lambda c, s: s.table.path[-1] not in c.list_tables(s.workspace.path),
    ),
    "create_namespace": Change(
        lambda c, s: c.create_namespace(s.workspace.namespace_record(s.free)),
        lambda c, s: s.free[-1] in c.list_namespaces(s.free[:-1]),
        "no_namespace_changes",
    ),
    "alter_namespace": Change(
        lambda c, s: c.alter_namespace(
            s.workspace.namespace_record(s.namespace, {"changed": "yes"})
        ),
        lambda c, s: c.load_namespace(s.namespace).properties.get("changed") == "yes",
        "no_namespace_changes",
    ),
    "drop_namespace": Change(
        lambda c, s: c.drop_namespace(s.namespace),
        lambda c, s: s.namespace[-1] not in c.list_namespaces(s.free[:-1]),
        "no_namespace_changes",
    ),
}


@needs("faults")
class FaultCases(CatalogCases):
    """A server that refuses, is busy or broken, or whose reply is lost."""

    def test_a_read_that_is_refused_is_permission_denied(self, workspace: Workspace) -> None:
        self._refuse_reads(workspace, "refuse", [ErrorCode.PERMISSION_DENIED])

    @pytest.mark.parametrize("fault", CODES)
    def test_a_read_that_a_server_fails_is_never_answered(
        self, workspace: Workspace, fault: str
    ) -> None:
        self._refuse_reads(workspace, fault, CODES[fault])

    def test_a_read_with_rejected_credentials_is_unauthenticated(
        self, workspace: Workspace
    ) -> None:
        self._refuse_reads(workspace, "reject", [ErrorCode.UNAUTHENTICATED])

    def _refuse_reads(self, workspace: Workspace, fault: str, codes: Collection[ErrorCode]) -> None:
        """Require these codes from every read while the fault lasts, and none afterwards."""
        scene = Scene.new(workspace, "read")
        with faults_of(workspace.target, fault) as faults:
            complaints = {}
            for name, read in READS.items():
                with getattr(faults, fault)():
                    complaints[name] = answer_of(partial(read, faults.catalog), scene, codes)
            workspace.compare(complaints)
            require_same(faults.catalog.load_table(scene.table.path), scene.table)

    # -- changes ---------------------------------------------------------------------------------

    def test_a_change_that_is_refused_is_permission_denied_and_not_made(
        self, workspace: Workspace
    ) -> None:
        self._refuse_changes(workspace, "refuse", [ErrorCode.PERMISSION_DENIED])

    @pytest.mark.parametrize("fault", CODES)
    def test_a_change_that_a_server_fails_is_an_error(
        self, workspace: Workspace, fault: str
    ) -> None:
        self._refuse_changes(workspace, fault, CODES[fault])

    def _refuse_changes(
        self, workspace: Workspace, fault: str, codes: Collection[ErrorCode]
    ) -> None:
        """Require these codes from every change, and that none is made."""
        complaints = {}
        with faults_of(workspace.target, fault) as faults:
            for name, change in _possible_changes(workspace).items():
                scene = Scene.new(workspace, name)
                with getattr(faults, fault)():
                    answer = answer_of(partial(change.make, faults.catalog), scene, codes)
                is_made = change.was_made(workspace.catalog, scene)
                complaints[name] = f"{answer} The change was made." if is_made else answer
        workspace.compare(complaints)

    def test_a_change_whose_reply_is_lost_is_unknown_and_made_once(
        self, workspace: Workspace
    ) -> None:
        complaints = {}
        with faults_of(workspace.target, "lose_next_reply") as faults:
            for name, change in _possible_changes(workspace).items():
                scene = Scene.new(workspace, name)
                with faults.lose_next_reply():
                    answer = _check_unknown_outcome(partial(change.make, faults.catalog, scene))
                is_made = change.was_made(workspace.catalog, scene)
                complaints[name] = answer if is_made else f"{answer} The change was not made."
        workspace.compare(complaints)

    def test_a_change_is_not_sent_again_after_its_reply_was_lost(
        self, workspace: Workspace
    ) -> None:
        complaints = {}
        with faults_of(workspace.target, "lose_next_reply", "changes_received") as faults:
            for name, change in _possible_changes(workspace).items():
                scene, before = Scene.new(workspace, name), faults.changes_received()
                with faults.lose_next_reply():
                    code_of(change.make, faults.catalog, scene)
                sent = faults.changes_received() - before
                complaints[name] = "" if sent == 1 else f"{sent} changes were sent"
        workspace.compare(complaints)

    @pytest.mark.parametrize("way", ["lose_next_reply", "stall_next_reply", "fail_next_reply"])
    def test_a_change_without_a_good_reply_is_unknown_and_made_whole(
        self, alterable: Workspace, way: str
    ) -> None:
        record = alterable.create()
        location = alterable.location("moved")
        wanted = replace(with_properties(record, changed="yes"), location=location)
        with faults_of(alterable.target, way) as faults, getattr(faults, way)():
            assert not _check_unknown_outcome(lambda: faults.catalog.alter_table(wanted))
        found = alterable.catalog.load_table(record.path)
        assert found.properties.get("changed") == "yes"
        assert keeps_location(found.location, wanted.location)

    def test_a_guarded_change_whose_reply_is_lost_is_unknown_and_made_once(
        self, guardable: Workspace
    ) -> None:
        record = guardable.guard()
        with faults_of(guardable.target, "lose_next_reply") as faults:
            changed = with_properties(faults.catalog.load_table(record.path), count="1")
            with faults.lose_next_reply():
                assert not _check_unknown_outcome(lambda: faults.catalog.alter_table(changed))
        assert guardable.catalog.load_table(record.path).properties["count"] == "1"

    def test_what_describes_a_catalog_needs_no_answer(self, workspace: Workspace) -> None:
        with faults_of(workspace.target, "be_broken") as faults, faults.be_broken():
            assert faults.catalog.describe_connection()
            assert faults.catalog.capabilities == workspace.capabilities


def _check_unknown_outcome(change: Callable[[], object]) -> str:
    """Return what is wrong unless the change raises OutcomeUnknownError; else empty."""
    try:
        change()
    except OutcomeUnknownError:
        return ""
    except Exception as error:  # noqa: BLE001 - any other error is wrong
        return f"expected OutcomeUnknownError, got {type(error).__name__}: {error}"
    return "expected OutcomeUnknownError, but the change was reported as made"


def _possible_changes(workspace: Workspace) -> dict[str, Change]:
    """Return the changes that the catalog can make."""
    return {
        name: change
        for name, change in CHANGES.items()
        if not (change.unless and getattr(workspace.capabilities, change.unless))
    }


# -- capabilities ----------------------------------------------------------------------------------


UNDECLARED = {"partition_locations": "has_partitions", "scan_hidden_tables": "hides_tables"}
"""Methods whose cases would be skipped if the field did not declare them."""


IMPOSSIBLE: dict[str, tuple[str, Callable[[Workspace, TableRecord, Path], object]]] = {
    "alter_table": ("no_alter", lambda w, t, _: w.catalog.alter_table(with_properties(t, a="b"))),
    "commit_guard": ("no_managed_tables", lambda w, table, _: w.catalog.commit_guard(table)),
    "create_namespace": (
        "no_namespace_changes",
        lambda w, _, free: w.catalog.create_namespace(w.namespace_record(free)),
    ),
    "drop_namespace": ("no_namespace_changes", lambda w, *_: w.catalog.drop_namespace(w.path)),
    "rename_table": ("no_rename", lambda w, t, _: w.catalog.rename_table(t, w.table("new"))),
    "rename_table_across": (
        "no_rename_across",
        lambda w, table, _: w.move(table, (*w.new_namespace(), "new")),
    ),
}
"""Call to the capability that forbids it, and the call with an entry and a free namespace."""


class CapabilityCases(CatalogCases):
    """What is declared works; what is declared impossible raises and changes nothing."""

    def test_capabilities_are_complete_and_stay_the_same(self, workspace: Workspace) -> None:
        capabilities = workspace.capabilities
        assert isinstance(capabilities, Capabilities)
        assert capabilities.levels == len(workspace.path)
        for rule in (*capabilities.namespace_levels, capabilities.table_rule):
            assert isinstance(rule, NameRule)
            assert rule.noun, f"{rule} names no noun"
            assert rule.allowed, f"{rule} does not say what is allowed"
            assert rule.max_length > 0
        for field in fields(Capabilities):
            if field.name.startswith("no_"):
                reason = getattr(capabilities, field.name)
                assert isinstance(reason, str), f"{field.name} is {reason!r}, not a reason"
        assert len(capabilities.namespace_words) in (0, capabilities.levels)
        assert workspace.connect().capabilities == capabilities

    def test_every_capability_has_its_methods(self, workspace: Workspace) -> None:
        capabilities, kind = workspace.capabilities, type(workspace.catalog)
        needed = {
            "commit_guard": not (capabilities.no_alter or capabilities.no_managed_tables),
            "rename_table": not (capabilities.no_rename or capabilities.renames_by_copy),
            "copy_table": capabilities.renames_by_copy and not capabilities.no_rename,
            "partition_locations": capabilities.has_partitions,
            "scan_hidden_tables": capabilities.hides_tables,
        }
        inherited = [name for name in needed if getattr(kind, name) is getattr(Catalog, name)]
        missing = [name for name in inherited if needed[name]]
        assert not missing, f"declared by the capabilities and not implemented: {missing}"
        for name, field in UNDECLARED.items():
            assert getattr(capabilities, field) or name in inherited, f"{name} without {field}"

    @pytest.mark.parametrize("change", IMPOSSIBLE)
    def test_what_the_catalog_cannot_do_is_unsupported_and_changes_nothing(
        self, workspace: Workspace, change: str
    ) -> None:
        capability, call = IMPOSSIBLE[change]
        skip_unless(workspace, capability)
        record, free = workspace.create(), workspace.missing_namespace()
        with pytest.raises((UnsupportedOperationError, NotImplementedError)):
            call(workspace, record, free)
        require_same(workspace.catalog.load_table(record.path), record)
        assert workspace.names() == ["t"]
        with refused(ErrorCode.NAMESPACE_NOT_FOUND):
            workspace.catalog.load_namespace(free)

    def test_the_longest_names_are_kept(self, workspace: Workspace) -> None:
        rule = workspace.capabilities.table_rule
        name = ("abcdefghij" * (rule.max_length // 10 + 1))[: rule.max_length]
        if not rule.pattern.fullmatch(name):
            pytest.skip(f"{name[:20]}… does not fit the rule: {rule.allowed}")
        near = f"{name[:-1]}z"
        for number, each in enumerate((name, near)):
            record = workspace.record(f"t{number}")
            workspace.catalog.create_table(replace(record, path=workspace.table(each)))
        assert workspace.names() == sorted([name, near])
        assert workspace.catalog.load_table(workspace.table(name)).path[-1] == name

    def test_letter_case_is_folded_where_declared_and_else_kept(self, workspace: Workspace) -> None:
        name = "Mixed_Case"
        if not workspace.capabilities.table_rule.pattern.fullmatch(name):
            pytest.skip(f"{name} does not fit the catalog's rule for names")
        workspace.create("lower")
        if workspace.capabilities.folds_case:
            # Core folds every name before it calls the catalog, which must fold alike.
            assert code_of(workspace.catalog.load_table, workspace.table("LOWER")) is None
            with refused(ErrorCode.TABLE_ALREADY_EXISTS):
                workspace.catalog.create_table(workspace.record("LOWER"))
            assert workspace.names() == ["lower"]
        else:
            workspace.create(name)
            assert workspace.names() == [name, "lower"]
            assert workspace.catalog.load_table(workspace.table(name)).path[-1] == name

"""Cases: trouble between the adapter and its server is reported as what it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from lance_namespace import ErrorCode, LanceNamespaceError

from ...catalog import Catalog, Path, TableRecord
from ...errors import OutcomeUnknownError
from ..cases import needs
from ..expect import code_of, described, refused
from .cases import CatalogCases, skip_if
from .workspace import Workspace, faults_of, require_same, same_location, with_properties

TROUBLE = (ErrorCode.SERVICE_UNAVAILABLE, ErrorCode.INTERNAL, ErrorCode.THROTTLING)
"""What a server that cannot answer now may be reported as; never that something is missing."""

BUSY = (ErrorCode.SERVICE_UNAVAILABLE, ErrorCode.THROTTLING)
"""What a busy server may be reported as, so that callers know that trying again can help."""
CODES = {"be_busy": BUSY, "be_broken": TROUBLE}


@dataclass(frozen=True)
class Scene:
    """What operations work on: an entry that exists, and names that are free."""

    workspace: Workspace
    table: TableRecord
    namespace: Path
    free: Path


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


def _rename(catalog: Catalog, scene: Scene) -> None:
    new = scene.workspace.table("renamed")
    if catalog.capabilities.renames_by_copy:
        catalog.copy_table(scene.table, replace(scene.table, path=new))
    else:
        catalog.rename_table(scene.table, new)


CHANGES: dict[str, Operation] = {
    "create_table": lambda c, s: c.create_table(s.workspace.record("created")),
    "alter_table": lambda c, s: c.alter_table(with_properties(s.table, changed="yes")),
    "rename_table": _rename,
    "drop_table": lambda c, s: c.drop_table(s.table),
    "create_namespace": lambda c, s: c.create_namespace(s.workspace.namespace_record(s.free)),
    "alter_namespace": lambda c, s: c.alter_namespace(
        s.workspace.namespace_record(s.namespace, {"changed": "yes"})
    ),
    "drop_namespace": lambda c, s: c.drop_namespace(s.namespace),
}

WAS_MADE: dict[str, Callable[[Catalog, Scene], bool]] = {
    "create_table": lambda c, s: "created" in c.list_tables(s.workspace.path),
    "alter_table": lambda c, s: c.load_table(s.table.path).properties.get("changed") == "yes",
    "rename_table": lambda c, s: "renamed" in c.list_tables(s.workspace.path),
    "drop_table": lambda c, s: s.table.path[-1] not in c.list_tables(s.workspace.path),
    "create_namespace": lambda c, s: s.free[-1] in c.list_namespaces(s.free[:-1]),
    "alter_namespace": lambda c, s: (
        c.load_namespace(s.namespace).properties.get("changed") == "yes"
    ),
    "drop_namespace": lambda c, s: s.namespace[-1] not in c.list_namespaces(s.free[:-1]),
}


class FaultCases(CatalogCases):
    """A server that refuses, is busy or broken, or whose reply is lost."""

    @pytest.fixture
    def scene(self, workspace: Workspace) -> Scene:
        can_change = not workspace.capabilities.no_namespace_changes
        namespace = workspace.new_namespace({"a": "b"}) if can_change else workspace.path
        return Scene(workspace, workspace.create(), namespace, workspace.missing_namespace())

    @pytest.fixture(scope="class")
    @classmethod
    def shared_scene(cls, shared_workspace: Workspace) -> Scene:
        """For operations that change nothing."""
        workspace = shared_workspace
        record = workspace.create(workspace.unique_table())
        return Scene(workspace, record, workspace.path, workspace.missing_namespace())

    # -- reads -----------------------------------------------------------------------------------

    @needs("faults")
    @pytest.mark.parametrize("operation", READS)
    def test_a_read_that_is_refused_is_permission_denied(
        self, shared_scene: Scene, operation: str
    ) -> None:
        with faults_of(shared_scene.workspace.target, "refuse") as faults:
            with faults.refuse(), refused(ErrorCode.PERMISSION_DENIED):
                READS[operation](faults.catalog, shared_scene)
            require_same(faults.catalog.load_table(shared_scene.table.path), shared_scene.table)

    @needs("faults")
    @pytest.mark.parametrize("trouble", ["be_busy", "be_broken"])
    @pytest.mark.parametrize("operation", READS)
    def test_a_read_that_a_server_fails_is_never_answered(
        self, shared_scene: Scene, operation: str, trouble: str
    ) -> None:
        with faults_of(shared_scene.workspace.target, trouble) as faults:
            with getattr(faults, trouble)(), refused(*CODES[trouble]):
                READS[operation](faults.catalog, shared_scene)
            require_same(faults.catalog.load_table(shared_scene.table.path), shared_scene.table)

    @needs("faults")
    @pytest.mark.parametrize("operation", READS)
    def test_a_read_with_rejected_credentials_is_unauthenticated(
        self, shared_scene: Scene, operation: str
    ) -> None:
        with (
            faults_of(shared_scene.workspace.target, "reject") as faults,
            faults.reject(),
            refused(ErrorCode.UNAUTHENTICATED),
        ):
            READS[operation](faults.catalog, shared_scene)

    # -- changes ---------------------------------------------------------------------------------

    @needs("faults")
    @pytest.mark.parametrize("operation", CHANGES)
    def test_a_change_that_is_refused_is_permission_denied_and_not_made(
        self, scene: Scene, operation: str
    ) -> None:
        _skip_unable(scene, operation)
        with (
            faults_of(scene.workspace.target, "refuse") as faults,
            faults.refuse(),
            refused(ErrorCode.PERMISSION_DENIED),
        ):
            CHANGES[operation](faults.catalog, scene)
        assert not WAS_MADE[operation](scene.workspace.catalog, scene)

    @needs("faults")
    @pytest.mark.parametrize("trouble", ["be_busy", "be_broken"])
    @pytest.mark.parametrize("operation", CHANGES)
    def test_a_change_that_a_server_fails_is_an_error(
        self, scene: Scene, operation: str, trouble: str
    ) -> None:
        _skip_unable(scene, operation)
        with (
            faults_of(scene.workspace.target, trouble) as faults,
            getattr(faults, trouble)(),
            refused(*CODES[trouble]),
        ):
            CHANGES[operation](faults.catalog, scene)
        assert not WAS_MADE[operation](scene.workspace.catalog, scene)

    @needs("faults")
    @pytest.mark.parametrize("operation", CHANGES)
    def test_a_change_whose_reply_is_lost_is_unknown_and_made_once(
        self, scene: Scene, operation: str
    ) -> None:
        _skip_unable(scene, operation)
        with (
            faults_of(scene.workspace.target, "lose_next_reply") as faults,
            faults.lose_next_reply(),
        ):
            _require_unknown(lambda: CHANGES[operation](faults.catalog, scene))
        assert WAS_MADE[operation](scene.workspace.catalog, scene)

    @needs("faults")
    @pytest.mark.parametrize("operation", CHANGES)
    def test_a_change_is_not_sent_again_after_its_reply_was_lost(
        self, scene: Scene, operation: str
    ) -> None:
        _skip_unable(scene, operation)
        with faults_of(scene.workspace.target, "lose_next_reply", "changes_received") as faults:
            before = faults.changes_received()
            with faults.lose_next_reply():
                code_of(CHANGES[operation], faults.catalog, scene)
            sent = faults.changes_received() - before
        assert sent == 1, f"{operation} sent {sent} changes, and the reply to the first was lost"

    @needs("faults")
    @pytest.mark.parametrize("way", ["lose_next_reply", "stall_next_reply", "fail_next_reply"])
    def test_a_change_without_a_good_reply_is_unknown_and_made_whole(
        self, workspace: Workspace, way: str
    ) -> None:
        skip_if(workspace, "no_alter")
        record = workspace.create()
        location = workspace.location("moved")
        wanted = replace(with_properties(record, changed="yes"), location=location)
        with faults_of(workspace.target, way) as faults, getattr(faults, way)():
            _require_unknown(lambda: faults.catalog.alter_table(wanted))
        found = workspace.catalog.load_table(record.path)
        assert found.properties.get("changed") == "yes"
        assert same_location(found.location, wanted.location)

    @needs("faults")
    def test_a_guarded_change_whose_reply_is_lost_is_unknown_and_made_once(
        self, workspace: Workspace
    ) -> None:
        skip_if(workspace, "no_alter", "no_managed_tables")
        record = workspace.guard()
        with faults_of(workspace.target, "lose_next_reply") as faults:
            seen = faults.catalog.load_table(record.path)
            with faults.lose_next_reply():
                _require_unknown(
                    lambda: faults.catalog.alter_table(with_properties(seen, count="1"))
                )
        assert workspace.catalog.load_table(record.path).properties["count"] == "1"

    @needs("faults")
    def test_what_describes_a_catalog_needs_no_answer(self, workspace: Workspace) -> None:
        with faults_of(workspace.target, "be_broken") as faults, faults.be_broken():
            assert faults.catalog.describe_connection()
            assert faults.catalog.capabilities == workspace.capabilities


def _require_unknown(change: Callable[[], object]) -> None:
    """Require that a change is reported as one that may have been made."""
    try:
        change()
    except OutcomeUnknownError:
        return
    except LanceNamespaceError as error:
        message = f"expected OutcomeUnknownError, got {described(error)}"
        raise AssertionError(message) from error
    raise AssertionError("expected OutcomeUnknownError, but the change was reported as made")


def _skip_unable(scene: Scene, operation: str) -> None:
    reasons = {"alter_table": "no_alter", "rename_table": "no_rename"}
    if operation.endswith("namespace"):
        skip_if(scene.workspace, "no_namespace_changes")
    elif operation in reasons:
        skip_if(scene.workspace, reasons[operation])

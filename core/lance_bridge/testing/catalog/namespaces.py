"""Cases: namespaces are created, loaded, listed, altered and dropped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pytest
from lance_namespace import ErrorCode

from ...catalog import NamespaceRecord, Path, TableRecord
from ..calls import answer_of, code_of, refused, unique_name
from ..cases import needs
from ..concurrency import DEADLINE, LOCK_SECONDS, arrives, run_in_steps
from ..target import HeldChange
from .properties import ODD_VALUES
from .workspace import (
    CatalogCases,
    Workspace,
    faults_of,
    require_same,
    skip_if,
    skip_unless,
    try_change,
)

_EXISTS = ErrorCode.NAMESPACE_ALREADY_EXISTS
_NOT_FOUND = ErrorCode.NAMESPACE_NOT_FOUND
_NOT_EMPTY = ErrorCode.NAMESPACE_NOT_EMPTY
_STOPS = 12
"""At how many of its steps a drop is stopped."""

PROPERTIES = {**ODD_VALUES, "long": "0123456789" * 20}


class NamespaceCases(CatalogCases):
    """Namespaces of the innermost level, under the target's parent."""

    @pytest.fixture
    def droppable(self, changeable: Workspace) -> Workspace:
        """A workspace of a catalog that drops no namespace with a table."""
        skip_unless(changeable, "atomic_restrict")
        return changeable

    def test_a_namespace_is_loaded_under_its_path(self, workspace: Workspace) -> None:
        found = workspace.catalog.load_namespace(workspace.path)
        assert found.path == workspace.path
        listed = list(workspace.catalog.list_namespaces(workspace.path[:-1]))
        assert listed.count(workspace.path[-1]) == 1
        place = workspace.catalog.location_for_tables(found)
        assert place is None or (isinstance(place, str) and place)

    def test_what_is_in_a_missing_namespace_is_namespace_not_found(
        self, workspace: Workspace
    ) -> None:
        catalog, table = workspace.catalog, workspace.create()
        missing = workspace.missing_namespace()
        calls: dict[str, Callable[[Path], object]] = {
            "create_table": lambda path: catalog.create_table(
                replace(workspace.record("new"), path=(*path, "new"))
            )
        }
        if not workspace.capabilities.no_namespace_changes:
            record = workspace.namespace_record(missing, {"a": "b"})
            calls["alter_namespace"] = lambda _: catalog.alter_namespace(record)
            calls["drop_namespace"] = catalog.drop_namespace
        if not (workspace.capabilities.no_rename or workspace.capabilities.no_rename_across):
            calls["rename_table"] = lambda path: workspace.move(table, (*path, "new"))
        workspace.compare(
            {
                name: answer_of(call, missing, [_NOT_FOUND], missing[-1])
                for name, call in calls.items()
            }
        )
        require_same(catalog.load_table(table.path), table)
        cut = (*workspace.path[:-1], workspace.path[-1][:-1])
        for path in (missing, cut):
            with refused(_NOT_FOUND, naming=path[-1]):
                catalog.load_namespace(path)

    def test_a_missing_parent_is_namespace_not_found(self, workspace: Workspace) -> None:
        parent = workspace.path[:-1]
        if not parent:
            pytest.skip("namespaces lie directly under the root, which always exists")
        missing = (*parent[:-1], workspace.missing_namespace()[-1])
        with refused(_NOT_FOUND, naming=missing[-1]):
            list(workspace.catalog.list_namespaces(missing))
        if not workspace.capabilities.no_namespace_changes:
            with refused(_NOT_FOUND, naming=missing[-1]):
                workspace.catalog.create_namespace(workspace.namespace_record((*missing, "a")))

    def test_a_namespace_whose_name_begins_another_is_another(self, changeable: Workspace) -> None:
        longer = (*changeable.path[:-1], f"{changeable.path[-1]}_longer")
        changeable.track(longer)
        changeable.catalog.create_namespace(changeable.namespace_record(longer))
        changeable.create("here")
        assert changeable.names(longer) == []
        there = replace(changeable.record("there"), path=(*longer, "there"))
        changeable.catalog.create_table(there)
        assert changeable.names() == ["here"]
        assert changeable.names(longer) == ["there"]
        changeable.catalog.drop_table(changeable.catalog.load_table(there.path))
        changeable.catalog.drop_namespace(longer)
        assert changeable.names() == ["here"]

    def test_namespaces_are_sorted_as_python_sorts_them(self, changeable: Workspace) -> None:
        parent, name = changeable.path[:-1], changeable.path[-1]
        for end in ("_b", "b", "_a", "a", "1", "10", "9", "__"):
            path = changeable.track((*parent, name + end))
            changeable.catalog.create_namespace(changeable.namespace_record(path))
        found = list(changeable.catalog.list_namespaces(parent))
        assert found == sorted(found)

    def test_create_of_an_existing_namespace_is_refused_and_changes_nothing(
        self, changeable: Workspace
    ) -> None:
        before = changeable.catalog.load_namespace(changeable.path)
        record = changeable.namespace_record(changeable.path, {"author": "Ada"})
        with refused(_EXISTS, naming=changeable.path[-1]):
            changeable.catalog.create_namespace(record)
        found = changeable.catalog.load_namespace(changeable.path)
        assert dict(found.properties) == dict(before.properties)

    def test_properties_of_a_namespace_are_kept_or_refused(self, changeable: Workspace) -> None:
        if not _is_kept(changeable, PROPERTIES):
            for key, value in PROPERTIES.items():
                _is_kept(changeable, {key: value})
        for length in (256, 4001, 33_000):
            _is_kept(changeable, {"long": ("0123456789" * length)[:length]})

    def test_reserved_properties_of_a_namespace_are_kept(self, changeable: Workspace) -> None:
        assert _is_kept(changeable, {"lance_bridge.x": "reserved"}), "core needs lance_bridge.…"

    def test_alter_replaces_properties_of_a_namespace_and_does_not_merge_them(
        self, changeable: Workspace
    ) -> None:
        path = changeable.new_namespace({"kept": "1", "changed": "1", "removed": "1"})
        changeable.catalog.create_table(changeable.record("t"))
        record = changeable.catalog.load_namespace(path)
        wanted = {k: v for k, v in record.properties.items() if k != "removed"}
        wanted |= {"changed": "2", "added": "1"}
        changeable.catalog.alter_namespace(NamespaceRecord(path, wanted, record.location))
        found = changeable.catalog.load_namespace(path)
        assert dict(found.properties) == wanted
        assert found.location == record.location
        assert changeable.names() == ["t"]

    def test_a_dropped_namespace_is_gone_and_others_stay(self, changeable: Workspace) -> None:
        path = changeable.new_namespace()
        changeable.catalog.require_droppable(path)
        changeable.catalog.drop_namespace(path)
        with refused(_NOT_FOUND, naming=path[-1]):
            changeable.catalog.load_namespace(path)
        assert path[-1] not in list(changeable.catalog.list_namespaces(path[:-1]))
        changeable.catalog.load_namespace(changeable.path)

    def test_a_namespace_with_a_table_is_not_dropped_where_the_catalog_checks(
        self, droppable: Workspace
    ) -> None:
        record = droppable.create()
        with refused(_NOT_EMPTY, naming=droppable.path[-1]):
            droppable.catalog.drop_namespace(droppable.path)
        require_same(droppable.catalog.load_table(record.path), record)

    @needs("faults")
    def test_a_namespace_keeps_a_table_that_overtakes_its_drop_where_the_catalog_checks(
        self, droppable: Workspace
    ) -> None:
        """The server must check: a check before the request is too early."""
        table = droppable.record()
        with (
            faults_of(droppable.target, "hold_next_change") as faults,
            faults.hold_next_change() as held,
        ):
            drop = partial(faults.catalog.drop_namespace, droppable.path)
            assert _overtake(droppable, drop, held, table), "no change was sent"

    def test_a_namespace_keeps_a_table_of_any_moment_where_the_catalog_checks(
        self, droppable: Workspace
    ) -> None:
        """The drop stops at one of its steps, after what it may have read has changed."""
        steps: list[int] = []
        undisturbed = partial(droppable.catalog.drop_namespace, droppable.new_namespace())
        with ThreadPoolExecutor(1) as pool:
            pool.submit(run_in_steps, undisturbed, steps.append).result()
        for at in range(0, len(steps), len(steps) // _STOPS + 1):
            namespace, held = droppable.new_namespace(), HeldChange()

            def stop(step: int, at: int = at, held: HeldChange = held) -> None:
                if step == at:
                    held.arrived.set()
                    held.release.wait(DEADLINE)

            drop = partial(droppable.catalog.drop_namespace, namespace)
            table = replace(droppable.record(), path=(*namespace, "t"))
            _overtake(droppable, partial(run_in_steps, drop, stop), held, table)

    def test_an_outer_namespace_is_created_altered_and_dropped(self, workspace: Workspace) -> None:
        catalog, outer = workspace.catalog, _outer(workspace)
        wanted = workspace.namespace_record(outer, {"kept": "1", "removed": "1"})
        if not try_change(lambda: catalog.create_namespace(wanted)):
            pytest.skip("the catalog refuses an outer namespace with these properties")
        found = catalog.load_namespace(outer)
        assert found.path == outer
        assert found.properties.get("kept") == "1"
        assert outer[-1] in catalog.list_namespaces(outer[:-1])
        assert workspace.path[-1] not in catalog.list_namespaces(outer)
        with refused(_EXISTS, naming=outer[-1]):
            catalog.create_namespace(workspace.namespace_record(outer))
        changed = NamespaceRecord(outer, {"kept": "2"}, found.location)
        if try_change(lambda: catalog.alter_namespace(changed)):
            after = catalog.load_namespace(outer).properties
            assert after.get("kept") == "2"
            assert "removed" not in after
        for name in list(catalog.list_namespaces(outer)):  # namespaces that the catalog made itself
            catalog.drop_namespace((*outer, name))
        catalog.drop_namespace(outer)
        with refused(_NOT_FOUND, naming=outer[-1]):
            catalog.load_namespace(outer)
        assert outer[-1] not in list(catalog.list_namespaces(outer[:-1]))

    def test_an_outer_namespace_with_another_inside_is_not_dropped_where_the_catalog_checks(
        self, workspace: Workspace
    ) -> None:
        skip_unless(workspace, "atomic_restrict")
        catalog, outer = workspace.catalog, _outer(workspace)
        inner = workspace.track((*outer, "inner"))
        catalog.create_namespace(workspace.namespace_record(outer))
        catalog.create_namespace(workspace.namespace_record(inner))
        assert "inner" in catalog.list_namespaces(outer)
        with refused(_NOT_EMPTY, naming=outer[-1]):
            catalog.drop_namespace(outer)
        assert catalog.load_namespace(inner).path == inner


def _outer(workspace: Workspace) -> Path:
    """Return the path of a new namespace one level above those with tables, or skip without one."""
    skip_if(workspace, "no_namespace_changes", "no_outer_namespace_changes")
    if workspace.capabilities.levels < 2:
        pytest.skip("the catalog has one level of namespaces")
    return workspace.track((*workspace.path[:-2], unique_name()))


def _overtake(
    workspace: Workspace, drop: Callable[[], None], held: HeldChange, table: TableRecord
) -> bool:
    """Create a table while the drop of its namespace is held; require that one of both is made.

    Returns whether the drop was held: it may have ended before.
    """
    with ThreadPoolExecutor(2) as pool:
        dropped = pool.submit(code_of, drop)
        try:
            is_held = arrives(held.arrived, dropped)
            created = pool.submit(code_of, workspace.connect().create_table, table)
            wait([created], LOCK_SECONDS)
        finally:
            held.release.set()
    is_dropped, is_created = dropped.result() is None, created.result() is None
    assert not (is_dropped and is_created), "a namespace was dropped with a table in it"
    if is_created:
        workspace.catalog.load_table(table.path)
    with refused(_NOT_FOUND) if is_dropped else nullcontext():
        workspace.catalog.load_namespace(table.path[:-1])
    return is_held


def _is_kept(workspace: Workspace, properties: Mapping[str, str]) -> bool:
    """Create a namespace with these properties; return whether the catalog accepted them."""
    path = workspace.missing_namespace()
    record = workspace.namespace_record(path, properties)
    if try_change(lambda: workspace.catalog.create_namespace(record)):
        found = workspace.catalog.load_namespace(path)
        assert found.path == path
        held = {key: found.properties.get(key) for key in record.properties}
        assert held == dict(record.properties)  # the catalog may add some, such as an owner
        return True
    with refused(_NOT_FOUND):
        workspace.catalog.load_namespace(path)
    return False

"""Versions of several tables that are created together: all of them, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from lance_namespace import errors

from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.managed.batches import latest_state
from lance_bridge.storage.lance_format import BATCH_OUTCOME, BATCH_RECORD
from lance_bridge.storage.store import TableFiles
from lance_bridge.table import Table

from .managed_tables import (
    HOME,
    NEW,
    OTHER,
    THIRD,
    another,
    as_operation,
    batch_files,
    commit_batch,
    create_all,
    create_and_stage,
    create_managed_tables,
    insert,
    meanwhile,
    rows,
    stage_all,
    staged,
    state,
)
from .memory_catalog import DATASET, MemoryNamespace, Moment, build, create, numbers, raiser

pytestmark = [
    pytest.mark.quick,
    pytest.mark.usefixtures("able"),
    pytest.mark.spec(
        "managed.md#failure-cases-of-batches", "operations.md#batchcreatetableversions"
    ),
]

BEFORE, AFTER = [0, 1, 2], [0, 1, 2, 100]


@pytest.mark.spec("managed.md#commits-to-several-tables")
def test_versions_of_several_tables_are_created_together(namespace: MemoryNamespace) -> None:
    create_managed_tables(namespace, HOME, OTHER, THIRD)
    entries = stage_all(namespace, THIRD, HOME, OTHER)
    assert create_all(namespace, entries) == [2, 2, 2]
    for each in (HOME, OTHER, THIRD):
        assert rows(namespace, each) == AFTER
        assert state(namespace, each).prepared is None
        assert numbers(namespace, each) == [1, 2]
        assert batch_files(namespace, each) == []
    assert create_all(namespace, []) == []


def test_the_same_request_again_is_answered_as_before(namespace: MemoryNamespace) -> None:
    entries = create_and_stage(namespace, HOME, OTHER)
    assert create_all(namespace, entries) == create_all(namespace, entries) == [2, 2]
    assert rows(namespace, HOME) == rows(namespace, OTHER) == AFTER


@pytest.mark.spec("managed.md#why-the-steps-are-in-this-order")
def test_an_outcome_stays_whose_record_cannot_be_removed(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that read an entry before the batch was finished needs it, to know the version."""
    entries = create_and_stage(namespace, HOME, OTHER)
    put_own, remove = TableFiles.put_own, TableFiles.remove
    read_early: list[Table] = []

    def put_and_read_early(files: TableFiles, path: str, data: bytes) -> bool:
        if path.endswith(BATCH_OUTCOME):
            read_early.append(Table(namespace.connection, namespace.server.tables[tuple(OTHER)]))
        return put_own(files, path, data)

    def refuse_for_record(files: TableFiles, paths: Sequence[str]) -> None:
        if paths[0].endswith(BATCH_RECORD):
            raise errors.ServiceUnavailableError("away")
        remove(files, paths)

    monkeypatch.setattr(TableFiles, "put_own", put_and_read_early)
    monkeypatch.setattr(TableFiles, "remove", refuse_for_record)
    create_all(namespace, entries)
    assert latest_state(read_early[0]).version == 2
    assert len(batch_files(namespace, HOME)) == 2


@pytest.mark.spec("managed.md#commits-to-several-tables")
@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"version": 9}, errors.ConcurrentModificationError),
        ({"manifest_size": 1}, errors.InvalidInputError),
        ({"metadata": {"a": "b"}}, errors.UnsupportedOperationError),
        ({"branch": "nope"}, errors.TableBranchNotFoundError),
        ({"id": NEW}, errors.TableNotFoundError),
    ],
)
def test_nothing_is_created_where_one_entry_is_bad(
    namespace: MemoryNamespace, wrong: dict[str, Any], code: type[Exception]
) -> None:
    good, bad = create_and_stage(namespace, HOME, OTHER)
    with pytest.raises(code):
        create_all(namespace, [good, bad.model_copy(update=wrong)])
    assert numbers(namespace, HOME) == numbers(namespace, OTHER) == [1]
    assert batch_files(namespace, HOME) == []
    assert create_all(namespace, [good, bad]) == [2, 2]


@pytest.mark.spec("managed.md#commits-to-several-tables")
def test_two_entries_for_one_table_are_refused_by_name(namespace: MemoryNamespace) -> None:
    create_managed_tables(namespace, HOME)
    with pytest.raises(errors.UnsupportedOperationError, match=r"two of .*\.a'"):
        create_all(namespace, stage_all(namespace, HOME, HOME))
    assert numbers(namespace, HOME) == [1]


# -- what cannot be done together ------------------------------------------------------------------


def require_refused(ns: MemoryNamespace, reason: str, *tables: list[str]) -> None:
    """Check that a batch is refused in both operations, and that nothing is created."""
    entries = stage_all(ns, *tables)
    with pytest.raises(errors.UnsupportedOperationError, match=reason):
        create_all(ns, entries)
    with pytest.raises(errors.UnsupportedOperationError, match=reason):
        commit_batch(ns, *map(as_operation, entries))
    assert [numbers(ns, each) for each in tables] == [[1] for _ in tables]


@pytest.mark.spec("managed.md#commits-to-several-tables", "operations.md#batchcommittables")
def test_a_table_that_its_storage_manages_is_refused_by_name(namespace: MemoryNamespace) -> None:
    create_managed_tables(namespace, HOME)
    build(namespace, 1, OTHER)
    require_refused(namespace, r"\.b' cannot .* managed by its storage.*manage_table", HOME, OTHER)


@pytest.mark.spec("managed.md#commits-to-several-tables")
def test_a_catalog_that_cannot_compare_and_set_says_why(namespace: MemoryNamespace) -> None:
    namespace.server.capabilities = replace(
        namespace.server.capabilities, no_managed_tables="it has no transactions"
    )
    build(namespace, 1, HOME)
    build(namespace, 1, OTHER)
    require_refused(namespace, r"\.a' cannot .*: it has no transactions", HOME, OTHER)


@pytest.mark.spec("managed.md#commits-to-several-tables")
def test_a_table_that_adopts_foreign_versions_is_refused_by_name(
    namespace: MemoryNamespace,
) -> None:
    create_managed_tables(namespace, HOME)
    create_managed_tables(namespace, OTHER, **{"managed.foreign_commits": "adopt"})
    require_refused(namespace, r"\.b' cannot .*adopt.*hide or refuse", HOME, OTHER)


# -- operations of several kinds -------------------------------------------------------------------


def test_one_operation_of_any_kind_is_done(namespace: MemoryNamespace) -> None:
    build(namespace, 2, HOME)
    [declared] = commit_batch(namespace, {"declare_table": {"id": NEW, "properties": {"a": "b"}}})
    assert declared["declare_table"]["properties"] == {"a": "b"}
    ranges = [{"start_version": 0, "end_version": 2}]
    [deleted] = commit_batch(namespace, {"delete_table_versions": {"id": HOME, "ranges": ranges}})
    assert deleted == {"delete_table_versions": {"deleted_count": 1}}
    [created] = commit_batch(namespace, as_operation(staged(namespace, HOME)))
    assert created["create_table_version"]["version"]["version"] == 3
    [removed] = commit_batch(namespace, {"deregister_table": {"id": NEW}})
    assert removed["deregister_table"]["id"] == NEW
    assert list(namespace.server.tables) == [tuple(HOME)]


@pytest.mark.spec("operations.md#batchcommittables")
@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ({"declare_table": {"id": NEW}}, errors.UnsupportedOperationError),
        ({"deregister_table": {"id": OTHER}}, errors.UnsupportedOperationError),
        ({"delete_table_versions": {"id": OTHER, "ranges": []}}, errors.UnsupportedOperationError),
        ({}, errors.InvalidInputError),
        (
            {"declare_table": {"id": NEW}, "deregister_table": {"id": OTHER}},
            errors.InvalidInputError,
        ),
    ],
)
def test_nothing_is_done_where_one_operation_cannot_be_done_with_others(
    namespace: MemoryNamespace, operation: dict[str, Any], code: type[Exception]
) -> None:
    create_managed_tables(namespace, HOME, OTHER)
    before = dict(namespace.server.tables)
    with pytest.raises(code):
        commit_batch(namespace, as_operation(staged(namespace, HOME)), operation)
    assert namespace.server.tables == before
    assert numbers(namespace, HOME) == numbers(namespace, OTHER) == [1]


@pytest.mark.spec("operations.md#batchcommittables")
def test_one_bad_operation_is_answered_as_by_itself(namespace: MemoryNamespace) -> None:
    create(namespace, HOME)
    for operation, code in (
        ({"declare_table": {"id": HOME}}, errors.TableAlreadyExistsError),
        ({"declare_table": {"id": ["eu", "no", "no", "t"]}}, errors.NamespaceNotFoundError),
        ({"deregister_table": {"id": [*DATASET, "absent"]}}, errors.TableNotFoundError),
    ):
        with pytest.raises(code):
            commit_batch(namespace, operation)


# -- other clients, and lost replies ---------------------------------------------------------------


@pytest.mark.spec("operations.md#batchcommittables")
def test_nothing_is_created_where_another_client_commits_meanwhile(
    namespace: MemoryNamespace,
) -> None:
    entries = create_and_stage(namespace, HOME, OTHER)
    meanwhile(namespace, "before", lambda: insert(another(namespace), OTHER), number=2)
    with pytest.raises(errors.ConcurrentModificationError):
        create_all(namespace, entries)
    assert rows(namespace, HOME) == BEFORE
    assert rows(namespace, OTHER) == [0, *BEFORE]
    assert state(namespace, HOME).prepared is None
    assert batch_files(namespace, HOME) == []


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_batch_whose_reply_is_lost_is_committed_once(
    namespace: MemoryNamespace, number: int, moment: Moment
) -> None:
    entries = create_and_stage(namespace, HOME, OTHER)
    meanwhile(namespace, moment, raiser(OutcomeUnknownError("lost")), number=number)
    assert create_all(namespace, entries) == [2, 2]
    assert rows(namespace, HOME) == rows(namespace, OTHER) == AFTER
    assert batch_files(namespace, HOME) == []


@pytest.mark.parametrize("number", [1, 2])
def test_a_batch_that_the_catalog_refuses_is_taken_back(
    namespace: MemoryNamespace, number: int
) -> None:
    entries = create_and_stage(namespace, HOME, OTHER)
    refuse = raiser(errors.PermissionDeniedError("not you"))
    meanwhile(namespace, "before", refuse, number=number)
    with pytest.raises(errors.PermissionDeniedError):
        create_all(namespace, entries)
    assert rows(namespace, HOME) == rows(namespace, OTHER) == BEFORE
    assert state(namespace, HOME).prepared is None
    assert create_all(namespace, entries) == [2, 2]


def fail_outcomes(patch: pytest.MonkeyPatch, outcomes: int, moment: Moment = "before") -> None:
    """Have the storage fail at the next outcomes of batches, before or after they are written."""
    left, put = [outcomes], TableFiles.put_own

    def failing(files: TableFiles, path: str, data: bytes) -> bool:
        if not path.endswith(".outcome.batch.json") or not left[0]:
            return put(files, path, data)
        left[0] -= 1
        if moment == "after":
            put(files, path, data)
        raise errors.ServiceUnavailableError("gone")

    patch.setattr(TableFiles, "put_own", failing)


@pytest.mark.parametrize(("moment", "found"), [("before", BEFORE), ("after", AFTER)])
def test_a_batch_whose_outcome_cannot_be_written_is_aborted_unless_it_was(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch, moment: Moment, found: list[int]
) -> None:
    entries = create_and_stage(namespace, HOME, OTHER)
    fail_outcomes(monkeypatch, 1, moment)
    if found == AFTER:
        assert create_all(namespace, entries) == [2, 2]
    else:
        with pytest.raises(errors.ServiceUnavailableError, match="gone"):
            create_all(namespace, entries)
    assert rows(namespace, HOME) == rows(namespace, OTHER) == found


@pytest.mark.parametrize(("moment", "found"), [("before", BEFORE), ("after", AFTER)])
def test_a_batch_whose_outcome_cannot_be_read_back_says_so(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch, moment: Moment, found: list[int]
) -> None:
    entries = create_and_stage(namespace, HOME, OTHER)
    fail_outcomes(monkeypatch, 2, moment)
    with pytest.raises(OutcomeUnknownError, match=r"batch .*_transactions/.* is unknown"):
        create_all(namespace, entries)
    assert rows(namespace, HOME) == rows(namespace, OTHER) == found
    assert state(namespace, HOME).prepared is not None


def test_the_record_of_a_batch_stays_where_a_late_change_could_refer_to_it(
    namespace: MemoryNamespace,
) -> None:
    def lose(change: str, when: Moment) -> None:
        if change == "alter_table" and when == "before" and len(namespace.server.effects) > effects:
            raise OutcomeUnknownError("lost")

    entries = create_and_stage(namespace, HOME, OTHER)
    effects, namespace.server.fault = len(namespace.server.effects), lose
    with pytest.raises(OutcomeUnknownError):
        create_all(namespace, entries)
    namespace.server.fault = None
    assert len(batch_files(namespace, HOME)) == 2
    assert rows(namespace, HOME) == BEFORE
    insert(namespace, HOME)
    assert rows(namespace, HOME) == [0, *BEFORE]

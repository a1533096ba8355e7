"""Versions past the catalog of a table that adopts them: crashes, lost replies and races."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.managed import commits, compare_and_set
from lance_bridge.managed.out_of_band import OutOfBand, quarantine
from lance_bridge.managed.versions import ManagedDirectory
from lance_bridge.managed_state import as_unmanaged
from lance_bridge.storage.manifests import Manifest, Scheme, name_of
from lance_bridge.storage.table_files import TableFiles
from lance_bridge.testing.concurrency import answers_only, race

from .building import TABLE, raising
from .managing import (
    KEY,
    able,  # noqa: F401 - a fixture
    another,
    append,
    append_past_the_catalog,
    commit,
    create_with,
    directory,
    insert,
    meanwhile,
    rows,
    set_policy,
    state,
    versions,
)
from .memory_catalog import MemoryNamespace, MemoryServer, Moment
from .mortality import Death, Mortal, die
from .staging import stage

pytestmark = [
    pytest.mark.quick,
    pytest.mark.usefixtures("able"),
    pytest.mark.spec("managed.md#commits-that-bypass-the-catalog"),
]

NOTHING = OutOfBand((), ())
LEAST_STEPS = 4
"""Changes that each commit makes: of the storage before and after that of the entry."""


Act = Callable[[MemoryNamespace], Any]


@pytest.fixture
def commit_staged(namespace: MemoryNamespace) -> Act:
    """What makes a staged manifest version 2 of a table that adopts foreign versions."""
    create_with(namespace, "adopt")
    version, staged = stage(namespace)
    return lambda ns: commit(ns, version, str(staged))


def version_of(answer: api.CreateTableVersionResponse) -> int:
    assert answer.version is not None
    return answer.version.version


COMMIT, INSERT, ADOPT = "a commit", "a commit on top of a foreign version", "an adoption"


def prepare(namespace: MemoryNamespace, server: MemoryServer, case: str) -> Act:
    """Return what is interrupted."""
    if case == COMMIT:
        version, staged = stage(namespace)
        return lambda ns: commit(ns, version, str(staged))
    append_past_the_catalog(server, 8)
    return insert if case == INSERT else rows


@pytest.mark.parametrize("case", [COMMIT, INSERT, ADOPT])
def test_a_client_that_dies_at_any_step_leaves_a_table_that_others_read_and_write(
    namespace: MemoryNamespace, server: MemoryServer, case: str
) -> None:
    outcomes = []
    for steps in count():
        create_with(namespace, "adopt")
        act = prepare(namespace, server, case)
        with pytest.MonkeyPatch.context() as patch:
            client = Mortal(server, patch, steps)
            # Lance reports a death inside of its calls as an error of its own.
            with suppress(Death, errors.LanceNamespaceError, OSError, ValueError):
                act(another(namespace))
        server.fault = None
        found = rows(another(namespace))
        outcomes.append(found)
        insert(namespace)
        assert rows(namespace) == sorted([0, *found]), steps
        namespace.drop_table(api.DropTableRequest(id=TABLE))
        if client.left >= 0:
            break
    foreign = [] if case == COMMIT else [8]
    own = {COMMIT: [100], INSERT: [0], ADOPT: []}[case]
    without, complete = sorted([0, 1, 2, *foreign]), sorted([0, 1, 2, *foreign, *own])
    began = outcomes.index(complete)
    assert outcomes == [without] * began + [complete] * (len(outcomes) - began)
    assert len(outcomes) > LEAST_STEPS


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_adoption_whose_reply_was_lost_is_made_once(
    namespace: MemoryNamespace, server: MemoryServer, moment: Moment
) -> None:
    create_with(namespace, "adopt")
    append_past_the_catalog(server, 8)
    meanwhile(server, moment, raising(OutcomeUnknownError("lost")))
    assert rows(namespace) == [0, 1, 2, 8]
    assert state(server).version == 2


def test_a_late_deletion_does_not_take_an_adopted_version_away(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_with(namespace, "adopt")
    append_past_the_catalog(server, 8)
    final = directory(server) / "_versions" / name_of(2, Scheme.V2)
    # A client that hides such versions has copied this one, and was held up before the deletion.
    final.with_name(final.name + "-foreign").write_bytes(final.read_bytes())
    assert rows(namespace) == [0, 1, 2, 8]
    final.unlink()
    assert rows(namespace) == [0, 1, 2, 8]


def test_a_commit_that_comes_first_is_not_lost_to_an_adoption(
    namespace: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_with(namespace, "adopt")
    version, staged = stage(namespace)
    append_past_the_catalog(server, 8)
    swap = compare_and_set.swap

    def commit_first(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        set_policy(server, "hide")  # as it is for a client that looked before the append
        commit(namespace, version, str(staged))
        return swap(*args, **kwargs)

    monkeypatch.setattr(compare_and_set, "swap", commit_first)
    assert rows(namespace) == [0, 1, 2, 100]
    assert state(server).version == 2
    assert namespace.list_out_of_band_versions(TABLE).quarantined_versions == (2,)


# -- adopt: commits of others meanwhile ------------------------------------------------------------


@pytest.mark.parametrize("moment", ["before", "after"])
def test_no_version_is_lost_that_is_written_past_the_catalog_during_a_commit(
    namespace: MemoryNamespace, server: MemoryServer, moment: Moment
) -> None:
    create_with(namespace, "adopt")
    version, staged = stage(namespace)
    meanwhile(server, moment, lambda: append_past_the_catalog(server, 8))
    commit(namespace, version, str(staged))
    assert rows(namespace) == [0, 1, 2, 8, 100]
    assert namespace.list_out_of_band_versions(TABLE) == NOTHING


def before_a_commit(patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Have something happen right before the next commit."""
    do = commits.CatalogCommit.do

    def do_after_another(self: commits.CatalogCommit) -> Manifest:
        patch.undo()
        act()
        return do(self)

    patch.setattr(commits.CatalogCommit, "do", do_after_another)


def test_a_commit_whose_version_was_just_written_past_the_catalog_is_rebased(
    namespace: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_with(namespace, "adopt")
    before_a_commit(monkeypatch, lambda: append_past_the_catalog(server, 8))
    assert append(namespace, 9).version == 3
    assert rows(namespace) == [0, 1, 2, 8, 9]


def test_a_commit_whose_rival_past_the_catalog_cannot_be_adopted_succeeds(
    namespace: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_with(namespace, "adopt")
    version, staged = stage(namespace)
    final = directory(server) / "_versions" / name_of(2, Scheme.V2)
    before_a_commit(monkeypatch, lambda: final.write_bytes(b"not a manifest"))
    commit(namespace, version, str(staged))
    assert rows(namespace) == [0, 1, 2, 100]
    assert namespace.list_out_of_band_versions(TABLE).quarantined_versions == (2,)


@pytest.mark.parametrize("is_read_first", [True, False])
def test_a_version_whose_writer_died_before_the_commit_is_adopted_and_its_request_answered(
    server: MemoryServer, namespace: MemoryNamespace, commit_staged: Act, is_read_first: bool
) -> None:
    meanwhile(server, "before", die)
    with pytest.raises(Death):
        commit_staged(namespace)
    if is_read_first:
        assert rows(namespace) == [0, 1, 2, 100]
    assert version_of(commit_staged(namespace)) == 2
    assert rows(namespace) == [0, 1, 2, 100]


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_commit_that_another_client_adopts_is_acknowledged(
    server: MemoryServer, namespace: MemoryNamespace, commit_staged: Act, is_refused: bool
) -> None:
    def adopt() -> None:
        rows(another(namespace))
        if is_refused:
            raise errors.PermissionDeniedError("no")

    meanwhile(server, "before", adopt)
    assert version_of(commit_staged(namespace)) == state(server).version == 2
    assert rows(namespace) == [0, 1, 2, 100]


@pytest.mark.parametrize(
    "error",
    [errors.PermissionDeniedError("no"), errors.ConcurrentModificationError("held")],
    ids=["permission", "hold"],
)
def test_a_commit_that_the_catalog_refuses_is_not_adopted(
    namespace: MemoryNamespace, server: MemoryServer, error: Exception
) -> None:
    create_with(namespace, "adopt")
    version, staged = stage(namespace)
    server.fault = raising(error)
    with pytest.raises(type(error)):
        commit(namespace, version, str(staged))
    server.fault = None
    assert rows(namespace) == [0, 1, 2]
    assert namespace.list_out_of_band_versions(TABLE).quarantined_versions == (2,)


def test_a_commit_waits_for_a_client_that_quarantines_manifests(
    namespace: MemoryNamespace, server: MemoryServer, commit_staged: Act
) -> None:
    meanwhile(server, "before", lambda: quarantine(namespace.tables.load_by_id(TABLE)))
    commit_staged(namespace)
    assert rows(namespace) == [0, 1, 2, 100]
    assert state(server).version == 2


def test_a_commit_waits_until_a_new_hold_has_ended(
    namespace: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_with(namespace, "adopt")
    version, staged = stage(namespace)

    def hold() -> None:
        table = namespace.tables.load_by_id(TABLE)
        held = compare_and_set.swap(table, table.managed_state().hold(brief=True))
        monkeypatch.setattr(time, "sleep", lambda _: compare_and_set.release(held))

    meanwhile(server, "before", hold)
    commit(namespace, version, str(staged))
    assert rows(namespace) == [0, 1, 2, 100]


def test_a_commit_to_a_table_that_is_released_meanwhile_is_one_of_its_storage(
    namespace: MemoryNamespace, server: MemoryServer, commit_staged: Act
) -> None:
    def release() -> None:
        record = server.tables[KEY]
        server.tables[KEY] = replace(as_unmanaged(record), revision="released")

    meanwhile(server, "before", release)
    commit_staged(namespace)
    assert rows(namespace) == [0, 1, 2, 100]


def test_many_writers_on_both_ways_lose_no_row(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_with(namespace, "adopt")

    def write(number: int) -> None:
        for turn in range(5):
            value = 100 * number + turn
            if number:
                append(another(namespace), value)
            else:
                append_past_the_catalog(server, value)

    answers_only(race(write, 4))
    expected = [0, 1, 2, *(100 * number + turn for number in range(4) for turn in range(5))]
    assert rows(namespace) == sorted(expected)
    assert state(server).version == 21
    assert namespace.list_out_of_band_versions(TABLE) == NOTHING


# -- adopt: commits that are refused ---------------------------------------------------------------


def test_a_refused_commit_that_is_adopted_while_it_is_withdrawn_keeps_its_version(
    namespace: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_with(namespace, "adopt")
    version, staged = stage(namespace)
    withdraw = ManagedDirectory.withdraw

    def withdraw_late(self: ManagedDirectory, name: str) -> None:
        monkeypatch.undo()
        assert rows(another(namespace)) == [0, 1, 2, 100]
        withdraw(self, name)

    monkeypatch.setattr(ManagedDirectory, "withdraw", withdraw_late)
    meanwhile(server, "before", raising(errors.PermissionDeniedError("no")))
    with pytest.raises(errors.PermissionDeniedError):
        commit(namespace, version, str(staged))
    assert rows(namespace) == [0, 1, 2, 100]
    assert versions(namespace) == [1, 2]


def test_a_refused_commit_that_cannot_be_withdrawn_has_an_unknown_outcome(
    namespace: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_with(namespace, "adopt")
    version, staged = stage(namespace)

    def refuse_and_lose_storage() -> None:
        lost = raising(errors.ServiceUnavailableError("no answer"))
        monkeypatch.setattr(TableFiles, "remove", lost)
        raise errors.PermissionDeniedError("no")

    meanwhile(server, "before", refuse_and_lose_storage)
    with pytest.raises(OutcomeUnknownError, match="may be adopted later"):
        commit(namespace, version, str(staged))
    monkeypatch.undo()
    assert rows(namespace) == [0, 1, 2, 100]

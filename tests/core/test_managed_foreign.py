"""What is written past the catalog of an implementation-managed table: never shown, never lost.

Adopt and discard judge by rows: what only a version that bypassed the catalog has is kept.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors

from lance_bridge.catalog import MANAGED_BY
from lance_bridge.dataset.maintenance import compact
from lance_bridge.entry import TableEntry
from lance_bridge.errors import RowsOnlyHereError
from lance_bridge.managed import compare_and_set, out_of_band
from lance_bridge.managed import version_directory as directories
from lance_bridge.records import FOREIGN_COMMITS
from lance_bridge.storage.manifests import Scheme, name_of
from lance_bridge.storage.store import TableFiles
from lance_bridge.table import Table
from lance_bridge.testing.calls import Calls

from .managed_tables import (
    KEY,
    MANAGED,
    another,
    append,
    append_past_the_catalog,
    commit,
    directory,
    insert,
    meanwhile,
    rows,
    state,
    table,
    versions,
)
from .memory_catalog import TABLE, MemoryNamespace, MemoryServer, create, raiser, stage

pytestmark = [
    pytest.mark.quick,
    pytest.mark.usefixtures("able"),
    pytest.mark.spec(
        "managed.md#out-of-band-versions",
        "managed.md#rows-that-nothing-else-has",
        "operations.md#adopt_out_of_band_versions",
        "operations.md#discard_out_of_band_versions",
    ),
]


def test_a_version_that_was_written_past_the_catalog_is_not_shown(managed: MemoryNamespace) -> None:
    append_past_the_catalog(managed, 666)
    assert rows(managed) == [0, 1, 2]
    assert versions(managed) == [1]
    for operation in ("describe_table", "count_table_rows", "describe_table_version"):
        with pytest.raises(errors.TableVersionNotFoundError):
            Calls(managed).call(operation, TABLE, version=2)


def test_to_manage_a_table_again_changes_and_adopts_nothing(with_table: MemoryNamespace) -> None:
    with_table.manage_table(TABLE)
    append_past_the_catalog(with_table, 8)
    effects = list(with_table.server.effects)
    with_table.manage_table(TABLE)
    assert with_table.server.effects == effects
    assert len(with_table.list_out_of_band_versions(TABLE).versions) == 1
    assert rows(with_table) == [0, 1, 2]


@pytest.mark.spec("operations.md#adopt_out_of_band_versions")
def test_there_may_be_nothing_to_adopt_or_discard(managed: MemoryNamespace) -> None:
    with pytest.raises(errors.InvalidInputError, match="has no version that was not committed"):
        managed.adopt_out_of_band_versions(TABLE)
    assert managed.discard_out_of_band_versions(TABLE) == 0


@pytest.mark.spec("operations.md#release_table")
def test_a_table_is_not_released_with_versions_that_would_show_up(managed: MemoryNamespace) -> None:
    append_past_the_catalog(managed, 8)
    with pytest.raises(errors.InvalidTableStateError, match="adopt or discard"):
        managed.release_table(TABLE)
    assert managed.server.tables[KEY].properties[MANAGED_BY] == "impl"
    managed.discard_out_of_band_versions(TABLE, [2])
    managed.release_table(TABLE)
    assert rows(managed) == [0, 1, 2]


def test_a_dataset_that_was_open_before_fails_once_and_is_then_taken(
    managed: MemoryNamespace,
) -> None:
    opened = lance.dataset(namespace_client=managed, table_id=TABLE)
    append_past_the_catalog(managed, 8)
    with pytest.raises(OSError, match="Commit result for version 3 is unknown"):
        opened.insert(table(9))
    assert rows(managed) == [0, 1, 2]
    opened.insert(table(9))
    assert rows(managed) == [0, 1, 2, 9]


@pytest.mark.spec("operations.md#adopt_out_of_band_versions")
def test_what_was_set_aside_can_be_adopted_until_a_commit_takes_its_place(
    managed: MemoryNamespace,
) -> None:
    append_past_the_catalog(managed, 8)
    append_past_the_catalog(managed, 9)
    assert rows(managed) == [0, 1, 2]
    found = managed.list_out_of_band_versions(TABLE)
    assert (found.versions, found.quarantined_versions) == ((), (3, 2))
    assert managed.adopt_out_of_band_versions(TABLE) == 3
    assert rows(managed) == [0, 1, 2, 8, 9]
    assert managed.list_out_of_band_versions(TABLE).quarantined == ()
    append_past_the_catalog(managed, 10)
    assert append(managed, 11).version == 4
    assert rows(managed) == [0, 1, 2, 8, 9, 11]
    [aside] = managed.list_out_of_band_versions(TABLE).quarantined
    assert (directory(managed) / "_versions" / aside).exists()
    with pytest.raises(errors.InvalidInputError, match="has no version that was not committed"):
        managed.adopt_out_of_band_versions(TABLE)


@pytest.mark.spec("managed.md#operations-on-managed-tables")
def test_a_late_deletion_of_what_was_set_aside_takes_no_commit_away(
    managed: MemoryNamespace,
) -> None:
    append_past_the_catalog(managed, 8)
    assert append(managed, 9).version == 2
    [aside] = managed.list_out_of_band_versions(TABLE).quarantined
    final = directory(managed) / "_versions" / aside.replace("-foreign", "")
    final.unlink()
    assert rows(managed) == [0, 1, 2, 9]
    final.unlink()
    assert append(managed, 10).version == 3
    assert rows(managed) == [0, 1, 2, 9, 10]
    assert managed.count_table_rows(api.CountTableRowsRequest(id=TABLE, version=2)).count == 4


@pytest.mark.spec("operations.md#adopt_out_of_band_versions")
def test_two_versions_that_were_set_aside_from_one_place_are_not_adopted(
    managed: MemoryNamespace,
) -> None:
    for value in (8, 9):
        append_past_the_catalog(managed, value)
        assert rows(managed) == [0, 1, 2]
    with pytest.raises(errors.InvalidTableStateError, match="2, 2 do not continue"):
        managed.adopt_out_of_band_versions(TABLE)
    assert rows(managed) == [0, 1, 2]


def test_a_reader_without_write_permission_does_not_block_commits(
    managed: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_past_the_catalog(server, 8)
    before = server.tables[KEY]
    server.fault = raiser(errors.PermissionDeniedError("read only"))
    monkeypatch.setattr(TableFiles, "put_own", server.fault)
    assert rows(managed) == [0, 1, 2]
    assert server.tables[KEY] == before
    assert len(managed.list_out_of_band_versions(TABLE).versions) == 1


def test_a_commit_that_was_built_on_what_lost_is_refused(
    managed: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "REBASE_SECONDS", 0)
    _commit_between(managed, monkeypatch)
    assert rows(managed) == [0, 1, 2, 100]
    append(managed, 8)
    assert rows(managed) == [0, 1, 2, 8, 100]


def test_a_commit_right_after_one_that_had_a_rival_is_taken_at_once(
    managed: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "_DATA_FILE", re.compile(rb"(?!)"))
    _commit_between(managed, monkeypatch)
    assert rows(managed) == [0, 1, 2, 100]
    insert(managed)
    assert rows(managed) == [0, 0, 1, 2, 100]


def test_a_compaction_right_after_a_commit_that_had_a_rival_is_taken_at_once(
    managed: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "REBASE_SECONDS", 1_000_000.0)
    append_past_the_catalog(managed, 8)
    insert(managed)
    assert len(managed.list_out_of_band_versions(TABLE).quarantined) == 1
    connection = managed.connection
    assert compact(Table(connection, connection.catalog.load_table(KEY))).version > 2
    assert rows(managed) == [0, 0, 1, 2]


def test_pylance_s_own_compaction_is_taken_at_once(
    managed: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "REBASE_SECONDS", 1_000_000.0)
    append(managed, 7)
    append_past_the_catalog(managed, 8)
    opened = lance.dataset(namespace_client=managed, table_id=TABLE)
    # It reserves fragments in a version of its own, and is rebased on that.
    assert opened.optimize.compact_files().fragments_removed == 2
    assert rows(managed) == [0, 1, 2, 7]
    assert len(opened.get_fragments()) == 1
    assert state(managed).version == 4


def _commit_between(managed: MemoryNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a writer build on a foreign version, and another commit before it does."""
    version, staged = stage(managed)
    other = another(managed)
    opened = lance.dataset(namespace_client=other, table_id=TABLE)
    append_past_the_catalog(managed, 7)
    create_version = MemoryNamespace.create_table_version

    def after_the_other(ns: MemoryNamespace, request: Any) -> Any:
        if ns is other:
            monkeypatch.setattr(MemoryNamespace, "create_table_version", create_version)
            commit(managed, version, str(staged))
        return create_version(ns, request)

    monkeypatch.setattr(MemoryNamespace, "create_table_version", after_the_other)
    with pytest.raises(OSError, match="is unknown"):
        lance.write_dataset(table(8), opened, mode="append")


def test_a_write_past_the_catalog_that_comes_between_loses(managed: MemoryNamespace) -> None:
    meanwhile(managed, "after", lambda: append_past_the_catalog(managed, 666))
    insert(managed)
    assert rows(managed) == [0, 0, 1, 2]
    assert len(managed.list_out_of_band_versions(TABLE).quarantined) == 1
    insert(managed)
    assert rows(managed) == [0, 0, 0, 1, 2]


def test_a_tag_of_what_was_written_past_the_catalog_leads_nowhere(managed: MemoryNamespace) -> None:
    append_past_the_catalog(managed, 8)
    lance.dataset(str(directory(managed))).tags.create("foreign", 2)
    managed.create_table_tag(api.CreateTableTagRequest(id=TABLE, tag="own", version=1))
    with pytest.raises(errors.TableVersionNotFoundError):
        managed.describe_table(api.DescribeTableRequest(id=TABLE, tag="foreign"))
    found = Calls(managed).describe_table(TABLE, tag="own", load_detailed_metadata=True)
    assert found.version == 1
    with pytest.raises(errors.TableTagNotFoundError):
        managed.describe_table(api.DescribeTableRequest(id=TABLE, tag="none"))


# -- what others do meanwhile ----------------------------------------------------------------------


def test_what_was_set_aside_meanwhile_is_adopted_from_there(managed: MemoryNamespace) -> None:
    append_past_the_catalog(managed, 7)
    connection = another(managed).connection
    meanwhile(
        managed,
        "before",
        lambda: out_of_band.quarantine(TableEntry(connection, managed.server.tables[KEY])),
    )
    assert managed.adopt_out_of_band_versions(TABLE) == 2
    assert rows(managed) == [0, 1, 2, 7]
    assert append(managed, 8).version == 3


def test_what_was_set_aside_for_a_commit_meanwhile_is_not_adopted(managed: MemoryNamespace) -> None:
    append_past_the_catalog(managed, 7)
    other = another(managed)
    meanwhile(managed, "before", lambda: append(other, 8))
    with pytest.raises(errors.ConcurrentModificationError):
        managed.adopt_out_of_band_versions(TABLE)
    with pytest.raises(errors.InvalidInputError, match="has no version that was not committed"):
        managed.adopt_out_of_band_versions(TABLE)
    assert rows(managed) == [0, 1, 2, 8]


def test_a_commit_waits_for_one_who_sets_manifests_aside(managed: MemoryNamespace) -> None:
    opened = lance.dataset(namespace_client=managed, table_id=TABLE)
    connection = another(managed).connection
    with (
        ThreadPoolExecutor(1) as pool,
        compare_and_set.held(TableEntry(connection, managed.server.tables[KEY])),
    ):
        waiting = pool.submit(opened.insert, pa.table({"a": [7]}))
        with pytest.raises(NotYetError):
            waiting.result(0.5)
        compare_and_set.release(TableEntry(connection, managed.server.tables[KEY]))
        waiting.result(10)
    assert rows(managed) == [0, 1, 2, 7]


def test_nothing_is_set_aside_before_a_conversion_has_taken_it_in(
    with_table: MemoryNamespace,
) -> None:
    connection = another(with_table).connection

    def clear() -> None:
        with pytest.raises(errors.ConcurrentModificationError, match="try again in a moment"):
            out_of_band.quarantine(TableEntry(connection, with_table.server.tables[KEY]))

    def write() -> None:
        append_past_the_catalog(with_table, 7)
        meanwhile(with_table, "before", clear)

    meanwhile(with_table, "before", write)
    with_table.manage_table(TABLE)
    assert rows(with_table) == [0, 1, 2, 7]
    assert append(with_table, 8).version == 3


@pytest.mark.spec("operations.md#adopt_out_of_band_versions")
def test_what_stands_on_a_version_that_lost_is_not_adopted(managed: MemoryNamespace) -> None:
    version, staged = stage(managed)
    append_past_the_catalog(managed, 7)
    append_past_the_catalog(managed, 8)
    commit(managed, version, str(staged))
    with pytest.raises(errors.InvalidTableStateError, match="Another version 2"):
        managed.adopt_out_of_band_versions(TABLE)
    assert rows(managed) == [0, 1, 2, 100]
    assert managed.discard_out_of_band_versions(TABLE, [2, 3]) == 2


def test_a_transaction_past_the_catalog_is_not_committed(managed: MemoryNamespace) -> None:
    append_past_the_catalog(managed, 7)
    written = lance.dataset(str(directory(managed))).read_transaction(2)
    assert written is not None
    asked = api.DescribeTransactionRequest(id=[*TABLE, written.uuid])
    assert managed.describe_transaction(asked).status == "Running"
    with pytest.raises(errors.TransactionNotFoundError):
        managed.describe_transaction(api.DescribeTransactionRequest(id=[*TABLE, "2"]))


@pytest.fixture(params=["hide", "refuse"])
def ns(namespace: MemoryNamespace, request: pytest.FixtureRequest) -> MemoryNamespace:
    """A managed table with the rows 0, 1 and 2 in version 1."""
    create(namespace, TABLE, properties={**MANAGED, FOREIGN_COMMITS: request.param})
    return namespace


def opened(ns: MemoryNamespace) -> lance.LanceDataset:
    """Open the table by its path."""
    return lance.dataset(str(directory(ns)))


def manifest(ns: MemoryNamespace, version: int) -> Path:
    return directory(ns) / "_versions" / name_of(version, Scheme.V2)


def files(ns: MemoryNamespace) -> list[str]:
    return sorted(each.name for each in (directory(ns) / "_versions").iterdir())


def discard(ns: MemoryNamespace, *versions: int) -> int:
    return ns.discard_out_of_band_versions(TABLE, list(versions) or None)


def append_rows(ns: MemoryNamespace) -> int:
    return ns.adopt_out_of_band_versions(TABLE, append=True)


def with_rival(ns: MemoryNamespace) -> None:
    """Commit row 9 in version 2 beside a version 2 with row 8, which is quarantined."""
    append_past_the_catalog(ns, 8)
    aside = manifest(ns, 2)
    hidden = aside.rename(aside.with_name("hidden"))
    append(ns, 9)
    hidden.rename(aside.with_name(aside.name + "-foreign"))
    assert rows(ns) == [0, 1, 2, 9]


# -- discard ---------------------------------------------------------------------------------------


def test_rows_that_nothing_else_has_are_discarded_only_by_their_versions(
    ns: MemoryNamespace,
) -> None:
    append_past_the_catalog(ns, 7, 8)
    append_past_the_catalog(ns, 9)
    before = files(ns)
    for _ in range(2):
        with pytest.raises(
            RowsOnlyHereError,
            match=r"version 2 \(1 data file, 2 rows\), version 3 \(1 data file, 1 row\)",
        ) as refused:
            discard(ns)
        assert (refused.value.versions, refused.value.can_adopt) == ((2, 3), True)
    assert files(ns) == before
    assert discard(ns, 2, 3) == 2
    assert rows(ns) == [0, 1, 2]
    assert discard(ns) == 0


def test_a_version_that_is_not_there_cannot_be_named(ns: MemoryNamespace) -> None:
    append_past_the_catalog(ns, 8)
    before = files(ns)
    with pytest.raises(errors.InvalidInputError, match="no version 1 that was not committed"):
        discard(ns, 2, 1)
    assert files(ns) == before


def _delete(ns: MemoryNamespace) -> None:
    opened(ns).delete("a = 1")


def _add_column(ns: MemoryNamespace) -> None:
    opened(ns).add_columns({"b": "a + 1"})


def _lose_data(ns: MemoryNamespace) -> None:
    before = set((directory(ns) / "data").iterdir())
    append_past_the_catalog(ns, 8)
    [new] = set((directory(ns) / "data").iterdir()) - before
    new.unlink()


def _restore(ns: MemoryNamespace) -> None:
    lance.dataset(str(directory(ns)), version=1).restore()  # type: ignore[no-untyped-call]  # pylance gives it no types


@pytest.mark.parametrize("change", [_delete, _add_column, _lose_data, _restore])
def test_versions_without_new_rows_are_discarded(
    ns: MemoryNamespace, change: Callable[[MemoryNamespace], None]
) -> None:
    change(ns)
    assert discard(ns) == 1
    assert rows(ns) == [0, 1, 2]


def test_rows_that_were_deleted_are_not_counted(ns: MemoryNamespace) -> None:
    append_past_the_catalog(ns, 7, 8, 9)
    opened(ns).delete("a = 8")
    manifest(ns, 2).unlink()
    with pytest.raises(RowsOnlyHereError, match=r"version 3 \(1 data file, 2 rows\)$"):
        discard(ns)


def test_a_compaction_has_no_rows_of_its_own(ns: MemoryNamespace) -> None:
    append(ns, 7)
    opened(ns).optimize.compact_files()
    assert len(opened(ns).get_fragments()) == 1
    assert discard(ns) == 2
    assert rows(ns) == [0, 1, 2, 7]


def test_a_compaction_keeps_the_new_rows_of_a_version_that_is_gone(ns: MemoryNamespace) -> None:
    append(ns, 7)
    append(ns, 8)
    append_past_the_catalog(ns, 10, 11, 12)
    opened(ns).optimize.compact_files(target_rows_per_fragment=2)
    manifest(ns, 4).unlink()
    with pytest.raises(RowsOnlyHereError, match=r"version 5 \(1 data file, 3 rows\)$"):
        discard(ns)
    assert ns.adopt_out_of_band_versions(TABLE) == 6
    assert rows(ns) == [0, 1, 2, 7, 8, 10, 11, 12]


def test_a_damaged_manifest_may_have_any_rows(ns: MemoryNamespace) -> None:
    append_past_the_catalog(ns, 8)
    manifest(ns, 2).write_bytes(b"damaged")
    with pytest.raises(RowsOnlyHereError, match=r"version 2 \(its manifest cannot") as refused:
        discard(ns)
    assert not refused.value.can_adopt
    assert discard(ns, 2) == 1


def test_rows_that_appear_during_a_discard_are_kept(
    ns: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    _delete(ns)
    quarantine = out_of_band.quarantine

    def quarantine_more(table: object) -> None:
        append_past_the_catalog(ns, 8)
        quarantine(table)  # type: ignore[arg-type]  # as the caller gave it

    monkeypatch.setattr(out_of_band, "quarantine", quarantine_more)
    with pytest.raises(RowsOnlyHereError, match="version 3"):
        discard(ns)
    assert set(ns.list_out_of_band_versions(TABLE).quarantined_versions) == {2, 3}


# -- adopt -----------------------------------------------------------------------------------------


def test_a_version_without_its_predecessor_is_adopted_with_the_rows_of_the_latest(
    ns: MemoryNamespace,
) -> None:
    append_past_the_catalog(ns, 7)
    append_past_the_catalog(ns, 8)
    assert discard(ns, 2) == 1
    assert ns.adopt_out_of_band_versions(TABLE) == 3
    assert rows(ns) == [0, 1, 2, 7, 8]
    assert append(ns, 9).version == 4


def test_a_compaction_has_the_rows_of_the_latest(ns: MemoryNamespace) -> None:
    append_past_the_catalog(ns, 8)
    opened(ns).optimize.compact_files()
    manifest(ns, 2).unlink()
    manifest(ns, 3).unlink()  # its fragments are reserved by a version of its own
    with pytest.raises(RowsOnlyHereError, match=r"version 4 \(1 data file, 4 rows\)$"):
        discard(ns)
    assert ns.adopt_out_of_band_versions(TABLE) == 4
    assert rows(ns) == [0, 1, 2, 8]


def test_a_version_without_the_rows_of_the_latest_is_not_adopted(ns: MemoryNamespace) -> None:
    append_past_the_catalog(ns, 7)
    lance.write_dataset(table(8), str(directory(ns)), mode="overwrite")
    manifest(ns, 2).unlink()
    with pytest.raises(errors.InvalidTableStateError, match=r"3 do not continue.*adopt --append"):
        ns.adopt_out_of_band_versions(TABLE)
    assert rows(ns) == [0, 1, 2]
    assert append_rows(ns) == 2
    assert rows(ns) == [0, 1, 2, 8]


def test_a_version_with_the_rows_of_the_latest_is_adopted_beside_its_rival(
    ns: MemoryNamespace,
) -> None:
    with_rival(ns)
    append_past_the_catalog(ns, 10)
    assert ns.adopt_out_of_band_versions(TABLE) == 3
    assert rows(ns) == [0, 1, 2, 9, 10]
    with pytest.raises(RowsOnlyHereError, match=r"rows of this one: version 2 \(") as refused:
        discard(ns)
    assert (refused.value.versions, refused.value.can_adopt) == ((2,), False)


# -- adopt --append --------------------------------------------------------------------------------


def test_rows_of_versions_that_cannot_be_adopted_are_appended(ns: MemoryNamespace) -> None:
    with_rival(ns)
    with pytest.raises(errors.InvalidInputError, match=r"after version 2: .*adopt --append"):
        ns.adopt_out_of_band_versions(TABLE)
    assert append_rows(ns) == 3
    assert rows(ns) == [0, 1, 2, 8, 9]
    assert ns.list_out_of_band_versions(TABLE).quarantined == ()
    with pytest.raises(errors.InvalidInputError, match="no rows that only uncommitted"):
        append_rows(ns)
    insert(ns)
    assert rows(ns) == [0, 0, 1, 2, 8, 9]


def overwritten_beside_a_rival(ns: MemoryNamespace) -> None:
    """Replace all rows by 9 in version 2, beside a version 2 that adds 8 to version 1."""
    append_past_the_catalog(ns, 8)
    aside = manifest(ns, 2)
    hidden = aside.rename(aside.with_name("hidden"))
    ns.insert_into_table(api.InsertIntoTableRequest(id=TABLE, mode="overwrite"), table(9))
    hidden.rename(aside.with_name(aside.name + "-foreign"))
    assert rows(ns) == [9]


def test_rows_that_the_table_has_replaced_are_not_appended(ns: MemoryNamespace) -> None:
    overwritten_beside_a_rival(ns)
    assert append_rows(ns) == 3
    assert rows(ns) == [8, 9]


def test_rows_of_a_version_that_is_gone_are_lost_only_by_name(ns: MemoryNamespace) -> None:
    overwritten_beside_a_rival(ns)
    manifest(ns, 1).unlink()  # by a clean-up
    before = files(ns)
    for named in ([], [1]):
        with pytest.raises(
            errors.InvalidTableStateError,
            match=r"some rows of version 2 \(1 data file, 3 rows\).*`.* --append --versions 2`",
        ):
            ns.adopt_out_of_band_versions(TABLE, append=True, versions=named)
    with pytest.raises(RowsOnlyHereError, match=r"version 2 \(2 data files, 4 rows\)"):
        discard(ns)
    assert (files(ns), rows(ns)) == (before, [9])
    assert ns.adopt_out_of_band_versions(TABLE, append=True, versions=[2]) == 3
    assert rows(ns) == [8, 9]
    assert ns.list_out_of_band_versions(TABLE).quarantined == ()


def test_versions_are_named_only_to_append(ns: MemoryNamespace) -> None:
    append_past_the_catalog(ns, 8)
    with pytest.raises(errors.InvalidInputError, match="only with append"):
        ns.adopt_out_of_band_versions(TABLE, versions=[2])


def test_versions_that_have_no_rows_are_to_be_discarded(ns: MemoryNamespace) -> None:
    opened(ns).delete("a = 1")
    aside = manifest(ns, 2)
    hidden = aside.rename(aside.with_name("hidden"))
    append(ns, 9)
    hidden.rename(aside.with_name(aside.name + "-foreign"))
    for append_too in (False, True):
        with pytest.raises(errors.InvalidInputError, match="with `lance-bridge managed discard`"):
            ns.adopt_out_of_band_versions(TABLE, append=append_too)
    opened(ns).optimize.compact_files()
    with pytest.raises(errors.InvalidTableStateError, match="with `lance-bridge managed discard`"):
        ns.adopt_out_of_band_versions(TABLE)
    assert discard(ns) == 3
    assert rows(ns) == [0, 1, 2, 9]


def test_rows_of_versions_that_build_on_each_other_are_appended_once(ns: MemoryNamespace) -> None:
    append_past_the_catalog(ns, 7, 8)
    append_past_the_catalog(ns, 9)
    opened(ns).delete("a = 8")
    append_rows(ns)
    assert rows(ns) == [0, 1, 2, 7, 9]
    assert ns.list_out_of_band_versions(TABLE).unique == ()
    discard(ns)


@pytest.mark.parametrize("is_compacted_twice", [False, True])
def test_rows_are_not_appended_beside_their_compaction(
    ns: MemoryNamespace, *, is_compacted_twice: bool
) -> None:
    append_past_the_catalog(ns, 7)
    append_past_the_catalog(ns, 8)
    opened(ns).optimize.compact_files()
    if is_compacted_twice:
        append_past_the_catalog(ns, 9)
        opened(ns).optimize.compact_files()
    append_rows(ns)
    assert rows(ns) == [0, 1, 2, 7, 8, *([9] if is_compacted_twice else [])]
    assert ns.list_out_of_band_versions(TABLE).unique == ()
    discard(ns)
    assert ns.list_out_of_band_versions(TABLE).quarantined == ()


def test_rows_that_a_compaction_joined_with_others_are_not_appended(ns: MemoryNamespace) -> None:
    append_past_the_catalog(ns, 7)
    opened(ns).optimize.compact_files()
    manifest(ns, 2).unlink()
    manifest(ns, 3).unlink()
    with pytest.raises(errors.InvalidTableStateError, match="a compaction has joined"):
        append_rows(ns)
    assert ns.adopt_out_of_band_versions(TABLE) == 4
    assert rows(ns) == [0, 1, 2, 7]


def test_versions_of_one_number_are_appended_each(ns: MemoryNamespace) -> None:
    versions = directory(ns) / "_versions"
    for value in (8, 9):
        append_past_the_catalog(ns, value)
        manifest(ns, 2).rename(versions / f"{value}")
    aside = f"{name_of(2, Scheme.V2)}-foreign"
    (versions / "8").rename(versions / aside)
    (versions / "9").rename(versions / f"{aside}-{'0' * 16}")
    with pytest.raises(errors.InvalidTableStateError, match=r"2, 2 do not.*--append"):
        ns.adopt_out_of_band_versions(TABLE)
    assert append_rows(ns) == 3
    assert rows(ns) == [0, 1, 2, 8, 9]


def test_rows_of_another_schema_stay(ns: MemoryNamespace) -> None:
    append_past_the_catalog(ns, 7)
    opened(ns).add_columns({"b": "a + 1"})
    manifest(ns, 2).unlink()
    before = len(ns.list_out_of_band_versions(TABLE).unique)
    with pytest.raises(errors.TableSchemaValidationError):
        append_rows(ns)
    assert len(ns.list_out_of_band_versions(TABLE).unique) == before == 1
    assert (rows(ns), state(ns).version) == ([0, 1, 2], 1)


def test_nothing_is_appended_to_a_latest_version_that_is_gone(ns: MemoryNamespace) -> None:
    append_past_the_catalog(ns, 8)
    manifest(ns, 1).unlink()
    with pytest.raises(errors.InvalidTableStateError, match="managed adopt"):
        append_rows(ns)
    assert ns.adopt_out_of_band_versions(TABLE) == 2
    shutil.rmtree(directory(ns))

"""Adopt and discard judge by rows: what only a version that bypassed the catalog has is kept."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import lance
import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge.errors import RowsOnlyHereError
from lance_bridge.managed import out_of_band
from lance_bridge.records import FOREIGN_COMMITS
from lance_bridge.storage.manifests import Scheme, name_of

from .managed_tables import (
    MANAGED,
    append,
    append_past_the_catalog,
    directory,
    insert,
    rows,
    state,
    table,
)
from .memory_catalog import MemoryNamespace
from .memory_tables import TABLE, create

pytestmark = [
    pytest.mark.quick,
    pytest.mark.usefixtures("able"),
    pytest.mark.spec(
        "managed.md#rows-that-nothing-else-has",
        "operations.md#adopt_out_of_band_versions",
        "operations.md#discard_out_of_band_versions",
    ),
]


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

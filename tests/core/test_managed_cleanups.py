"""Clean-ups of managed tables, by their paths and by their names, lose no rows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge.dataset import Cleaned, clean_up, maintenance
from lance_bridge.errors import LatestVersionGoneError
from lance_bridge.managed import out_of_band
from lance_bridge.managed.commits import TableView
from lance_bridge.records import FOREIGN_COMMITS
from lance_bridge.storage.manifests import BaseLocations, Scheme, name_of
from lance_bridge.storage.store import TableFiles
from lance_bridge.testing.calls import Calls, ipc
from lance_bridge_doctor import Finding, Kind, diagnose_namespace

from .managed_tables import (
    MANAGED,
    append,
    append_past_the_catalog,
    commit,
    directory,
    insert,
    rows,
    state,
    table,
    versions,
)
from .memory_catalog import TABLE, MemoryNamespace, create, raiser, stage

pytestmark = [
    pytest.mark.quick,
    pytest.mark.usefixtures("able"),
    pytest.mark.spec("managed.md#a-latest-version-that-is-gone"),
]


def manifests(ns: MemoryNamespace) -> list[Path]:
    """Return the manifests, also quarantined ones, the latest version first."""
    return sorted((directory(ns) / "_versions").glob("*.manifest*"))


def create_table(ns: MemoryNamespace, policy: str) -> None:
    """Create a table with rows 0, 1, 2 and 8, in versions 1 and 2."""
    create(ns, TABLE, properties={**MANAGED, FOREIGN_COMMITS: policy})
    append(ns, 8)


def clean_up_by_path(ns: MemoryNamespace) -> None:
    """Compact the table, and delete all versions but the latest, by its path."""
    lance.dataset(str(directory(ns))).optimize.compact_files()
    lance.dataset(str(directory(ns))).cleanup_old_versions(
        older_than=timedelta(0), error_if_tagged_old_versions=False
    )


@pytest.fixture(params=["hide", "adopt", "refuse"])
def gone(namespace: MemoryNamespace, request: pytest.FixtureRequest) -> MemoryNamespace:
    """A table with rows 0, 1, 2 and 8 in version 4 alone; its entry has version 2."""
    create_table(namespace, request.param)
    clean_up_by_path(namespace)
    assert (len(manifests(namespace)), state(namespace).version) == (1, 2)
    return namespace


def count(ns: MemoryNamespace) -> Any:
    return ns.count_table_rows(api.CountTableRowsRequest(id=TABLE))


def describe_latest(ns: MemoryNamespace) -> Any:
    return Calls(ns).call("describe_table_version", TABLE)


def discard(ns: MemoryNamespace) -> Any:
    return ns.discard_out_of_band_versions(TABLE)


def release(ns: MemoryNamespace) -> Any:
    return ns.release_table(TABLE)


def quarantine(ns: MemoryNamespace) -> Any:
    return out_of_band.quarantine(ns.tables.load_by_id(TABLE))


@pytest.mark.spec(
    "operations.md#adopt_out_of_band_versions",
    "operations.md#discard_out_of_band_versions",
    "operations.md#release_table",
)
@pytest.mark.parametrize(
    "call", [rows, append, count, describe_latest, versions, insert, discard, release, quarantine]
)
def test_each_call_says_what_to_do_and_moves_nothing(
    gone: MemoryNamespace, call: Callable[[MemoryNamespace], Any]
) -> None:
    before = manifests(gone)
    # pylance replaces the error of a namespace by one of its own, with the text.
    expected = (ValueError, OSError) if call in (rows, append) else LatestVersionGoneError
    arguments = (gone, 9) if call is append else (gone,)
    with pytest.raises(expected, match=r"version 2, .* is missing .*: 4\..* managed adopt"):
        call(*arguments)
    assert manifests(gone) == before
    assert gone.adopt_out_of_band_versions(TABLE) == 4
    assert append(gone, 9).version == 5
    assert rows(gone) == [0, 1, 2, 8, 9]


def register_again(ns: MemoryNamespace) -> None:
    location = str(directory(ns))
    ns.deregister_table(api.DeregisterTableRequest(id=TABLE))
    ns.register_table(api.RegisterTableRequest(id=TABLE, location=location))


def test_a_new_entry_takes_the_last_version_too(gone: MemoryNamespace) -> None:
    register_again(gone)
    assert rows(gone) == [0, 1, 2, 8]


def test_versions_that_a_tag_keeps_change_nothing(namespace: MemoryNamespace) -> None:
    create_table(namespace, "hide")
    lance.dataset(str(directory(namespace))).tags.create("first", 1)
    clean_up_by_path(namespace)
    assert len(manifests(namespace)) == 2
    with pytest.raises(LatestVersionGoneError, match="managed adopt"):
        versions(namespace)
    assert namespace.adopt_out_of_band_versions(TABLE) == 4
    assert versions(namespace) == [1, 4]


@pytest.mark.spec("operations.md#adopt_out_of_band_versions")
def test_a_rival_of_the_version_that_is_gone_keeps_others_from_being_adopted(
    namespace: MemoryNamespace,
) -> None:
    create_table(namespace, "hide")
    append_past_the_catalog(namespace, 666)
    append(namespace, 9)
    assert state(namespace).version == 3
    clean_up_by_path(namespace)  # a manifest of version 3 stays staged, without its data
    with pytest.raises(errors.InvalidTableStateError, match=r"Another version 3.* deregister"):
        namespace.adopt_out_of_band_versions(TABLE)
    with pytest.raises(LatestVersionGoneError, match=r"Data file .* of version 3, .*: 5"):
        discard(namespace)
    register_again(namespace)
    assert rows(namespace) == [0, 1, 2, 8, 9]


@pytest.mark.parametrize("lost", ["data", "_deletions"])
def test_a_staged_manifest_whose_files_are_gone_gets_no_final_name(
    namespace: MemoryNamespace, lost: str
) -> None:
    """A clean-up has deleted the files of the latest version and its final name."""
    create_table(namespace, "hide")
    append_past_the_catalog(namespace, 9)
    later = manifests(namespace)[0].rename(directory(namespace) / "later")
    old = set(directory(namespace).rglob("*.*"))
    request = api.UpdateTableRequest(id=TABLE, predicate="a = 1", updates=[["a", "7"]])
    namespace.update_table(request)
    [final] = [each for each in manifests(namespace) if each not in old]
    staged = final.with_name(str(state(namespace).staged))
    final.rename(staged)
    later.rename(manifests(namespace)[-1].with_name(name_of(4, Scheme.V2)))
    for path in (directory(namespace) / lost).iterdir():
        if path not in old:
            path.unlink()
    before = sorted(path.name for path in manifests(namespace))
    for call in (count, insert, discard):
        with pytest.raises(LatestVersionGoneError, match=r"ile .* of version 3, .*: 4"):
            call(namespace)
    assert sorted(path.name for path in manifests(namespace)) == before
    register_again(namespace)
    assert rows(namespace) == [0, 1, 2, 8, 9]


def test_a_version_that_was_the_latest_until_it_was_deleted_is_not_found(
    namespace: MemoryNamespace,
) -> None:
    """The view of a reader that has been open since then, and a clean-up."""
    create_table(namespace, "hide")
    view = TableView(namespace.tables.load_by_id(TABLE), write=False)
    append(namespace, 9)
    manifests(namespace)[1].unlink()
    with pytest.raises(errors.TableVersionNotFoundError):
        view.describe_table_version({"version": 2})
    described = view.describe_table_version({"version": 3}).version
    assert (described.version, versions(namespace)) == (3, [1, 3])


@pytest.mark.parametrize("call", [count, versions, insert, discard, release])
def test_only_older_versions_are_never_taken_for_the_latest(
    namespace: MemoryNamespace, call: Callable[[MemoryNamespace], Any]
) -> None:
    create_table(namespace, "hide")
    manifests(namespace)[0].unlink()
    with pytest.raises(LatestVersionGoneError, match=r"version 2, .* restore that file"):
        call(namespace)
    with pytest.raises(LatestVersionGoneError, match="restore that file"):
        namespace.adopt_out_of_band_versions(TABLE)
    assert len(manifests(namespace)) == 1


def lose_new_data(ns: MemoryNamespace) -> None:
    """Write a version by the table's path, and delete its data file."""
    data = directory(ns) / "data"
    before = set(data.iterdir())
    append_past_the_catalog(ns, 9)
    [new] = set(data.iterdir()) - before
    new.unlink()


@pytest.mark.spec("operations.md#adopt_out_of_band_versions")
def test_a_version_without_its_data_is_not_adopted(namespace: MemoryNamespace) -> None:
    create_table(namespace, "refuse")
    lose_new_data(namespace)
    with pytest.raises(errors.InvalidTableStateError, match=r"its data file .* is missing"):
        namespace.adopt_out_of_band_versions(TABLE)
    assert rows(namespace) == [0, 1, 2, 8]


@pytest.mark.spec("operations.md#adopt_out_of_band_versions")
def test_a_damaged_manifest_is_not_adopted(namespace: MemoryNamespace) -> None:
    create_table(namespace, "refuse")
    append_past_the_catalog(namespace, 9)
    manifests(namespace)[0].write_bytes(b"damaged")
    with pytest.raises(errors.InvalidTableStateError, match=r"Version 3 .*cannot be adopted"):
        namespace.adopt_out_of_band_versions(TABLE)
    assert rows(namespace) == [0, 1, 2, 8]


@pytest.mark.spec("operations.md#discard_out_of_band_versions")
def test_nothing_is_discarded_while_the_latest_manifest_is_damaged(
    namespace: MemoryNamespace,
) -> None:
    create_table(namespace, "refuse")
    append_past_the_catalog(namespace, 9)
    manifests(namespace)[1].write_bytes(b"damaged")
    with pytest.raises(LatestVersionGoneError, match=r"readable manifest of version 2.*: 3"):
        discard(namespace)
    assert namespace.adopt_out_of_band_versions(TABLE) == 3
    assert rows(namespace) == [0, 1, 2, 8, 9]


@pytest.mark.spec("managed.md#commits-that-bypass-the-catalog")
def test_a_version_without_its_data_is_quarantined_by_the_property_too(
    namespace: MemoryNamespace,
) -> None:
    create_table(namespace, "adopt")
    lose_new_data(namespace)
    assert rows(namespace) == [0, 1, 2, 8]
    assert len(namespace.list_out_of_band_versions(TABLE).quarantined) == 1


@pytest.mark.spec("spark.md#clean_up", "managed.md#out-of-band-versions")
@pytest.mark.parametrize("policy", ["hide", "refuse"])
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_clean_up_waits_for_a_decision_on_versions_that_bypassed_the_catalog(
    namespace: MemoryNamespace, policy: str, dry_run: bool
) -> None:
    create_table(namespace, policy)
    append_past_the_catalog(namespace, 9)
    for _ in range(2):  # the first call may quarantine it
        with pytest.raises(errors.InvalidTableStateError, match=r"(?s)managed (adopt|discard)"):
            clean_up(namespace.tables.load_by_id(TABLE), dry_run=dry_run)
    assert namespace.adopt_out_of_band_versions(TABLE) == 3
    assert rows(namespace) == [0, 1, 2, 8, 9]
    assert clean_up(namespace.tables.load_by_id(TABLE), dry_run=dry_run).versions == 0


# -- what a clean-up must not delete ---------------------------------------------------------------


def make_old(ns: MemoryNamespace) -> None:
    """Give all files of the table an age at which a clean-up deletes them if none names them."""
    then = time.time() - timedelta(days=8).total_seconds()
    for path in directory(ns).rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


def overwrite(ns: MemoryNamespace, *values: int) -> None:
    request = api.InsertIntoTableRequest(id=TABLE, mode="overwrite")
    ns.insert_into_table(request, ipc(table(*values)))


def clean(ns: MemoryNamespace, **options: Any) -> Cleaned:
    return clean_up(ns.tables.load_by_id(TABLE), older_than=timedelta(0), **options)


@pytest.fixture
def any_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "LEAST_AGE", timedelta())


@pytest.mark.usefixtures("any_age")
@pytest.mark.spec("spark.md#clean_up", "managed.md#clean-ups")
def test_a_committed_version_gets_its_final_name_before_a_clean_up(
    unfinished: MemoryNamespace,
) -> None:
    make_old(unfinished)
    assert clean(unfinished).versions == 1
    assert rows(unfinished) == [0, 1, 2, 100]


@pytest.mark.usefixtures("any_age")
@pytest.mark.spec("spark.md#clean_up", "managed.md#clean-ups")
def test_nothing_is_cleaned_up_while_a_committed_version_stays_staged(
    unfinished: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_old(unfinished)
    with monkeypatch.context() as patched:
        refused = raiser(errors.PermissionDeniedError("read only"))
        patched.setattr(TableFiles, "put_own", refused)
        with pytest.raises(errors.PermissionDeniedError):
            clean(unfinished)
    assert rows(unfinished) == [0, 1, 2, 100]


@pytest.mark.usefixtures("any_age")
@pytest.mark.spec("spark.md#clean_up", "managed.md#clean-ups")
def test_data_of_a_version_that_is_only_staged_is_not_deleted(managed: MemoryNamespace) -> None:
    version, path = stage(managed)
    make_old(managed)
    with pytest.raises(errors.InvalidTableStateError, match=r"data/.* which the manifest"):
        clean(managed)
    commit(managed, version, str(path))
    assert rows(managed) == [0, 1, 2, 100]
    assert clean(managed).versions == 1
    assert rows(managed) == [0, 1, 2, 100]


@pytest.mark.usefixtures("any_age")
@pytest.mark.spec("spark.md#clean_up", "managed.md#clean-ups")
def test_quarantined_versions_protect_their_data_after_a_release_too(
    managed: MemoryNamespace,
) -> None:
    append_past_the_catalog(managed, 7)
    assert rows(managed) == [0, 1, 2]
    managed.release_table(TABLE)
    make_old(managed)
    with pytest.raises(errors.InvalidTableStateError, match="managed begin"):
        clean(managed)
    managed.manage_table(TABLE)
    assert managed.adopt_out_of_band_versions(TABLE) == 2
    assert rows(managed) == [0, 1, 2, 7]


@pytest.mark.usefixtures("any_age")
@pytest.mark.spec("spark.md#clean_up", "managed.md#clean-ups")
@pytest.mark.parametrize("is_managed", [False, True])
@pytest.mark.parametrize("dry_run", [True, False])
def test_what_stays_is_in_the_answer(
    namespace: MemoryNamespace, *, is_managed: bool, dry_run: bool
) -> None:
    create(namespace, TABLE, properties=MANAGED if is_managed else None)
    overwrite(namespace, 8)
    overwrite(namespace, 9)
    opened = lance.dataset(str(directory(namespace)))
    opened.tags.create("first", 1)
    reasons = ["version 1 has the tag 'first'"]
    if not is_managed:
        opened.create_branch("b", 2)
        reasons.append("version 2 has the branch 'b'")
    found = clean(namespace, dry_run=dry_run)
    assert list(found.kept) == reasons
    assert found.unread == ()
    assert lance.dataset(str(directory(namespace)), version=1).count_rows() == 3


def clone_of(ns: MemoryNamespace, version: int, place: Path) -> None:
    """Clone a version of the table, and register the clone."""
    lance.dataset(str(directory(ns))).shallow_clone(str(place), version)
    ns.register_table(api.RegisterTableRequest(id=[*TABLE[:-1], "clone"], location=str(place)))


@pytest.mark.usefixtures("any_age")
@pytest.mark.spec("spark.md#clean_up", "managed.md#clean-ups")
@pytest.mark.parametrize("is_managed", [False, True])
def test_files_of_a_shallow_clone_stay(
    namespace: MemoryNamespace, tmp_path: Path, *, is_managed: bool
) -> None:
    create(namespace, TABLE, properties=MANAGED if is_managed else None)
    append(namespace, 7) if is_managed else insert(namespace)
    lance.dataset(namespace_client=namespace, table_id=TABLE).delete("a = 1")
    clone_of(namespace, 3, tmp_path / "clone")
    for value in range(4):
        overwrite(namespace, value)
    make_old(namespace)
    found = clean(namespace)
    assert (found.versions, len(found.kept)) == (0, 1)
    assert "the shallow clone 'eu.shop.sales.clone'" in found.kept[0]
    assert lance.dataset(str(tmp_path / "clone")).count_rows() == 3
    namespace.drop_table(api.DropTableRequest(id=[*TABLE[:-1], "clone"]))
    assert clean(namespace).versions == 6


@pytest.mark.usefixtures("any_age")
@pytest.mark.spec("spark.md#clean_up", "managed.md#clean-ups")
def test_files_that_only_a_shallow_clone_needs_are_not_deleted(
    namespace: MemoryNamespace, tmp_path: Path
) -> None:
    create(namespace, TABLE)
    clone_of(namespace, 1, tmp_path / "clone")
    overwrite(namespace, 8)
    manifests(namespace)[1].unlink()
    make_old(namespace)
    with pytest.raises(errors.InvalidTableStateError, match=r"data/.* which the shallow clone"):
        clean(namespace)
    assert lance.dataset(str(tmp_path / "clone")).count_rows() == 3


@pytest.mark.spec("spark.md#clean_up", "managed.md#clean-ups")
def test_an_entry_that_cannot_be_read_may_be_a_clone(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(namespace, TABLE)
    create(namespace, [*TABLE[:-1], "other"])
    refused = raiser(errors.PermissionDeniedError("not yours"))
    monkeypatch.setattr(BaseLocations, "of_latest", refused)
    assert clean_up(namespace.tables.load_by_id(TABLE)).unread == (
        "'eu.shop.sales.other': not yours",
    )


# -- what the doctor says of clean-ups by path -----------------------------------------------------


def diagnosed(ns: MemoryNamespace) -> Finding:
    [found] = diagnose_namespace(ns, "prod", idle=timedelta(0)).findings
    assert found.subject == ".".join(TABLE)
    return found


@pytest.mark.spec("cli.md#findings", "managed.md#clean-ups")
@pytest.mark.parametrize("policy", ["hide", "refuse"])
def test_the_doctor_says_which_rows_a_clean_up_by_path_threatens(
    namespace: MemoryNamespace, policy: str
) -> None:
    create_table(namespace, policy)
    append_past_the_catalog(namespace, 9)
    aside = manifests(namespace)[0]
    aside.rename(aside.with_name(f"{aside.name}-foreign"))
    assert diagnosed(namespace).kind is Kind.OUT_OF_BAND
    make_old(namespace)
    found = diagnosed(namespace)
    assert found.kind is Kind.UNPROTECTED_DATA
    assert "deletes data that is older than 7 days" in found.message
    assert found.command == f"lance-bridge managed adopt prod {'.'.join(TABLE)}"
    before = len(list((directory(namespace) / "data").iterdir()))
    clean_up_by_path(namespace)
    # It compacted 2 data files to 1, and deleted that of version 3.
    assert (before, len(list((directory(namespace) / "data").iterdir()))) == (3, 1)


@pytest.mark.spec("cli.md#findings", "managed.md#clean-ups")
def test_the_doctor_says_that_a_clean_up_by_path_threatens_the_latest_version(
    namespace: MemoryNamespace,
) -> None:
    create_table(namespace, "hide")
    make_old(namespace)
    append_past_the_catalog(namespace, 9)
    assert diagnosed(namespace).kind is Kind.UNPROTECTED_DATA


@pytest.mark.spec("cli.md#findings", "managed.md#clean-ups")
def test_the_doctor_says_that_a_committed_version_has_no_final_name(
    unfinished: MemoryNamespace,
) -> None:
    assert diagnose_namespace(unfinished, "prod", idle=timedelta(0)).findings == ()
    make_old(unfinished)
    found = diagnosed(unfinished)
    assert (found.kind, "version 2 has no final name" in found.message) == (
        Kind.UNPROTECTED_DATA, True
    )  # fmt: skip
    assert len(manifests(unfinished)) == 2
    assert versions(unfinished) == [1, 2]
    assert diagnose_namespace(unfinished, "prod", idle=timedelta(0)).findings == ()


@pytest.mark.spec("cli.md#findings", "managed.md#clean-ups")
def test_the_doctor_says_to_append_rows_of_what_cannot_be_adopted(
    namespace: MemoryNamespace,
) -> None:
    create_table(namespace, "hide")
    append_past_the_catalog(namespace, 8)
    append(namespace, 9)
    found = diagnosed(namespace)
    assert found.command.endswith(f"prod {'.'.join(TABLE)} --append")
    assert "the rows of version 3 (1 data file, 1 row)" in found.message


@pytest.mark.spec("cli.md#findings", "managed.md#clean-ups")
def test_the_doctor_says_to_restore_a_latest_version_that_is_gone(
    namespace: MemoryNamespace,
) -> None:
    create_table(namespace, "hide")
    manifests(namespace)[0].unlink()
    found = diagnosed(namespace)
    assert found.kind is Kind.INCONSISTENT_ENTRY
    assert "restore its manifest from a backup" in found.message
    assert "deregister" not in f"{found.message} {found.command}"

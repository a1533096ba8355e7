"""Clean-ups of managed tables, by their paths and by their names, lose no rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge.dataset import clean_up
from lance_bridge.errors import LatestVersionGoneError
from lance_bridge.managed import out_of_band
from lance_bridge.managed.view import TableView
from lance_bridge.records import FOREIGN_COMMITS
from lance_bridge.testing.calls import Calls

from .building import TABLE, create
from .managed_tables import (
    MANAGED,
    append,
    append_past_the_catalog,
    directory,
    insert,
    rows,
    state,
    versions,
)
from .memory_catalog import MemoryNamespace

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

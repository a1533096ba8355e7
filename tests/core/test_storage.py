"""Storage under tables on local files: what is looked at, what is deleted, what stays."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import (
    InvalidInputError,
    PermissionDeniedError,
    ServiceUnavailableError,
)

from lance_bridge.storage import RESERVED_FILE, TableStorage


@pytest.fixture
def storage() -> TableStorage:
    return TableStorage({})


def write_table(place: Path) -> Path:
    """Write a dataset that has files in every directory that Lance makes."""
    dataset = lance.write_dataset(pa.table({"a": list(range(300))}), str(place))
    dataset.delete("a < 3")
    dataset.create_scalar_index("a", "BTREE")
    dataset.tags.create("t", 1)
    dataset.create_branch("b", 1)
    return place


def files(directory: Path) -> list[str]:
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*") if not p.is_dir())


# -- looking ---------------------------------------------------------------------------------------


def test_nothing_is_at_a_place_that_does_not_exist(storage: TableStorage, tmp_path: Path) -> None:
    for place in (tmp_path / "no", tmp_path / "no" / "such" / "place"):
        assert not storage.has_dataset(str(place))
        assert not storage.is_occupied(str(place))


def test_a_dataset_is_one_from_its_first_version_on(storage: TableStorage, tmp_path: Path) -> None:
    place = tmp_path / "t.lance"
    (place / "data").mkdir(parents=True)
    (place / "data" / "x.lance").write_text("left by a failed write")
    assert not storage.has_dataset(str(place))
    assert storage.is_occupied(str(place))
    write_table(place)
    assert storage.has_dataset(f"file://{place}/")


def test_a_dataset_of_old_manifest_names_is_one_too(storage: TableStorage, tmp_path: Path) -> None:
    place = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"a": [1]}), place, enable_v2_manifest_paths=False)
    assert storage.has_dataset(place)


def test_an_empty_directory_is_free_and_a_file_is_not(
    storage: TableStorage, tmp_path: Path
) -> None:
    (tmp_path / "empty" / "deep").mkdir(parents=True)
    (tmp_path / "file").write_text("x")
    assert not storage.is_occupied(str(tmp_path / "empty"))
    assert storage.is_occupied(str(tmp_path / "file"))
    assert not storage.has_dataset(str(tmp_path / "file"))
    assert not storage.is_occupied(str(tmp_path / "file" / "below"))


def test_a_reserved_place_is_taken_and_holds_no_dataset(
    storage: TableStorage, tmp_path: Path
) -> None:
    place = tmp_path / "a" / "t.lance"
    storage.reserve(str(place))
    storage.reserve(str(place))
    assert files(place) == [RESERVED_FILE]
    assert storage.is_occupied(str(place))
    assert not storage.has_dataset(str(place))
    storage.delete_table(str(place))
    assert not place.exists()


def test_what_cannot_be_looked_at_is_not_absent(storage: TableStorage, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for place in (tmp_path / "loop", tmp_path / "loop" / "t.lance"):
        for look in (storage.has_dataset, storage.is_occupied, storage.delete_table):
            with pytest.raises(ServiceUnavailableError, match=str(place)):
                look(str(place))


def test_a_refused_directory_is_permission_denied(
    storage: TableStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's refusal is simulated: whoever runs tests as root is refused nothing."""
    place = write_table(tmp_path / "t.lance")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(place))

    for owner, refused in ((os, "scandir"), (Path, "stat")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, refused, refuse)
            for look in (storage.has_dataset, storage.is_occupied, storage.delete_table):
                with pytest.raises(PermissionDeniedError, match="refused access"):
                    look(str(place))
    assert storage.has_dataset(str(place))


# -- deleting --------------------------------------------------------------------------------------


def test_a_table_is_deleted_with_its_directory(storage: TableStorage, tmp_path: Path) -> None:
    place = write_table(tmp_path / "t.lance")
    sister = write_table(tmp_path / "t.lance2")
    before = files(sister)
    storage.delete_table(str(place))
    assert not place.exists()
    assert files(sister) == before


def test_deleting_may_be_repeated(storage: TableStorage, tmp_path: Path) -> None:
    place = write_table(tmp_path / "t.lance")
    for _ in range(2):
        storage.delete_table(str(place))
    storage.delete_table(str(tmp_path / "never"))
    assert not place.exists()


def test_foreign_files_stay_and_are_logged(
    storage: TableStorage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = write_table(tmp_path / "t.lance")
    (place / "README.md").write_text("mine")
    (place / "inner.lance" / "data").mkdir(parents=True)
    (place / "inner.lance" / "data" / "x.lance").write_text("another table")
    with caplog.at_level(logging.WARNING):
        storage.delete_table(str(place))
    assert files(place) == ["README.md", "inner.lance/data/x.lance"]
    assert "2 entries that are not Lance's were left" in caplog.text


def test_without_any_version_only_lance_s_own_files_go(
    storage: TableStorage, tmp_path: Path
) -> None:
    place = tmp_path / "t.lance"
    for name in (
        "data/left-by-a-failed-write.lance",
        "data/part-0.parquet",
        "data/deep/x.lance",
        "tree/oak.txt",
        "_transactions/0.txn",
        "metadata/v1.json",
    ):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("x")
    storage.delete_table(str(place))
    kept = ["data/deep/x.lance", "data/part-0.parquet", "metadata/v1.json", "tree/oak.txt"]
    assert files(place) == kept


def test_a_failed_write_leaves_nothing_behind(storage: TableStorage, tmp_path: Path) -> None:
    place = tmp_path / "t.lance"
    (place / "data").mkdir(parents=True)
    (place / "data" / "x.lance").write_text("x")
    (place / "_transactions").mkdir()
    storage.delete_table(str(place))
    assert not place.exists()


def test_a_file_at_the_place_of_a_table_stays(storage: TableStorage, tmp_path: Path) -> None:
    (tmp_path / "t.lance").write_text("mine")
    storage.delete_table(str(tmp_path / "t.lance"))
    assert (tmp_path / "t.lance").read_text() == "mine"


def test_links_inside_a_table_are_removed_and_not_followed(
    storage: TableStorage, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.lance").write_text("kept")
    place = write_table(tmp_path / "t.lance")
    (place / "data" / "link").symlink_to(outside)
    (place / "data" / "one.lance").symlink_to(outside / "x.lance")
    (place / "_blobs").symlink_to(outside)
    storage.delete_table(str(place))
    assert not place.exists()
    assert files(outside) == ["x.lance"]


def test_a_linked_data_directory_without_versions_stays(
    storage: TableStorage, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.lance").write_text("kept")
    place = tmp_path / "t.lance"
    place.mkdir()
    (place / "data").symlink_to(outside)
    storage.delete_table(str(place))
    assert (place / "data" / "x.lance").read_text() == "kept"


def test_a_table_behind_a_link_is_deleted_and_the_link_stays(
    storage: TableStorage, tmp_path: Path
) -> None:
    write_table(tmp_path / "real.lance")
    link = tmp_path / "t.lance"
    link.symlink_to(tmp_path / "real.lance")
    storage.delete_table(str(link))
    assert link.is_symlink()
    assert files(tmp_path / "real.lance") == []


def test_a_socket_in_a_table_s_directory_stays(storage: TableStorage, tmp_path: Path) -> None:
    place = write_table(tmp_path / "t.lance")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / "s"))
        storage.delete_table(str(place))
        assert files(place) == ["s"]


def test_releasing_a_place_takes_back_only_what_reserving_it_made(tmp_path: Path) -> None:
    storage = TableStorage({})
    own = tmp_path / "mine"
    own.mkdir()
    storage.release(str(own), storage.reserve(str(own)))
    assert list(tmp_path.iterdir()) == [own]
    deep = own / "a" / "b.lance"
    made = storage.reserve(str(deep))
    assert (deep / ".lance-reserved").exists()
    storage.release(str(deep), made)
    assert list(tmp_path.iterdir()) == [own]
    assert list(own.iterdir()) == []


def test_releasing_a_place_that_is_used_by_now_leaves_it(tmp_path: Path) -> None:
    storage = TableStorage({})
    made = storage.reserve(str(tmp_path / "a" / "t.lance"))
    (tmp_path / "a" / "other").mkdir()
    storage.release(str(tmp_path / "a" / "t.lance"), made)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["other"]


def test_a_name_that_the_disk_does_not_take_is_the_callers_mistake(
    storage: TableStorage, tmp_path: Path
) -> None:
    long = str(tmp_path / ("x" * 300) / "t.lance")
    for use in (storage.has_dataset, storage.is_occupied, storage.reserve, storage.delete_table):
        with pytest.raises(InvalidInputError, match="longer than the file system"):
            use(long)

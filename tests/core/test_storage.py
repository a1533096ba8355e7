"""Storage under tables on local files: what is read, what is deleted, what stays."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.fragment import FragmentMetadata
from lance_namespace import errors
from obstore.store import LocalStore
from servers.http_proxy import Answer, HttpProxy

from lance_bridge.catalog import TableRecord
from lance_bridge.storage import store
from lance_bridge.storage.lance_format import RESERVED_FILE
from lance_bridge.storage.manifests import VersionDirectory
from lance_bridge.storage.store import TableFiles, TableStorage

from .memory_catalog import CAPABILITIES, TABLE, MemoryNamespace, at_change, create

pytestmark = pytest.mark.quick

STORAGE = TableStorage({})


def write_table(place: Path) -> Path:
    """Write a dataset that has files in every directory that Lance makes."""
    dataset = lance.write_dataset(pa.table({"a": list(range(300))}), str(place))
    dataset.delete("a < 3")
    dataset.create_scalar_index("a", "BTREE")
    dataset.tags.create("t", 1)
    dataset.create_branch("b", 1)
    return place


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return write_table(tmp_path / "t.lance")


UUID = "66aac37b-adee-470b-ad57-b83dceeb1373"
DATA_FILE = "data/010001101001011000001110dde9af43dbb6e96391badc9ffe.lance"


def put(place: Path, *names: str) -> None:
    """Write files of others."""
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("x")


def refuse_after(count: int) -> Callable[..., None]:
    """Return a `Path.unlink` that fails once so many files are deleted."""
    left = iter(range(count))

    def unlink(path: Path, **_: object) -> None:
        if next(left, None) is None:
            raise PermissionError(13, "Permission denied", str(path))
        os.unlink(path)

    return unlink


def files(directory: Path) -> list[str]:
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*") if not p.is_dir())


# -- looking ---------------------------------------------------------------------------------------


def test_a_dataset_is_one_from_its_first_version_on(tmp_path: Path) -> None:
    place = tmp_path / "t.lance"
    (place / "data").mkdir(parents=True)
    (place / "data" / "x.lance").write_text("left by a failed write")
    assert not STORAGE.has_dataset(str(place))
    assert STORAGE.is_occupied(str(place))
    write_table(place)
    assert STORAGE.has_dataset(f"file://{place}/")


def test_an_empty_or_missing_directory_is_free_and_a_file_is_not(tmp_path: Path) -> None:
    (tmp_path / "empty" / "deep").mkdir(parents=True)
    (tmp_path / "file").write_text("x")
    for free in ("empty", "no", "no/such/place", "file/below"):
        assert not STORAGE.is_occupied(str(tmp_path / free))
        assert not STORAGE.has_dataset(str(tmp_path / free))
    assert STORAGE.is_occupied(str(tmp_path / "file"))
    assert not STORAGE.has_dataset(str(tmp_path / "file"))


def test_a_reserved_place_is_taken_and_holds_no_dataset(tmp_path: Path) -> None:
    place = tmp_path / "a" / "t.lance"
    STORAGE.reserve(str(place))
    STORAGE.reserve(str(place))
    assert files(place) == [RESERVED_FILE]
    assert STORAGE.is_occupied(str(place))
    assert not STORAGE.has_dataset(str(place))
    STORAGE.delete_table(str(place))
    assert not place.exists()


def test_what_cannot_be_looked_at_is_not_absent(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for place in (tmp_path / "loop", tmp_path / "loop" / "t.lance"):
        for look in (STORAGE.has_dataset, STORAGE.is_occupied, STORAGE.delete_table):
            with pytest.raises(errors.ServiceUnavailableError, match=str(place)):
                look(str(place))


def test_a_refused_directory_is_permission_denied(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's refusal is simulated: root is refused nothing."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(place))

    for owner, refused in ((os, "scandir"), (Path, "stat")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, refused, refuse)
            for look in (STORAGE.has_dataset, STORAGE.is_occupied, STORAGE.delete_table):
                with pytest.raises(errors.PermissionDeniedError, match="refused access"):
                    look(str(place))
    assert STORAGE.has_dataset(str(place))


# -- deleting --------------------------------------------------------------------------------------


def test_a_table_is_deleted_with_its_directory(tmp_path: Path, place: Path) -> None:
    sister = write_table(tmp_path / "t.lance2")
    before = files(sister)
    for _ in range(2):
        STORAGE.delete_table(str(place))
        assert not place.exists()
    STORAGE.delete_table(str(tmp_path / "never"))
    assert files(sister) == before


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    place = tmp_path / "t.lance"
    put(place, DATA_FILE, f"data/{UUID}.lance", "data/.tmpHIbKCq", f"{DATA_FILE}#1")
    (place / "_transactions").mkdir()
    STORAGE.delete_table(str(place))
    assert not place.exists()


def test_files_of_others_in_directories_of_lance_stay_and_are_named(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_table(place / "data" / "nested.lance")
    write_table(place / "tree" / "nested")
    kept = [
        "_deletions/why.txt",
        f"_indices/{UUID}/notes.txt",
        "_refs/heads",
        "_refs/tags/README.json",
        "_transactions/0.txn",
        "_versions/1.manifest.bak",
        "data/iceberg-00001.parquet",
        "tree/b/foreign.txt",
        "tree/foreign.txt",
    ]
    put(place, *kept)
    nested = [
        name for name in files(place) if name.startswith(("data/nested.lance/", "tree/nested/"))
    ]
    left = STORAGE.delete_table(str(place))
    assert files(place) == sorted(left) == sorted([*kept, *nested])
    assert lance.dataset(place / "data" / "nested.lance").count_rows() == 297
    assert lance.dataset(place / "tree" / "nested").count_rows() == 297
    assert "'_deletions/why.txt'" in caplog.text


def test_a_data_file_of_any_name_goes_where_a_version_names_it(tmp_path: Path, place: Path) -> None:
    (made,) = lance.write_dataset(pa.table({"a": [1]}), tmp_path / "x.lance").get_fragments()
    (file,) = made.metadata.files
    (place / "data" / "sub").mkdir()
    (tmp_path / "x.lance" / "data" / file.path).rename(place / "data" / "sub" / "own.bin")
    fragment = json.loads(json.dumps(made.metadata.to_json()))
    fragment["files"][0]["path"] = "sub/own.bin"
    appended = lance.LanceOperation.Append([FragmentMetadata.from_json(json.dumps(fragment))])
    dataset = lance.dataset(place)
    dataset = lance.LanceDataset.commit(place, appended, read_version=dataset.version)
    lance.write_dataset(pa.table({"a": [1]}), place, mode="overwrite")
    put(place, "data/sub/other.bin")
    assert STORAGE.delete_table(str(place)) == ("data/sub/other.bin",)
    assert files(place) == ["data/sub/other.bin"]


def test_a_branch_that_nothing_refers_to_any_more_goes_with_the_table(place: Path) -> None:
    (place / "_refs" / "branches" / "b.json").unlink()
    STORAGE.delete_table(str(place))
    assert not place.exists()


@pytest.mark.spec("common.md#droptable")
@pytest.mark.parametrize("broken", ["", "not a manifest"])
@pytest.mark.parametrize("directory", ["_versions", "tree/b/_versions"])
def test_nothing_is_deleted_of_a_table_whose_latest_manifest_cannot_be_read(
    place: Path, broken: str, directory: str
) -> None:
    latest = min((place / directory).glob("*.manifest"))
    latest.write_text(broken)
    before = files(place)
    for use in (STORAGE.files_of_table, STORAGE.delete_table):
        with pytest.raises(errors.InvalidTableStateError, match=rf"{latest.name}.*[Dd]eregister"):
            use(str(place))
    assert files(place) == before


def test_an_older_manifest_must_be_read_only_for_files_of_unknown_names(place: Path) -> None:
    max((place / "_versions").glob("*.manifest")).write_text("broken")
    STORAGE.files_of_table(str(place))
    put(place, "data/x.parquet")
    with pytest.raises(errors.InvalidTableStateError, match="cannot be read"):
        STORAGE.files_of_table(str(place))
    (place / "data" / "x.parquet").unlink()
    STORAGE.delete_table(str(place))
    assert not place.exists()


@pytest.mark.spec("common.md#files-that-are-deleted")
def test_a_deletion_that_was_interrupted_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = write_table(tmp_path / "whole.lance")
    for step in range(len(files(whole))):
        place = tmp_path / f"{step}.lance"
        shutil.copytree(whole, place)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", refuse_after(step))
            with pytest.raises(errors.PermissionDeniedError):
                STORAGE.delete_table(str(place))
        assert len(files(place)) == len(files(whole)) - step
        STORAGE.delete_table(str(place))
        assert not place.exists()


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory of others, to which links lead."""
    put(tmp_path / "outside", "x.lance")
    return tmp_path / "outside"


@pytest.mark.spec("common.md#files-that-are-deleted")
def test_links_inside_a_table_are_not_followed_and_stay_unless_named_as_lance_s_files(
    place: Path, outside: Path
) -> None:
    (place / "data" / "link").symlink_to(outside)
    (place / "data" / "one.lance").symlink_to(outside / "x.lance")
    (place / DATA_FILE).symlink_to(outside / "x.lance")
    (place / "_blobs").symlink_to(outside)
    left = STORAGE.delete_table(str(place))
    assert left == ("_blobs", "data/link", "data/one.lance")
    assert (place / "data" / "one.lance").read_text() == "x"
    assert not (place / DATA_FILE).is_symlink()
    assert files(outside) == ["x.lance"]


def test_a_linked_data_directory_without_versions_stays(tmp_path: Path, outside: Path) -> None:
    place = tmp_path / "t.lance"
    place.mkdir()
    (place / "data").symlink_to(outside)
    STORAGE.delete_table(str(place))
    assert (place / "data" / "x.lance").read_text() == "x"


def test_a_table_behind_a_link_is_deleted_and_the_link_stays(tmp_path: Path) -> None:
    write_table(tmp_path / "real.lance")
    link = tmp_path / "t.lance"
    link.symlink_to(tmp_path / "real.lance")
    STORAGE.delete_table(str(link))
    assert link.is_symlink()
    assert files(tmp_path / "real.lance") == []


def test_a_socket_in_a_table_s_directory_stays(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / "s"))
        STORAGE.delete_table(str(place))
        assert files(place) == ["s"]


def test_a_name_that_the_disk_does_not_take_is_the_callers_mistake(tmp_path: Path) -> None:
    long = str(tmp_path / ("x" * 300) / "t.lance")
    for use in (STORAGE.has_dataset, STORAGE.is_occupied, STORAGE.reserve, STORAGE.delete_table):
        with pytest.raises(errors.InvalidInputError, match="longer than the file system"):
            use(long)


# -- reserved locations, where several clients create one table at once ----------------------------


@pytest.fixture
def location(tmp_path: Path) -> Path:
    """A location in a directory that does not exist either."""
    return tmp_path / "db" / "t.lance"


Step = Callable[[Path], None]


def once_before(monkeypatch: pytest.MonkeyPatch, method: str, step: Step) -> None:
    """Have another client take a step before the next call of this method of `Path`."""
    real, steps = getattr(Path, method), iter([step])

    def call(path: Path, *args: object, **named: object) -> object:
        for each in steps:
            each(path)
        return real(path, *args, **named)

    monkeypatch.setattr(Path, method, call)


def test_releasing_a_place_takes_back_only_what_reserving_it_made(tmp_path: Path) -> None:
    own = tmp_path / "mine"
    own.mkdir()
    STORAGE.release(str(own), STORAGE.reserve(str(own)) or ())
    assert list(tmp_path.iterdir()) == [own]
    deep = own / "a" / "b.lance"
    made = STORAGE.reserve(str(deep)) or ()
    assert (deep / ".lance-reserved").exists()
    STORAGE.release(str(deep), made)
    assert list(tmp_path.iterdir()) == [own]
    assert list(own.iterdir()) == []


def test_releasing_a_place_that_is_used_by_now_leaves_it(tmp_path: Path) -> None:
    made = STORAGE.reserve(str(tmp_path / "a" / "t.lance")) or ()
    (tmp_path / "a" / "other").mkdir()
    STORAGE.release(str(tmp_path / "a" / "t.lance"), made)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["other"]


def test_a_location_that_another_client_releases_meanwhile_is_reserved(
    location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = STORAGE.reserve(str(location)) or ()
    once_before(monkeypatch, "touch", lambda _: STORAGE.release(str(location), created))
    STORAGE.reserve(str(location))
    assert [path.name for path in location.iterdir()] == [RESERVED_FILE]


def test_a_directory_that_vanishes_while_it_is_made_is_made_again(
    location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Path.mkdir` finds that the directory exists, and then asks whether it is one."""
    location.mkdir(parents=True)
    once_before(monkeypatch, "is_dir", Path.rmdir)
    STORAGE.reserve(str(location))
    assert [path.name for path in location.iterdir()] == [RESERVED_FILE]


def test_a_file_at_the_location_is_neither_replaced_nor_deleted(location: Path) -> None:
    location.parent.mkdir()
    location.write_text("x")
    with pytest.raises(errors.ServiceUnavailableError, match="File exists"):
        STORAGE.reserve(str(location))
    STORAGE.delete_table(str(location))
    assert location.read_text() == "x"


def test_a_directory_that_another_client_removes_meanwhile_is_released(
    location: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    created = STORAGE.reserve(str(location)) or ()
    once_before(monkeypatch, "rmdir", Path.rmdir)
    STORAGE.release(str(location), created)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_another_client_uses_meanwhile_stays(
    location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = STORAGE.reserve(str(location)) or ()
    once_before(monkeypatch, "rmdir", lambda path: (path / "data").mkdir())
    STORAGE.release(str(location), created)
    assert [path.name for path in location.iterdir()] == ["data"]


def test_a_creator_that_lost_says_so_if_its_reservation_cannot_be_released(
    namespace: MemoryNamespace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    namespace.server.capabilities = replace(CAPABILITIES, makes_directories=True)

    def win() -> None:
        namespace.server.tables[tuple(TABLE)] = TableRecord(
            tuple(TABLE), str(tmp_path / "elsewhere")
        )
        [directory] = (tmp_path / "lake").rglob("*.lance")
        shutil.rmtree(directory)
        directory.write_text("not a directory")

    at_change(namespace, "create_table", "before", win)
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(errors.TableAlreadyExistsError, match="Orders"),
    ):
        create(namespace, TABLE)
    assert "reservation" in caplog.text
    [left] = (tmp_path / "lake").rglob("*.lance")
    assert left.read_text() == "not a directory"


def test_a_directory_that_vanishes_before_it_is_listed_holds_no_version(
    location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_removed(path: str) -> LocalStore:
        location.rmdir()
        return LocalStore(path)

    location.mkdir(parents=True)
    monkeypatch.setattr(store, "LocalStore", open_removed)
    assert VersionDirectory(TableFiles(STORAGE, str(location))).list() == []


# -- Google's storage ------------------------------------------------------------------------------

NOTHING = (
    b'<?xml version="1.0"?><ListBucketResult><Name>b</Name><KeyCount>0</KeyCount>'
    b"<IsTruncated>false</IsTruncated></ListBucketResult>"
)


def google_options(bucket: HttpProxy) -> dict[str, str]:
    account = {
        "gcs_base_url": bucket.endpoint,
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }
    return {
        "google_service_account_key": json.dumps(account),
        "allow_http": "true",
        "google_storage_token": "vended",
        "expires_at_millis": "1",
    }


def test_a_vended_token_is_sent() -> None:
    """Shown on an empty bucket that notes what it is asked."""
    with HttpProxy("http://127.0.0.1:9") as bucket:
        bucket.fail_next("*", Answer(200, NOTHING))
        assert not TableStorage(google_options(bucket)).is_occupied("gs://bucket/t.lance")
        assert [each.headers["authorization"] for each in bucket.requests] == ["Bearer vended"]

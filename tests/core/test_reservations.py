"""Reserved locations on local files, where several clients create one table at once."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from lance_namespace import errors
from obstore.store import LocalStore

from lance_bridge.catalog import TableRecord
from lance_bridge.storage import table_files
from lance_bridge.storage.lance_files import RESERVED_FILE
from lance_bridge.storage.manifests import VersionDirectory
from lance_bridge.storage.store import TableStorage
from lance_bridge.storage.table_files import TableFiles

from .building import TABLE, at_change, create
from .memory_catalog import CAPABILITIES, MemoryNamespace, MemoryServer

pytestmark = pytest.mark.quick


@pytest.fixture
def storage() -> TableStorage:
    return TableStorage({})


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


def test_a_location_that_another_client_releases_meanwhile_is_reserved(
    storage: TableStorage, location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = storage.reserve(str(location))
    once_before(monkeypatch, "touch", lambda _: storage.release(str(location), created))
    storage.reserve(str(location))
    assert [path.name for path in location.iterdir()] == [RESERVED_FILE]


def test_a_directory_that_vanishes_while_it_is_made_is_made_again(
    storage: TableStorage, location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Path.mkdir` finds that the directory exists, and then asks whether it is one."""
    location.mkdir(parents=True)
    once_before(monkeypatch, "is_dir", Path.rmdir)
    storage.reserve(str(location))
    assert [path.name for path in location.iterdir()] == [RESERVED_FILE]


def test_a_file_at_the_location_is_not_replaced(storage: TableStorage, location: Path) -> None:
    location.parent.mkdir()
    location.write_text("x")
    with pytest.raises(errors.ServiceUnavailableError, match="File exists"):
        storage.reserve(str(location))
    assert location.read_text() == "x"


def test_a_directory_that_another_client_removes_meanwhile_is_released(
    storage: TableStorage, location: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    created = storage.reserve(str(location))
    once_before(monkeypatch, "rmdir", Path.rmdir)
    storage.release(str(location), created)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_another_client_uses_meanwhile_stays(
    storage: TableStorage, location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = storage.reserve(str(location))
    once_before(monkeypatch, "rmdir", lambda path: (path / "data").mkdir())
    storage.release(str(location), created)
    assert [path.name for path in location.iterdir()] == ["data"]


def test_a_creator_that_lost_says_so_if_its_reservation_cannot_be_released(
    namespace: MemoryNamespace,
    server: MemoryServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.capabilities = replace(CAPABILITIES, makes_directories=True)

    def win() -> None:
        server.tables[tuple(TABLE)] = TableRecord(tuple(TABLE), str(tmp_path / "elsewhere"))
        [directory] = (tmp_path / "lake").rglob("*.lance")
        shutil.rmtree(directory)
        directory.write_text("not a directory")

    at_change(server, "create_table", "before", win)
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(errors.TableAlreadyExistsError, match="Orders"),
    ):
        create(namespace, TABLE)
    assert "reservation" in caplog.text
    [left] = (tmp_path / "lake").rglob("*.lance")
    assert left.read_text() == "not a directory"


def test_a_directory_that_vanishes_before_it_is_listed_holds_no_version(
    storage: TableStorage, location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_removed(path: str) -> LocalStore:
        location.rmdir()
        return LocalStore(path)

    location.mkdir(parents=True)
    monkeypatch.setattr(table_files, "LocalStore", open_removed)
    assert VersionDirectory(TableFiles(storage, str(location))).list() == []

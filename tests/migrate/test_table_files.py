"""The files of a table are copied so that the copy is a table at any moment."""

from __future__ import annotations

import threading
from pathlib import Path

import lance
import pytest
from lance_namespace.errors import ServiceUnavailableError
from migrate.building import rows
from migrate.places import files

from lance_bridge.storage import TableFiles, TableStorage
from lance_bridge_migrate.migration import Stopped
from lance_bridge_migrate.migrations.copy import copy_files, files_of

pytestmark = pytest.mark.quick


def _directory(path: Path) -> TableFiles:
    return TableFiles(TableStorage({}), str(path))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of three versions."""
    place = tmp_path / "a.lance"
    for start in (0, 3, 6):
        lance.write_dataset(rows(3, start), str(place), mode="append" if start else "create")
    return place


def _copied(source: Path, target: Path, version: int) -> list[int]:
    """Copy up to a version; return the bytes of each file that was copied."""
    sizes: list[int] = []
    copy_files(
        _directory(source),
        _directory(target),
        files_of(_directory(source), version),
        stopping=threading.Event(),
        advance=sizes.append,
    )
    return sizes


def test_versions_up_to_one_are_copied_with_their_rows(table: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.lance"
    _copied(table, target, 2)
    found = lance.dataset(str(target))
    assert [each["version"] for each in found.versions()] == [1, 2]
    assert found.to_table().equals(lance.dataset(str(table), version=2).to_table())


def test_only_what_is_missing_or_cut_short_is_copied_again(table: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.lance"
    _copied(table, target, 3)
    whole = files(target)
    assert _copied(table, target, 3) == []
    cut, gone, *_ = sorted((target / "data").iterdir())
    size = cut.stat().st_size + gone.stat().st_size
    cut.write_bytes(cut.read_bytes()[:10])
    gone.unlink()
    assert sum(_copied(table, target, 3)) == size
    assert files(target) == whole
    # The hint is of the source's latest version, and Lance does without.
    assert whole == {k: v for k, v in files(table).items() if not k.endswith("hint.json")}


def test_a_file_that_cannot_be_copied_ends_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "a.lance"
    lance.write_dataset(rows(100), str(table), max_rows_per_file=1)
    tried: list[str] = []

    def fail(_: TableFiles, __: TableFiles, path: str) -> None:
        tried.append(path)
        if len(tried) > 1:
            threading.Event().wait(1)  # while the first failure is seen
        raise ServiceUnavailableError("the storage is down")

    monkeypatch.setattr(TableFiles, "copy_from", fail)
    with pytest.raises(ServiceUnavailableError):
        _copied(table, tmp_path / "copy.lance", 1)
    assert len(tried) < 20


def test_a_copy_that_is_stopped_shows_no_version(table: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.lance"
    stopping = threading.Event()
    wanted = files_of(_directory(table), 3)
    with pytest.raises(Stopped):
        copy_files(
            _directory(table),
            _directory(target),
            wanted,
            stopping=stopping,
            advance=lambda _: stopping.set(),
        )
    assert not TableStorage({}).has_dataset(str(target))

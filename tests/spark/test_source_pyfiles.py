"""Archives on the path of workers are read again where they were changed, and else not."""

from __future__ import annotations

import importlib
import os
import sys
import zipfile
import zipimport
from pathlib import Path
from typing import Any

import pytest

from lance_bridge_spark.source import pyfiles

pytestmark = pytest.mark.quick


def written(path: Path, **modules: str) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in modules.items():
            archive.writestr(f"{name}.py", text)
    return str(path)


def test_modules_of_an_archive_are_found_and_found_again_when_it_changes(tmp_path: Path) -> None:
    path = written(tmp_path / "a.zip", one="x = 1")
    finders: dict[str, Any] = {path: zipimport.zipimporter(path), str(tmp_path): None}
    pyfiles.cache_zip_importers(finders)
    finder = finders[path]
    assert finders[str(tmp_path)] is None
    assert finder.find_spec("one") is not None
    assert finder.find_spec("two") is None

    written(tmp_path / "a.zip", one="x = 1", two="x = 2")
    finder.invalidate_caches()
    assert finder.find_spec("two") is not None

    (tmp_path / "a.zip").unlink()
    finder.invalidate_caches()
    assert finder.find_spec("two") is None


def test_an_archive_that_is_as_it_was_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finder = pyfiles.CachedZipImporter(written(tmp_path / "a.zip", one="x = 1"))
    reads = []
    monkeypatch.setattr(
        zipimport.zipimporter, "invalidate_caches", lambda self: reads.append(self.archive)
    )
    finder.invalidate_caches()
    assert reads == []
    os.utime(tmp_path / "a.zip", (1, 1))
    finder.invalidate_caches()
    assert reads == [str(tmp_path / "a.zip")]


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="Python does so by itself since 3.13")
def test_only_workers_of_spark_are_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = written(tmp_path / "a.zip", in_archive="x = 1")
    monkeypatch.syspath_prepend(path)
    assert importlib.import_module("in_archive").x == 1
    monkeypatch.delitem(sys.modules, "in_archive")
    monkeypatch.delitem(sys.modules, "pyspark.worker_util", raising=False)
    pyfiles.cache_zip_importers_in_worker()
    assert type(sys.path_importer_cache[path]) is zipimport.zipimporter

    monkeypatch.setitem(sys.modules, "pyspark.worker_util", sys)
    pyfiles.cache_zip_importers_in_worker()
    assert type(sys.path_importer_cache[path]) is pyfiles.CachedZipImporter
    assert importlib.import_module("in_archive").x == 1

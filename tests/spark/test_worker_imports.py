"""What a worker of Spark imports: archives that have changed, and nothing that asks a catalog."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import subprocess
import sys
import zipfile
import zipimport
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_bridge_spark.addresses import Access, CatalogAddress, TableAddress
from lance_bridge_spark.source import pyfiles
from lance_bridge_spark.source.writer import Target

pytestmark = [pytest.mark.servers, pytest.mark.spec("spark.md#limits-and-known-weaknesses")]

ROWS = pa.table({"id": pa.array(range(4), pa.int64())})
TASK = """
import json, pickle, sys
tasks = pickle.load(sys.stdin.buffer)
rows = []
for access, target in tasks:
    written = target.write(iter(access.open().to_table().to_batches()))
    rows.append([access.open().count_rows(), written.rows])
print(json.dumps([rows, sorted(sys.modules)]))
"""
CLIENTS = ("hmsclient", "thrift", "boto3", "botocore", "databricks")
DRIVERS = (
    "lance_bridge.table",
    "lance_bridge.connection",
    "lance_bridge.managed",
    "lance_bridge.namespace",
    "lance_bridge.operations",
    "lance_bridge.registry",
    "lance_bridge_spark.connections",
    "lance_bridge_spark.spark_tables",
)
"""What only a driver needs."""


def test_a_task_that_reads_and_writes_imports_no_catalog(tmp_path: Path) -> None:
    """A table by its name in a catalog, and one by its location."""
    location = str(tmp_path / "t.lance")
    lance.write_dataset(ROWS, location)
    catalog = CatalogAddress("prod", {"impl": "hive", "uri": "thrift://localhost:1"})
    schema = ROWS.schema.serialize().to_pybytes()
    tasks = []
    for address in (TableAddress(catalog, ("db", "t")), TableAddress(location=location)):
        access = Access(address, location, 1, write=True)
        tasks.append((access, Target(access, location, schema, {"id": "id"}, "append")))
    done = subprocess.run(
        [sys.executable, "-c", TASK],
        input=pickle.dumps(tasks),
        capture_output=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr.decode()
    rows, modules = json.loads(done.stdout)
    assert rows == [[4, 4], [4, 4]]
    assert not set(CLIENTS) & {each.partition(".")[0] for each in modules}
    ours = {each for each in modules if each.startswith("lance_bridge")}
    assert not set(DRIVERS) & ours
    assert {each.partition(".")[0] for each in ours} <= {"lance_bridge", "lance_bridge_spark"}


def test_the_process_that_reads_on_an_executor_imports_no_catalog() -> None:
    """And the source is found by its name there."""
    code = """
import sys, lance_bridge_spark.source.scan_service
print(*sys.modules)
from lance_bridge_spark.source import LanceSource, with_catalogs
print(LanceSource)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100
    )
    imported, source = done.stdout.splitlines()
    modules = set(imported.split())
    assert not set(CLIENTS) & {each.partition(".")[0] for each in modules}
    assert not set(DRIVERS) & modules
    assert "LanceSource" in source


CALL = """
import gc, os, sys
from importlib.machinery import ModuleSpec
from lance_bridge_spark.source.worker_calls import spark_call

def call():
    with spark_call():
        pass
    return gc.get_freeze_count()

for module in sys.argv[1:]:
    if os.fork() == 0:
        sys.modules["__main__"].__spec__ = ModuleSpec(module, None)
        first = call()
        kept = [[] for _ in range(1000)]
        print(first, call(), flush=True)
        os._exit(0)
    os.wait()
"""


def test_workers_leave_imports_out_of_their_garbage_collections() -> None:
    command = [sys.executable, "-c", CALL, "pyspark.daemon", "user_program"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    worker, driver = (tuple(map(int, line.split())) for line in done.stdout.splitlines())
    assert worker[0] > 50_000
    assert driver[0] <= 50_000  # the driver's process is the user's
    assert worker[0] == worker[1]
    assert driver[0] == driver[1]


# -- archives on the path --------------------------------------------------------------------------


def written(path: Path, **modules: str) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in modules.items():
            archive.writestr(f"{name}.py", text)
    return str(path)


@pytest.mark.quick
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


@pytest.mark.quick
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


@pytest.mark.quick
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

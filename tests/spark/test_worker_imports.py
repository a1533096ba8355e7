"""What a worker of Spark imports to do its tasks: Lance, and nothing that asks a catalog."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lance_bridge_spark.addresses import Access, CatalogAddress, TableAddress
from lance_bridge_spark.source.writer import Target

ROWS = pa.table({"id": pa.array(range(4), pa.int64())})
TASK = """
import json, pickle, sys
access, target = pickle.load(sys.stdin.buffer)
rows = access.open().count_rows()
written = target.write(iter(access.open().to_table().to_batches()))
print(json.dumps([rows, written.rows, sorted(sys.modules)]))
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


@pytest.mark.parametrize("name", [("db", "t"), ()], ids=["by name", "by location"])
def test_a_task_that_reads_and_writes_imports_no_catalog(
    tmp_path: Path, name: tuple[str, ...]
) -> None:
    location = str(tmp_path / "t.lance")
    lance.write_dataset(ROWS, location)
    catalog = CatalogAddress("prod", {"impl": "hive", "uri": "thrift://localhost:1"})
    address = TableAddress(catalog, name) if name else TableAddress(location=location)
    access = Access(address, location, 1, write=True)
    schema = ROWS.schema.serialize().to_pybytes()
    target = Target(access, location, schema, {"id": "id"}, "append")
    done = subprocess.run(
        [sys.executable, "-c", TASK],
        input=pickle.dumps((access, target)),
        capture_output=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr.decode()
    found, written, modules = json.loads(done.stdout)
    assert (found, written) == (4, 4)
    assert not set(CLIENTS) & {each.partition(".")[0] for each in modules}
    ours = {each for each in modules if each.startswith("lance_bridge")}
    assert not set(DRIVERS) & ours
    assert {each.partition(".")[0] for each in ours} <= {"lance_bridge", "lance_bridge_spark"}


def test_the_process_that_reads_on_an_executor_imports_no_catalog() -> None:
    code = "import sys, lance_bridge_spark.source.scan_service; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100
    )
    modules = set(done.stdout.split())
    assert not set(CLIENTS) & {each.partition(".")[0] for each in modules}
    assert not set(DRIVERS) & modules


def test_the_source_is_found_by_its_name() -> None:
    code = "from lance_bridge_spark.source import LanceSource, with_catalogs; print(LanceSource)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100
    )
    assert "LanceSource" in done.stdout


CALL = """
import gc, sys
from importlib.machinery import ModuleSpec
from lance_bridge_spark.source.worker_calls import spark_call
sys.modules["__main__"].__spec__ = ModuleSpec(sys.argv[1], None)
with spark_call():
    pass
first = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
with spark_call():
    pass
print(first, gc.get_freeze_count())
"""


@pytest.mark.parametrize("module", ["pyspark.daemon", "user_program"])
def test_workers_leave_imports_out_of_their_garbage_collections(module: str) -> None:
    command = [sys.executable, "-c", CALL, module]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    first, second = map(int, done.stdout.split())
    assert (first > 50_000) == (module == "pyspark.daemon")  # the driver's process is the user's
    assert first == second

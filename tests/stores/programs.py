"""Programs of clients, each in a process that has no credentials but what the gateway vends.

Called as ``python -m stores.programs NAME``, with the arguments as JSON on standard input; the last
line on standard output is the result as JSON.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import lance
import lance_namespace as api
import lancedb
import pyarrow as pa
from lance.fragment import write_fragments

import lance_bridge

SCHEMA = pa.schema([("id", pa.int64()), ("image", pa.binary())])
_IMAGE_BYTES = 1 << 17
"""More than Lance reads of a file to open it."""
LIVES = 3
"""Through how many lives of credentials a client goes on."""


def rows(*ids: int) -> pa.RecordBatch:
    """Return a batch of rows."""
    images = [os.urandom(_IMAGE_BYTES) for _ in ids]
    return pa.record_batch([pa.array(ids, pa.int64()), images], schema=SCHEMA)


def connect(url: str, user: str) -> Any:
    """Connect to the gateway as pylance does."""
    return lance_bridge.connect("rest", {"uri": url, "header.x-user": user})


def described(namespace: Any, path: list[str]) -> Any:
    """Describe a table: its location, and credentials for it."""
    return namespace.describe_table(api.DescribeTableRequest(id=path))


def await_end(namespace: Any, path: list[str]) -> None:
    """Return when the credentials that are vended now have ended."""
    end = int(described(namespace, path).storage_options["expires_at_millis"]) / 1000
    time.sleep(max(0.0, end - time.time()))


def outcome(call: Callable[[], Any]) -> str:
    """Return ``done``, or ``refused`` where the store itself refuses."""
    try:
        call()
    except (OSError, ValueError, RuntimeError) as error:
        if "403 Forbidden" not in str(error):
            raise
        return "refused"
    return "done"


def rights(
    url: str, users: list[str], path: list[str], neighbour: list[str]
) -> dict[str, dict[str, str]]:
    """Return what principals can do with their credentials for a table."""
    return {user: _rights(url, user, path, neighbour) for user in users}


def _rights(url: str, user: str, path: list[str], neighbour: list[str]) -> dict[str, str]:
    namespace = connect(url, user)
    table: dict[str, Any] = {"namespace_client": namespace, "table_id": path}
    own, other = described(namespace, path), described(namespace, neighbour)
    options = own.storage_options

    def commit(**how: Any) -> None:
        version = lance.dataset(own.location, storage_options=options).version
        delete = lance.LanceOperation.Delete([], [0], "true")
        lance.LanceDataset.commit(own.location, delete, version, **how)

    def change_a_pickled_dataset() -> None:
        dataset = lance.dataset(**table, storage_options=options)
        pickle.loads(pickle.dumps(dataset)).delete("true")

    # Neither lists anything, which Lance repeats for seconds where it is refused.
    def read_neighbour() -> None:
        lance.dataset(other.location, version=1, storage_options=options)

    def write_neighbour() -> None:
        write_fragments(rows(9), other.location, mode="create", storage_options=options)

    return {
        "read": outcome(lambda: lance.dataset(**table).to_table()),
        "append": outcome(lambda: lance.write_dataset(rows(9), mode="append", **table)),
        "commit by location": outcome(lambda: commit(storage_options=options)),
        # Without `namespace_client_managed_versioning`, pylance commits to the storage.
        "commit as lance-ray": outcome(lambda: commit(storage_options=options, **table)),
        "change a pickled dataset": outcome(change_a_pickled_dataset),
        "read neighbour": outcome(read_neighbour),
        "write neighbour": outcome(write_neighbour),
    }


def pylance(url: str, writer: str, reader: str, path: list[str]) -> int:
    """Create a table with one file in each life of credentials; read as slowly what it made."""
    to_write = connect(url, writer)

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(0)
        for number in range(LIVES):
            await_end(to_write, path)
            yield rows(number + 1)

    lance.write_dataset(
        pa.RecordBatchReader.from_batches(SCHEMA, batches()),
        namespace_client=to_write,
        table_id=path,
        max_rows_per_file=1,
        max_rows_per_group=1,
    )
    return read_slowly(connect(url, reader), path)


def read_slowly(namespace: Any, path: list[str]) -> int:
    """Read another file of a table in each life of credentials; return how many rows it has."""
    found = 0
    dataset = lance.dataset(namespace_client=namespace, table_id=path)
    for number, fragment in enumerate(dataset.get_fragments()):
        found += fragment.to_table().num_rows
        if number < LIVES:
            await_end(namespace, path)
    return found


def lancedb_tables(url: str, writer: str, reader: str, path: list[str]) -> int:
    """Do the same with LanceDB's tables: add and read rows in each life of credentials."""
    *parent, name = path

    def opened(user: str) -> Any:
        db = lancedb.connect_namespace("rest", {"uri": url, "header.x-user": user})
        return db.open_table(name, namespace_path=parent)

    to_write, to_read = opened(writer), opened(reader)
    waiting = connect(url, writer)
    for number in range(LIVES + 1):
        to_write.add(pa.Table.from_batches([rows(number)]))
        to_read.checkout_latest()
        found = to_read.to_arrow().num_rows
        if number < LIVES:
            await_end(waiting, path)
    return int(found)


def spark(url: str, writer: str, reader: str, path: list[str]) -> int:
    """Write and read in tasks of Spark, which take longer than their credentials last."""
    with _spark() as session:
        numbers = session.range(0, 2 * (LIVES + 1), numPartitions=2)
        _append(url, writer, path, numbers.mapInArrow(_writer(url, writer, path), "made string"))
        read = _mapped(lambda _: read_slowly(connect(url, reader), path))
        counted = session.range(0, 2, numPartitions=2).mapInArrow(read, "found long")
        [found] = {row.found for row in counted.collect()}
        return int(found)


def spark_tasks(url: str, writer: str, reader: str, path: list[str], tasks: int) -> int:
    """Read as one principal, and write as the other, in each of many tasks of Spark."""

    def read(number: int) -> int:
        count_rows(connect(url, reader), path)
        return number

    with _spark() as session:
        numbers = session.range(0, tasks, numPartitions=tasks).mapInArrow(
            _mapped(read), "found long"
        )
        writing = _writer(url, writer, path, waits=False)
        _append(url, writer, path, numbers.mapInArrow(writing, "made string"))
        return count_rows(connect(url, reader), path)


def ray_data(url: str, writer: str, reader: str, path: list[str]) -> int:
    """Write and read in tasks of Ray, which take longer than their credentials last."""
    import lance_ray  # noqa: PLC0415 - only in the environment of big clients
    import ray  # noqa: PLC0415

    def by_name(user: str) -> dict[str, Any]:
        properties = {"uri": url, "header.x-user": user}
        return {"namespace_impl": "rest", "namespace_properties": properties, "table_id": path}

    def make_slowly(batch: pa.Table) -> pa.Table:
        [number] = batch["id"].to_pylist()
        if number:
            await_end(connect(url, writer), path)
        return pa.Table.from_batches([rows(number)])

    with ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1"):
        table = described(connect(url, writer), path)
        to_fragment = lance_ray.LanceFragmentWriter(
            table.location,
            transform=make_slowly,
            storage_options=table.storage_options,
            **by_name(writer),
        )
        numbers = ray.data.range(LIVES + 1, override_num_blocks=1)
        fragments = numbers.map_batches(
            to_fragment, batch_size=1, batch_format="pyarrow"
        ).materialize()
        # It gets the credentials to commit with when it is constructed.
        fragments.write_datasink(lance_ray.LanceFragmentCommitter(mode="append", **by_name(writer)))
        read = ray.data.range(1).map(lambda _: {"id": read_slowly(connect(url, reader), path)})
        assert lance_ray.read_lance(**by_name(reader)).count() == LIVES + 2
        return int(read.take_all()[0]["id"])


def count_rows(namespace: Any, path: list[str]) -> int:
    """Return how many rows a table has, by reading it."""
    dataset = lance.dataset(namespace_client=namespace, table_id=path)
    return int(dataset.to_table(columns=["id"]).num_rows)


@contextmanager
def _spark() -> Iterator[Any]:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - takes a second

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    with builder.getOrCreate() as session:
        yield session


def _append(url: str, user: str, path: list[str], made: Any) -> None:
    """Commit the fragments that tasks make."""
    namespace = connect(url, user)
    fragments = [lance.FragmentMetadata.from_json(row.made) for row in made.collect()]
    dataset = lance.dataset(namespace_client=namespace, table_id=path)
    lance.LanceDataset.commit(
        dataset.uri,
        lance.LanceOperation.Append(fragments),
        dataset.version,
        # Without them, pylance does not know where the store is.
        storage_options=described(namespace, path).storage_options,
        namespace_client=namespace,
        table_id=path,
        namespace_client_managed_versioning=True,
    )


def _mapped(function: Callable[[int], int]) -> Any:
    """Return a function of batches of numbers for tasks of Spark."""

    def found(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = [function(each) for each in batch.column(0).to_pylist()]
            yield pa.record_batch({"found": pa.array(numbers, pa.int64())})

    return found


def _writer(url: str, user: str, path: list[str], *, waits: bool = True) -> Any:
    """Return a function for tasks of Spark that writes a row for each number it is given."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        namespace = connect(url, user)

        def slowly() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield rows(number)
                    if waits:
                        await_end(namespace, path)

        table = described(namespace, path)
        made = write_fragments(
            pa.RecordBatchReader.from_batches(SCHEMA, slowly()),
            table.location,
            storage_options=table.storage_options,
            namespace_client=namespace,
            table_id=path,
            max_rows_per_file=1,
            max_rows_per_group=1,
        )
        texts = [json.dumps(each.to_json()) for each in made]
        yield pa.record_batch({"made": texts})

    return write


if __name__ == "__main__":
    result = globals()[sys.argv[1]](**json.load(sys.stdin))
    print(json.dumps(result))

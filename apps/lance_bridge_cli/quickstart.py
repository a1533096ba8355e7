"""Shows and runs a program that writes a first table, without a catalog or a server."""

from __future__ import annotations

from pathlib import Path

import typer

from .common import exit_on_error, usage_error
from .output import printable

PROGRAM = """\
import lance
import lance_bridge
import pyarrow as pa

ns = lance_bridge.connect("dir", {{"root": {root!r}}})
schema = pa.schema({{"id": pa.int64(), "title": pa.string(), "vector": pa.list_(pa.float32(), 2)}})
rows = [
    {{"id": 1, "title": "Metropolis", "vector": [0.0, 1.0]}},
    {{"id": 2, "title": "M", "vector": [1.0, 0.0]}},
    {{"id": 3, "title": "Faust", "vector": [1.0, 1.0]}},
]
table = pa.Table.from_pylist(rows, schema)
lance.write_dataset(table, namespace_client=ns, table_id=["films"])

films = lance.dataset(namespace_client=ns, table_id=["films"])
print(films.to_table(columns=["title"], filter="id > 1").to_pylist())
nearest = {{"column": "vector", "q": [0.9, 0.1], "k": 1}}
print(films.to_table(columns=["title", "_distance"], nearest=nearest)["title"].to_pylist())
"""
NEXT = """\
The table is in {root}. To use a catalog in place of a directory, change one line:

    lance_bridge.connect("hive", {{"uri": "thrift://metastore:9083"}})
    lance_bridge.connect("glue", {{"region": "eu-central-1", "root": "s3://lake/tables"}})
    lance_bridge.connect("unity", {{"host": "http://unity:8080", "catalog": "lake"}})

and put the database first in the table's identifier: ["sales", "films"]."""


def run(directory: Path) -> None:
    """Show a program that writes a table into a directory and queries it, and run it.

    Args:
        directory: A new or an empty directory; the command exits if it is not empty.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise usage_error(f"{directory} is not an empty directory: choose another one")
    root = str(directory.absolute())
    program = PROGRAM.format(root=root)
    typer.echo(printable(f"Running this program:\n\n{program}\nOutput:\n"))
    with exit_on_error():
        exec(compile(program, "quickstart", "exec"), {"__name__": "__main__"})
    typer.echo(printable(f"\n{NEXT.format(root=root)}"))

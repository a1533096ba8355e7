"""Code that reads a table through this server, to paste into other programs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from lance_bridge.names import written

_KEY = "LANCE_KEY"
"""The environment variable with the API key or token, as in the documentation."""


@dataclass(frozen=True)
class Snippet:
    """Code for one program."""

    title: str
    note: str
    text: str


def snippets_for(
    base: str,
    path: Sequence[str],
    location: str,
    method: str,
    *,
    database: str | None,
    has_catalog: bool,
) -> list[Snippet]:
    """Return the code for each program.

    Args:
        base: The address of this server.
        location: The location of the table, for Spark.
        method: How the principal was authenticated: an anonymous one needs no key.
        database: LanceDB's name of the table's namespace; None leaves LanceDB out.
        has_catalog: Whether the path begins with the name of a catalog, which Spark may also have.
    """
    has_key = method != "anonymous"
    lancedb = []
    if database is not None:
        lines = _lancedb(base, database, path[-1], has_key)
        lancedb.append(Snippet("LanceDB", "This server reads and searches.", lines))
    return [
        Snippet("pylance", "Reads the files itself.", _pylance(base, path, has_key)),
        *lancedb,
        Snippet(
            "Spark",
            "Reads the files itself; by name where it knows the catalog.",
            _spark(path if has_catalog else (), location),
        ),
        Snippet(
            "curl", "This server reads; the answer is an Arrow file.", _curl(base, path, has_key)
        ),
    ]


def _text(value: object) -> str:
    """Return a value as a Python literal."""
    return json.dumps(value, ensure_ascii=False)


def _pylance(base: str, path: Sequence[str], has_key: bool) -> str:
    header = f'    "header.x-api-key": os.environ["{_KEY}"],\n' if has_key else ""
    return (
        ("import os\n\n" if has_key else "")
        + "import lance\nimport lance_namespace\n\n"
        + f'ns = lance_namespace.connect("rest", {{\n    "uri": {_text(base)},\n{header}}})\n'
        + f"table = lance.dataset(namespace_client=ns, table_id={_text(list(path))})\n"
        + "print(table.head(10))\n"
    )


def _lancedb(base: str, database: str, table: str, has_key: bool) -> str:
    key = f'os.environ["{_KEY}"]' if has_key else '"none"'
    return (
        ("import os\n\n" if has_key else "")
        + "import lancedb\n\n"
        + f"db = lancedb.connect(\n    {_text(f'db://{database}')},\n"
        + f"    api_key={key},\n    host_override={_text(base)},\n)\n"
        + f"table = db.open_table({_text(table)})\nprint(table.search().limit(10).to_list())\n"
    )


def _spark(path: Sequence[str], location: str) -> str:
    """Return code that loads by name if the session has a catalog of the same name."""
    load = f"table = {_text(location)}\n"
    if path:
        setting = _text(f"spark.sql.catalog.{path[0]}.impl")
        load += f"if spark.conf.get({setting}, None):\n    table = {_text(written(tuple(path)))}\n"
    return (
        "import lance_bridge_spark\n\n"
        "lance_bridge_spark.register(spark)\n"
        f'{load}spark.read.format("lance").load(table).show(10)\n'
    )


def _curl(base: str, path: Sequence[str], has_key: bool) -> str:
    table = quote("$".join(path), safe="$")
    header = f'-H "x-api-key: ${_KEY}" ' if has_key else ""
    return (
        f"curl -fsS {header}-H 'Content-Type: application/json' \\\n"
        f'  -d \'{{"k": 10, "vector": {{}}}}\' \\\n'
        f"  {shlex.quote(f'{base}/v1/table/{table}/query')} -o rows.arrow\n"
    )

"""The table of `specs/server.md` of what LanceDB's clients can do through a gateway."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

SPEC = Path(__file__).parents[3] / "specs" / "server.md"
WORKS = "works"
NONE = ""
_ROWS = r"(?<=<!-- lancedb: {0} -->\n).*?(?=<!-- end of lancedb -->)"

ENTERPRISE = "only LanceDB Enterprise has it"
REFUSED = "LanceDB does not support it for remote tables"
REASONS = {
    r"POST /v1/jobs/describe is not supported": "the server has no jobs",
    r"only LanceDB Enterprise has it": ENTERPRISE,
    r"functions run in LanceDB Enterprise": ENTERPRISE,
    r"Function catalog operations|Secret operations|View operations": ENTERPRISE,
    r"SQL is not supported (for|by) this|SQL error .*transport error": ENTERPRISE,
    r"(cancel|list|open|pause|resume)_jobs? is not supported": ENTERPRISE,
    r"lsm\w* is not supported on this table type": ENTERPRISE,
    r"errors are recorded only on LanceDB Cloud": ENTERPRISE,
    r"Unknown or expired SQL query": ENTERPRISE,
    r"A materialized view of an SQL query": "views of SQL queries need LanceDB Enterprise",
    r"a clone reads any location": "a clone would read any location with the server's credentials",
    r"has 2 names; this catalog has 1": "a database in Hive contains no namespaces",
    r"Namespace operations are not supported": "LanceDB lacks it (use `list_tables`)",
    r"'NoneType' object has no attribute '\w+_exists'": "LanceDB fails: it has no namespace client",
    r"the server keeps no cache": "the server keeps no cache between requests",
    r"prewarm_data is currently only": "LanceDB does not support it",
    r"Table 'v' was not found": "no view exists, because none can be created",
    r"Set default-namespace to use one name": "LanceDB puts views in the root namespace",
    r"\[\] has 0 names; tables are in 1": "LanceDB looks for views in the root namespace",
    r"Invalid input: Table identifier \['v'\]": "LanceDB puts views in the root namespace",
    r"drop_database is deprecated": "deprecated in LanceDB (use `drop_all_tables`)",
    r"to_(arrow|pandas)\(\) is not yet supported": "LanceDB lacks it (use `search` or pylance)",
    r"fetch_blob\w+(\(\))? (requires|is not supported)": "LanceDB needs protocol 0.5 or later",
    r"a remote refresh runs as a server job": "LanceDB does not support it",
    r"not supported on (the )?LanceDB [cC]loud": REFUSED,
    r"cannot be run on a remote table": REFUSED,
    r"(materialized views|views) are supported only on local": REFUSED,
    r"Getting the read consistency": REFUSED,
    r"is a no-op on LanceDB Cloud": "LanceDB does nothing for remote tables",
    r"has no attribute '(migrate_v2\w+|_uri)'": "LanceDB fails with AttributeError",
    r"NotImplementedError: $": "LanceDB does not support it",
    r"Dropping all tables is not currently": "LanceDB does not support it",
}
"""Reasons by what LanceDB raises. Anything else is a failure of the test."""


def reason_of(text: str) -> str | None:
    """Return why a method does not work, or None if no reason explains the error."""
    return next((each for pattern, each in REASONS.items() if re.search(pattern, text)), None)


def methods_of(owner: Any) -> list[str]:
    """Return the public methods and properties of an object; not those that make another."""
    names = [name for name in dir(type(owner)) if not name.startswith("_")]
    return [
        name
        for name in names
        if not isinstance(inspect.getattr_static(type(owner), name), classmethod)
    ]


def render(results: Mapping[tuple[str, str], str], targets: Iterable[str]) -> str:
    """Return the rows of the table: a method, what comes of it in each client, and why."""
    targets = list(targets)
    names = sorted({name for name, _ in results})
    lines = [f"| method | {' | '.join(targets)} | reason |", "|---" * (len(targets) + 2) + "|"]
    for name in names:
        found = [results.get((name, target), NONE) for target in targets]
        cells = [each if each in (WORKS, NONE) else "no" for each in found]
        why = dict.fromkeys(each for each in found if each not in (WORKS, NONE))
        lines.append(f"| `{name}` | {' | '.join(cells)} | {'; '.join(why)} |")
    return "\n".join(lines) + "\n"


def documented_methods(part: str) -> set[str]:
    """Return the names of the methods that have a row in the document."""
    found = re.search(_ROWS.format(part), SPEC.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return set(_by_method(found.group()))


def _by_method(rows: str) -> dict[str, str]:
    return {line.split("`")[1]: line for line in rows.splitlines()[2:]}


def require_written(part: str, rows: str, untried: Collection[str] = ()) -> None:
    """Check that the rows stand in the document; with ``LANCE_BRIDGE_TEST_WRITE`` write them.

    Args:
        untried: Methods that have no row here, and keep the one that they have in the document.
    """
    pattern = re.compile(_ROWS.format(part), re.DOTALL)
    text = SPEC.read_text(encoding="utf-8")
    if untried:
        old = _by_method("".join(pattern.findall(text)[:1]))
        merged = _by_method(rows) | {name: old[name] for name in untried}
        lines = [*rows.splitlines()[:2], *(merged[name] for name in sorted(merged))]
        rows = "\n".join(lines) + "\n"
    if os.environ.get("LANCE_BRIDGE_TEST_WRITE"):
        text = pattern.sub(lambda _: rows, text, count=1)
        SPEC.write_text(text, encoding="utf-8")
    found = pattern.search(text)
    assert found is not None
    assert found.group() == rows

"""Parameters of LanceDB's table do through a gateway what they do in a directory.

The guide of clients lists those that do not, and why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import lancedb
import pytest
from lancedb.remote.errors import HttpError
from server.gateways import memory_namespace, serve_namespace
from server.lancedb_clients.differences import CHANGES, READS, Action, rows, unknown

pytestmark = [
    pytest.mark.servers,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.spec("server.md#lancedb", "server.md#further-fields", "server.md#what-is-refused"),
]

GUIDE = Path(__file__).parents[3] / "docs" / "gateway-clients.md"
_LACKS = "LanceDB's remote class has no such parameter"
_NO_PQ = "LanceDB's remote client refuses this type of index"
_LATER = "LanceDB needs protocol 0.6 or later, of which 0.4 has uploads in parts"
DIFFERENCES = {
    "HnswPq.*": _NO_PQ,
    "create_index.index_type=IVF_HNSW_PQ": _NO_PQ,
    "IvfPq.sample_rate": "pylance applies it to the quantizer as well",
    "create_index.sample_rate": _LACKS,
    "create_index.max_iterations": _LACKS,
    "create_index.m": _LACKS,
    "create_index.ef_construction": _LACKS,
    "create_index.target_partition_size": _LACKS,
    "create_index.train": "LanceDB's remote client does not send it",
    "create_fts_index.use_tantivy": _LACKS,
    "create_fts_index.tokenizer_name": _LACKS,
    "create_fts_index.document_granularity": _LATER,
    "MatchQuery.document_granularity=element": _LATER,
    "add_columns.computed": "LanceDB also notes a signature of the sources, which is its own",
    "merge_insert.execute.on_bad_vectors": "LanceDB's remote client fails if no row is left",
    "MultiMatchQuery.operator": "LanceDB's remote client does not send it",
    "optimize.retrain": _LACKS,
    "search.ordering_field_name": _LACKS,
}
"""Why a case differs, by the pattern of its name."""

_REFUSALS = (HttpError, ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError)
"""What LanceDB raises; NotImplementedError is a RuntimeError."""


@dataclass(frozen=True)
class Place:
    """A connection, and how a table of it is read past the connection."""

    db: Any
    location: Callable[[str], str]

    def outcome(self, name: str, action: Action, *, keeps: bool) -> tuple[str, Any]:
        """Return ``done`` and what an action leads to, or ``refused`` and why.

        Args:
            keeps: Whether the action changes nothing.
        """
        table = self.db.open_table(name)
        try:
            found = action(table)
        except _REFUSALS as error:
            return "refused", f"{type(error).__name__}: {error}"
        return "done", found if keeps else self.state(name)

    def state(self, name: str) -> Any:
        """Return the schema, rows and indices of a table."""
        dataset = lance.dataset(self.location(name))
        table = dataset.to_table()
        table = table.sort_by("id") if "id" in table.column_names else table
        indices = [
            (each.name, each.index_type, each.field_names, each.num_rows_indexed, _details(each))
            for each in dataset.describe_indices()
            if not each.name.startswith("__")
        ]
        return table.schema.to_string(), table.to_pylist(), indices


def _details(index: Any) -> str:
    details = dict(index.details or {})
    hints = details.pop("runtime_hints", None) or {}
    return json.dumps([details, hints], sort_keys=True, default=str)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Place]]:
    """A directory, and the same through a gateway, each with a table for reads."""
    root = tmp_path_factory.mktemp("differences")
    namespace = memory_namespace(root)
    namespace.create_namespace(api.CreateNamespaceRequest(id=["db"]))

    def location(name: str) -> str:
        request = api.DescribeTableRequest(id=["db", name])
        return str(namespace.describe_table(request).location)

    with serve_namespace(namespace) as url:
        remote = lancedb.connect("db://db", api_key="k", host_override=url)
        plain = lancedb.connect(root / "plain")
        found = [Place(plain, lambda name: str(root / "plain" / f"{name}.lance"))]
        found.append(Place(remote, location))
        for place in found:
            table = place.db.create_table("read", rows())
            table.create_fts_index("title", with_position=True)
        found[0].db.open_table("read").create_fts_index(
            "tags", document_granularity=_element(), name="elements"
        )
        yield found


def _element() -> Any:
    return lancedb.query.DocumentGranularity.LIST_ELEMENT


def test_every_parameter_is_tried() -> None:
    assert unknown() == []


@pytest.mark.parametrize("name", [*CHANGES, *READS])
def test_the_gateway_does_what_a_directory_does(places: list[Place], name: str) -> None:
    keeps = name in READS
    action = READS[name] if keeps else CHANGES[name]
    table = "read" if keeps else f"t{[*CHANGES].index(name)}"
    if not keeps:
        for place in places:
            place.db.create_table(table, rows())
    plain, remote = (place.outcome(table, action, keeps=keeps) for place in places)
    reason = _reason(name)
    if plain[0] == "refused":
        return
    if reason is None:
        assert remote == plain
    else:
        assert remote != plain, "it does not differ any more"


def _reason(name: str) -> str | None:
    return next((why for each, why in DIFFERENCES.items() if fnmatch(name, each)), None)


@pytest.mark.spec("server.md#lancedb")
def test_the_guide_lists_the_differences() -> None:
    lines = GUIDE.read_text().splitlines()
    for pattern, reason in DIFFERENCES.items():
        assert any(f"`{pattern}`" in each and each.endswith(f"| {reason} |") for each in lines), (
            pattern
        )

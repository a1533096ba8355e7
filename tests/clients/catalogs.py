"""Catalogs that clients are tried on, and the data that they write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import lance
import pyarrow as pa

import lance_bridge
from lance_bridge import LanceBridgeNamespace

DIMENSION = 8
COLORS = ("red", "green", "blue")
VECTOR = [0.0] * DIMENSION
"""The vector that row 0 has; that of row n is n away in each dimension."""


@dataclass(frozen=True)
class Backend:
    """A catalog: what to connect to, and the namespace that its databases are in."""

    impl: str
    class_path: str
    properties: dict[str, str]
    parent: Sequence[str] = ()

    def connect(self, **more: str) -> LanceBridgeNamespace:
        """Return a namespace; to be closed."""
        namespace = lance_bridge.connect(self.impl, {**self.properties, **more})
        assert isinstance(namespace, LanceBridgeNamespace)
        return namespace


@dataclass(frozen=True)
class Database:
    """An empty namespace of one test's own."""

    backend: Backend
    path: list[str]

    @property
    def impl(self) -> str:
        """The name that clients take."""
        return self.backend.impl

    @property
    def properties(self) -> dict[str, str]:
        """The properties that clients take."""
        return dict(self.backend.properties)

    def id(self, name: str) -> list[str]:
        """Return the identifier of a table in it."""
        return [*self.path, name]

    def by_name(self) -> dict[str, Any]:
        """Return the arguments that say which table `t` is, for clients that connect themselves."""
        return {
            "namespace_impl": self.backend.class_path,
            "namespace_properties": self.properties,
            "table_id": self.id("t"),
        }

    def open(self) -> lance.LanceDataset:
        """Open the table `t` as pylance does."""
        with self.backend.connect() as namespace:
            return lance.dataset(namespace_client=namespace, table_id=self.id("t"))


def rows(count: int, first: int = 0) -> pa.Table:
    """Return rows with a key, a text, a list and a vector."""
    numbers = range(first, first + count)
    vectors = pa.array([float(n) for n in numbers for _ in range(DIMENSION)], pa.float32())
    return pa.table({
        "id": pa.array(numbers, pa.int64()),
        "color": [COLORS[n % 3] for n in numbers],
        "text": [f"a {COLORS[n % 3]} car number{n}" for n in numbers],
        "labels": [["even"] if n % 2 == 0 else ["odd", "other"] for n in numbers],
        "vector": pa.FixedSizeListArray.from_arrays(vectors, DIMENSION),
    })  # fmt: skip


def ids_of(found: Any) -> list[int]:
    """Return the keys of rows, in their order."""
    return [row["id"] for row in found]

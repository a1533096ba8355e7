"""What the cases on a table's data share: a namespace, and tables in it."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lance
import pytest

from ..case_namespace import CaseNamespace
from ..cases import Cases
from ..expect import code_of
from ..items import IDS, items
from ..target import Target


class CaseTable:
    """A table for one case. `call` goes through the namespace; the rest opens it by its path."""

    def __init__(self, ns: CaseNamespace, **fields: Any) -> None:
        self.ns = ns
        self.id = ns.table(f"t{next(_numbers)}")
        answer = ns.create_table(self.id, items(IDS), **fields)
        self.location = answer.location or ns.location(self.id)

    def call(self, operation: str, data: Any = None, **fields: Any) -> Any:
        """Call an operation on the table by its name; see `Calls.call`."""
        return self.ns.call(operation, self.id, data, **fields)

    def dataset(self, branch: str | None = None) -> lance.LanceDataset:
        """Open the latest version of main, or of a branch, by the table's path."""
        found = lance.dataset(self.location, storage_options=self.ns.storage.options)
        return found if branch is None else found.checkout_version((branch, None))

    def values(self, column: str, branch: str | None = None) -> list[Any]:
        """Return a column, in the order of ids."""
        rows = self.dataset(branch).to_table().to_pylist()
        return [row[column] for row in sorted(rows, key=lambda row: row["id"])]

    def ids(self, branch: str | None = None) -> list[int]:
        """Return the ids, sorted."""
        return self.values("id", branch)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Require that the block leaves versions, tags and branches as they are."""
        before = self._state()
        yield
        assert self._state() == before, "the request was refused, and yet it changed the table"

    def _state(self) -> object:
        dataset = self.dataset()
        return dataset.version, dataset.tags.list(), dataset.branches.list()

    def stage(self) -> dict[str, Any]:
        """Write the data of the next version, and its manifest under a name that is no version's.

        Returns:
            The fields of a request to create that version, which has one row more: 100.
        """
        storage, version = self.ns.storage, self.dataset().version + 1
        before = storage.files(self.location)
        storage.write(self.location, items([100]), mode="append")
        (name,) = (
            name
            for name in storage.files(self.location) - before
            if name.startswith("_versions/") and name.endswith(".manifest")
        )
        manifest = storage.get(self.location, name)
        storage.delete(self.location, name)
        hint = "_versions/latest_version_hint.json"
        if hint in storage.files(self.location):
            storage.delete(self.location, hint)
        staged = f"{name}-{uuid.uuid4()}"
        storage.put(self.location, staged, manifest)
        assert self.dataset().version == version - 1
        # In the form of responses and of pylance's requests.
        latest = self.call("list_table_versions").versions[-1].manifest_path
        return {
            "version": version,
            "manifest_path": f"{latest.rpartition('/_versions/')[0]}/{staged}",
            "manifest_size": len(manifest),
            "naming_scheme": "V2",
        }


class DataOperationCases(Cases):
    """Base of the groups of cases on the data of tables."""

    @pytest.fixture(scope="class")
    @classmethod
    def shared_namespace(cls, target: Target) -> Iterator[CaseNamespace]:
        """A client and a namespace that all these cases share."""
        ns = CaseNamespace(target)
        yield ns
        # A drop would compare each location with those of all other tables.
        for name in ns.names():
            code_of(ns.deregister_table, ns.table(name))
        ns.close()

    @pytest.fixture
    def table(self, shared_namespace: CaseNamespace) -> CaseTable:
        """A table with 40 rows, for one case to change."""
        return CaseTable(shared_namespace)


_numbers = itertools.count()

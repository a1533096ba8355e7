"""What the cases on a table's data share: a namespace, and tables in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace import ErrorCode

from ..case_namespace import CaseNamespace
from ..cases import Cases, Refusals, why_absent
from ..expect import answer_of, code_of, refused
from ..target import Target
from .items import IDS, LATER_IDS, TEXT_COLUMNS, items


class CaseTable:
    """A table for one case. `call` goes through the namespace; the rest opens it by its path."""

    def __init__(self, ns: CaseNamespace, ids: range = IDS, **fields: Any) -> None:
        self.ns = ns
        self.id = ns.table(f"t{next(_numbers)}")
        answer = ns.create_table(self.id, items(ids), **fields)
        self.location = answer.location or ns.location(self.id)

    def call(self, operation: str, data: Any = None, **fields: Any) -> Any:
        """Call an operation on the table by its name; see `Calls.call`."""
        return self.ns.call(operation, self.id, data, **fields)

    def dataset(self, branch: str | None = None, version: int | None = None) -> lance.LanceDataset:
        """Open it by its path: the latest version, or a version, of main or of a branch."""
        at = version if branch is None else None
        found = lance.dataset(self.location, version=at, storage_options=self.ns.storage.options)
        return found if branch is None else found.checkout_version((branch, version))

    def append(self, ids: Any) -> None:
        """Append items with these ids without the namespace."""
        self.ns.storage.write(self.location, items(ids), mode="append")

    def rows(self, branch: str | None = None) -> list[dict[str, Any]]:
        """Return all rows, by id."""
        found: list[dict[str, Any]] = self.dataset(branch).to_table().to_pylist()
        return sorted(found, key=lambda row: row["id"])

    def values(self, column: str, branch: str | None = None) -> list[Any]:
        """Return a column, in the order of ids."""
        return [row[column] for row in self.rows(branch)]

    def ids(self, branch: str | None = None) -> list[int]:
        """Return the ids, sorted."""
        return self.values("id", branch)

    def state(self) -> object:
        """Return what must not change if a request is refused."""
        dataset = self.dataset()
        rows = sorted(dataset.to_table().to_pylist(), key=repr)
        indices = sorted(each.name for each in dataset.describe_indices())
        references = dataset.tags.list(), dataset.branches.list()
        return dataset.version, dataset.schema, rows, indices, references

    @contextmanager
    def refuses(self, *codes: ErrorCode, naming: str = "") -> Iterator[None]:
        """Require that the block is refused (see `refused`) and changes nothing."""
        with self.unchanged(), refused(*codes, naming=naming):
            yield

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Require that the block leaves versions, rows, indices, tags and branches as they are."""
        before = self.state()
        yield
        assert self.state() == before, "the request was refused, and yet it changed the table"


class SharedTable(CaseTable):
    """A table that cases only read; after a case that changes it, the next one gets a new table.

    Version 1 has `IDS` and the tag ``first``. The branch ``dev`` starts there, and lacks the ids
    below 10. Version 2 has `LATER_IDS` too. The latest version has the same rows, a full text index
    on each of `TEXT_COLUMNS`, and an index on ``vector``.
    """

    def __init__(self, ns: CaseNamespace) -> None:
        super().__init__(ns)
        self.append(LATER_IDS)
        dataset = self.dataset()
        dataset.tags.create("first", 1)
        dataset.create_branch("dev", 1).delete("id < 10")
        for column in TEXT_COLUMNS:
            dataset.create_scalar_index(column, "INVERTED", with_position=True)
        dataset.create_index("vector", "IVF_FLAT", num_partitions=1, metric="l2")

    def state(self) -> object:
        """Return the same with only the number of rows, since a version never changes."""
        dataset = self.dataset()
        references = dataset.tags.list(), dataset.branches.list()
        return dataset.version, dataset.schema, dataset.count_rows(), references


MISSING = {
    ErrorCode.TABLE_BRANCH_NOT_FOUND: "nobranch",
    ErrorCode.TABLE_COLUMN_NOT_FOUND: "nocolumn",
    ErrorCode.TABLE_INDEX_NOT_FOUND: "noindex",
    ErrorCode.TABLE_TAG_NOT_FOUND: "notag",
    ErrorCode.TABLE_VERSION_NOT_FOUND: "99",
}
"""Code to the missing name in requests that must be refused with that code."""


@dataclass(frozen=True)
class BadRequest:
    """A request that must be refused with one of these codes and with ``naming`` in the message."""

    operation: str
    codes: tuple[ErrorCode, ...]
    naming: str
    data: pa.Table | bytes | None
    fields: Mapping[str, Any]

    def complaint(self, table: CaseTable) -> str:
        """Send it to a table; return what is wrong with the result, empty if nothing is."""
        before = table.state()
        answer = answer_of(lambda _: self._send(table), self.fields, self.codes, self.naming)
        return answer if table.state() == before else f"{answer} The table has changed."

    def _send(self, table: CaseTable) -> None:
        table.call(self.operation, self.data, **self.fields)


def bad(
    operation: str,
    *codes: ErrorCode,
    naming: str = "",
    data: pa.Table | bytes | None = None,
    **fields: Any,
) -> BadRequest:
    """Return a request that must be refused.

    Args:
        codes: Default: InvalidInput.
        naming: What the message must contain; default: the name in `MISSING` of the code.
    """
    naming = naming or (MISSING.get(codes[0], "") if codes else "")
    return BadRequest(operation, codes or (ErrorCode.INVALID_INPUT,), naming, data, fields)


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

    @pytest.fixture(scope="class")
    @classmethod
    def table_cache(cls) -> list[SharedTable]:
        """The table that these cases share, after it is made."""
        return []

    @pytest.fixture
    def shared_table(
        self, shared_namespace: CaseNamespace, table_cache: list[SharedTable], _declared: None
    ) -> Iterator[SharedTable]:
        """A table that cases only read; see `SharedTable`."""
        if not table_cache:
            table_cache.append(SharedTable(shared_namespace))
        (table,) = table_cache
        before = table.state()
        yield table
        if table.state() != before:
            table_cache.clear()

    def refuse(
        self, refusals: Refusals, table: SharedTable, requests: Mapping[str, BadRequest]
    ) -> None:
        """Require that each request is refused, and changes nothing."""
        target = table.ns.target
        present = {n: r for n, r in requests.items() if not why_absent(target, r.operation)}
        refusals.compare({name: request.complaint(table) for name, request in present.items()})


_numbers = itertools.count()

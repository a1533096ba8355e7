"""What the cases on a table's data share: a namespace, and tables in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import lance
import pytest
from lance_namespace import ErrorCode

from ..case_namespace import CaseNamespace
from ..cases import Cases
from ..expect import code_of, refused
from ..target import Target
from .items import IDS, LATER_IDS, TEXT_COLUMNS, items

_THIN = "lance_bridge_thin"
_PACKAGE = __name__.rpartition(".")[0]
_Test = TypeVar("_Test", bound=Callable[..., Any])


def thin(test: _Test) -> _Test:
    """Have a case run where a target wants one of each group only, too."""
    setattr(test, _THIN, True)
    return test


class CaseTable:
    """A table under a case: `call` goes through the namespace, all else past it."""

    def __init__(self, ns: CaseNamespace, table_id: list[str], location: str) -> None:
        self.ns = ns
        self.id = table_id
        self.location = location

    def call(self, operation: str, data: Any = None, **fields: Any) -> Any:
        """Call an operation on the table by its name; see `Calls.call`."""
        return self.ns.call(operation, self.id, data, **fields)

    def dataset(self, branch: str | None = None, version: int | None = None) -> lance.LanceDataset:
        """Open it by its path: the latest version, or a version, of main or of a branch."""
        options = self.ns.storage.options
        at = version if branch is None else None
        found = lance.dataset(self.location, version=at, storage_options=options)
        return found if branch is None else found.checkout_version((branch, version))

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
        """Return what must not change where a request is refused."""
        dataset = self.dataset()
        rows = sorted(dataset.to_table().to_pylist(), key=repr)
        indices = sorted(each.name for each in dataset.describe_indices())
        references = dataset.tags.list(), dataset.branches.list()
        return dataset.version, dataset.schema, rows, indices, references

    @contextmanager
    def refuses(self, *codes: ErrorCode, naming: str = "") -> Iterator[None]:
        """Require that the block is refused (see `refused`) and that nothing was written."""
        with self.unchanged(), refused(*codes, naming=naming):
            yield

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Require that the block leaves versions, rows, indices, tags and branches as they are."""
        before = self.state()
        yield
        assert self.state() == before, "the request was refused, and yet it changed the table"


class SharedTable(CaseTable):
    """A table that no case may change; one that a case did change is not used again."""

    is_spoiled = False
    _known: object = None

    def state(self) -> object:
        """Return the same, with the number of rows in place of them: a version never changes."""
        dataset = self.dataset()
        references = dataset.tags.list(), dataset.branches.list()
        return dataset.version, dataset.schema, dataset.count_rows(), references

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Require the same; the state is read once for all cases, and again after each."""
        self._known = self._known or self.state()
        self.is_spoiled = True
        yield
        after = self.state()
        assert after == self._known, "the request was refused, and yet it changed the table"
        self.is_spoiled = False


class TableCache:
    """The tables that cases share, made when they are first wanted."""

    def __init__(self, ns: CaseNamespace) -> None:
        self._ns = ns
        self._tables: dict[Callable[[CaseNamespace], SharedTable], SharedTable] = {}

    def get(self, make: Callable[[CaseNamespace], SharedTable]) -> SharedTable:
        """Return the table that ``make`` makes, or has made."""
        found = self._tables.get(make)
        if found is None or found.is_spoiled:
            found = self._tables[make] = make(self._ns)
        return found


class DataOperationCases(Cases):
    """Base of the groups of cases inside a table."""

    @pytest.fixture(autouse=True)
    def _chosen(self, request: pytest.FixtureRequest, target: Target, _declared: None) -> None:
        """Skip what the target leaves to another one of its kind."""
        is_inside = request.function.__module__.startswith(_PACKAGE)
        if is_inside and not getattr(request.function, _THIN, False):
            reason = target.lacks("inside_in_full")
            if reason:
                pytest.skip(reason)

    @pytest.fixture(scope="class")
    @classmethod
    def shared_namespace(cls, target: Target) -> Iterator[CaseNamespace]:
        """A client and a namespace that all these cases share."""
        ns = CaseNamespace(target)
        yield ns
        # Dropping them would have the catalog look through all others for each.
        for name in ns.names():
            code_of(ns.deregister_table, ns.table(name))
        ns.close()

    @pytest.fixture
    def table(self, shared_namespace: CaseNamespace, _chosen: None) -> CaseTable:
        """A table with 40 rows, for one case to change."""
        return make_table(shared_namespace)

    @pytest.fixture(scope="class")
    @classmethod
    def table_cache(cls, shared_namespace: CaseNamespace) -> TableCache:
        """The tables that these cases share."""
        return TableCache(shared_namespace)

    @pytest.fixture
    def shared_table(self, table_cache: TableCache, _chosen: None) -> SharedTable:
        """A table with 40 rows and the tag ``first``, for requests that must not change it."""
        return table_cache.get(_make_shared_table)

    @pytest.fixture
    def indexed_table(self, table_cache: TableCache, _chosen: None) -> SharedTable:
        """A table that cases only read, with versions, a tag, a branch and indices.

        Version 1 has `IDS`, and so has the tag ``first``. The branch ``dev`` is of it, and has
        lost the ids below 10. Version 2 has `LATER_IDS` too. The latest has the same rows, a
        full text index on each of `TEXT_COLUMNS`, and one on ``vector``.
        """
        return table_cache.get(_make_indexed_table)


_numbers = itertools.count()


def make_table(ns: CaseNamespace, ids: range = IDS) -> CaseTable:
    """Make a table with items of these ids by CreateTable."""
    return CaseTable(ns, *_made(ns, ids))


def _made(ns: CaseNamespace, ids: range) -> tuple[list[str], str]:
    table_id = ns.table(f"t{next(_numbers)}")
    answer = ns.create_table(table_id, items(ids))
    return table_id, answer.location or ns.location(table_id)


def _make_shared_table(ns: CaseNamespace) -> SharedTable:
    table = SharedTable(ns, *_made(ns, IDS))
    table.dataset().tags.create("first", 1)
    return table


def _make_indexed_table(ns: CaseNamespace) -> SharedTable:
    table = SharedTable(ns, *_made(ns, IDS))
    ns.storage.write(table.location, items(LATER_IDS), mode="append")
    dataset = table.dataset()
    dataset.tags.create("first", 1)
    dataset.create_branch("dev", 1).delete("id < 10")
    for column in TEXT_COLUMNS:
        dataset.create_scalar_index(column, "INVERTED", with_position=True)
    dataset.create_index("vector", "IVF_FLAT", num_partitions=1, metric="l2")
    return table

"""Tables whose versions a catalog holds, and what has to be true of them after many commits."""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
from lance_namespace import LanceNamespace
from managed.writer import Job, Report, row

import lance_bridge
from lance_bridge.catalog import LATEST
from lance_bridge.errors import LANCE_ERRORS
from lance_bridge.managed.out_of_band import OutOfBand
from lance_bridge.managed_state import State
from lance_bridge.storage.store import TableFiles, TableStorage
from lance_bridge.testing.calls import ipc

Rows = list[tuple[int, int]]
"""Writer and sequence of each row."""
FIRST = (-1, 0)
"""The row that version 1 has."""
Values = dict[int, int]
"""Values by identifier."""
Change = Callable[[Values], Values]


@dataclass(frozen=True)
class Table:
    """One table on one catalog.

    ``entry`` asks the catalog for the entry's parameters, without what is under test.
    """

    impl: str
    properties: dict[str, str]
    id: list[str]
    entry: Callable[[Sequence[str]], dict[str, str]]

    def connect(self) -> Any:
        """Return a namespace; to be closed."""
        return lance_bridge.connect(self.impl, self.properties)

    def at(self, **properties: str) -> Table:
        """Return the same table, reached in another way."""
        return replace(self, properties={**self.properties, **properties})

    def create(self) -> Table:
        """Create it, with one row, as version 1; and its namespace."""
        with self.connect() as namespace:
            namespace.create_namespace(api.CreateNamespaceRequest(id=self.id[:-1]))
            request = api.CreateTableRequest(id=self.id, properties={"managed_by": "impl"})
            namespace.create_table(request, ipc(row(*FIRST)))
        return self

    def state(self) -> State:
        """Return what the entry says of the latest version."""
        return State.from_text(self.entry(self.id)[LATEST])

    def job(self, writer: int, first: int, last: int, **more: Any) -> Job:
        """Return a job for `managed.writer`."""
        return Job(self.impl, self.properties, self.id, writer, first, last, **more)

    def jobs(self, writers: int, commits: int) -> list[Job]:
        """Return as many jobs as there are writers, of so many commits each."""
        return [self.job(writer, 0, commits - 1) for writer in range(writers)]


def all_rows(writers: int, commits: int) -> Rows:
    """Return the rows of so many commits of each writer."""
    return [(writer, number) for writer in range(writers) for number in range(commits)]


def rows_of(namespace: LanceNamespace, table: Table) -> Rows:
    """Return all rows, in the order in which they were committed."""
    found = lance.dataset(namespace_client=namespace, table_id=table.id).to_table()
    return list(zip(found["writer"].to_pylist(), found["sequence"].to_pylist(), strict=True))


def location_of(namespace: LanceNamespace, table: Table) -> str:
    """Return where the table lies, as pylance takes it."""
    found = namespace.describe_table(api.DescribeTableRequest(id=table.id))
    return str(found.location)


def staged_in(namespace: LanceNamespace, table: Table) -> dict[str, bool]:
    """Return the file names of staged manifests, and whether each is of a version that is there."""
    found = namespace.describe_table(api.DescribeTableRequest(id=table.id))
    files = TableFiles(TableStorage(found.storage_options or {}), found.location or "")
    paths = [meta["path"] for meta in files.list("_versions") if ".manifest-" in meta["path"]]
    finals = {path: files.read(path.partition(".manifest-")[0] + ".manifest") for path in paths}
    return {path: files.read(path) == final for path, final in finals.items()}


def require_exactly(table: Table, expected: Iterable[tuple[int, int]]) -> Rows:
    """Check that each row was committed once, in a version of its own, and nothing else was.

    Returns the rows in the order of their versions, from version 1 on.
    """
    wanted = sorted([FIRST, *expected])
    latest = len(wanted)
    with table.connect() as namespace:
        rows = rows_of(namespace, table)
        assert sorted(rows) == wanted, difference(rows, wanted)
        assert table.state() == State(latest, table.state().staged)
        listed = namespace.list_table_versions(api.ListTableVersionsRequest(id=table.id)).versions
        assert [each.version for each in listed] == list(range(1, latest + 1))
        for version in range(1, latest + 1):
            request = api.CountTableRowsRequest(id=table.id, version=version)
            assert namespace.count_table_rows(request).count == version
        assert namespace.list_out_of_band_versions(table.id) == OutOfBand((), ())
    return rows


def difference(found: Rows, wanted: Rows) -> str:
    """Return what is missing, and what is there too often or should not be, for people."""
    lost, more = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    return f"lost: {sorted(lost.elements())}; doubled, or of others: {sorted(more.elements())}"


def require_nothing_left(table: Table) -> None:
    """Check that no staged manifest is left of what was committed.

    Lance keeps those of commits whose outcome it does not know.
    """
    with table.connect() as namespace:
        left = [name for name, is_committed in staged_in(namespace, table).items() if is_committed]
    assert left == [], left


def require_true_reports(rows: Rows, reports: Sequence[Report]) -> None:
    """Check what writers were answered: which version has their row, and which has not."""
    for report in reports:
        assert report.false == [], f"refused, and committed all the same: {report}"
        for sequence, version in report.versions.items():
            if version is not None:
                assert rows[version - 1] == (report.writer, sequence)


def described(reports: Sequence[Report]) -> str:
    """Return figures for people who run the tests with ``-s``."""
    commits = sum(len(report.versions) for report in reports)
    seconds = max(report.seconds for report in reports)
    beaten = sum(report.beaten for report in reports)
    unsure = sum((Counter(report.unsure) for report in reports), Counter[str]())
    return f"{commits} commits in {seconds:.1f} s, {beaten} beaten, unsure: {json.dumps(unsure)}"


# -- new catalogs and namespaces -------------------------------------------------------------------


@dataclass(frozen=True)
class Home:
    """A catalog by its name in the configuration, and the namespace of a table in it."""

    catalog: str
    namespace: list[str]
    other: str
    """Another catalog, which has no namespace yet."""


def new_home(directory: Path, properties: Mapping[str, str] | None = None) -> Home:
    """Return a new namespace in ``prod`` of a new configuration.

    Args:
        properties: Those of the catalog, with ``impl``; a new one in a SQLite file without.
    """
    root = directory / uuid.uuid4().hex[:8]
    root.mkdir()
    sqlite = {"impl": "lance_catalog_sqlite.SqliteNamespace"}
    given = {
        "prod": {**(properties or {**sqlite, "file": f"{root}/prod.db"}), "root": f"{root}/prod"},
        "other": {**sqlite, "file": f"{root}/other.db", "root": f"{root}/other"},
    }
    config = root / "config.yaml"
    config.write_text(json.dumps({"catalogs": given}))  # which is YAML, too
    os.environ["LANCE_BRIDGE_CONFIG"] = str(config)
    home = Home("prod", [f"db_{root.name}"], "other")
    connected: Any = lance_bridge.connect("prod")
    with connected as ns:
        ns.create_namespace(api.CreateNamespaceRequest(id=home.namespace))
    return home


# -- rows that a table may have --------------------------------------------------------------------


class Outcome(Enum):
    """The result of a change for its client."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass
class Model:
    """What a read by name may return.

    Attributes:
        states: The acknowledged rows; several as long as the outcome of a change is unknown.
        others: Rows that were written past the catalog, or whose outcome is unknown: an operator
            may adopt them at any time, also after a change that would have deleted them.
    """

    states: list[Values]
    others: Values = field(default_factory=dict)

    def acknowledge(self, change: Change) -> None:
        """Apply a change that was made."""
        self._set([change(each) for each in self.states])

    def suspect(self, change: Change) -> None:
        """Apply a change that may have been made."""
        self._set([*self.states, *(change(each) for each in self.states)])

    def see(self, found: Values) -> None:
        """Take what was read by name: it is not taken back.

        Raises:
            AssertionError: it is not what was acknowledged.
        """
        fitting = [each for each in self.states if self._fits(each, found)]
        assert fitting, self._difference(found)
        self.states = [found]

    def _fits(self, state: Values, found: Values) -> bool:
        more = {u: v for u, v in found.items() if u not in state}
        return found == {**more, **state} and more.items() <= self.others.items()

    def _difference(self, found: Values) -> str:
        [state, *more] = self.states
        lost = {u: v for u, v in state.items() if found.get(u) != v}
        wrong = {u: v for u, v in found.items() if u not in state and self.others.get(u) != v}
        return f"lost: {lost}; not expected: {wrong}; found: {found}; other states: {more}"

    def _set(self, states: Sequence[Values]) -> None:
        self.states = [each for i, each in enumerate(states) if each not in states[:i]]


def table_of(rows: Values) -> pa.Table:
    """Return rows as pylance takes them."""
    columns = {"u": list(rows.keys()), "v": list(rows.values())}
    return pa.table(columns, schema=pa.schema([("u", pa.int64()), ("v", pa.int64())]))


def rows_in(table: pa.Table) -> Values:
    """Return the rows of a table, none of which is there twice."""
    pairs = list(zip(table["u"].to_pylist(), table["v"].to_pylist(), strict=True))
    assert len(dict(pairs)) == len(pairs), f"rows are doubled: {sorted(pairs)}"
    return dict(pairs)


def values_of(dataset: lance.LanceDataset) -> list[int]:
    """Return the rows of a dataset, if its data can be read."""
    try:
        return sorted(rows_in(dataset.to_table()))
    except LANCE_ERRORS:
        return []

"""MergeInsertIntoTable: every combination of its flags, against an oracle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis_profiles import examples
from lance_namespace import errors

from .memory_catalog import MemoryNamespace, MemoryServer
from .merging import OLD, SCHEMA, counts, merge
from .writing import dataset, ipc, make, place

pytestmark = [pytest.mark.quick, pytest.mark.spec("operations.md#mergeinsertintotable")]

UPDATE_IF, DELETE_IF = "source.w > target.w", "w > 1"

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """A merge: rows on both sides, and its flags."""

    table: list[Row]
    source: list[Row]
    on: tuple[int, ...]
    update: str | bool
    insert: bool
    delete: str | bool

    def request(self) -> dict[str, Any]:
        return {
            "on": [SCHEMA.names[i] for i in self.on],
            "when_matched_update_all": self.update is True,
            "when_matched_update_all_filt": self.update if isinstance(self.update, str) else None,
            "when_not_matched_insert_all": self.insert,
            "when_not_matched_by_source_delete": self.delete is True,
            "when_not_matched_by_source_delete_filt": (
                self.delete if isinstance(self.delete, str) else None
            ),
        }

    def matches(self, ours: Row, given: Row) -> bool:
        """A null is equal to nothing, not even to null."""
        return all(ours[i] is not None and ours[i] == given[i] for i in self.on)

    def expected(self) -> tuple[list[Row], tuple[int, int, int]] | None:
        """Return the rows after it and the counts, or None where it is ambiguous."""
        after: list[Row] = []
        updated = deleted = 0
        for row in self.table:
            found = [each for each in self.source if self.matches(row, each)]
            news = [each for each in found if self.takes(row, each)]
            if len(news) > 1:
                return None
            updated += len(news)
            gone = not found and self.loses(row)
            deleted += gone
            after += news or ([] if gone else [row])
        fresh = [s for s in self.source if not any(self.matches(row, s) for row in self.table)]
        if not self.insert:
            fresh = []
        return [*after, *fresh], (updated, len(fresh), deleted)

    def would_lose_rows_by_index(self) -> bool:
        """Lance reads the index on ``k`` for that key alone, and where nothing is deleted."""
        nulls = any(each[0] is None for each in self.source)
        return bool(nulls and self.table and self.insert and not self.delete and self.on == (0,))

    def takes(self, row: Row, given: Row) -> bool:
        return given[2] > row[2] if self.update == UPDATE_IF else bool(self.update)

    def loses(self, row: Row) -> bool:
        return bool(row[2] > 1) if self.delete == DELETE_IF else bool(self.delete)


def tables(max_size: int) -> st.SearchStrategy[list[Row]]:
    row = st.tuples(
        st.sampled_from([None, 0, 1, 2, 3]), st.sampled_from([None, "", "x"]), st.integers(0, 3)
    )
    return st.lists(row, max_size=max_size)


CASES = st.builds(
    Case,
    tables(8),
    tables(6),
    on=st.sampled_from([(0,), (1,), (0, 1), (1, 0)]),
    update=st.sampled_from([False, True, UPDATE_IF]),
    insert=st.booleans(),
    delete=st.sampled_from([False, True, DELETE_IF]),
).filter(lambda case: bool(case.update or case.insert or case.delete))


def table_of(found: list[Row]) -> pa.Table:
    columns = [[row[i] for row in found] for i in range(len(SCHEMA))]
    return pa.table(columns, schema=SCHEMA)


def tuples(server: MemoryServer) -> list[Row]:
    return sorted((tuple(row.values()) for row in dataset(server).to_table().to_pylist()), key=repr)


@examples(50, share_fixtures=True)
@given(case=CASES, indexed=st.booleans(), in_memory=st.booleans())
def test_a_merge_does_what_the_oracle_says(
    namespace: MemoryNamespace, server: MemoryServer, case: Case, indexed: bool, in_memory: bool
) -> None:
    if not server.tables:
        make(namespace, OLD)
    before = lance.write_dataset(table_of(case.table), place(server), mode="overwrite")
    if indexed and case.table:
        before.create_scalar_index("k", "BTREE")
    source = table_of(case.source)
    data = ipc(source) if in_memory else source.to_reader(max_chunksize=2)
    if indexed and case.would_lose_rows_by_index():
        with pytest.raises(errors.InvalidInputError, match="use_index"):
            merge(namespace, data, use_index=True, **case.request())
        assert tuples(server) == sorted(case.table, key=repr)
        return
    expected = case.expected()
    if expected is None:
        with pytest.raises(errors.InvalidInputError, match="Ambiguous"):
            merge(namespace, data, use_index=indexed, **case.request())
        assert tuples(server) == sorted(case.table, key=repr)
        return
    answer = merge(namespace, data, use_index=indexed, **case.request())
    assert tuples(server) == sorted(expected[0], key=repr)
    assert counts(answer) == expected[1]
    assert answer.version == dataset(server).version

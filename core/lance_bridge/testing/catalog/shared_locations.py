"""Cases: hidden tables and partitions, which core reads before it deletes files, are complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pytest
from lance_namespace import ErrorCode

from ... import locations
from ...catalog import TableRecord
from ..cases import needs
from ..expect import code_of, refused
from .faults import FAILURE_CODES
from .workspace import CatalogCases, Workspace, faults_of, same_location, skip_unless

_MORE = 5
"""Partitions on the last page."""
_NAME = "partitioned"


class SharedLocationCases(CatalogCases):
    """DropTable deletes the files at a location that is missing from these results."""

    @pytest.fixture
    def partitions(self, workspace: Workspace) -> Iterator[list[str]]:
        """The locations of more partitions of the entry `_NAME` than fit on a page."""
        _require(workspace, "has_partitions", "make_partitioned_table")
        count = workspace.target.page_size + _MORE
        partitions = [workspace.location(f"day{number}") for number in range(count)]
        namespace_id, own = list(workspace.path), workspace.location(_NAME)
        workspace.target.make_partitioned_table(namespace_id, _NAME, own, partitions)
        yield partitions
        workspace.target.remove_entry(namespace_id, _NAME)

    def test_partitions_of_more_than_a_page_are_all_returned(
        self, workspace: Workspace, partitions: list[str]
    ) -> None:
        record = workspace.catalog.load_table(workspace.table(_NAME))
        for found in (record, workspace.scanned(_NAME)):
            assert found.is_partitioned, "an entry with partitions says that it has none"
            assert _keys(workspace.catalog.partition_locations(found)) == _keys(partitions)

    def test_an_entry_that_has_vanished_has_no_partitions(
        self, workspace: Workspace, partitions: list[str]
    ) -> None:
        assert partitions
        record = workspace.catalog.load_table(workspace.table(_NAME))
        workspace.target.remove_entry(list(workspace.path), _NAME)
        assert list(workspace.catalog.partition_locations(record)) == []

    def test_a_table_without_partitions_says_so(self, workspace: Workspace) -> None:
        record = workspace.create()
        assert not record.is_partitioned
        assert not workspace.scanned("t").is_partitioned

    @needs("faults")
    def test_partitions_that_may_not_be_read_are_permission_denied(
        self, workspace: Workspace, partitions: list[str]
    ) -> None:
        record = _partitioned(workspace, partitions)
        with (
            faults_of(workspace.target, "refuse") as faults,
            faults.refuse(),
            refused(ErrorCode.PERMISSION_DENIED),
        ):
            list(faults.catalog.partition_locations(record))

    @needs("faults")
    def test_partitions_whose_reading_breaks_off_are_whole_or_an_error(
        self, workspace: Workspace, partitions: list[str]
    ) -> None:
        record = _partitioned(workspace, partitions)
        found: list[str] = []
        with faults_of(workspace.target, "break_listing") as faults, faults.break_listing():
            code = code_of(lambda: found.extend(faults.catalog.partition_locations(record)))
        assert code in FAILURE_CODES or _keys(found) == _keys(partitions), (
            f"{len(found)} were returned"
        )

    def test_a_hidden_table_is_returned(self, workspace: Workspace) -> None:
        _require(workspace, "hides_tables", "hidden_table")
        place = workspace.location("hidden")
        with workspace.target.hidden_table(place):
            found = list(workspace.catalog.scan_hidden_tables())
            assert any(same_location(each.location, place) for each in found)
        found = list(workspace.catalog.scan_hidden_tables())
        assert not any(same_location(each.location, place) for each in found)

    def test_a_table_of_the_catalog_is_not_hidden(self, workspace: Workspace) -> None:
        record = workspace.create()
        hidden = workspace.catalog.scan_hidden_tables()
        assert not any(same_location(each.location, record.location) for each in hidden)

    @needs("faults")
    def test_hidden_tables_that_may_not_be_read_are_permission_denied(
        self, workspace: Workspace
    ) -> None:
        skip_unless(workspace, "hides_tables")
        with (
            faults_of(workspace.target, "refuse") as faults,
            faults.refuse(),
            refused(ErrorCode.PERMISSION_DENIED),
        ):
            list(faults.catalog.scan_hidden_tables())


def _require(workspace: Workspace, capability: str, hook: str) -> None:
    """Skip a case if the catalog lacks the capability, or the target the hook."""
    skip_unless(workspace, capability)
    reason = workspace.target.lacks(hook)
    if reason:
        pytest.skip(reason)


def _partitioned(workspace: Workspace, partitions: list[str]) -> TableRecord:
    assert partitions
    return workspace.catalog.load_table(workspace.table(_NAME))


def _keys(partitions: Iterable[str]) -> Counter[tuple[str, ...]]:
    return Counter(map(locations.key, partitions))

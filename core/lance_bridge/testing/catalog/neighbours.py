"""Cases: entries of other tools are read whole; what cannot be read is a result of a scan."""

from __future__ import annotations

from contextlib import closing

import pytest
from lance_namespace import ErrorCode

from ... import locations
from ...catalog import Catalog, Path
from ...errors import OF_ONE_OBJECT
from ..case_namespace import CaseNamespace
from ..cases import needs
from ..expect import code_of
from ..target import Target
from .workspace import CatalogCases, Workspace, open_workspace, require_same


class NeighbourCases(CatalogCases):
    """DropTable deletes the files at a location that a scan does not return."""

    @needs("inhabit")
    def test_every_location_of_an_entry_is_returned(
        self, workspace: Workspace, inhabited: CaseNamespace
    ) -> None:
        catalog = workspace.catalog
        scanned = {each.path[-1]: each for each in catalog.scan_tables(tuple(inhabited.id))}
        assert sorted(scanned) == sorted(each.name for each in inhabited.neighbours)
        for each in inhabited.neighbours:
            record = scanned[each.name]
            require_same(record, catalog.load_table(record.path))
            assert record.is_lance is each.is_lance, each.name
            partitions = catalog.partition_locations(record) if record.is_partitioned else ()
            found = locations.keys_of([*record.all_locations, *partitions])
            lost = [place for place in each.locations if locations.key(place) not in found]
            assert not lost, f"the record of {each.name} lacks {lost}"

    @needs("unreadable_types", "unreadable")
    def test_what_cannot_be_read_is_neither_absent_nor_the_end_of_a_scan(
        self, target: Target
    ) -> None:
        for name in target.unreadable_types:
            with target.unreadable(name) as found, closing(open_workspace(target)) as workspace:
                catalog, path = workspace.catalog, tuple(found)
                if len(path) > workspace.capabilities.levels:
                    _require_unreadable_entry(catalog, path)
                    continue
                assert path[-1] in catalog.list_namespaces(path[:-1])
                is_innermost = len(path) == workspace.capabilities.levels
                with pytest.raises(OF_ONE_OBJECT):
                    list((catalog.scan_tables if is_innermost else catalog.list_namespaces)(path))


def _require_unreadable_entry(catalog: Catalog, path: Path) -> None:
    scanned = {record.path: record for record in catalog.scan_tables(path[:-1])}
    unread = [each for each, record in scanned.items() if not record.is_readable]
    assert unread == [path], f"a scan returns {unread} as unreadable, instead of {path}"
    assert len(scanned) > 1, "a scan leaves out what is beside an unreadable entry"
    assert sorted(each[-1] for each in scanned) == list(catalog.list_tables(path[:-1]))
    assert path not in [each.path for each in catalog.scan_tables(path[:-1], lance_only=True)]
    absent = (None, ErrorCode.TABLE_NOT_FOUND, ErrorCode.NAMESPACE_NOT_FOUND)
    assert code_of(catalog.load_table, path) not in absent

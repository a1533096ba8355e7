"""Cases: properties of entries come back as they were given, or are refused as InvalidInput."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...catalog import RESERVED_PREFIX, TableRecord
from ..cases import needs
from .workspace import (
    MARKS,
    CatalogCases,
    Workspace,
    keeps_location,
    require_properties,
    require_same,
    try_change,
    with_properties,
)

VALUE_LENGTHS = (255, 256, 4000, 4001, 33_000)
KEY_LENGTHS = (64, 127, 128, 255, 256, 257)
COUNT = 150

ODD_VALUES = {
    "empty": "",
    "space": " ",
    "spaces_around": "  a  ",
    "newlines": "one\ntwo\r\nthree\n",
    "tab": "a\tb",
    "quotes": """a'b''c"d`e""",
    "backslashes": r"a\b\\c\n\'",
    "SQL": "'); DROP TABLE t; --",
    "JSON": '{"a": [1, "b\\"c", null]}',
    "HTML": "<a href='x'>&amp;</a>",
    "URL": "https://host/a%20b?c=d&e=f#g",
    "placeholders": "$1 ${a} %s {0} :a ?",
    "accents": "Zoë Übergrößenträger",
    "combining": "e\u0301",
    "Han": "漢字仮名",
    "emoji": "🚀👩‍👩‍👧",
    "right_to_left": "שלום",
    "long_and_not_ASCII": "ü" * 250,
    "number": "007",
    "true": "TRUE",
    "null": "null",
}
ODD_KEYS = (
    "a.b.c",
    "a b",
    "a-b",
    "a/b",
    "a:b=c",
    "a'b",
    'a"b',
    "a`b",
    "Ünïcode",
    "select",
    "UPPER",
    "comment",
    "location",
    "owner",
    "name",
    "type",
)
RESERVED = {
    **{f"{RESERVED_PREFIX}{name}": f"value of {name}" for name in ("a", "x.y.z")},
    f"{RESERVED_PREFIX}version": "42",
    f"{RESERVED_PREFIX}manifest": "a/b/_versions/42.manifest-0123456789abcdef",
}


class PropertyCases(CatalogCases):
    """What create and alter write is read by load, by scan and without the adapter.

    A catalog that cannot hold a property must refuse it and change nothing.
    """

    def test_a_long_value_is_kept_or_refused(self, workspace: Workspace) -> None:
        workspace.compare(
            {str(n): self._complaint(workspace, {"long": _text(n)}) for n in VALUE_LENGTHS}
        )

    def test_a_long_key_is_kept_or_refused(self, workspace: Workspace) -> None:
        keys = {n: f"k{_text(n)[1:]}" for n in KEY_LENGTHS}
        workspace.compare({str(n): self._complaint(workspace, {keys[n]: "v"}) for n in keys})

    def _complaint(self, workspace: Workspace, properties: Mapping[str, str]) -> str:
        try:
            check(workspace, properties)
        except AssertionError as error:
            return str(error)
        return ""

    def test_odd_values_are_kept_or_refused(self, workspace: Workspace) -> None:
        check_each(workspace, ODD_VALUES)

    def test_many_and_odd_keys_are_kept_or_refused(self, workspace: Workspace) -> None:
        check_each(workspace, {key: f"value of {key}" for key in ODD_KEYS})
        check(workspace, {"Key": "one", "key": "two"})
        check(workspace, {f"key{number}": f"value {number}" for number in range(COUNT)})

    def test_reserved_properties_are_kept(self, workspace: Workspace) -> None:
        assert check(workspace, RESERVED), f"core needs its own properties ({RESERVED_PREFIX}…)"

    def test_who_manages_a_table_is_kept(self, workspace: Workspace) -> None:
        for manager in ("storage", "impl"):
            assert check(workspace, {"managed_by": manager}), manager

    def test_a_table_without_more_properties_than_its_marks_is_kept(
        self, workspace: Workspace
    ) -> None:
        record = TableRecord(workspace.table(), workspace.location(), MARKS)
        workspace.catalog.create_table(record)
        require_properties(workspace.catalog.load_table(record.path).properties, MARKS)

    # -- alter -----------------------------------------------------------------------------------

    def test_alter_replaces_properties_and_does_not_merge_them(self, alterable: Workspace) -> None:
        record = alterable.create("t", {"kept": "1", "changed": "1", "removed": "1"})
        wanted = {k: v for k, v in record.properties.items() if k != "removed"}
        wanted |= {"changed": "2", "added": "1"}
        alterable.catalog.alter_table(record.with_properties(wanted))
        found = alterable.catalog.load_table(record.path)
        require_properties(found.properties, wanted)
        require_same(alterable.scanned("t"), found)

    def test_alter_keeps_everything_else(self, alterable: Workspace) -> None:
        other = alterable.create("other")
        record = alterable.create()
        found = alterable.set(record, author="Ines")
        assert (found.path, found.location) == (record.path, record.location)
        assert found.identity == record.identity, "an altered table has another identity"
        assert found.is_external
        assert found.is_lance
        require_same(alterable.catalog.load_table(other.path), other)

    def test_alter_without_a_change_changes_nothing(self, alterable: Workspace) -> None:
        record = alterable.create("t", {"author": "Ines"})
        for _ in range(2):
            alterable.catalog.alter_table(alterable.catalog.load_table(record.path))
            found = alterable.catalog.load_table(record.path)
            assert found.location == record.location
            require_properties(found.properties, record.properties)

    def test_alter_changes_the_location(self, alterable: Workspace) -> None:
        record = alterable.create()
        location = alterable.location("moved")
        moved = replace(record, location=location)
        alterable.storage.put(record.location or "", "data", b"content")
        alterable.catalog.alter_table(moved)
        found = alterable.catalog.load_table(record.path)
        assert keeps_location(found.location, location), (found.location, location)
        require_properties(found.properties, record.properties)
        assert found.identity == record.identity
        assert alterable.storage.files(record.location or "") == {"data"}

    @needs("read_entry")
    def test_what_alter_removed_is_gone_from_the_catalog_itself(self, alterable: Workspace) -> None:
        record = alterable.create("t", {"removed": "1"})
        kept = {k: v for k, v in record.properties.items() if k != "removed"}
        alterable.catalog.alter_table(record.with_properties(kept))
        assert "removed" not in alterable.target.read_entry(record.path).properties


def check(workspace: Workspace, properties: Mapping[str, str]) -> bool:
    """Write properties by create and by alter, and compare what is read.

    Returns whether the catalog accepted them.
    """
    created = _try_create(workspace, properties)
    if not workspace.capabilities.no_alter:
        altered = _try_alter(workspace, properties)
        assert altered == created, f"create took them: {created}; alter took them: {altered}"
    return created


def check_each(workspace: Workspace, properties: Mapping[str, str]) -> None:
    """Check properties in one entry, or one by one if the catalog refuses one of them."""
    if not check(workspace, properties):
        for key, value in properties.items():
            check(workspace, {key: value})


def _try_create(workspace: Workspace, properties: Mapping[str, str]) -> bool:
    wanted = workspace.record(workspace.unique_table(), properties)
    if try_change(lambda: workspace.catalog.create_table(wanted)):
        _require(workspace, wanted)
        return True
    assert wanted.path[-1] not in workspace.names(), "a refused create made an entry"
    return False


def _try_alter(workspace: Workspace, properties: Mapping[str, str]) -> bool:
    before = workspace.create(workspace.unique_table())
    wanted = with_properties(before, **properties)
    if try_change(lambda: workspace.catalog.alter_table(wanted)):
        _require(workspace, wanted)
        return True
    require_same(workspace.catalog.load_table(before.path), before)
    workspace.catalog.drop_table(before)
    return False


def _require(workspace: Workspace, wanted: TableRecord) -> None:
    """Require the properties wherever they can be read, and drop the entry."""
    found = workspace.catalog.load_table(wanted.path)
    require_properties(found.properties, wanted.properties)
    require_properties(workspace.scanned(wanted.path[-1]).properties, wanted.properties)
    if not workspace.target.lacks("read_entry"):
        raw = workspace.target.read_entry(wanted.path).properties
        held = {key: raw[key] for key in wanted.properties if key in raw}
        require_properties(held, wanted.properties)
    workspace.catalog.drop_table(found)


def _text(length: int) -> str:
    """Return a text that shows where it was truncated, or which part is missing."""
    return "".join(f"{number:04d}" for number in range(length // 4 + 1))[:length]

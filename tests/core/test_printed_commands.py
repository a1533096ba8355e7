"""Commands that messages about managed tables print lose no row, and lead to a table that works.

Each situation is created again, and each command that its messages print is run as printed. If the
command fails, the commands that it prints are run in turn. Whatever is run, every row that some
manifest has is in some manifest afterwards; and a chain of commands ends with a table that has all
committed rows, and accepts further ones.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import lance
import pytest
from cli.program import pasted
from lance_namespace.errors import LanceNamespaceError

from lance_bridge.catalog import MANAGED_BY
from lance_bridge.dataset import clean_up
from lance_bridge.errors import LANCE_ERRORS
from lance_bridge.exit_codes import FOUND, MISUSED
from lance_bridge.records import FOREIGN_COMMITS
from lance_bridge.storage.manifests import Scheme, name_of
from lance_bridge_doctor import diagnose

from .managed_tables import (
    KEY,
    MANAGED,
    append,
    append_past_the_catalog,
    directory,
    insert,
    leave_unfinished,
    rows,
    table,
)
from .memory_catalog import CAPABILITIES, SERVERS, TABLE, MemoryNamespace, create, start_server

pytestmark = [
    pytest.mark.servers,  # no server, and more time than a quick test may take
    pytest.mark.spec(
        "managed.md#out-of-band-versions",
        "managed.md#a-latest-version-that-is-gone",
        "cli.md#findings",
    ),
]

CLASS = f"{MemoryNamespace.__module__}.{MemoryNamespace.__qualname__}"
NAME = ".".join(TABLE)
POLICIES = ["hide", "adopt", "refuse"]
_MOST = 4
"""Commands in a chain."""

_PARTIAL = re.compile(r"`(lance-bridge managed [a-z-]+)( --append)?`")
_FULL = re.compile(
    r"lance-bridge (?:managed|table) [^`;]*?-p uri=\S+?(?=[.;,]? |[.;,]?$)", re.MULTILINE
)
_REGISTER = re.compile(r"deregister (?:it|the table),? and register it(?:s location| again)")


@dataclass
class Place:
    """A table in a situation, on a server of its own."""

    ns: MemoryNamespace
    patch: pytest.MonkeyPatch

    @property
    def uri(self) -> str:
        return str(self.ns._properties["uri"])

    def masked(self, command: str) -> str:
        """Return a command as it is for the same situation elsewhere."""
        return command.replace(self.uri, "URI").replace(str(directory(self.ns)), "PLACE")

    def unmasked(self, command: str) -> str:
        """Return a masked command for this table."""
        return command.replace("URI", self.uri).replace("PLACE", str(directory(self.ns)))

    @property
    def versions(self) -> Path:
        return directory(self.ns) / "_versions"

    def manifest(self, version: int) -> Path:
        return self.versions / name_of(version, Scheme.V2)

    def set_aside(self, version: int, more: str = "") -> None:
        """Quarantine a version, as the next reader would."""
        found = self.manifest(version)
        found.rename(found.with_name(f"{found.name}-foreign{more}"))

    def opened(self) -> lance.LanceDataset:
        return lance.dataset(str(directory(self.ns)))


# -- situations ------------------------------------------------------------------------------------


def foreign(place: Place) -> None:
    """Versions 3 and 4 bypassed the catalog."""
    append_past_the_catalog(place.ns, 7)
    append_past_the_catalog(place.ns, 9)


def quarantined(place: Place) -> None:
    """The same, and both are quarantined."""
    foreign(place)
    place.set_aside(4)
    place.set_aside(3)


def cleaned_by_path(place: Place) -> None:
    """The version of the entry was deleted; the last one has its rows."""
    foreign(place)
    place.opened().optimize.compact_files()
    place.opened().cleanup_old_versions(older_than=timedelta(0))


def cleaned_by_path_with_a_tag(place: Place) -> None:
    """The same, and an older version stays."""
    place.opened().tags.create("first", 1)
    foreign(place)
    place.opened().cleanup_old_versions(older_than=timedelta(0), error_if_tagged_old_versions=False)


def gone_beside_quarantined(place: Place) -> None:
    """The version of the entry was deleted; later ones are quarantined."""
    quarantined(place)
    place.manifest(2).unlink()


def rival(place: Place) -> None:
    """Another version of the latest number is quarantined."""
    append_past_the_catalog(place.ns, 7)
    aside = place.manifest(3).rename(place.versions / "aside")
    append(place.ns, 9)
    aside.rename(place.versions / f"{name_of(3, Scheme.V2)}-foreign")


def rival_and_foreign(place: Place) -> None:
    """The same, and a later version is based on the committed one."""
    rival(place)
    append_past_the_catalog(place.ns, 10)


def compacted_beside_a_rival_that_only_deletes(place: Place) -> None:
    """The other version of the latest number adds no rows, nor does the later one."""
    place.opened().delete("a = 1")
    aside = place.manifest(3).rename(place.versions / "aside")
    append(place.ns, 9)
    aside.rename(place.versions / f"{name_of(3, Scheme.V2)}-foreign")
    place.opened().optimize.compact_files()


def foreign_on_rival(place: Place) -> None:
    """The same, and a later version is based on the quarantined one."""
    append_past_the_catalog(place.ns, 7)
    append_past_the_catalog(place.ns, 10)
    later = place.manifest(4).rename(place.versions / "later")
    aside = place.manifest(3).rename(place.versions / "aside")
    append(place.ns, 9)
    aside.rename(place.versions / f"{name_of(3, Scheme.V2)}-foreign")
    later.rename(place.manifest(4))


def rival_and_gone(place: Place) -> None:
    """Another version of the latest number is quarantined, and the latest one was deleted."""
    rival(place)
    place.opened().optimize.compact_files()
    place.opened().cleanup_old_versions(older_than=timedelta(0))


def gap(place: Place) -> None:
    """A version without its predecessor has the rows of the latest one."""
    foreign(place)
    place.manifest(3).unlink()


def gap_and_overwritten(place: Place) -> None:
    """A version without its predecessor lacks the rows of the latest one."""
    append_past_the_catalog(place.ns, 7)
    lance.write_dataset(table(9), str(directory(place.ns)), mode="overwrite")
    place.manifest(3).unlink()


def two_of_one_number(place: Place) -> None:
    """Two versions of the next number are quarantined."""
    append_past_the_catalog(place.ns, 7)
    place.set_aside(3)
    append_past_the_catalog(place.ns, 9)
    place.set_aside(3, f"-{'0' * 16}")


def without_data(place: Place) -> None:
    """A version lacks one of its data files."""
    append_past_the_catalog(place.ns, 7)
    data = directory(place.ns) / "data"
    before = set(data.iterdir())
    append_past_the_catalog(place.ns, 9)
    [new] = set(data.iterdir()) - before
    new.unlink()


def unfinished(place: Place) -> None:
    """The manifest of the latest version has no final name, and its data is old."""
    leave_unfinished(place.ns, place.patch)
    then = time.time() - timedelta(days=8).total_seconds()
    for path in (directory(place.ns) / "data").iterdir():
        os.utime(path, (then, then))


def marked_as_storage_managed(place: Place) -> None:
    """Another tool changed who manages the versions."""
    server = SERVERS[place.uri]
    found = server.tables[KEY]
    server.tables[KEY] = found.with_properties({**found.properties, MANAGED_BY: "storage"})


def unfinished_and_marked_as_storage_managed(place: Place) -> None:
    """The same, while the manifest of the latest version had no final name yet."""
    unfinished(place)
    marked_as_storage_managed(place)


def unknown_state(place: Place) -> None:
    """Another tool changed the latest version to something else."""
    server = SERVERS[place.uri]
    found = server.tables[KEY]
    text = {**found.properties, "lance_bridge.latest": "?"}
    server.tables[KEY] = found.with_properties(text)


Situation = Callable[[Place], None]
SITUATIONS: dict[Situation, list[int]] = {
    foreign: [0, 1, 2, 8],
    quarantined: [0, 1, 2, 8],
    cleaned_by_path: [0, 1, 2, 8],
    cleaned_by_path_with_a_tag: [0, 1, 2, 8],
    gone_beside_quarantined: [0, 1, 2, 8],
    rival: [0, 1, 2, 8, 9],
    rival_and_foreign: [0, 1, 2, 8, 9],
    foreign_on_rival: [0, 1, 2, 8, 9],
    compacted_beside_a_rival_that_only_deletes: [0, 1, 2, 8, 9],
    rival_and_gone: [0, 1, 2, 8, 9],
    gap: [0, 1, 2, 8],
    gap_and_overwritten: [0, 1, 2, 8],
    two_of_one_number: [0, 1, 2, 8],
    without_data: [0, 1, 2, 8],
    unfinished: [0, 1, 2, 8, 100],
    marked_as_storage_managed: [0, 1, 2, 8],
    unfinished_and_marked_as_storage_managed: [0, 1, 2, 8, 100],
    unknown_state: [0, 1, 2, 8],
}
"""Each with the rows that were committed through the catalog."""


@pytest.fixture
def make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Callable[[Situation, str], Place]]:
    """Makes a situation, each time on a new server."""
    numbers, names = itertools.count(), []

    def made(situation: Situation, policy: str) -> Place:
        number = next(numbers)
        name = f"printed-{abs(hash(request.node.nodeid))}-{number}"
        names.append(name)
        start_server(name, replace(CAPABILITIES, no_alter="", no_rename=""))
        place = Place(MemoryNamespace(uri=name, root=str(tmp_path / str(number))), monkeypatch)
        create(place.ns, TABLE, properties={**MANAGED, FOREIGN_COMMITS: policy})
        append(place.ns, 8)
        situation(place)
        return place

    yield made
    for name in names:
        del SERVERS[name]


# -- what messages say -----------------------------------------------------------------------------


def release(ns: MemoryNamespace) -> None:
    ns.release_table(TABLE)


def adopt(ns: MemoryNamespace) -> None:
    ns.adopt_out_of_band_versions(TABLE)


def discard(ns: MemoryNamespace) -> None:
    ns.discard_out_of_band_versions(TABLE)


def clean(ns: MemoryNamespace) -> None:
    clean_up(ns.tables.load_by_id(TABLE))


def diagnosed(place: Place) -> list[str]:
    """Return what the doctor says."""
    found = diagnose(CLASS, {"uri": place.uri}, idle=timedelta(0)).findings
    return [f"{each.message}\n{each.command}" for each in found]


def commands_in(text: str, place: Place) -> list[str]:
    """Return the commands that a message prints, completed with the catalog and the table."""
    more = f"-p uri={shlex.quote(place.uri)}"
    found = [f"{words} {CLASS} {NAME}{option} {more}" for words, option in _PARTIAL.findall(text)]
    if _REGISTER.search(text):
        location = f"file://{directory(place.ns)}"
        found.append(
            f"lance-bridge table deregister {CLASS} {NAME} {more} && "
            f"lance-bridge table register {CLASS} {NAME} {location} {more}"
        )
    lines = [line for line in text.splitlines() if line.startswith("lance-bridge ")]
    full = lines or _FULL.findall(text)
    return list(dict.fromkeys([*found, *(line for line in full if " doctor " not in line)]))


CALLS = [insert, adopt, discard, release, clean]


def messages(make: Callable[[], Place]) -> list[tuple[str, Place]]:
    """Return what each call says if it fails, and the doctor."""
    found = []
    for call in CALLS:
        place = make()
        try:
            call(place.ns)
        except (LanceNamespaceError, *LANCE_ERRORS) as error:
            found.append((str(error), place))
    place = make()
    return [*found, *((each, place) for each in diagnosed(place))]


def held(place: Place) -> set[int]:
    """Return the rows that the manifests in the storage have, whatever their names are."""
    found: set[int] = set()
    for path in place.versions.glob("*.manifest*"):
        number = 1 << 63 | secrets.randbits(62)
        copy = path.with_name(f"d{number}.manifest")
        copy.write_bytes(path.read_bytes())
        try:
            opened = place.opened().checkout_version(number)
            for fragment in opened.get_fragments():
                if all(
                    (directory(place.ns) / "data" / each.path).exists()
                    for each in fragment.data_files()
                ):
                    found |= set(opened.scanner(fragments=[fragment]).to_table()["a"].to_pylist())
        finally:
            copy.unlink()
    return found


def works(place: Place, committed: list[int]) -> bool:
    """Return whether the table has the committed rows, and takes more."""
    try:
        found = rows(place.ns)
        insert(place.ns)
    except (LanceNamespaceError, *LANCE_ERRORS):
        return False
    return set(committed) <= set(found)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.__name__)
def test_obeyed_commands_lose_no_row_and_lead_to_a_table_that_works(
    make: Callable[[Situation, str], Place], situation: Situation, policy: str
) -> None:
    said = messages(lambda: make(situation, policy))
    printed = {
        place.masked(command) for text, place in said for command in commands_in(text, place)
    }
    assert printed or works(make(situation, policy), SITUATIONS[situation])
    for command in sorted(printed):
        place = make(situation, policy)
        assert obey(place, place.unmasked(command), SITUATIONS[situation]), command


def obey(place: Place, command: str, committed: list[int], depth: int = 1) -> bool:
    """Run a command, and those that it prints; return whether the table works in the end."""
    if "--versions" in command:
        # It says what it deletes, and asks. Here, the answer is missing.
        assert pasted(command).exit_code == MISUSED
        return False
    before = held(place)
    done = pasted(f"{command} --yes" if " discard " in command else command)
    assert held(place) >= before, (command, done.output)
    if done.exit_code in (0, FOUND) and works(place, committed):
        return True
    if depth == _MOST:
        return False
    said = [done.output, *diagnosed(place)]
    following = {each for part in said for each in commands_in(part, place)} - {command}
    ends = [obey(place, each, committed, depth + 1) for each in sorted(following)]
    return any(ends)

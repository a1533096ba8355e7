"""Generated locations: what is deleted with a table is its own, and all of it or named.

Each case is a directory with a table as Lance writes it, what interrupted writers leave, files of
others with names like Lance's, datasets inside, and links. Around it are entries: others' tables,
partitions, clones, of hidden catalogs, too. Whether an entry needs files at the table's location is
known by how it was made. The seed of a case is in the test's message.
"""

from __future__ import annotations

import logging
import os
import random
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import rmtree
from urllib.parse import quote

import lance
import lance_namespace as api
import numpy as np
import obstore
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidTableStateError
from obstore.store import S3Store
from servers.object_stores import MotoServer

from lance_bridge.catalog import NamespaceRecord, TableRecord

from .memory_catalog import BUCKET, DATASET, MemoryNamespace, MemoryServer, at

pytestmark = pytest.mark.spec("common.md#files-that-are-deleted", "docs/how-to/s3.md#what-was-run")

WHOLE = pytest.param(500, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])
"""How many cases `make test-slow` runs."""
TABLE = at("dropped")
MOST_FILES, MOST_ENTRIES = 200, 10
BESIDE_TABLE = "beside.lance"
"""The name of a Lance table that lies beside the generated one."""
Files = dict[str, bytes]
Names = tuple[str, ...]
"""The names of directories below the root of a store."""
NAMES = ("t.lance", "a b.lance", "é+.lance", "T")
"""For a table's directory."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[Files]:
    """The files of one table of each kind."""
    return write_tables(tmp_path_factory.mktemp("tables"))


# -- tables ----------------------------------------------------------------------------------------


def rows(count: int) -> pa.Table:
    return pa.table({"id": range(count), "text": [f"word {i}" for i in range(count)]})


def write_plain(place: str) -> None:
    lance.write_dataset(rows(5), place)


def write_old_names(place: str) -> None:
    for _ in range(3):
        lance.write_dataset(rows(5), place, mode="append", enable_v2_manifest_paths=False)


def write_indexed(place: str) -> None:
    dataset = lance.write_dataset(rows(300), place)
    dataset.delete("id < 3")
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("text", "INVERTED")
    lance.write_dataset(rows(9), place, mode="append")
    lance.dataset(place).optimize.compact_files()
    dataset.tags.create("v1.0", 1)


def write_branched(place: str) -> None:
    dataset = lance.write_dataset(rows(20), place)
    branch = dataset.create_branch("team/new", 1)
    lance.write_dataset(rows(4), branch, mode="append")
    dataset.create_branch("team", 1).delete("id = 1")
    dataset.tags.create("t", 1)


def write_blobs(place: str) -> None:
    schema = pa.schema([lance.blob_field("b")])
    blobs = lance.blob_array([b"x" * 5_000_000, b"y" * 100_000, b"z"])
    lance.write_dataset(pa.table({"b": blobs}, schema=schema), place, data_storage_version="2.2")


def write_vectors(place: str) -> None:
    vectors = np.random.default_rng(1).random((300, 8), dtype="float32").ravel()
    table = pa.table({"v": pa.FixedSizeListArray.from_arrays(pa.array(vectors), 8)})
    dataset = lance.write_dataset(table, place)
    dataset.create_index("v", "IVF_FLAT", num_partitions=2)


WRITERS = (
    write_plain, write_old_names, write_indexed, write_branched, write_blobs, write_vectors,
)  # fmt: skip


def read_files(place: Path) -> Files:
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in place.rglob("*")
        if path.is_file()
    }


def write_tables(directory: Path) -> list[Files]:
    """Return the files of one table of each kind; a blob of megabytes is cut, for speed."""
    made = []
    for number, write in enumerate(WRITERS):
        place = directory / f"{number}.lance"
        write(str(place))
        made.append({name: data[-100_000:] for name, data in read_files(place).items()})
    return made


# -- cases -----------------------------------------------------------------------------------------


@dataclass
class Case:
    """The files of a location. What links lead to is outside."""

    own: Files = field(default_factory=dict)
    foreign: Files = field(default_factory=dict)
    links: list[str] = field(default_factory=list)


ORPHANS: tuple[Callable[[random.Random], str], ...] = (
    lambda r: f"data/{data_name(r)}.lance",
    lambda r: f"data/{new_uuid(r)}.lance",
    lambda r: f"data/{data_name(r)}/{r.getrandbits(32):032b}.blob",
    lambda r: f"data/.tmp{r.getrandbits(20):06d}"[:15],
    lambda r: f"_transactions/{r.randrange(99)}-{new_uuid(r)}.txn",
    lambda r: f"_versions/{2**64 - r.randrange(1, 99)}.manifest-{new_uuid(r)}",
    lambda r: f"_deletions/{r.randrange(9)}-{r.randrange(9)}-{r.getrandbits(60)}.arrow",
    lambda r: f"_indices/{new_uuid(r)}/index.idx",
    lambda r: f"_indices/{new_uuid(r)}/part_0_docs.lance",
    lambda r: f"_computed/{r.getrandbits(256):064x}.sig",
    lambda r: f"_mem_wal/{new_uuid(r)}/wal/{r.getrandbits(64):064b}.arrow",
    lambda _: ".lance-reserved",
)
FOREIGN: tuple[Callable[[random.Random], str], ...] = (
    lambda r: f"data/iceberg-{r.randrange(99999):05d}.parquet",
    lambda r: f"data/{r.choice(['model', 'x', '0' * 49])}.lance",
    lambda r: f"data/sub{r.randrange(3)}/{data_name(r)}.lance",
    lambda r: f"data/{data_name(r)}.lance.bak",
    lambda r: f"data/{data_name(r)}/notes-{r.randrange(9)}.txt",
    lambda r: f"data/{data_name(r)}.parquet",
    lambda r: f"tree/{r.choice(['oak.txt', 'oak/leaf.json', 'data/x.lance'])}",
    lambda r: f"_refs/{r.choice(['heads', 'tags/README', 'tags/notes.json', 'branches/x.json'])}",
    lambda r: f"_transactions/{r.randrange(9)}.txn",
    lambda r: (
        f"_versions/{r.choice(['notes.txt', '1.manifest.bak', 'x.manifest', 'a/1.manifest'])}"
    ),
    lambda r: f"_deletions/{r.choice(['a-b-c.arrow', '0-1.bin', 'x/0-1-2.arrow'])}",
    lambda r: f"_indices/{r.choice(['mine', 'x/index.idx'])}",
    lambda r: f"_indices/{new_uuid(r)}/{r.choice(['a/b.lance', 'readme.md'])}",
    lambda r: f"_blobs/{r.choice(['photo.jpg', 'a/b.blob'])}",
    lambda r: f"_mem_wal/{r.choice(['notes', 'x/wal/1.arrow'])}",
    lambda r: f"_computed/{r.choice(['a.sig', 'b.txt'])}",
    lambda r: f"metadata/v{r.randrange(9)}.metadata.json",
    lambda r: f"_delta_log/{r.randrange(9):020d}.json",
    lambda r: f"{r.choice(['README.md', 'part-0.parquet', 'Data', '_SUCCESS', '_VERSIONS'])}",
)
NESTED = ("data/x.lance", "tree/x", "x.lance", "_indices/x", "data", "backup/_versions", "_refs/x")


def new_uuid(chance: random.Random) -> str:
    return str(uuid.UUID(int=chance.getrandbits(128)))


def data_name(chance: random.Random) -> str:
    return f"{chance.getrandbits(24):024b}{chance.getrandbits(104):026x}"


def make_case(seed: int, tables: list[Files], *, with_links: bool) -> Case:
    chance = random.Random(seed)
    case = Case()
    if chance.random() < 0.85:
        case.own.update(chance.choice(tables))
    for make in chance.choices(ORPHANS, k=chance.randrange(8)):
        case.own.setdefault(make(chance), b"orphan")
    if chance.random() < 0.5:
        inside = chance.choice([each for each in NESTED if each != "data"])
        nested = chance.choice(tables)
        case.foreign.update({f"{inside}/{name}": data for name, data in nested.items()})
    for make in chance.choices(FOREIGN, k=chance.randrange(40)):
        add(case, make(chance))
    if with_links:
        for name in ("data/link", "tree/link", "link.lance", "_indices/link"):
            if chance.random() < 0.2:
                case.links.append(name)
    while len(case.own) + len(case.foreign) > MOST_FILES and case.foreign:
        case.foreign.popitem()
    return case


def add(case: Case, name: str) -> None:
    """Add a foreign file, unless it would be in the place of another one's directory."""
    taken = [*case.own, *case.foreign]
    clashes = any(each.startswith(f"{name}/") or name.startswith(f"{each}/") for each in taken)
    if not clashes and name not in case.own:
        case.foreign.setdefault(name, b'{"mine": 1}')


# -- entries around a table ----------------------------------------------------------------------


@dataclass
class Entry:
    """An entry of another table, and whether it keeps the table's files."""

    record: TableRecord
    shares: bool
    """Whether its location is, contains or is inside the table's, or its files are there."""
    partitions: list[str] = field(default_factory=list)
    partitions_share: bool = False
    """Likewise one of its partitions: that matters where others' files are inside."""
    hidden: bool = False


@dataclass
class EntryMaker:
    """Makes entries around one table."""

    store: Store
    chance: random.Random
    place: Names
    """The table's."""
    has_data: bool
    """Whether Lance can open it."""
    harmless: bool
    """Whether no entry may share the location."""
    clones: int = 0

    def make(self, number: int) -> Entry:
        makers = (self._table, self._partitioned, self._clone)
        entry = self.chance.choice((*makers, *makers, self._link))()
        if not self.harmless and self.chance.random() < 0.02:
            entry = Entry(TableRecord.unreadable(()), shares=True)
        entry.hidden = self.chance.random() < 0.3
        path = ("other", "catalog", f"t{number}") if entry.hidden else (*DATASET, f"t{number}")
        if not entry.hidden and self.chance.random() < 0.5:
            path = (*DATASET[:-1], "elsewhere", f"t{number}")
        entry.record = replace(entry.record, path=path)
        return entry

    # -- places ----------------------------------------------------------------------------------

    def _other_place(self) -> tuple[Names, bool]:
        """Return a place, and whether it is, contains or is inside the table's."""
        if self.harmless or self.chance.random() < 0.7:
            return self.chance.choice(self._beside()), False
        inside = [("data",), ("data", "x"), ("day=1",), ("tree", "x"), ("_versions",)]
        around = [self.place, self.place[:-1], (), *((*self.place, *each) for each in inside)]
        return self.chance.choice(around), True

    def _beside(self) -> list[Names]:
        *parents, name = self.place
        names = (f"{name}2", name[:-1] or "u", f"x{name}", f"{name}.lance", name.swapcase())
        return [
            *((*parents, each) for each in names if each != name),
            (*parents, "days", "day=1"),
            (*parents, "x", name),
            ("elsewhere", *self.place),
        ]

    def _spelled(self, place: Names, *, readable: bool = False) -> str:
        spellings = self.store.odd_locations(place)
        return self.chance.choice([s for s in spellings if not readable or is_readable(s)])

    # -- entries ---------------------------------------------------------------------------------

    def _table(self) -> Entry:
        place, shares = self._other_place()
        lance_too = self.chance.random() < 0.4
        record = TableRecord(
            (),
            self._spelled(place, readable=lance_too),
            {"table_type": self.chance.choice(["lance", "LANCE"]) if lance_too else "ICEBERG"},
        )
        return Entry(record, shares)

    def _partitioned(self) -> Entry:
        away = (*self.place[:-1], "days")
        found = [self._other_place() for _ in range(self.chance.randrange(4))]
        return Entry(
            TableRecord((), self._spelled(away), is_partitioned=True),
            shares=False,
            partitions=[self._spelled(place) for place, _ in found],
            partitions_share=any(shares for _, shares in found),
        )

    def _link(self) -> Entry:
        """An entry that leads to the table's own, or to another one for the same location."""
        is_own = self.harmless or self.chance.random() < 0.7
        target = TABLE if is_own else (*DATASET, "another")
        record = TableRecord(
            (), self._spelled(self.place), link_to=".".join(target), link_path=target
        )
        return Entry(record, shares=not is_own)

    def _clone(self) -> Entry:
        of_table = self.has_data and not self.harmless and self.chance.random() < 0.5
        source = self.place if of_table else (*self.place[:-1], BESIDE_TABLE)
        location = self._make_clone(source)
        if self.chance.random() < 0.15:
            location = self._make_clone(location)
        spelled = self._spelled(location, readable=True)
        return Entry(TableRecord((), spelled, {"table_type": "LANCE"}), shares=of_table)

    def _make_clone(self, source: Names) -> Names:
        self.clones += 1
        place = (*self.place[:-1], f"clone{self.clones}.lance")
        uri, options = self.store.uris(place)[0], dict(self.store.options)
        dataset = lance.dataset(
            self.chance.choice(self.store.uris(source)), storage_options=options
        )
        versions: list[int | tuple[str, None]] = [each["version"] for each in dataset.versions()]
        versions += [(name, None) for name in dataset.branches.list()]
        clone = dataset.shallow_clone(uri, self.chance.choice(versions), storage_options=options)
        if self.chance.random() < 0.3:
            first = clone.version
            lance.write_dataset(rows(2), uri, mode="overwrite", storage_options=options)
            if self.chance.random() < 0.3:
                earlier = lance.dataset(uri, version=first, storage_options=options)
                earlier.restore()  # type: ignore[no-untyped-call]  # pylance's
        return place


def register(server: MemoryServer, entries: list[Entry]) -> None:
    """Put entries into a catalog, in place of all that it had."""
    server.tables.clear()
    server.partitions.clear()
    server.hidden = [each.record for each in entries if each.hidden]
    for each in entries:
        if not each.hidden:
            server.tables[each.record.path] = each.record
        if each.record.is_partitioned:
            server.partitions[each.record.path] = each.partitions


# -- drops ---------------------------------------------------------------------------------------


def fill(store: Store, case: Case, place: Names, chance: random.Random) -> list[Entry]:
    """Write the files of a case, and return the entries around it, in random order."""
    store.put(place, case.own)
    beside = store.uris((*place[:-1], BESIDE_TABLE))[0]
    lance.write_dataset(rows(1), beside, storage_options=dict(store.options))
    has_data = any(name.endswith(".manifest") for name in case.own)
    maker = EntryMaker(store, chance, place, has_data, harmless=chance.random() < 0.4)
    entries = [maker.make(number) for number in range(chance.randrange(MOST_ENTRIES + 1))]
    store.put(place, case.foreign)
    for name in case.links:
        store.link(place, name)
    return entries


@dataclass
class Drops:
    """Drops generated tables, each from a catalog that holds what is around it."""

    store: Store
    tables: list[Files]
    server: MemoryServer
    uri: str
    caplog: pytest.LogCaptureFixture

    def __post_init__(self) -> None:
        elsewhere = (*DATASET[:-1], "elsewhere")
        self.server.namespaces[elsewhere] = NamespaceRecord(elsewhere)
        options = {f"storage.{key}": value for key, value in self.store.options.items()}
        self.namespace = MemoryNamespace(uri=self.uri, **options)
        self.caplog.set_level(logging.DEBUG, logger="lance_bridge.storage.deletion")

    def check(self, seed: int) -> bool:
        """Check one case, and return whether the drop was refused, as it must be."""
        chance = random.Random(seed)
        case = make_case(seed, self.tables, with_links=self.store.with_links)
        place = (str(seed), chance.choice(self.store.names))
        entries = fill(self.store, case, place, chance)
        location = chance.choice(self.store.locations(place))
        register(self.server, entries)
        self.server.tables[TABLE] = TableRecord(TABLE, location, {"table_type": "lance"})
        self.server.effects.clear()
        catalog, files = dict(self.server.tables), self.store.read(place[:1])
        others = {**case.foreign, **dict.fromkeys(case.links, b"")}
        refused = any(each.shares or (others and each.partitions_share) for each in entries)
        message = f"seed {seed}, {location}: {entries}"
        self.caplog.clear()
        assert self._is_refused() == refused, message
        if not refused:
            del catalog[TABLE]
            files = {path: data for path, data in files.items() if not is_own(path, place, case)}
            named = [each.getMessage() for each in self.caplog.records]
            assert all(any(ascii(name) in line for line in named) for name in others), message
        found = self.store.read(place[:1])
        assert found == files, f"{message}: {sorted(set(found) ^ set(files))}"
        assert self.server.tables == catalog, message
        assert self.server.effects == ([] if refused else ["drop_table"]), message
        self.store.remove(place[:1])
        return refused

    def _is_refused(self) -> bool:
        try:
            self.namespace.drop_table(api.DropTableRequest(id=list(TABLE)))
        except InvalidTableStateError:
            return True
        return False


def is_own(path: str, place: Names, case: Case) -> bool:
    start = f"{place[-1]}/"
    return path.startswith(start) and path.removeprefix(start) in case.own


def check_cases(drops: Drops, count: int) -> None:
    refused = sum(drops.check(seed) for seed in range(count))
    print(f"{count} cases: {count - refused} dropped, {refused} refused")
    assert count / 5 < refused < count * 4 / 5


@pytest.fixture
def drop_from(
    tables: list[Files],
    server: MemoryServer,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> Callable[[Store], Drops]:
    return lambda store: Drops(store, tables, server, request.node.nodeid, caplog)


@pytest.mark.quick
@pytest.mark.parametrize("count", [40, WHOLE])
def test_local_locations_lose_a_tables_own_files_and_no_others(
    count: int, tmp_path: Path, drop_from: Callable[[Store], Drops]
) -> None:
    check_cases(drop_from(LocalStore(tmp_path)), count)


@pytest.mark.servers
@pytest.mark.parametrize("count", [8, WHOLE])
def test_locations_on_s3_lose_a_tables_own_files_and_no_others(
    count: int, moto: MotoServer, drop_from: Callable[[Store], Drops]
) -> None:
    check_cases(drop_from(S3(moto)), count)


# -- stores: written without the product's rules on locations, which they are to check -------------


class LocalStore:
    """A directory of local files. ``outside``, beside it, is where links lead."""

    with_links = True
    options: Mapping[str, str] = {}
    """For Lance."""
    names = (*NAMES, "100%.lance", "a%20b.lance")

    def __init__(self, directory: Path) -> None:
        self._root = directory / "lake"
        self._outside = directory / "outside"
        self._alias = directory / "alias"
        for each in (self._root, self._outside):
            each.mkdir()
        (self._outside / "kept").write_text("kept")
        self._alias.symlink_to(self._root)

    def put(self, place: Names, files: Files) -> None:
        for name, data in files.items():
            path = self._root.joinpath(*place, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def link(self, place: Names, name: str) -> None:
        """Add a link that leads out of the store."""
        path = self._root.joinpath(*place, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(self._outside)

    def read(self, place: Names) -> dict[str, object]:
        """Return all files and links below a place, with what differs where one has changed."""
        assert (self._outside / "kept").exists()
        start = self._root.joinpath(*place)
        found: dict[str, object] = {}
        for parent, directories, files in os.walk(start):
            for path in (Path(parent, name) for name in (*directories, *files)):
                if path.is_symlink():
                    found[str(path.relative_to(start))] = os.readlink(path)
                elif path.is_file():
                    found[str(path.relative_to(start))] = path.read_bytes()
        return found

    def remove(self, place: Names) -> None:
        rmtree(self._root.joinpath(*place))

    def uris(self, place: Names) -> list[str]:
        """Return spellings that Lance opens."""
        path = str(self._root.joinpath(*place))
        way_out = f"{self._root}/{'/'.join(('x', '..', *place))}"
        encoded = f"file://{quote(path)}"
        return [path, f"{path}/", way_out, encoded, encoded.replace("lance", "%6Cance")]

    def locations(self, place: Names) -> list[str]:
        """Return spellings that a table's entry may have, to be read and dropped."""
        path = str(self._root.joinpath(*place))
        return [path, f"{path}/", f"file:{path}", f"file://{path}", f"file://localhost{path}/"]

    def odd_locations(self, place: Names) -> list[str]:
        """Return further spellings that other clients may have written."""
        path = str(self._root.joinpath(*place))
        inside = "/".join(place)
        return [
            *self.locations(place),
            f"file:{quote(path)}/",
            f"FILE:{path}",
            f"file:///{path}",
            f"{self._alias}/{inside}",
            f"file:{self._alias}//{inside}/",
            f"{self._root}/./x/../{inside}",
        ]


class S3:
    """The same for a prefix of a bucket."""

    with_links = False
    names = NAMES

    def __init__(self, moto: MotoServer) -> None:
        self.options = moto.storage_options
        self._prefix = uuid.uuid4().hex
        self._store = S3Store(
            BUCKET,
            endpoint=moto.endpoint,
            region=self.options["aws_region"],
            access_key_id=self.options["aws_access_key_id"],
            secret_access_key=self.options["aws_secret_access_key"],
            client_options={"allow_http": True},
        )

    def _key(self, place: Names) -> str:
        return "/".join((self._prefix, *place))

    def put(self, place: Names, files: Files) -> None:
        def put_one(name: str) -> None:
            obstore.put(self._store, f"{self._key(place)}/{name}", files[name])

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(put_one, files))

    def link(self, place: Names, name: str) -> None:
        raise NotImplementedError

    def read(self, place: Names) -> dict[str, object]:
        start = f"{self._key(place)}/"
        return {
            meta["path"].removeprefix(start): (meta["e_tag"], meta["last_modified"])
            for batch in obstore.list(self._store, prefix=start)
            for meta in batch
        }

    def remove(self, place: Names) -> None:
        """Remove all files below a place: listings of moto take longer the more there are."""
        obstore.delete(self._store, [f"{self._key(place)}/{name}" for name in self.read(place)])

    def uris(self, place: Names) -> list[str]:
        start, key = f"s3://{BUCKET}", quote(self._key(place))
        return [
            f"{start}/{key}",
            f"{start}/{key}/",
            f"{start}/x/../{key}",
            f"{start}/%{ord(key[0]):02x}{key[1:]}",
            f"{start}/x/%2E%2e/{key}",
        ]

    def locations(self, place: Names) -> list[str]:
        key = self._key(place)
        schemes = [f"{scheme}://{BUCKET}" for scheme in ("s3", "s3a", "s3n")]
        return [
            spelled
            for start in schemes
            for spelled in (f"{start}/{key}", f"{start}/{quote(key)}/", f"{start}/{key}/")
        ]

    def odd_locations(self, place: Names) -> list[str]:
        key = quote(self._key(place))
        amazon = "amazonaws.com"
        return [
            *self.locations(place),
            *self.uris(place),
            f"S3://{BUCKET}/{key}",
            f"s3+ddb://{BUCKET}/{key}?ddbTableName=commits",
            f"https://{BUCKET}.s3.{amazon}/{key}",
            f"https://{BUCKET}.s3.eu-west-1.{amazon}/{key}/",
            f"https://s3.eu-west-1.{amazon}/{BUCKET}/{key}",
            f"s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/mine/{key}",
            f"s3a://mine-0123456789abcdef-s3alias/{key}",
        ]


Store = LocalStore | S3


def is_readable(location: str) -> bool:
    """Return False for spellings that lead to a server on the internet."""
    return not any(each in location for each in ("amazonaws", "arn:", "s3alias"))

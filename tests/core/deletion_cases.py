"""Generated directories: a table, what interrupted writers leave, and files of others inside.

A table is as Lance writes it; files of others have names like Lance's; there are Lance datasets
inside, and links.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

MOST_FILES = 200

Files = dict[str, bytes]

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

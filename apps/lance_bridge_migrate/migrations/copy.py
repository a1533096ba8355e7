"""``copy``: the Lance tables of one catalog become tables of another, with their files.

The files are copied as they are, without Spark: all versions up to the one of the plan, their
tags, branches and indices. Lance never changes an existing file, so that copies of single files are
a copy of the table if the manifests, which name all others, come last. No copy is seen before it is
whole.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path as FilePath

import lance
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    LanceNamespaceError,
)

from lance_bridge import location as locations
from lance_bridge.dataset import branches_of, columns_of
from lance_bridge.entry import TableEntry
from lance_bridge.errors import translate_lance_errors
from lance_bridge.names import first_names
from lance_bridge.requests import Ref
from lance_bridge.storage import RESERVED_FILE, TableFiles, store_errors
from lance_bridge.table import Table

from ..endpoints import Endpoints
from ..journal import Check
from ..levels import Level
from ..migration import MigrationType, Step, Stopped, Survey, Work
from ..namespaces import namespace_steps
from ..plan import Facts, Item, ItemType, blocker, blockers_in
from ..targets import (
    AFTER,
    allocate_location,
    create_entry,
    entry_facts,
    entry_fingerprint,
    find_own_table,
    load_own_table,
    require_unchanged,
    undo_entry,
)
from .entries import EntriesOptions, find_candidates
from .registration import NO_DATA, Candidate, EntryFacts, manage_versions, plan_items
from .verification import compare

_VERSIONS = "_versions/"
_MANIFEST = re.compile(r"_versions/(\d+)\.manifest")
_LARGEST = 2**64 - 1
"""Names of manifests count down from it in Lance's second scheme, which has 20 digits."""
_DIGITS = 20
_THREADS = 8
_COPIED_MANIFESTS = "manifests"
"""The fact with the digests of the manifests that are copied. Others are of other writers."""
_NAMES = 3
"""How many files a message names."""


class CopyOptions(EntriesOptions):
    """What is copied, and where to; see `EntriesOptions`."""


class CopyFacts(EntryFacts):
    """What is noted about a table that is copied.

    Attributes:
        version: The latest one that is copied.
        bytes_before: Of the files that are copied.
    """

    version: int = 0
    bytes_before: int | None = None


class Copy(MigrationType):
    """See the module."""

    name = "copy"
    reading_step = "files"
    options_type = CopyOptions

    def survey(self, endpoints: Endpoints, options: CopyOptions) -> Survey:
        found, notes = find_candidates(endpoints, options)
        items = plan_items(
            endpoints.target_tables,
            [_plan_copy(entry, each) for entry, each in found],
            make_namespaces=options.make_namespaces,
        )
        return Survey(items, notes)

    def fingerprint(self, endpoints: Endpoints, item: Item) -> str:
        return entry_fingerprint(endpoints.source_tables.load(item.source))

    def steps(self, item: Item) -> Sequence[Step]:
        if item.type is ItemType.NAMESPACE:
            return namespace_steps()
        steps = [Step("entry", _create, _undo, _check_undo), Step("files", _copy)]
        return [*steps, Step("manage", manage_versions)] if CopyFacts.of(item).managed else steps

    def verify(self, work: Work, level: Level) -> Sequence[Check]:
        if work.item.type is ItemType.NAMESPACE:
            return []
        version = CopyFacts.of(work.item).version
        made = load_own_table(work).open(Ref(version=version))
        return compare(_open_source(work), made, level)


# -- planning --------------------------------------------------------------------------------------


def _plan_copy(entry: TableEntry, found: Candidate) -> Candidate:
    facts = CopyFacts(properties=found.facts.properties)
    if blockers_in(found.problems):
        return found
    try:
        table = Table.of(entry)
        if table.is_declared():
            return replace(found, facts=facts, nothing_to_do=NO_DATA)
        return _plan_data(table, replace(found, facts=facts))
    except LanceNamespaceError as error:
        return replace(found, facts=facts, problems=(*found.problems, blocker(str(error))))


def _plan_data(table: Table, found: Candidate) -> Candidate:
    dataset = table.open()
    version = int(dataset.version)
    problems = list(found.problems)
    if _has_other_bases(dataset):
        problems.append(blocker("It is a shallow clone: some of its files are another table's"))
    if branches_of(dataset):
        text = (
            "It has branches, whose versions name files where they are: delete the branches first"
        )
        problems.append(blocker(text))
    size = sum(files_of(table.files(), version).values())
    facts = CopyFacts(properties=found.facts.properties, version=version, bytes_before=size)
    rows = dataset.count_rows()
    return replace(found, facts=facts, problems=tuple(problems), rows=rows, bytes=size)


def _has_other_bases(dataset: lance.LanceDataset) -> bool:
    """Return whether the latest version, or the first one that is kept, has files elsewhere."""
    with translate_lance_errors(f"The versions of {dataset.uri} could not be read"):
        first = min(int(each["version"]) for each in dataset.versions())
        fragments = [*dataset.get_fragments(), *dataset.checkout_version(first).get_fragments()]
    kept = (file for each in fragments for file in each.metadata.files)
    return any(getattr(file, "base_id", None) is not None for file in kept)


def _open_source(work: Work) -> lance.LanceDataset:
    version = CopyFacts.of(work.item).version
    return work.source_tables.load(work.item.source).open(Ref(version=version))


# -- steps -----------------------------------------------------------------------------------------


def _create(work: Work) -> Facts:
    location = allocate_location(work)
    work.note(location=location)
    columns = columns_of(_open_source(work).schema)
    properties = CopyFacts.of(work.item).properties
    table = create_entry(work, location, properties, declared=True, columns=columns)
    return {AFTER: entry_facts(table), "location": table.location}


def _copy(work: Work) -> Facts:
    table = load_own_table(work)
    source = work.source_tables.load(work.item.source).files()
    target = table.files(write=True)
    wanted = files_of(source, CopyFacts.of(work.item).version)
    manifests = manifests_of(source, wanted)
    if foreign_manifests(target, manifests):
        raise InvalidTableStateError(
            f"'{table.name}' already has data: another writer has written to it"
        )
    work.note(**{_COPIED_MANIFESTS: manifests})
    size = copy_files(
        source,
        target,
        wanted,
        stopping=work.stopping,
        advance=lambda size: work.advance(size=size),
    )
    work.advance(rows=work.item.rows or 0)
    return {"rows_written": work.item.rows, "bytes_written": size, "bytes_after": size}


def _check_undo(work: Work) -> None:
    """Raise InvalidTableState (19) where the entry was changed, or others wrote to the table."""
    require_unchanged(work)
    table = find_own_table(work)
    if table is not None:
        _require_own_files(work, table)


def _require_own_files(work: Work, table: Table) -> None:
    """Raise InvalidTableState (19) where the table has versions that were not copied."""
    if table.is_declared():
        return
    others = foreign_manifests(table.files(), work.facts.get(_COPIED_MANIFESTS, {}))
    others += [f"branch {name}" for name in sorted(branches_of(table.open()))]
    if others:
        raise InvalidTableStateError(
            f"'{table.name}' has data that migration {work.plan.id} did not copy "
            f"({first_names(others, _NAMES)}), which undoing would delete"
        )


def _undo(work: Work) -> None:
    undo_entry(work, check_files=partial(_require_own_files, work), source=work.source_tables)


# -- files -----------------------------------------------------------------------------------------


def _sizes(files: TableFiles) -> dict[str, int]:
    return {str(meta["path"]): int(meta["size"]) for meta in files.list("")}


def files_of(source: TableFiles, version: int) -> dict[str, int]:
    """Return the bytes of each file of a table, by path, without manifests after a version.

    Files that are not the table's are left out.

    Raises:
        InvalidTableStateError: (19) a manifest cannot be read.
    """
    sizes = _sizes(source)
    own = itertools.chain.from_iterable(source.storage.files_of_table(source.location).own)
    return {
        path: sizes[path]
        for path in own
        if path in sizes and path != RESERVED_FILE and _is_wanted(path, version)
    }


def _is_wanted(path: str, version: int) -> bool:
    """Return False for manifests that are later or not final, and for hints of the latest."""
    if not path.startswith(_VERSIONS):
        return True
    match = _MANIFEST.fullmatch(path)
    return match is not None and _version_of(match[1]) <= version


def _version_of(digits: str) -> int:
    return _LARGEST - int(digits) if len(digits) == _DIGITS else int(digits)


def manifests_of(source: TableFiles, wanted: Iterable[str]) -> dict[str, str]:
    """Return a digest of each manifest among some files, by path.

    Raises:
        ServiceUnavailableError: (17) or another error of the storage.
    """
    paths = [path for path in wanted if path.startswith(_VERSIONS)]
    with ThreadPoolExecutor(_THREADS) as pool:
        return dict(zip(paths, pool.map(partial(_digest, source), paths), strict=True))


def foreign_manifests(target: TableFiles, own: Mapping[str, str]) -> list[str]:
    """Return the manifests of a directory that are not those that are copied there.

    Args:
        own: As `manifests_of` returns it.
    """
    present = [path for path in _sizes(target) if _MANIFEST.fullmatch(path) is not None]
    found = manifests_of(target, present)
    return sorted(path for path, digest in found.items() if own.get(path) != digest)


def copy_files(
    source: TableFiles,
    target: TableFiles,
    wanted: dict[str, int],
    *,
    stopping: threading.Event,
    advance: Callable[[int], None],
) -> int:
    """Copy files, except those that exist in full, and return the bytes of all.

    No manifest is ever overwritten.

    Args:
        wanted: As `files_of` returns it.
        advance: Is called with the bytes of each file that is copied.

    Raises:
        Stopped: The run is to stop; what was copied stays, and is not copied again.
        ConcurrentModificationError: (14) another writer made one of the versions.
        ServiceUnavailableError: (17) or another error of a storage.
    """
    if locations.is_local(target.location):
        with store_errors(target.location):
            FilePath(locations.for_lance(target.location)).mkdir(parents=True, exist_ok=True)
    present = _sizes(target)
    left = {path: size for path, size in wanted.items() if present.get(path) != size}
    manifests = sorted(path for path in wanted if path.startswith(_VERSIONS))
    others = [path for path in left if not path.startswith(_VERSIONS)]

    def one(path: str, write: Callable[[TableFiles, str], None]) -> int:
        if stopping.is_set():
            raise Stopped
        write(source, path)
        return wanted[path]

    with ThreadPoolExecutor(_THREADS) as pool:
        # An error cancels the copies that have not begun.
        for size in pool.map(partial(one, write=target.copy_from), others):
            advance(size)
    # The first version first: a concurrent reader finds a table that is whole.
    for path in sorted(manifests, key=_order):
        size = one(path, partial(_copy_once, target))
        if path in left:
            advance(size)
    return sum(wanted.values())


def _order(path: str) -> int:
    match = _MANIFEST.fullmatch(path)
    return _version_of(match[1]) if match else 0


def _copy_once(target: TableFiles, source: TableFiles, path: str) -> None:
    """Write a file that does not exist; one that exists must be the same."""
    content = _content(source, path)
    if not target.put_new(path, content) and target.read(path) != content:
        raise ConcurrentModificationError(
            f"{path} already exists and is another version: another writer has written to the "
            "table. It is left as it is"
        )


def _content(files: TableFiles, path: str) -> bytes:
    content = files.read(path)
    if content is None:
        raise ConcurrentModificationError(f"{path} at {files.location} was deleted concurrently")
    return content


def _digest(files: TableFiles, path: str) -> str:
    return hashlib.sha256(_content(files, path)).hexdigest()

"""``copy``: copies the Lance tables of one catalog, with their files, into another.

The files are copied unchanged, without Spark: all versions up to that of the plan, their tags and
indices. Lance never changes an existing file, so that the files can be copied one by one. The
manifests, which reference all other files, are copied last, so that no version is visible before it
is complete.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

from lance_bridge import locations
from lance_bridge.arrow_types import columns_of
from lance_bridge.catalog import Column
from lance_bridge.dataset import branches_of
from lance_bridge.dotted_names import first_names
from lance_bridge.entry import TableEntry
from lance_bridge.errors import translate_lance_errors
from lance_bridge.requests import Ref
from lance_bridge.storage import RESERVED_FILE, TableFiles, store_errors
from lance_bridge.table import Table

from .. import Level
from ..endpoints import Endpoints
from ..migration import MigrationType, Step, StepContext, Stopped, Survey
from ..plan import Facts, Item, blocker, blockers_in
from ..record import Check
from ..targets import (
    NO_DATA,
    Candidate,
    EntryFacts,
    entry_fingerprint,
    load_own_table,
    manage_versions,
    plan_items,
    step_with_data,
)
from .register import EntriesOptions, find_candidates
from .verification import compare

_VERSIONS = "_versions/"
_TAGS = "_refs/tags/"
_OF_BRANCHES = ("tree/", "_refs/branches/")
_MANIFEST = re.compile(r"_versions/(\d+)\.manifest")
_MAX_VERSION = 2**64 - 1
"""In Lance's second naming scheme, with 20 digits, manifest names count down from it."""
_DIGITS = 20
_THREADS = 8
_COPIED_MANIFESTS = "manifests"
"""The fact with the digests of copied manifests. Other writers made all other manifests."""


class CopyFacts(EntryFacts):
    """The facts about a table to copy.

    Attributes:
        version: The latest version to copy.
        bytes_before: The size of the files to copy.
    """

    version: int = 0
    bytes_before: int | None = None


class Copy(MigrationType):
    """The migration type that this module describes."""

    name = "copy"
    reading_step = "files"
    options_type = EntriesOptions

    def survey(self, endpoints: Endpoints, options: EntriesOptions) -> Survey:
        found, notes = find_candidates(endpoints, options)
        tables, candidates = endpoints.target_tables, [_plan_copy(*each) for each in found]
        items = plan_items(tables, candidates, make_namespaces=options.make_namespaces)
        return Survey(items, notes)

    def fingerprint(self, endpoints: Endpoints, item: Item) -> str:
        return entry_fingerprint(endpoints.source_tables.load(item.source))

    def steps(self, item: Item) -> Sequence[Step]:
        entry = step_with_data(_describe, _require_own_files, has_source_entry=True)
        steps = [entry, Step("files", _copy)]
        return [*steps, Step("manage", manage_versions)] if CopyFacts.of(item).managed else steps

    def verify(self, work: StepContext, level: Level) -> Iterator[Check]:
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
        text = "It has branches, whose versions refer to files by absolute location: delete the"
        problems.append(blocker(f"{text} branches first"))
    size = sum(files_of(table.files(), version).values())
    facts = CopyFacts(properties=found.facts.properties, version=version, bytes_before=size)
    rows = dataset.count_rows()
    return replace(found, facts=facts, problems=tuple(problems), rows=rows, bytes=size)


def _has_other_bases(dataset: lance.LanceDataset) -> bool:
    """Return whether the latest or the oldest existing version has files at other locations."""
    with translate_lance_errors(f"The versions of {dataset.uri} could not be read"):
        first = min(int(each["version"]) for each in dataset.versions())
        fragments = [*dataset.get_fragments(), *dataset.checkout_version(first).get_fragments()]
    kept = (file for each in fragments for file in each.metadata.files)
    return any(getattr(file, "base_id", None) is not None for file in kept)


def _open_source(work: StepContext) -> lance.LanceDataset:
    version = CopyFacts.of(work.item).version
    return work.source_tables.load(work.item.source).open(Ref(version=version))


# -- steps -----------------------------------------------------------------------------------------


def _describe(work: StepContext) -> tuple[Mapping[str, str], tuple[Column, ...]]:
    return CopyFacts.of(work.item).properties, columns_of(_open_source(work).schema)


def _copy(work: StepContext) -> Facts:
    table = load_own_table(work)
    _require_no_branches(work)
    source = work.source_tables.load(work.item.source).files()
    target = table.files(write=True)
    wanted = files_of(source, CopyFacts.of(work.item).version)
    manifests = manifests_of(source, wanted)
    if foreign_manifests(target, manifests):
        raise InvalidTableStateError(
            f"'{table.name}' already has data: another writer has written to it"
        )
    work.note(**{_COPIED_MANIFESTS: manifests})
    advance = partial(work.advance, 0)
    size = copy_files(source, target, wanted, stopping=work.stopping, advance=advance)
    work.advance(rows=work.item.rows or 0)
    return {"rows_written": work.item.rows, "bytes_written": size, "bytes_after": size}


def _require_no_branches(work: StepContext) -> None:
    """Raise ConcurrentModification (14) if the source has branches since the plan was made."""
    found = branches_of(_open_source(work))
    if found:
        raise ConcurrentModificationError(
            f"The source of '{work.item.name}' has branches that were created after the plan was "
            f"made ({first_names(sorted(found), 3)}): delete them and resume, or plan again"
        )


def _require_own_files(work: StepContext, table: Table) -> None:
    """Raise InvalidTableState (19) if the table has versions or branches that were not copied."""
    if table.is_declared():
        return
    others = foreign_manifests(table.files(), work.facts.get(_COPIED_MANIFESTS, {}))
    others += [f"branch {name}" for name in sorted(branches_of(table.open()))]
    if others:
        raise InvalidTableStateError(
            f"'{table.name}' has data that migration {work.plan.id} did not copy "
            f"({first_names(others, 3)}), which undoing would delete"
        )


# -- files -----------------------------------------------------------------------------------------


def _sizes(files: TableFiles) -> dict[str, int]:
    return {str(meta["path"]): int(meta["size"]) for meta in files.list("")}


def files_of(source: TableFiles, version: int) -> dict[str, int]:
    """Return the size of each file to copy by path: those of a table up to a version.

    Manifests and tags of later versions are left out, and so are branches and files that do not
    belong to the table.

    Raises:
        InvalidTableStateError: (19) a manifest cannot be read.
    """
    sizes = _sizes(source)
    own = itertools.chain.from_iterable(source.storage.files_of_table(source.location).own)
    found = [path for path in own if path in sizes and _is_wanted(path, version)]
    left_out = _tags_to_leave_out(source, found, version)
    return {path: sizes[path] for path in found if path not in left_out}


def _is_wanted(path: str, version: int) -> bool:
    """Return False for later or unfinished manifests, hints of the latest version, and branches."""
    if path == RESERVED_FILE or path.startswith(_OF_BRANCHES):
        return False
    if not path.startswith(_VERSIONS):
        return True
    found = _version_of(path)
    return found is not None and found <= version


def _tags_to_leave_out(source: TableFiles, paths: Iterable[str], version: int) -> set[str]:
    """Return the tags of later versions and of branches, and those that were just deleted."""
    tags = [path for path in paths if path.startswith(_TAGS)]
    with ThreadPoolExecutor(_THREADS) as pool:
        contents = list(pool.map(source.read, tags))
    return {
        path
        for path, content in zip(tags, contents, strict=True)
        if content is None
        or (fields := json.loads(content)).get("branch") is not None
        or int(fields["version"]) > version
    }


def _version_of(path: str) -> int | None:
    """Return the version of a manifest; None for other files."""
    match = _MANIFEST.fullmatch(path)
    if match is None:
        return None
    return _MAX_VERSION - int(match[1]) if len(match[1]) == _DIGITS else int(match[1])


def manifests_of(source: TableFiles, wanted: Iterable[str]) -> dict[str, str]:
    """Return the digest of each manifest among some files, by path.

    Raises:
        ServiceUnavailableError: (17) or another error of the storage.
    """
    paths = [path for path in wanted if path.startswith(_VERSIONS)]
    with ThreadPoolExecutor(_THREADS) as pool:
        contents = pool.map(partial(_read, source), paths)
        return {p: hashlib.sha256(c).hexdigest() for p, c in zip(paths, contents, strict=True)}


def foreign_manifests(target: TableFiles, own: Mapping[str, str]) -> list[str]:
    """Return the manifests of a directory that were not copied there.

    Args:
        own: The digests of the copied manifests, as from `manifests_of`.
    """
    present = [path for path in _sizes(target) if _version_of(path) is not None]
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
    """Copy files, except those that exist with the same size, and return the size of all.

    Manifests are never overwritten.

    Args:
        wanted: The files, as from `files_of`.
        advance: Called with the size of each copied file.

    Raises:
        Stopped: The run should stop; copied files remain, and are not copied again.
        ConcurrentModificationError: (14) another writer made one of the versions.
        ServiceUnavailableError: (17) or another error of a storage.
    """
    if locations.is_local(target.location):
        with store_errors(target.location):
            FilePath(locations.for_lance(target.location)).mkdir(parents=True, exist_ok=True)
    present = _sizes(target)
    left = {path: size for path, size in wanted.items() if present.get(path) != size}
    manifests = [path for path in wanted if path.startswith(_VERSIONS)]
    others = [path for path in left if not path.startswith(_VERSIONS)]

    def copy_one(path: str, write: Callable[[TableFiles, str], None]) -> int:
        if stopping.is_set():
            raise Stopped
        write(source, path)
        return wanted[path]

    with ThreadPoolExecutor(_THREADS) as pool:
        # An error cancels the copies that have not started.
        for size in pool.map(partial(copy_one, write=target.copy_from), others):
            advance(size)
    # Oldest version first, so that a concurrent reader always finds a complete table.
    for path in sorted(manifests, key=lambda path: _version_of(path) or 0):
        size = copy_one(path, partial(_copy_manifest, target))
        if path in left:
            advance(size)
    return sum(wanted.values())


def _copy_manifest(target: TableFiles, source: TableFiles, path: str) -> None:
    """Copy a manifest that does not exist; an existing one must have the same content."""
    content = _read(source, path)
    if not target.put_new(path, content) and target.read(path) != content:
        raise ConcurrentModificationError(
            f"{path} already exists and is another version: another writer has written to the "
            "table. It was not changed"
        )


def _read(files: TableFiles, path: str) -> bytes:
    content = files.read(path)
    if content is None:
        raise ConcurrentModificationError(f"{path} at {files.location} was deleted concurrently")
    return content

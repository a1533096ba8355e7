"""The committed and uncommitted manifests of an implementation-managed table."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Collection, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass

from lance_namespace.errors import LanceNamespaceError

from ..entry import TableEntry
from ..errors import LatestVersionGoneError
from ..managed_state import State
from ..records import MARK
from ..storage.lance_format import (
    DATA,
    DELETIONS,
    ManifestContent,
    Rewrite,
    parse_manifest,
    parse_transaction,
)
from ..storage.manifests import Manifest, Scheme, VersionDirectory, name_of, parse_name
from ..storage.store import TableFiles, discard
from . import mark
from .batches import latest_state

QUARANTINED = ".manifest-foreign"
"""Part of a quarantined manifest's file name; Lance does not treat such a file as a version."""

REBASE_SECONDS = 5.0
"""How long after a quarantine a writer may have read the manifest, by the storage's clock."""

_FEW = 20
"""Files that are looked for one by one; a listing finds more of them in fewer calls."""

_TRANSACTION = re.compile(rb"(\d+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.txn")
"""The transaction file that a manifest names: it begins with the version that was read."""
_STAGED = re.compile(r"(\d{20}\.manifest)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DATA_FILE = re.compile(rb"[0-9A-Za-z_-]{16,}\.lance")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class UncommittedManifest:
    """A manifest that was not committed: Lance finds it as a version, or it is quarantined.

    Attributes:
        version: The version in its name; 0 if the name has none.
        name: Its file name.
    """

    version: int
    name: str


class ManagedDirectory(VersionDirectory):
    """Lists versions up to the catalog's latest, and first finishes that one."""

    def __init__(self, files: TableFiles, state: State, mark_id: str = "") -> None:
        super().__init__(files)
        self.state = state
        self._mark_id = mark_id
        self._is_finished = not state.staged

    def list(self) -> list[Manifest]:
        """Return the manifests of the committed versions, the first version first.

        Raises what `find` raises.
        """
        latest = self.latest()
        if latest is None:
            return []
        older = [each for each in super().list() if each.version < self.state.version]
        return [*older, latest]

    def latest(self) -> Manifest | None:
        """Return the latest version's manifest, without listing all. Raises what `find` raises."""
        return self.find(self.state.version)

    def require_intact(self) -> None:
        """Check that the latest version can be read, as far as its files show. Lists data files.

        Raises:
            LatestVersionGoneError: (19) its manifest or a data file was deleted or damaged, and
                others are there.
        """
        latest = self.latest()
        data = None if latest is None else self.files.read(self.within(latest.name))
        if data is None:
            return
        try:
            content = parse_manifest(data)
        except ValueError:
            self._require_no_others("A readable manifest")
            return
        self._require_files(content)

    def _require_files(self, content: ManifestContent) -> None:
        """Raise `LatestVersionGoneError` if a file of the latest version is missing."""
        missing = [f"Data file {each}" for each in self.missing_data_files(content)]
        missing += [f"File {each}" for each in self._missing_deletions(content)]
        if missing:
            self._require_no_others(missing[0])

    def _missing_deletions(self, content: ManifestContent) -> Iterator[str]:
        """Yield the names of the files that are missing of those that say what is deleted."""
        fragments = () if content.base_paths else content.fragments
        for name in {each.deletion_file for each in fragments} - {""}:
            paths = [f"{DELETIONS}/{name}.{ending}" for ending in ("arrow", "bin")]
            if all(self.files.head(path) is None for path in paths):
                yield paths[0]

    def last_two(self) -> Sequence[Manifest] | None:
        """Return the two latest versions without a listing: Lance needs the latest at each open."""
        last = [self.find(version) for version in (self.state.version - 1, self.state.version)]
        found = [each for each in last if each is not None]
        return found if len(found) == len(last) else None

    def find(self, version: int) -> Manifest | None:
        """Return one version's manifest, or None if it does not exist or is not committed.

        Raises:
            LatestVersionGoneError: (19) it is the latest version, and only others have manifests.
        """
        if version > self.state.version:
            return None
        if version < self.state.version:
            return super().find(version)
        # If the staged manifest is missing, another client has finished it.
        staged = None if self._try_finish() else self._find_staged()
        found = staged or super().find(version)
        if found is None and version:
            self._require_no_others("The manifest")
        return found

    def _require_no_others(self, missing: str) -> None:
        """Raise `LatestVersionGoneError` if versions other than the latest have manifests.

        An older one would silently lack its rows, and later ones were not committed.

        Args:
            missing: The file of the latest version that is missing, to begin the message.
        """
        later = {each.version for each in self.uncommitted()}
        later |= {version for version, _ in self.quarantined_after_latest()}
        if not later and not super().list():
            return
        message = (
            f"{missing} of version {self.state.version}, the latest in the catalog, is missing in "
            f"{self.files.location}"
        )
        if not later:
            raise LatestVersionGoneError(f"{message}: restore that file")
        names = ", ".join(map(str, sorted(later)))
        raise LatestVersionGoneError(
            f"{message}: it was deleted without the catalog. Later versions, which were not "
            f"committed through the catalog, are there: {names}. Restore that file, or make the "
            "last of them the latest version with `lance-bridge managed adopt`"
        )

    def _try_finish(self) -> bool:
        try:
            self._finish(is_new=False)
        except LatestVersionGoneError:
            raise
        except LanceNamespaceError as error:
            # Readers may lack the right to write: the staged manifest has the same content.
            logger.info("version %s stays staged: %s", self.state.version, error)
            return False
        return True

    def _find_staged(self) -> Manifest | None:
        name = self.state.staged
        meta = self.files.head(self.within(name))
        return None if meta is None else self._of(meta, self.state.version, Scheme.V2, name)

    def finish(self) -> None:
        """Give the latest version's manifest its final name, if it does not have it.

        Safe to repeat and to run concurrently: all clients write the same.
        """
        self._finish(is_new=True)

    def _finish(self, *, is_new: bool) -> None:
        """Implement `finish`.

        Args:
            is_new: Whether the version was just committed. Files of an older one may have been
                deleted with its final name, by a clean-up of a version that lacks its rows.
        """
        if self._is_finished:
            return
        staged = self.within(self.state.staged)
        data = self.files.read(staged)
        if data is not None:
            final = self._final_path(self.state.version)
            if not is_new and self.files.read(final) != data:
                with suppress(ValueError):
                    self._require_files(parse_manifest(data))
            self._put_final(final, data)
            if not self.has_quarantined(self.state.version):
                discard(self.files, staged)
            # Otherwise the client that quarantined another manifest of this name may delete it once
            # more: a delayed request, or a hold that expired early by another clock. The staged
            # manifest then restores the version.
        self._is_finished = True

    def _put_final(self, path: str, data: bytes) -> None:
        if self.files.put_own(path, data):
            return
        there = self.files.read(path)
        if there not in (None, data):
            mark.require_id(self.files, self._mark_id)  # else it may be another manager's commit
            # A write that bypassed the catalog loses to the commit.
            self._warn(path, self._copy_aside(path, there))
        self.files.put_over(path, data)

    # -- uncommitted versions ------------------------------------------------------------------

    def uncommitted(self) -> Sequence[Manifest]:
        """Return the manifests of versions after the latest that the catalog knows."""
        return [each for each in super().list() if each.version > self.state.version]

    def has_next(self) -> bool:
        """Return whether there is a manifest with the name of the next version."""
        return self.files.head(self._final_path(self.state.version + 1)) is not None

    def has_quarantined(self, version: int) -> bool:
        """Return whether a manifest that had the name of a version is quarantined."""
        return self.files.head(_quarantine_path(self._final_path(version))) is not None

    def read_final(self, version: int) -> bytes | None:
        """Return the content of the manifest that has a version's name, or None."""
        return self.files.read(self._final_path(version)) if version else None

    def copy_to_quarantine(self, names: Sequence[str]) -> None:
        """Copy manifests to the names that they have in quarantine."""
        for name in names:
            path = self.within(name)
            data = self.files.read(path)
            if data is not None:
                self._copy_aside(path, data)

    def quarantine(self, manifests: Sequence[Manifest]) -> None:
        """Rename manifests so that Lance does not find them as versions.

        Call it only while the table is held: else one of them could be committed concurrently.
        """
        for each in manifests:
            self.withdraw(each.name)

    def withdraw(self, name: str) -> None:
        """Quarantine one manifest: other clients may have read it and base commits on it."""
        path = self.within(name)
        data = self.files.read(path)
        if data is not None:
            kept = self._copy_aside(path, data)
            self.files.remove([path])
            self._warn(path, kept)

    def quarantined(self) -> Sequence[str]:
        """Return the file names of quarantined manifests."""
        metas = self.files.list(self.inside)
        names = (meta["path"].rpartition("/")[2] for meta in metas)
        return sorted(name for name in names if QUARANTINED in name)

    def committed_paths(self) -> Sequence[str]:
        """Return the paths of the committed manifests, the last version first; changes nothing."""
        older = [each for each in super().list() if each.version <= self.state.version]
        paths = [self.within(each.name) for each in reversed(older)]
        return [self.within(self.state.staged), *paths] if self.state.staged else paths

    def read_latest(self) -> bytes | None:
        """Return the content of the latest version's manifest, staged or not; changes nothing."""
        staged = self.files.read(self.within(self.state.staged)) if self.state.staged else None
        return staged if staged is not None else self.read_final(self.state.version)

    def every_uncommitted(self) -> Sequence[UncommittedManifest]:
        """Return all manifests that were not committed, quarantined or not, sorted by version."""
        found = [UncommittedManifest(each.version, each.name) for each in self.uncommitted()]
        found += [
            UncommittedManifest(quarantined_version(name) or 0, name) for name in self.quarantined()
        ]
        return sorted(found, key=lambda each: (each.version, each.name))

    def staged_after_latest(self) -> Sequence[tuple[int, str]]:
        """Return version and file name of manifests that were staged for versions to come."""
        names = (meta["path"].rpartition("/")[2] for meta in self.files.list(self.inside))
        matches = (_STAGED.fullmatch(name) for name in names)
        found = ((parse_name(each[1]), each[0]) for each in matches if each is not None)
        return sorted(
            (parsed[0], name)
            for parsed, name in found
            if parsed is not None and parsed[0] > self.state.version
        )

    def quarantined_after_latest(self) -> Sequence[tuple[int, str]]:
        """Return version and file name of quarantined manifests of versions not yet committed.

        Sorted by version; several can be of one version.
        """
        found = ((quarantined_version(name), name) for name in self.quarantined())
        return sorted(
            (version, name)
            for version, name in found
            if version is not None and version > self.state.version
        )

    def restore_quarantined(self) -> None:
        """Restore the names of quarantined manifests, unless these are in use.

        Call it only while the table is held. An interruption leaves valid uncommitted versions.
        """
        if self.uncommitted():
            return
        for version, name in self.quarantined_after_latest():
            data = self.files.read(self.within(name))
            if data is not None and self.files.put_own(self._final_path(version), data):
                self.files.remove([self.within(name)])

    def conflicting(self) -> Sequence[bytes]:
        """Return the quarantined manifests of the latest version; usually none."""
        first = _quarantine_path(self._final_path(self.state.version))
        if not self.has_quarantined(self.state.version):
            return []
        names = (self.within(name) for name in self.quarantined())
        found = [self.files.read(name) for name in names if name.startswith(first)]
        committed = self.files.read(self._final_path(self.state.version))
        return [data for data in found if data is not None and data != committed]

    def missing_data_files(
        self, content: ManifestContent, known: Set[str] = frozenset()
    ) -> Sequence[str]:
        """Return the data files of a manifest that do not exist, sorted.

        The files of a clone can be at other locations, and are not looked for.

        Args:
            known: Data files that exist.
        """
        return self.missing_of(set() if content.base_paths else content.data_files - known)

    def missing_of(self, names: Collection[str]) -> Sequence[str]:
        """Return the data files that do not exist, sorted."""
        wanted = set(names)
        if len(wanted) > _FEW:
            prefix = f"{DATA}/"
            wanted -= {each["path"].removeprefix(prefix) for each in self.files.list(DATA)}
            return sorted(wanted)
        return sorted(name for name in wanted if self.files.head(f"{DATA}/{name}") is None)

    def rewrites_of(self, content: ManifestContent) -> Sequence[Rewrite]:
        """Return which rows a version has moved to other data files, if it is a compaction."""
        data = self._transaction_of(content)
        try:
            return () if data is None else parse_transaction(data).rewrites
        except ValueError:
            return ()

    def files_added_by(self, content: ManifestContent) -> Set[str] | None:
        """Return the data files that a version's own transaction added; None if it is missing."""
        data = self._transaction_of(content)
        if data is None:
            return None
        return {each for each in content.data_files if each.encode() in data}

    def _transaction_of(self, content: ManifestContent) -> bytes | None:
        name = content.transaction_file
        return self.files.read(f"_transactions/{name}") if name else None

    def may_be_based_on_quarantined(self, path: str, data: bytes) -> bool:
        """Return whether a staged manifest may be based on a quarantined one.

        Lance searches the storage for later versions while it commits. A commit that read the
        latest version itself is not based on another manifest of its number, because the catalog
        gives its path. For any other commit, data files that only one of the two manifests has
        decide: a rebase keeps the files of the version that it is based on. If they do not decide,
        a manifest that was staged within `REBASE_SECONDS` after the committed one got its name is
        not trusted.
        """
        conflicting = self.conflicting()
        if not conflicting or set(_TRANSACTION.findall(data)) == {b"%d" % self.state.version}:
            return False
        final = self._final_path(self.state.version)
        ours, its = data_files(self.files.read(final) or b""), data_files(data)
        others = [data_files(each) for each in conflicting]
        theirs = set().union(*others)
        if its & (ours ^ theirs):
            return not its & (ours - theirs)
        if all(other - ours for other in others):
            return False
        heads = [self.files.head(each) for each in (final, path)]
        times = [meta["last_modified"].timestamp() for meta in heads if meta is not None]
        return len(times) < 2 or times[1] - times[0] < REBASE_SECONDS

    def _final_path(self, version: int) -> str:
        return self.within(name_of(version, Scheme.V2))

    def _copy_aside(self, path: str, data: bytes) -> str:
        name = _quarantine_path(path)
        if not self.files.put_own(name, data):
            name = f"{name}-{hashlib.sha256(data).hexdigest()[:16]}"
            self.files.put_own(name, data)
        return name

    def _warn(self, path: str, kept: str) -> None:
        logger.warning(
            "version %s in %s was not committed through the catalog: it is quarantined as %s; "
            "`lance-bridge managed check` lists these versions",
            path,
            self.files.location,
            kept,
        )


def data_files(content: bytes) -> set[bytes]:
    """Return the names of data files in a manifest or a transaction."""
    return set(_DATA_FILE.findall(content))


def quarantined_version(name: str) -> int | None:
    """Return the version in the name of a quarantined manifest, or None for another name."""
    found = parse_name(name.partition(QUARANTINED)[0] + ".manifest")
    return None if found is None else found[0]


def _quarantine_path(path: str) -> str:
    """Return the path of the first manifest that is quarantined from a path."""
    return path.removesuffix(".manifest") + QUARANTINED


def managed_directory(table: TableEntry, *, write: bool = False) -> ManagedDirectory:
    """Return the versions of an implementation-managed table.

    Raises:
        InvalidInputError: (13) its storage manages the table.
        InvalidTableStateError: (19) as `batches.latest_state`.
    """
    own = table.record.properties.get(MARK, "")
    return ManagedDirectory(table.files(write=write), latest_state(table), own)

"""The manifests of a table whose versions the catalog holds: what is committed, and what is not."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Sequence

from lance_namespace.errors import LanceNamespaceError

from ..catalog import TableRecord
from ..connection import Connection
from ..managed_state import State
from ..storage.manifests import (
    Manifest,
    Scheme,
    TableFiles,
    VersionDirectory,
    discard,
    name_of,
    parse_name,
)

FOREIGN = ".manifest-foreign"
"""In the file name of a manifest that was set aside; Lance takes such a file for no version."""

REBASE_SECONDS = 5.0
"""For how long a writer may have seen what is not there any more, by the clock of the storage."""

_TRANSACTION = re.compile(rb"(\d+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.txn")
"""The file that a manifest names what made it by: it begins with the version that was read."""
_DATA_FILE = re.compile(rb"[0-9A-Za-z_-]{16,}\.lance")

logger = logging.getLogger(__name__)


class ManagedDirectory(VersionDirectory):
    """Shows the versions up to the latest that the catalog knows, and finishes that one first."""

    def __init__(self, files: TableFiles, state: State) -> None:
        super().__init__(files)
        self.state = state
        self._is_finished = not state.staged

    def list(self) -> list[Manifest]:
        """Also see the base class. What was not committed through the catalog is left out."""
        latest = self.latest()
        older = [each for each in super().list() if each.version < self.state.version]
        return older if latest is None else [*older, latest]

    def latest(self) -> Manifest | None:
        """Return the latest version's manifest, without listing all."""
        return self.find(self.state.version)

    def last_two(self) -> Sequence[Manifest] | None:
        """Also see the base class. Lance asks for the latest each time it opens a table."""
        last = [self.find(version) for version in (self.state.version - 1, self.state.version)]
        found = [each for each in last if each is not None]
        return found if len(found) == len(last) else None

    def find(self, version: int) -> Manifest | None:
        """Also see the base class. What was not committed through the catalog is not found."""
        if version > self.state.version:
            return None
        if version < self.state.version or self._can_finish():
            return super().find(version)
        # Where it is staged no more, somebody else has finished it meanwhile.
        return self._staged() or super().find(version)

    def _can_finish(self) -> bool:
        try:
            self.finish()
        except LanceNamespaceError as error:
            # Readers need not be allowed to write: the staged manifest says the same.
            logger.info("version %s stays staged: %s", self.state.version, error)
            return False
        return True

    def _staged(self) -> Manifest | None:
        name = self.state.staged
        meta = self.files.head(self.within(name))
        return None if meta is None else self._of(meta, self.state.version, Scheme.V2, name)

    def finish(self) -> None:
        """Give the latest version's manifest its final name, unless somebody has done so.

        Doing so twice, or at once with others, does no harm: all write the same.
        """
        if self._is_finished:
            return
        staged = self.within(self.state.staged)
        data = self.files.read(staged)
        if data is not None:
            final = self._final_path(self.state.version)
            self._put_final(final, data)
            if self.files.head(_aside(final)) is None:
                discard(self.files, staged)
            # Else who set another manifest aside from there may delete it once more: a request that
            # was held up in the network, or a hold that ended early by another clock. The staged
            # one then brings the version back.
        self._is_finished = True

    def _put_final(self, path: str, data: bytes) -> None:
        if self.files.put_own(path, data):
            return
        there = self.files.read(path)
        if there not in (None, data):
            # Somebody wrote to the storage behind the catalog's back, and loses to the commit.
            self._warn(path, self._keep(path, there))
        self.files.put_over(path, data)

    # -- what was not committed ------------------------------------------------------------------

    def foreign(self) -> Sequence[Manifest]:
        """Return the manifests of versions that the catalog does not know of."""
        return [each for each in super().list() if each.version > self.state.version]

    def has_next(self) -> bool:
        """Return whether a manifest lies where the version after the latest goes."""
        return self.files.head(self._final_path(self.state.version + 1)) is not None

    def keep(self, manifests: Sequence[Manifest]) -> None:
        """Copy manifests to the names under which they are set aside."""
        for each in manifests:
            path = self.within(each.name)
            data = self.files.read(path)
            if data is not None:
                self._keep(path, data)

    def set_aside(self, manifests: Sequence[Manifest]) -> None:
        """Take manifests from where Lance looks for versions. They stay, under other names.

        Only while the table is held: else one of them could become committed meanwhile.
        """
        for each in manifests:
            self.withdraw(each.name)

    def withdraw(self, name: str) -> None:
        """Take one manifest away, as `set_aside` does: others may have seen it and build on it."""
        path = self.within(name)
        data = self.files.read(path)
        if data is not None:
            kept = self._keep(path, data)
            self.files.remove([path])
            self._warn(path, kept)

    def aside(self) -> Sequence[str]:
        """Return the file names of the manifests that were set aside."""
        metas = self.files.list(self.inside)
        names = (meta["path"].rpartition("/")[2] for meta in metas)
        return sorted(name for name in names if FOREIGN in name)

    def aside_after_latest(self) -> Sequence[tuple[int, str]]:
        """Return version and file name of what was set aside, and not for a commit until now.

        The first version first; several of one version can be there.
        """
        found = ((version_aside(name), name) for name in self.aside())
        return sorted(
            (version, name)
            for version, name in found
            if version is not None and version > self.state.version
        )

    def put_back(self) -> None:
        """Give manifests that were set aside their own names again, unless others lie there.

        Only while the table is held. What is left half-way is like what was never set aside.
        """
        if self.foreign():
            return
        for version, name in self.aside_after_latest():
            data = self.files.read(self.within(name))
            if data is not None and self.files.put_own(self._final_path(version), data):
                self.files.remove([self.within(name)])

    def rivals(self) -> Sequence[bytes]:
        """Return the other manifests of the latest version that were set aside; mostly none."""
        first = _aside(self._final_path(self.state.version))
        if self.files.head(first) is None:
            return []
        names = (self.within(name) for name in self.aside())
        found = [self.files.read(name) for name in names if name.startswith(first)]
        committed = self.files.read(self._final_path(self.state.version))
        return [data for data in found if data is not None and data != committed]

    def may_stand_on_rival(self, path: str, data: bytes) -> bool:
        """Return whether a staged manifest may have been built on what was set aside.

        Lance looks for later versions in the storage while it commits. What was made from the
        latest version itself was not built on another of its number, because the catalog says
        where that lies. Of anything else the data files tell that only one side had: what was
        rebased on another keeps the files that this brought. Where another brought none, one
        without any is not trusted if it was staged so soon after the committed one got its name
        that its writer may not have seen that.
        """
        rivals = self.rivals()
        if not rivals or set(_TRANSACTION.findall(data)) == {b"%d" % self.state.version}:
            return False
        final = self._final_path(self.state.version)
        ours, its = _data_files(self.files.read(final) or b""), _data_files(data)
        others = [_data_files(each) for each in rivals]
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

    def _keep(self, path: str, data: bytes) -> str:
        name = _aside(path)
        if not self.files.put_own(name, data):
            name = f"{name}-{hashlib.sha256(data).hexdigest()[:16]}"
            self.files.put_own(name, data)
        return name

    def _warn(self, path: str, kept: str) -> None:
        logger.warning(
            "version %s in %s was not committed through the catalog: it is set aside as %s",
            path,
            self.files.location,
            kept,
        )


def _data_files(manifest: bytes) -> set[bytes]:
    return set(_DATA_FILE.findall(manifest))


def version_aside(name: str) -> int | None:
    """Return the version that a manifest would have been which was set aside under this name."""
    found = parse_name(name.partition(FOREIGN)[0] + ".manifest")
    return None if found is None else found[0]


def _aside(path: str) -> str:
    """Return where the first manifest that is set aside from a path goes."""
    return path.removesuffix(".manifest") + FOREIGN


def directory_of(
    connection: Connection, record: TableRecord, state: State, *, write: bool
) -> ManagedDirectory:
    """Return the versions of a table that the catalog manages."""
    storage = connection.storage(record, write=write)
    return ManagedDirectory(TableFiles(storage, record.location or ""), state)

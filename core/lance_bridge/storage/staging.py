"""Creation of a version from a staged manifest, which is written but not a version yet.

A storage-managed table has one version per manifest in ``_versions``. Lance commits by writing the
manifest only if it does not exist, and so does this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lance_namespace import CreateTableVersionRequest
from lance_namespace.errors import ConcurrentModificationError
from lance_namespace_urllib3_client.models import CreateTableVersionEntry

from ..catalog import Path
from ..errors import concurrent_modification, display, invalid, unsupported
from .manifest_content import version_inside
from .manifests import Manifest, Scheme, VersionDirectory, name_of
from .store import discard


@dataclass(frozen=True)
class Staged:
    """A version to create, as in a request."""

    version: int
    manifest_path: str
    branch: str | None = None
    manifest_size: int | None = None
    e_tag: str | None = None
    naming_scheme: str | None = None
    metadata: Mapping[str, str] | None = None

    @classmethod
    def from_request(cls, request: CreateTableVersionRequest | CreateTableVersionEntry) -> Staged:
        """Return the version that a request is for."""
        return cls(
            request.version,
            request.manifest_path,
            request.branch,
            request.manifest_size,
            request.e_tag,
            request.naming_scheme,
            request.metadata,
        )


@dataclass(frozen=True)
class Commit:
    """A checked version that can be created: by its storage, or as a subclass defines."""

    path: Path
    """The path of the table."""
    directory: VersionDirectory
    version: int
    name: str
    """The file name of the version's manifest."""
    staged: str
    """The path of the staged manifest, relative to the table's location."""
    data: bytes
    exists: bool
    """Whether an earlier attempt of the same request succeeded."""

    def __str__(self) -> str:
        """Return the version's name for messages."""
        return f"Version {self.version} of table '{display(self.path)}'"

    def do(self) -> Manifest:
        """Create the version. Raises ConcurrentModification (14)."""
        files, path = self.directory.files, self.directory.within(self.name)
        if not self.exists and not files.put_own(path, self.data):
            raise conflict(self.path, self.version, self.version + 1)
        discard(files, self.staged)
        manifest = self.directory.find(self.version)
        if manifest is None:
            raise concurrent_modification(self.path)
        return manifest


def prepare(table: Path, directory: VersionDirectory, staged: Staged) -> Commit:
    """Check all that can be checked before a version is created by the storage.

    Raises:
        ConcurrentModificationError: (14) the version exists, or is not the next one.
        InvalidInputError: (13) the manifest does not exist, is of another version, or would be
            named in another scheme than those of the table.
        UnsupportedOperationError: (0) metadata is given, which a manifest cannot hold.
    """
    refuse_metadata(table, staged)
    wanted = Scheme.parse(staged.naming_scheme)
    staged_name = directory.name_of_staged(staged.manifest_path)
    present = directory.list()
    latest = present[-1] if present else None
    scheme = latest.scheme if latest else wanted or Scheme.V2
    require_scheme(table, staged, scheme)
    path = directory.within(staged_name)
    data = directory.files.read(path)
    name = name_of(staged.version, scheme)
    exists = any(each.version == staged.version for each in present)
    expected = latest.version + 1 if latest else 1
    if staged.version != expected:
        # A repeated call whose first reply was lost is not a conflict.
        is_same = exists and data == directory.files.read(directory.within(name))
        if data is None or not is_same:
            raise conflict(table, staged.version, expected)
    checked = require_content(directory, path, staged, data)
    return Commit(table, directory, staged.version, name, path, checked, exists)


def refuse_metadata(table: Path, staged: Staged) -> None:
    """Raise UnsupportedOperation (0) for a version with metadata."""
    if staged.metadata:
        raise unsupported(
            f"Metadata of a version of '{display(table)}' cannot be kept: a manifest has no "
            "place for it. Leave `metadata` out"
        )


def require_scheme(table: Path, staged: Staged, scheme: Scheme) -> None:
    """Raise InvalidInput (13) for a manifest in another naming scheme than those of its table."""
    if Scheme.parse(staged.naming_scheme) not in (None, scheme):
        raise invalid(
            f"The manifests of '{display(table)}' are named in scheme {scheme.value}: one in "
            f"scheme {staged.naming_scheme} would make the table unreadable"
        )


def require_content(
    directory: VersionDirectory, path: str, staged: Staged, data: bytes | None
) -> bytes:
    """Return the content of a staged manifest.

    Raises:
        InvalidInputError: (13) it does not exist, or differs from the request.
    """
    if data is None:
        raise invalid(f"There is no staged manifest at {staged.manifest_path[:300]!r}")
    what = f"The manifest at {staged.manifest_path[:300]!r}"
    found = version_inside(data)
    if found != staged.version:
        is_of = "not a Lance manifest" if found is None else f"of version {found}"
        raise invalid(f"{what} is {is_of}, and not of version {staged.version}")
    if staged.manifest_size not in (None, len(data)):
        raise invalid(f"{what} has {len(data)} bytes, not {staged.manifest_size}")
    if staged.e_tag is not None:
        meta = directory.files.head(path)
        if meta is None or _normalize_e_tag(meta["e_tag"]) != _normalize_e_tag(staged.e_tag):
            raise invalid(f"{what} does not have the request's e_tag")
    return data


def _normalize_e_tag(e_tag: str | None) -> str:
    """Return an ETag without the prefix and quotes that some stores add."""
    return (e_tag or "").removeprefix("W/").strip('"')


def conflict(table: Path, version: int, expected: int) -> ConcurrentModificationError:
    """Return the error for a version that is not the next one."""
    return ConcurrentModificationError(
        f"Version {version} of table '{display(table)}' cannot be created: the next version "
        f"is {expected}"
    )

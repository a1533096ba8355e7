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
from ..errors import (
    OutcomeUnknownError,
    concurrent_modification,
    display,
    invalid,
    unsupported,
)
from .manifest_content import version_inside
from .manifests import Manifest, Scheme, VersionDirectory, discard, name_of


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
        OutcomeUnknownError: (17) as `is_created`.
        UnsupportedOperationError: (0) metadata is given, which a manifest cannot hold.
    """
    refuse_metadata(table, staged)
    wanted = Scheme.parse(staged.naming_scheme)
    path = directory.within(directory.name_of_staged(staged.manifest_path))
    # Before the listing: an attempt that deletes the staged manifest has created the version first.
    data = directory.files.read(path)
    present = directory.list()
    latest = present[-1] if present else None
    scheme = latest.scheme if latest else wanted or Scheme.V2
    require_scheme(table, staged, scheme)
    name = name_of(staged.version, scheme)
    expected = latest.version + 1 if latest else 1

    def commit(content: bytes, *, exists: bool) -> Commit:
        return Commit(table, directory, staged.version, name, path, content, exists)

    exists = staged.version < expected and is_created(table, directory, staged, name, data)
    if exists and data is None:
        return commit(b"", exists=True)
    if staged.version != expected and not exists:
        raise conflict(table, staged.version, expected)
    return commit(require_content(directory, path, staged, data), exists=exists)


def is_created(
    table: Path, directory: VersionDirectory, staged: Staged, name: str, data: bytes | None
) -> bool:
    """Return whether an earlier attempt of the same request created a version up to the latest.

    If it did, it may have deleted the staged manifest. Then the ETag tells, in a store that
    computes it from the content: the version's manifest is a copy of the staged one.

    Args:
        name: The file name of the version's manifest.
        data: The content of the staged manifest, or None if it does not exist.

    Raises:
        ConcurrentModificationError: (14) the staged manifest does not exist, and had another size.
        OutcomeUnknownError: (17) it does not exist, and an attempt may have created the version.
    """
    if data is not None:
        return data == directory.files.read(directory.within(name))
    found = directory.find(staged.version)
    if found is not None and staged.manifest_size not in (None, found.size):
        raise ConcurrentModificationError(
            f"Version {staged.version} of table '{display(table)}' was created from another "
            "manifest"
        )
    e_tag = _normalize_e_tag(staged.e_tag)
    if found is not None and e_tag and e_tag == _normalize_e_tag(found.e_tag):
        return True
    raise OutcomeUnknownError(
        f"Whether version {staged.version} of table '{display(table)}' was created from "
        f"{staged.manifest_path[:300]!r} is unknown: the version is not a new one, and no manifest "
        "is staged there. Check the version's transaction before you repeat the change"
    )


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

"""Shallow clones: Lance tables that read files of other tables."""

from __future__ import annotations

import logging

from lance_namespace.errors import InvalidTableStateError

from .manifest_content import parse_manifest
from .manifests import TableFiles, VersionDirectory
from .store import TableStorage

logger = logging.getLogger(__name__)


class BaseLocations:
    """Where Lance tables have files outside of their own locations, as their manifests say.

    A manifest never changes: what it says is remembered, by its path and ETag.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[str, str], tuple[str, ...]]] = {}

    def of_latest(self, storage: TableStorage, location: str) -> tuple[str, ...]:
        """Return the base paths of a table's latest version.

        Takes a listing of its manifests, and a read of the latest one unless that is remembered. A
        table that Lance cannot open needs no other table's files.

        Raises:
            PermissionDeniedError: (15), or another error of the storage.
        """
        directory = VersionDirectory(TableFiles(storage, location))
        try:
            latest = directory.latest()
            if latest is None:
                return ()
            manifest, known = (latest.path, latest.e_tag or ""), self._known.get(location)
            if known is not None and known[0] == manifest:
                return known[1]
            data = directory.files.read(directory.within(latest.name))
            found = parse_manifest(data).base_paths if data is not None else ()
        except (ValueError, InvalidTableStateError) as error:
            logger.debug("%s cannot be opened: %s", location, error)
            return ()
        if latest.e_tag:
            self._known[location] = (manifest, found)
        return found

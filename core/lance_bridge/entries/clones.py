"""Shallow clones: Lance tables that read files of other tables."""

from __future__ import annotations

import logging

from lance_namespace.errors import InvalidTableStateError

from ..bridge import Bridge
from ..catalog import TableRecord
from ..errors import display
from ..manifest_content import parse_manifest
from ..tables.history.manifests import TableFiles, VersionDirectory

logger = logging.getLogger(__name__)


def base_locations(bridge: Bridge, record: TableRecord) -> tuple[str, ...]:
    """Return where a Lance table's latest version has files outside of its own location.

    Takes a listing of its manifests and a read of the latest one. A table that Lance cannot open
    needs nobody's files.

    Raises:
        PermissionDeniedError: (15), or another error of the storage.
    """
    directory = VersionDirectory(TableFiles(bridge.storage(record), record.location or ""))
    try:
        latest = directory.latest()
        data = directory.files.read(directory.within(latest.name)) if latest else None
        return parse_manifest(data).base_paths if data is not None else ()
    except (ValueError, InvalidTableStateError) as error:
        logger.debug("'%s' cannot be opened: %s", display(record.path), error)
        return ()

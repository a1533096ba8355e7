"""Where a new table goes, when its creator does not say."""

from __future__ import annotations

import hashlib
import logging
import uuid

from lance_namespace.errors import LanceNamespaceError

from .. import location as locations
from ..bridge import Bridge
from ..catalog import Path
from ..errors import display, invalid

_LONGEST_NAME = 200

logger = logging.getLogger(__name__)


def default_location(bridge: Bridge, path: Path) -> str:
    """Return ``<root>/<namespace>.db/<table>.lance``, or ``<namespace's location>/<table>.lance``.

    Raises:
        InvalidInputError: (13) there is no root, and the namespace has no place for Lance.
        NamespaceNotFoundError: (1)
    """
    *namespace, table = path
    file_name = _file_name(table)
    if bridge.config.root is not None:
        parents = [*namespace[:-1], f"{namespace[-1]}.db"]
        return locations.join(locations.check(bridge.config.root), *parents, file_name)
    parent = bridge.catalog.load_namespace(tuple(namespace)).location
    if not parent or not locations.is_supported(parent):
        where = f"at {parent}, where Lance cannot write" if parent else "without a location"
        raise invalid(
            f"Table '{display(path)}' needs a location: namespace '{display(namespace)}' is "
            f"{where}. Set the property 'root', or give a location"
        )
    return locations.for_lance(locations.join(parent, file_name))


def _file_name(table: str) -> str:
    """Return the table's name as a file name; file systems allow 255 bytes, with our suffixes."""
    if len(table.encode()) > _LONGEST_NAME:
        digest = hashlib.sha256(table.encode()).hexdigest()[:16]
        table = f"{table.encode()[: _LONGEST_NAME - 17].decode(errors='ignore')}-{digest}"
    return f"{table}.lance"


def free_location(bridge: Bridge, path: Path, *, must_look: bool) -> str:
    """Return the default location, with a short unique suffix where it is not known to be free.

    Args:
        must_look: Whether storage that cannot be looked at is an error. Declaring a table needs
            no access to storage, and a suffix is always safe.
    """
    location = default_location(bridge, path)
    try:
        if not bridge.storage.is_occupied(location):
            return location
    except LanceNamespaceError as error:
        if must_look:
            raise
        logger.warning("could not look whether %s is free: %s", location, error)
    return f"{location.removesuffix('.lance')}-{uuid.uuid4().hex[:8]}.lance"

"""Zip archives on the path of Spark's Python workers, which are not to be read for every call.

Spark puts its own jar on that path, and has a worker forget what it knows of the path: PySpark 4.1
before each call, be it a task or a question to a data source, and later ones where the path grows.
Up to Python 3.12 that reads the names of some thousand files again, which takes ten times as long
as a call itself.
"""

from __future__ import annotations

import os
import sys
import zipimport
from collections.abc import MutableMapping
from typing import Any

_READS_AT_ONCE = sys.version_info < (3, 13)
_MODULE_OF_WORKERS = "pyspark.worker_util"


class CachedZipImporter(zipimport.zipimporter):
    """Finds modules in an archive, and reads its names again only where it was changed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._state = self._now()

    def invalidate_caches(self) -> None:
        """Read the names again if the file is another than it was."""
        now = self._now()
        if now != self._state:
            self._state = now
            super().invalidate_caches()

    def _now(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.archive)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size


def cache_zip_importers(finders: MutableMapping[str, Any]) -> None:
    """Replace each finder of an archive with a `CachedZipImporter`.

    Args:
        finders: By path, such as ``sys.path_importer_cache``.
    """
    for path, finder in list(finders.items()):
        if type(finder) is zipimport.zipimporter:
            finders[path] = CachedZipImporter(path)


def cache_zip_importers_in_worker() -> None:
    """Do so where this process is a worker of Spark, and its Python needs it."""
    if _READS_AT_ONCE and _MODULE_OF_WORKERS in sys.modules:
        cache_zip_importers(sys.path_importer_cache)

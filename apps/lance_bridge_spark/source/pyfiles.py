"""Caching of zip archives on the path of Spark's Python workers.

Spark puts its own jar on that path and invalidates a worker's import caches: PySpark 4.1 before
each call (a task, or a call to a data source), and later versions if the path grows. Up to Python
3.12 this reads the names of some thousand files again, which takes ten times as long as the call.
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
    """An importer that reads the names in an archive again only if the file has changed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._state = self._file_state()

    def invalidate_caches(self) -> None:
        """Read the names again if the file has changed."""
        now = self._file_state()
        if now != self._state:
            self._state = now
            super().invalidate_caches()

    def _file_state(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.archive)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size


def cache_zip_importers(finders: MutableMapping[str, Any]) -> None:
    """Replace each zip importer with a `CachedZipImporter`.

    Args:
        finders: Finders by path, such as ``sys.path_importer_cache``.
    """
    for path, finder in list(finders.items()):
        if type(finder) is zipimport.zipimporter:
            finders[path] = CachedZipImporter(path)


def cache_zip_importers_in_worker() -> None:
    """Replace the zip importers if this process is a Spark worker and its Python needs it."""
    if _READS_AT_ONCE and _MODULE_OF_WORKERS in sys.modules:
        cache_zip_importers(sys.path_importer_cache)

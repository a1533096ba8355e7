"""The files of a Lance table, copied to another place as they are: all versions up to one.

Lance never changes a file that is there, so that copies of single files are a copy of the table as
long as the manifests, which name all others, come last. No copy is seen before it is whole.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import obstore
from lance_namespace.errors import ConcurrentModificationError
from obstore.exceptions import AlreadyExistsError
from obstore.store import LocalStore

from lance_bridge import location as locations
from lance_bridge.storage import TableStorage, store_errors
from lance_bridge.table_files import RESERVED_FILE

from .kind import Stopped

_VERSIONS = "_versions/"
_MANIFEST = re.compile(r"_versions/(\d+)\.manifest")
_LARGEST = 2**64 - 1
"""Names of manifests count down from it in Lance's second scheme, which has 20 digits."""
_DIGITS = 20
_THREADS = 8
_CHUNK = 8 * 1024 * 1024


@dataclass(frozen=True)
class Place:
    """A table's directory, with the options of its storage."""

    location: str
    storage: TableStorage

    def store(self) -> Any:
        """Return an obstore client for it; its calls raise obstore's own errors."""
        place = locations.for_lance(self.location)
        if not locations.is_local(place):
            return self.storage.store_at(place)
        directory = Path(place)
        directory.mkdir(parents=True, exist_ok=True)
        return LocalStore(directory)

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each file, by path."""
        with store_errors(self.location):
            batches = obstore.list(self.store())
            return {str(meta["path"]): int(meta["size"]) for batch in batches for meta in batch}


def files_of(source: Place, version: int) -> dict[str, int]:
    """Return the bytes of each file of a table, by path, without manifests after a version.

    Files of others that lie among them are left out.

    Raises:
        InvalidTableStateError: (19) a manifest cannot be read, so that the files are not known.
    """
    sizes = source.sizes()
    own = chain.from_iterable(source.storage.files_of_table(source.location).own)
    return {
        path: sizes[path]
        for path in own
        if path in sizes and path != RESERVED_FILE and _is_wanted(path, version)
    }


def _is_wanted(path: str, version: int) -> bool:
    """Return False for manifests that are later or not final, and for hints of the latest."""
    if not path.startswith(_VERSIONS):
        return True
    match = _MANIFEST.fullmatch(path)
    return match is not None and _version_of(match[1]) <= version


def _version_of(digits: str) -> int:
    return _LARGEST - int(digits) if len(digits) == _DIGITS else int(digits)


def manifests_of(source: Place, wanted: Iterable[str]) -> dict[str, str]:
    """Return a digest of each manifest among some files, by path.

    Raises:
        ServiceUnavailableError: (17) or another error of the storage.
    """
    paths = [path for path in wanted if path.startswith(_VERSIONS)]
    with store_errors(source.location), ThreadPoolExecutor(_THREADS) as pool:
        store = source.store()
        return dict(zip(paths, pool.map(partial(_digest, store), paths), strict=True))


def others_manifests(target: Place, own: Mapping[str, str]) -> list[str]:
    """Return the manifests of a place that are not those that are being copied there.

    Args:
        own: As `manifests_of` returns it.
    """
    there = [path for path in target.sizes() if _MANIFEST.fullmatch(path) is not None]
    found = manifests_of(target, there)
    return sorted(path for path, digest in found.items() if own.get(path) != digest)


def copy(
    source: Place,
    target: Place,
    wanted: dict[str, int],
    *,
    stopping: threading.Event,
    advance: Callable[[int], None],
) -> int:
    """Copy files, those left out that are there in full, and return the bytes of all.

    No manifest is ever written over.

    Args:
        wanted: As `files_of` returns it.
        advance: Is told the bytes of each file that was not there and is now.

    Raises:
        Stopped: The run is to stop; what was copied stays, and is not copied again.
        ConcurrentModificationError: (14) somebody else has written one of the versions.
        ServiceUnavailableError: (17) or another error of a storage.
    """
    there = target.sizes()
    left = {path: size for path, size in wanted.items() if there.get(path) != size}
    manifests = sorted(path for path in wanted if path.startswith(_VERSIONS))
    others = [path for path in left if not path.startswith(_VERSIONS)]

    def one(path: str, write: Callable[[Any, Any, str], None]) -> int:
        if stopping.is_set():
            raise Stopped
        with store_errors(f"{source.location} and {target.location}"):
            write(source.store(), target.store(), path)
        return wanted[path]

    with ThreadPoolExecutor(_THREADS) as pool:
        for future in as_completed([pool.submit(one, path, _copy) for path in others]):
            advance(future.result())
    # The first version first: whoever looks meanwhile finds a table that is whole.
    for path in sorted(manifests, key=_order):
        size = one(path, _copy_once)
        if path in left:
            advance(size)
    return sum(wanted.values())


def _order(path: str) -> int:
    match = _MANIFEST.fullmatch(path)
    return _version_of(match[1]) if match else 0


def _copy(source: Any, target: Any, path: str) -> None:
    """Copy a file, a part at a time; it is there once the writer is closed, and whole then."""
    writer = obstore.open_writer(target, path)
    for chunk in obstore.get(source, path).stream(min_chunk_size=_CHUNK):
        writer.write(chunk)
    writer.close()


def _copy_once(source: Any, target: Any, path: str) -> None:
    """Write a file that is not there; one that is there must be the same."""
    content = bytes(obstore.get(source, path).bytes())
    try:
        obstore.put(target, path, content, mode="create")
    except AlreadyExistsError:
        if _digest(target, path) != hashlib.sha256(content).hexdigest():
            raise ConcurrentModificationError(
                f"{path} is there already and is another version: somebody else has written to the "
                "table. It is left as it is"
            ) from None


def _digest(store: Any, path: str) -> str:
    return hashlib.sha256(bytes(obstore.get(store, path).bytes())).hexdigest()

"""Table locations: pure functions on their spelling. No storage is touched here.

Catalogs spell one place in many ways (``/p``, ``file:/p``, ``file:///p``, ``s3a://``, a slash at
the end). Lance gets one spelling: a plain absolute path for local files, else a URI with a scheme
that Lance knows.
"""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from urllib.parse import quote

from .errors import invalid

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):(.*)$", re.DOTALL)
_LANCE_SCHEME = {
    "s3": "s3", "s3a": "s3", "s3n": "s3",
    "gs": "gs",
    "az": "az", "abfs": "abfss", "abfss": "abfss",
}  # fmt: skip
_MAX_LENGTH = 2048


def check(location: str) -> str:
    """Return ``location`` in the spelling for Lance.

    Raises:
        InvalidInputError: (13) it is empty, relative, holds ``..``, control characters, a query or
            a fragment, has no bucket, or is on storage that Lance cannot write.
    """
    shown = repr(location[:120])
    if not location.strip() or len(location) > _MAX_LENGTH:
        raise invalid(f"Location {shown} must have 1 to {_MAX_LENGTH} characters")
    if any(ord(c) < 32 or ord(c) == 127 for c in location):
        raise invalid(f"Location {shown} has control characters")
    scheme, place = _split(location)
    if scheme is not None and scheme != "file" and scheme not in _LANCE_SCHEME:
        raise invalid(
            f"Location {shown} is on '{scheme}', which Lance cannot write: use a local path, "
            "s3://, gs://, az:// or abfss://"
        )
    if scheme is None and not location.startswith("/"):
        raise invalid(f"Location {shown} is relative: give an absolute path or a URI")
    if ".." in PurePosixPath(place).parts:
        raise invalid(f"Location {shown} must not hold '..'")
    if scheme not in (None, "file"):
        _check_remote(shown, place)
    if not _segments(place)[0 if scheme in (None, "file") else 1 :]:
        raise invalid(f"Location {shown} is a whole bucket or file system: name a directory in it")
    return for_lance(location)


def _check_remote(shown: str, place: str) -> None:
    if not place.startswith("//") or not place[2:].split("/", 1)[0]:
        raise invalid(f"Location {shown} has no bucket")
    if "?" in place or "#" in place:
        raise invalid(f"Location {shown} must not hold '?' or '#'")


def is_supported(location: str) -> bool:
    """Return True where Lance can read and write the storage under ``location``."""
    scheme, _ = _split(location)
    return scheme in (None, "file") or scheme in _LANCE_SCHEME


def for_lance(location: str) -> str:
    """Return the spelling that pylance takes, without checking it."""
    scheme, place = _split(location)
    if scheme in (None, "file"):
        return _local_path(place)
    return f"{_LANCE_SCHEME.get(scheme, scheme)}:{place.rstrip('/')}"


def for_catalog(location: str) -> str:
    """Return the spelling to store in a catalog: always a URI, with the caller's own scheme.

    A plain path would be completed by some metastores with their default file system.
    """
    scheme, place = _split(location)
    return f"file://{_local_path(place)}" if scheme in (None, "file") else location.rstrip("/")


def table_uri(location: str) -> str:
    """Return a complete and valid URI (percent-encoded) for ``location``."""
    scheme, place = _split(for_lance(location))
    if scheme is None:
        return "file://" + quote(place)
    return f"{scheme}:{quote(place, safe='/@:')}"


def join(location: str, *names: str) -> str:
    """Return a place under ``location``."""
    return "/".join((location.rstrip("/"), *names))


def key(location: str) -> tuple[str, ...]:
    """Return the place as segments, equal for every spelling of it; links of local files resolved.

    One location contains another exactly when its key is a prefix of the other's.
    """
    scheme, place = _split(for_lance(location))
    if scheme is None:
        return ("file", *_segments(os.path.realpath(place)))
    return (scheme, *_segments(place))


def overlap(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return True where two keys are the same place or one contains the other."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def _split(location: str) -> tuple[str | None, str]:
    found = _SCHEME.match(location)
    return (found[1].lower(), found[2]) if found else (None, location)


def _local_path(place: str) -> str:
    path = re.sub(r"^//[^/]*(?=/)", "", place) if place.startswith("//") else place
    return re.sub(r"/{2,}", "/", path).rstrip("/") or "/"


def _segments(place: str) -> tuple[str, ...]:
    return tuple(part for part in place.split("/") if part and part != ".")

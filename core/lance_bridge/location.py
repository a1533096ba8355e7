"""Table locations: pure functions on their spelling. No storage is touched here.

Catalogs spell one place in many ways (``/p``, ``file:/p``, ``file:///p``, ``s3a://``, a slash at
the end). Lance gets one spelling: a plain absolute path for local files, else a URI with a scheme
that Lance knows. Lance reads a URI as a URL: it resolves ``.`` and ``..``, drops a query, a
fragment and a user, and decodes ``%XX`` once. Local paths are taken as they are.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from urllib.parse import quote, unquote

from .errors import invalid, require_text

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):(.*)$", re.DOTALL)
_LANCE_SCHEME = {
    "s3": "s3", "s3a": "s3", "s3n": "s3",
    "gs": "gs",
    "az": "az", "abfs": "abfss", "abfss": "abfss",
}  # fmt: skip
_SAME_STORE = {
    "s3a": "s3", "s3n": "s3", "s3+ddb": "s3",
    "gcs": "gs",
    "az": "az", "azure": "az", "abfs": "az", "abfss": "az", "wasb": "az", "wasbs": "az",
}  # fmt: skip
_ONE_FILE_SYSTEM = {"hdfs": "hdfs", "webhdfs": "hdfs", "swebhdfs": "hdfs"}
"""A name node has many names and ports, and may be left out: it is not compared."""
_MOUNTED = ("dbfs", "viewfs")
"""Schemes whose directories may be mounts of any other storage."""
_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")
_S3_HOST = re.compile(r"(?:(.+)\.)?s3[.-](?:[a-z0-9.-]*\.)?amazonaws\.com")
_ALIASES = ("-s3alias", "--ol-s3")
_AZURE = (".core.windows.net", ".fabric.microsoft.com")
_GOOGLE = ("storage.googleapis.com", "storage.cloud.google.com")
ANY = "*"
"""In a key: the bucket of an access point, or the store behind a mount or a server of one's own."""
_MAX_LENGTH = 2048
_LONGEST_NAME = 200
"""Bytes of a name in a file name; file systems allow 255, with our suffixes."""
_BUCKET = re.compile(r"[A-Za-z0-9._$-]+")
_CONTAINER_OF_ACCOUNT = re.compile(r"[A-Za-z0-9._$-]+@[A-Za-z0-9.-]+")
_USER = re.compile(r"(?<=//)[^/?#]*:[^/?#]*@")


def check(location: str) -> str:
    """Return ``location`` in the spelling for Lance.

    Raises:
        InvalidInputError: (13) it is empty, relative, holds ``..``, control characters, a user, a
            query or a fragment, has no bucket, or is on storage that Lance cannot write.
    """
    shown = repr(_USER.sub("…@", location)[:120])
    require_text("Location", location)
    if not location.strip() or len(location) > _MAX_LENGTH:
        raise invalid(f"Location {shown} must have 1 to {_MAX_LENGTH} characters")
    if location != location.strip():
        raise invalid(f"Location {shown} begins or ends with a space")
    if any(ord(c) < 32 or ord(c) == 127 for c in location):
        raise invalid(f"Location {shown} has control characters")
    scheme, place = _split(location)
    if scheme is not None and scheme != "file" and scheme not in _LANCE_SCHEME:
        raise invalid(
            f"Location {shown} is on '{scheme}', which Lance cannot write: use a local path, "
            "s3://, gs://, az:// or abfss://"
        )
    if scheme in (None, "file"):
        _check_local(shown, scheme, place)
    if ".." in PurePosixPath(place).parts:
        raise invalid(f"Location {shown} must not hold '..'")
    if scheme not in (None, "file"):
        _check_remote(shown, _LANCE_SCHEME[scheme], place)
    if not _segments(place)[0 if scheme in (None, "file") else 1 :]:
        raise invalid(f"Location {shown} is a whole bucket or file system: name a directory in it")
    return for_lance(location)


def _check_local(shown: str, scheme: str | None, place: str) -> None:
    if not place.startswith("/"):
        raise invalid(f"Location {shown} is relative: give an absolute path or a URI")
    host = place[2:].split("/", 1)[0] if scheme and place.startswith("//") else ""
    if host not in ("", "localhost"):
        raise invalid(f"Location {shown} is on the host '{host[:60]}': files must be on this one")


def _check_remote(shown: str, scheme: str, place: str) -> None:
    bucket, _, path = place[2:].partition("/") if place.startswith("//") else ("", "", "")
    if not bucket:
        raise invalid(f"Location {shown} has no bucket")
    if "?" in place or "#" in place:
        raise invalid(f"Location {shown} must not hold '?' or '#'")
    with_account = scheme == "abfss" and _CONTAINER_OF_ACCOUNT.fullmatch(bucket)
    if not with_account and not _BUCKET.fullmatch(bucket):
        raise invalid(f"Location {shown} must name a bucket only, without a user or a port")
    segments = unquote(path.rstrip("/")).split("/")
    if ".." in segments or any(ord(c) < 32 for c in unquote(path)):
        raise invalid(f"Location {shown} must not hold '..' or control characters, encoded or not")
    if "" in segments[:-1]:
        raise invalid(f"Location {shown} has an empty segment ('//'), which Lance cannot write")


def is_supported(location: str) -> bool:
    """Return True where Lance can read and write the storage under ``location``."""
    scheme, _ = _split(location)
    return scheme in (None, "file") or scheme in _LANCE_SCHEME


def is_local(location: str) -> bool:
    """Return True for a place in the local file system, in any spelling."""
    return for_lance(location).startswith("/")


def for_lance(location: str) -> str:
    """Return the spelling that pylance takes, without checking it."""
    scheme, place = _split(location)
    if scheme in (None, "file"):
        return _local_path(scheme, place)
    return f"{_LANCE_SCHEME.get(scheme, scheme)}:{place.rstrip('/')}"


def for_catalog(location: str) -> str:
    """Return the spelling to store in a catalog: always a URI, with the caller's own scheme.

    A plain path would be completed by some metastores with their default file system.
    """
    scheme, place = _split(location)
    if scheme in (None, "file"):
        return f"file://{_local_path(scheme, place)}"
    return location.rstrip("/")


def table_uri(location: str) -> str:
    """Return a complete and valid URI (percent-encoded) for ``location``."""
    scheme, place = _split(for_lance(location))
    if scheme is None:
        return "file://" + quote(place)
    return f"{scheme}:{quote(unquote(place), safe='/@:')}"


def join(location: str, *names: str) -> str:
    """Return a place under ``location``."""
    return "/".join((location.rstrip("/"), *names))


def file_name(name: str, ending: str) -> str:
    """Return a name as a file name; of a long one, its beginning and a digest."""
    if len(name.encode()) > _LONGEST_NAME:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        name = f"{name.encode()[: _LONGEST_NAME - 17].decode(errors='ignore')}-{digest}"
    return f"{name}{ending}"


def is_path(name: str) -> bool:
    """Return whether the name of a column or an index leads out of a directory as a file's name.

    A name with a slash in it, as ``km/h``, is no path by that alone. Tools that write a file for
    each column or index take such names for file names.
    """
    segments = re.split(r"[/\\]", name)
    return (
        name.startswith(("/", "\\", "~/"))
        or any(segment in (".", "..") for segment in segments)
        or re.match(r"[A-Za-z]:[\\/]|[A-Za-z][A-Za-z0-9+.-]*://", name) is not None
    )


def namespace_directories(namespace: Sequence[str]) -> list[str]:
    """Return the directories of a namespace's tables below a root, outermost first."""
    *outer, innermost = namespace
    return [*(file_name(name, "") for name in outer), file_name(innermost, ".db")]


def key(location: str) -> tuple[str, ...]:
    """Return the place as segments, equal for every spelling of it; links of local files resolved.

    One location contains another when its key is a prefix of the other's; see `overlap` for what
    cannot be known by its spelling.
    """
    scheme, place = _split(for_lance(location.strip()))
    if scheme is None:
        place = for_lance(location)
        return ("file", *_segments(os.path.realpath(place)))
    return _remote_key(scheme, place)


def possible_keys(location: str) -> set[tuple[str, ...]]:
    """Return the key of every place that others may mean by a location.

    Lance decodes ``%XX`` in a ``file:`` URI, and Hadoop does not. A path that is relative is one of
    a directory that is not known.
    """
    scheme, place = _split(location.strip())
    if scheme is None and not place.startswith("/"):
        names = [name for name in _segments(place) if name != ".."]
        return {(ANY, *names)}
    keys = {key(location)}
    if scheme == "file" and "%" in place:
        keys.add(key(f"{scheme}:{unquote(place)}"))
    return keys


def readable_spellings(location: str) -> set[str]:
    """Return spellings for the places that others may mean by a location, as Lance opens them.

    Also where `check` refuses the location, which others may have written. Empty for storage that
    Lance cannot read.
    """
    found = set()
    for kind, *names in possible_keys(location):
        if kind == "file":
            found.add("/" + "/".join(names))
        elif kind in ("s3", "gs") and names and names[0] != ANY:
            found.add(f"{kind}://{names[0]}/{quote('/'.join(names[1:]))}")
        elif is_supported(location) and kind != ANY:
            found.add(for_lance(location))
    return found


def _remote_key(scheme: str, place: str) -> tuple[str, ...]:
    """Read a URI as Lance does, also one that `check` would refuse: others may have written it."""
    plain = re.split(r"[?#]", re.sub(r"[\t\r\n]", "", place).strip())[0].removeprefix("//")
    authority, _, path = plain.partition("/")
    names = _decoded_segments(path)
    if scheme in _MOUNTED:
        return (ANY, *names)
    if scheme in _ONE_FILE_SYSTEM:
        return (_ONE_FILE_SYSTEM[scheme], *names)
    scheme = _SAME_STORE.get(scheme, scheme)
    if scheme == "az":
        # One container is named with its account in one scheme, and without it in the other.
        return (scheme, authority.split("@")[0].split(":")[0], *names)
    host = authority.rsplit("@", 1)[-1]
    if scheme == "s3" and host.startswith("arn:"):
        return _access_point_key(host, names)
    host = host.split(":")[0]
    if scheme in ("http", "https") or (scheme == "s3" and host.endswith(_AMAZON)):
        return _host_key(host, names)
    is_alias = scheme == "s3" and host.endswith(_ALIASES)
    return (scheme, ANY if is_alias else host, *names)


def _decoded_segments(path: str) -> list[str]:
    names: list[str] = []
    for segment in path.split("/"):
        dots = re.sub("%2e", ".", segment, flags=re.IGNORECASE)
        if dots == "..":
            names = names[:-1]
        elif dots != ".":
            names += _segments(unquote(segment))
    return names


def _access_point_key(arn: str, names: list[str]) -> tuple[str, ...]:
    """Return the key of what is named by the ARN of an access point: the bucket is not in it."""
    skipped = {"accesspoint": 1, "outpost": 3}.get(arn.rsplit(":", 1)[-1], 0)
    return ("s3", ANY, *names[skipped:])


def _host_key(host: str, names: list[str]) -> tuple[str, ...]:
    """Return the key of a URL, with the bucket as its first labels or as its first segment.

    What is behind other servers is not known, such as an endpoint of one's own.
    """
    host = host.lower()
    if host.endswith(_AMAZON):
        return _amazon_key(host, names)
    if host.endswith(_AZURE):
        return ("az", *names)
    google = next((each for each in _GOOGLE if f".{host}".endswith(f".{each}")), None)
    if google is not None:
        bucket = host.removesuffix(google).rstrip(".")
        return ("gs", *([bucket] if bucket else []), *names)
    return (ANY, *names)


def _amazon_key(host: str, names: list[str]) -> tuple[str, ...]:
    if ".s3-accesspoint." in host or ".s3-object-lambda." in host or ".mrap." in host:
        return ("s3", ANY, *names)
    if names and names[0].startswith("arn:"):
        return _access_point_key(names[0], names[1:])
    in_host = _S3_HOST.match(host)
    return ("s3", *([in_host[1]] if in_host and in_host[1] else []), *names)


def overlap(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return True where two keys are, or may be, the same place or one contains the other.

    Of an access point the bucket is not known: it may be any. What is seen through a mount may be
    anywhere, below the directory that is mounted: it is taken for a place of which it has the last
    name, and so is what contains it or lies in it.
    """
    if ANY in (one[:1] + other[:1]):
        return _may_overlap_by_mount(one, other)
    if one[:1] == other[:1] == ("s3",) and ANY in (*one[1:2], *other[1:2]):
        one, other = one[2:], other[2:]
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def _may_overlap_by_mount(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return ANY in (one[-1], other[-1]) or one[-1] in other[1:] or other[-1] in one[1:]


def _split(location: str) -> tuple[str | None, str]:
    found = _SCHEME.match(location)
    return (found[1].lower(), found[2]) if found else (None, location)


def _local_path(scheme: str | None, place: str) -> str:
    path = re.sub(r"^//[^/]*(?=/)", "", place) if scheme else place
    return re.sub(r"/{2,}", "/", path).rstrip("/") or "/"


def _segments(place: str) -> tuple[str, ...]:
    return tuple(part for part in place.split("/") if part and part != ".")

"""Table locations: pure functions on their spelling. They do not access storage.

Only `lance_schemes` asks Lance, which needs no storage for it either.

Catalogs spell one location in many ways (``/p``, ``file:/p``, ``file:///p``, ``s3a://``, a trailing
slash). Lance gets one spelling: a plain absolute path for local files, or else a URI with a scheme
that Lance knows. Lance reads a URI as a URL: it resolves ``.`` and ``..``, drops a query, a
fragment and a user, and decodes ``%XX`` once. It uses local paths unchanged.

The location of an entry is one field of several. Spark keeps the directory of an external table of
a data source (Delta, JSON, CSV, Avro, …) in the SerDe parameter ``path``, next to a location that
holds nothing; Iceberg keeps its metadata file in a property, Athena a template of its
partitions' locations, and a table of symlinks has only a list of files at its location. Adapters
put what `other_locations` returns in `TableRecord.other_locations`, and core deletes no files and
vends no credentials for a table that overlaps any of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from urllib.parse import quote, unquote

from .errors import invalid, require_text
from .records import LANCE, TABLE_TYPE

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
"""A name node has several names and ports, or none, so it is not compared."""
_MOUNTED = ("dbfs", "viewfs")
"""Schemes whose directories may be mounts of any other storage."""
_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")
_S3_HOST = re.compile(r"(?:(.+)\.)?s3[.-](?:[a-z0-9.-]*\.)?amazonaws\.com")
_ALIASES = ("-s3alias", "--ol-s3")
_AZURE = (".core.windows.net", ".fabric.microsoft.com")
_GOOGLE = ("storage.googleapis.com", "storage.cloud.google.com")
ANY = "*"
"""In a key: the unknown bucket of an access point, or store behind a mount or private server."""
_VALID_SCHEMES = re.compile(r"Valid schemes: ([\w+, -]+)")
_OF_ONE_PROCESS = {"memory", "shared-memory", "file-object-store", "file+uring", "s3+ddb"}
"""Schemes of Lance that no other process sees, or that need more than a location."""
TABLE_ENDING, NAMESPACE_ENDING = ".lance", ".db"
"""What the names of default directories end with; of namespaces, that of the innermost one."""
_MAX_LENGTH = 2048
_LONGEST_NAME = 200
"""Bytes of a name in a file name; file systems allow 255, with our suffixes."""
_BUCKET = re.compile(r"[A-Za-z0-9._$-]+")
_CONTAINER_OF_ACCOUNT = re.compile(r"[A-Za-z0-9._$-]+@[A-Za-z0-9.-]+")
_USER = re.compile(r"(?<=//)[^/?#]*:[^/?#]*@")


def check(location: str) -> str:
    """Return ``location`` in the spelling for Lance.

    Raises:
        InvalidInputError: (13) it is empty, relative, contains ``..``, control characters, a user,
            a query or a fragment, has no bucket, or is on storage that Lance cannot write.
    """
    quoted = repr(_USER.sub("…@", location)[:120])
    require_text("Location", location)
    if not location.strip() or len(location) > _MAX_LENGTH:
        raise invalid(f"Location {quoted} must have 1 to {_MAX_LENGTH} characters")
    if location != location.strip():
        raise invalid(f"Location {quoted} begins or ends with a space")
    if any(ord(c) < 32 or ord(c) == 127 for c in location):
        raise invalid(f"Location {quoted} has control characters")
    scheme, rest = _split(location)
    if not (is_supported(location) or scheme in lance_schemes()):
        raise invalid(
            f"Location {quoted} is on '{scheme}', which the installed Lance cannot write: use a "
            "local path, s3://, gs://, az:// or abfss://"
        )
    if scheme in (None, "file"):
        _check_local(quoted, scheme, rest)
    if ".." in PurePosixPath(rest).parts:
        raise invalid(f"Location {quoted} must not contain '..'")
    if scheme not in (None, "file"):
        _check_remote(quoted, _LANCE_SCHEME.get(scheme, scheme), rest)
    if not _segments(rest)[0 if scheme in (None, "file") else 1 :]:
        raise invalid(f"Location {quoted} is a whole bucket or file system: name a directory in it")
    return for_lance(location)


def _check_local(quoted: str, scheme: str | None, rest: str) -> None:
    if not rest.startswith("/"):
        raise invalid(f"Location {quoted} is relative: give an absolute path or a URI")
    host = rest[2:].split("/", 1)[0] if scheme and rest.startswith("//") else ""
    if host not in ("", "localhost"):
        raise invalid(f"Location {quoted} is on the host '{host[:60]}': files must be on this one")


def _check_remote(quoted: str, scheme: str, rest: str) -> None:
    bucket, _, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", "")
    if not bucket:
        raise invalid(f"Location {quoted} has no bucket")
    if "?" in rest or "#" in rest:
        raise invalid(f"Location {quoted} must not contain '?' or '#'")
    with_account = scheme == "abfss" and _CONTAINER_OF_ACCOUNT.fullmatch(bucket)
    if not with_account and not _BUCKET.fullmatch(bucket):
        raise invalid(f"Location {quoted} must name a bucket only, without a user or a port")
    segments = unquote(path.rstrip("/")).split("/")
    if ".." in segments or any(ord(c) < 32 for c in unquote(path)):
        raise invalid(
            f"Location {quoted} must not contain '..' or control characters, encoded or not"
        )
    if "" in segments[:-1]:
        raise invalid(f"Location {quoted} has an empty segment ('//'), which Lance cannot write")


@lru_cache(1)
def lance_schemes() -> frozenset[str]:
    """Return the schemes of the stores that the installed Lance opens, as it names them itself."""
    import lance  # noqa: PLC0415 - takes seconds, and most locations do not need it

    try:
        lance.dataset("lance-bridge-has-no-such-scheme://bucket/table")
    except ValueError as error:
        found = _VALID_SCHEMES.search(str(error))
        named = re.findall(r"[\w+-]+", found[1]) if found else []
        return frozenset(named) - _OF_ONE_PROCESS
    return frozenset()


def is_supported(location: str) -> bool:
    """Return whether lance-bridge can list and delete files in the storage of ``location``.

    Lance itself may open further stores: see `lance_schemes`.
    """
    scheme, _ = _split(location)
    return scheme in (None, "file") or scheme in _LANCE_SCHEME


def is_local(location: str) -> bool:
    """Return whether a location, in any spelling, is in the local file system."""
    return for_lance(location).startswith("/")


def for_lance(location: str) -> str:
    """Return the spelling that pylance takes, without checking it."""
    scheme, rest = _split(location)
    if scheme in (None, "file"):
        return _local_path(scheme, rest)
    return f"{_LANCE_SCHEME.get(scheme, scheme)}:{rest.rstrip('/')}"


def for_catalog(location: str) -> str:
    """Return the spelling to store in a catalog: always a URI, with the caller's scheme.

    Some metastores would prefix a plain path with their default file system.
    """
    scheme, rest = _split(location)
    if scheme in (None, "file"):
        return f"file://{_local_path(scheme, rest)}"
    return location.rstrip("/")


def table_uri(location: str) -> str:
    """Return a complete and valid URI (percent-encoded) for ``location``."""
    scheme, rest = _split(for_lance(location))
    if scheme is None:
        return "file://" + quote(rest)
    return f"{scheme}:{quote(unquote(rest), safe='/@:')}"


def join(location: str, *names: str) -> str:
    """Return a location under another one."""
    return "/".join((location.rstrip("/"), *names))


def file_name(name: str, ending: str) -> str:
    """Return a name as a file name; a long name is cut and gets a digest."""
    if len(name.encode()) > _LONGEST_NAME:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        name = f"{name.encode()[: _LONGEST_NAME - 17].decode(errors='ignore')}-{digest}"
    return f"{name}{ending}"


def is_path(name: str) -> bool:
    """Return whether the name of a column or an index, used as a file name, leaves its directory.

    Some tools write a file for each column or index, named like it. A slash alone, as in
    ``km/h``, makes no such path.
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
    return [*(file_name(name, "") for name in outer), file_name(innermost, NAMESPACE_ENDING)]


def default_below(root: str, path: Sequence[str]) -> str:
    """Return the default location of a table below a root."""
    return join(root, *namespace_directories(path[:-1]), file_name(path[-1], TABLE_ENDING))


def key(location: str) -> tuple[str, ...]:
    """Return a location as segments, equal for all its spellings. Local links are resolved.

    One location contains another if its key is a prefix of the other's; see `overlap` for what
    spelling alone cannot decide.
    """
    scheme, rest = _split(for_lance(location.strip()))
    if scheme is None:
        rest = for_lance(location)
        return ("file", *_segments(os.path.realpath(rest)))
    return _remote_key(scheme, rest)


def possible_keys(location: str) -> set[tuple[str, ...]]:
    """Return the keys of all locations that other tools may mean by a spelling.

    Lance decodes ``%XX`` in a ``file:`` URI, and Hadoop does not. A relative path is below an
    unknown directory.
    """
    scheme, rest = _split(location.strip())
    if scheme is None and not rest.startswith("/"):
        names = [name for name in _segments(rest) if name != ".."]
        return {(ANY, *names)}
    keys = {key(location)}
    if scheme == "file" and "%" in rest:
        keys.add(key(f"{scheme}:{unquote(rest)}"))
    return keys


def keys_of(spellings: Iterable[str]) -> set[tuple[str, ...]]:
    """Return the `possible_keys` of several locations."""
    return {each for location in spellings for each in possible_keys(location)}


def readable_spellings(location: str) -> set[str]:
    """Return Lance's spellings of the locations that other tools may mean by a spelling.

    This includes locations that `check` refuses, which other tools may have written. Empty for
    storage that Lance cannot read.
    """
    found = set()
    for scheme, *names in possible_keys(location):
        if scheme == "file":
            found.add("/" + "/".join(names))
        elif scheme in ("s3", "gs") and names and names[0] != ANY:
            found.add(f"{scheme}://{names[0]}/{quote('/'.join(names[1:]))}")
        elif is_supported(location) and scheme != ANY:
            found.add(for_lance(location))
    return found


@lru_cache(4096)
def _remote_key(scheme: str, rest: str) -> tuple[str, ...]:
    """Read a URI as Lance does, even one that `check` refuses: other tools may have written it."""
    plain = re.split(r"[?#]", re.sub(r"[\t\r\n]", "", rest).strip())[0].removeprefix("//")
    authority, _, path = plain.partition("/")
    names = _decoded_segments(path)
    if scheme in _MOUNTED:
        return (ANY, *names)
    if scheme in _ONE_FILE_SYSTEM:
        return (_ONE_FILE_SYSTEM[scheme], *names)
    scheme = _SAME_STORE.get(scheme, scheme)
    if scheme == "az":
        # Some schemes name a container with its account, others without it.
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
    """Return the key for the ARN of an access point, which does not name its bucket."""
    skipped = {"accesspoint": 1, "outpost": 3}.get(arn.rsplit(":", 1)[-1], 0)
    return ("s3", ANY, *names[skipped:])


def _host_key(host: str, names: list[str]) -> tuple[str, ...]:
    """Return the key of a URL, with the bucket as its first labels or as its first segment.

    The store behind another server, such as a private endpoint, is unknown.
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
    """Return whether two keys are, or may be, the same location, or one may contain the other.

    The bucket of an access point is unknown, so it may be any. A location seen through a mount may
    be anywhere below the mounted directory: it overlaps every location that has its last name, and
    what contains that or is inside it.
    """
    if ANY in (one[:1] + other[:1]):
        return ANY in (one[-1], other[-1]) or one[-1] in other[1:] or other[-1] in one[1:]
    if one[:1] == other[:1] == ("s3",) and ANY in (*one[1:2], *other[1:2]):
        one, other = one[2:], other[2:]
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def _split(location: str) -> tuple[str | None, str]:
    found = _SCHEME.match(location)
    return (found[1].lower(), found[2]) if found else (None, location)


def _local_path(scheme: str | None, rest: str) -> str:
    path = re.sub(r"^//[^/]*(?=/)", "", rest) if scheme else rest
    return re.sub(r"/{2,}", "/", path).rstrip("/") or "/"


def _segments(rest: str) -> tuple[str, ...]:
    return tuple(part for part in rest.split("/") if part and part != ".")


# -- data of an entry ------------------------------------------------------------------------------


_KEYS = {
    "path", "paths", "location", "basepath", "hoodie.base.path", "hoodie.datasource.write.path",
    "write.data.path", "write.metadata.path", "write.object-storage.path",
    "write.folder-storage.path", "storage.location.template", "avro.schema.url",
}  # fmt: skip
"""Keys of locations, in lower case, of the formats that are known here."""
_METADATA_KEYS = {"metadata_location", "previous_metadata_location"}
"""Iceberg's: a file in the directory ``metadata`` of a table."""

PROVIDER = "spark.sql.sources.provider"
"""The property of Spark that names an entry's format."""
_PROVIDERS = {
    "parquet", "orc", "json", "csv", "text", "avro", "xml", "binaryfile", "libsvm", "hive",
    "delta", "iceberg", "hudi", LANCE,
}  # fmt: skip
_TABLE_TYPES = {"delta", "iceberg", "hudi", LANCE}
_FORMATS = {
    "org.apache.hadoop.mapred.TextInputFormat",
    "org.apache.hadoop.mapred.SequenceFileInputFormat",
    "org.apache.hadoop.hive.ql.io.RCFileInputFormat",
    "org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat",
    "org.apache.hadoop.hive.ql.io.avro.AvroContainerInputFormat",
    "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat",
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
}
"""Input formats whose tables have no location under other keys."""

_SYMLINKS = "/_symlink_format_manifest"
"""In this directory of a Delta table are lists of its files, for engines that read no Delta."""
_URI = re.compile(r"(?!https?:)[A-Za-z][A-Za-z0-9+.-]*:/+[^/]+/.*|/[^/]+/.*", re.DOTALL)
"""A location in a property that may be anything: a directory, and no whole bucket."""
_SEPARATOR = re.compile(r",(?=\s*(?:[A-Za-z][A-Za-z0-9+.-]*:)?/)")
_PATTERN = re.compile(r"[^/]*[${}*?\[\]]")


def other_locations(
    location: str | None,
    parameters: Mapping[str, str],
    options: Iterable[Mapping[str, str] | None] = (),
    *,
    input_format: str | None = None,
) -> tuple[str, ...]:
    """Return where the data of an entry may be besides its location, in the entry's spelling.

    For a format that is not known here, everything that looks like a location counts.

    Args:
        location: The entry's own; may be None.
        parameters: The entry's properties. Those of a Lance table are its users', and not read.
        options: Further maps of the entry, such as the parameters of its SerDe.
        input_format: The Java class that reads it, if the catalog names one.
    """
    is_lance = parameters.get(TABLE_TYPE, "").lower() == LANCE
    is_known = is_lance or _is_known(parameters, input_format)
    maps = [each for each in options if each] + ([] if is_lance else [parameters])
    found = list(_without_symlinks(location)) if location else []
    for key, value in (item for each in maps for item in each.items()):
        if isinstance(value, str) and value:
            found += _locations_in(key.lower(), value.strip(), is_known=is_known)
    return tuple(dict.fromkeys(each for each in found if each != location))


def _is_known(parameters: Mapping[str, str], input_format: str | None) -> bool:
    provider = parameters.get(PROVIDER)
    if provider is not None:
        return provider.lower() in _PROVIDERS
    return parameters.get(TABLE_TYPE, "").lower() in _TABLE_TYPES or input_format in _FORMATS


def _locations_in(key: str, value: str, *, is_known: bool) -> Iterator[str]:
    if key in _METADATA_KEYS:
        directory = value.rpartition("/")[0]
        yield directory.removesuffix("/metadata") or directory
        return
    for each in _split_list(value):
        if key in _KEYS or (not is_known and _URI.fullmatch(each)):
            yield from _without_symlinks(each)
            yield _without_pattern(each)


def _split_list(value: str) -> list[str]:
    """Return the locations of a list, in JSON or with commas, or the only one."""
    if value.startswith("["):
        try:
            return [each for each in json.loads(value) if isinstance(each, str)]
        except ValueError:
            pass  # a pattern, or text
    return [each.strip() for each in _SEPARATOR.split(value)]


def _without_symlinks(location: str) -> Iterator[str]:
    before, found, _ = location.partition(_SYMLINKS)
    if found:
        yield before


def _without_pattern(location: str) -> str:
    """Return the directory above the first name with a pattern or a placeholder."""
    found = _PATTERN.search(location)
    return location[: found.start()].rstrip("/") if found else location

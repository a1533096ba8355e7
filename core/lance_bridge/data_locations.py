"""Where the data of an entry may be: one rule for entries of all formats.

The location of an entry is one field of several. Spark keeps the directory of an external table of
a data source (Delta, JSON, CSV, Avro, …) in the SerDe parameter ``path``, next to a location that
holds nothing; Iceberg keeps its metadata file in a property, Athena a template of its
partitions' locations, and a table of symlinks has only a list of files at its location. Adapters
put what `other_locations` returns in `TableRecord.other_locations`, and core deletes no files and
vends no credentials for a table that overlaps any of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping

from .records import LANCE, TABLE_TYPE

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
    for each in _split(value):
        if key in _KEYS or (not is_known and _URI.fullmatch(each)):
            yield from _without_symlinks(each)
            yield _without_pattern(each)


def _split(value: str) -> list[str]:
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

"""Options that jobs bring from Delta, Iceberg and Spark's own formats.

An option with a meaning here is another name of one of ours. Others are refused with a sentence
that says what to use instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

from lance_bridge.errors import invalid

OTHER_NAMES: Mapping[str, str] = {
    "versionAsOf": "version",
    "timestampAsOf": "timestamp",
    "as-of-timestamp": "timestamp",
    "split-size": "bytes_per_task",
    "overwriteSchema": "overwrite_schema",
    "maxRecordsPerFile": "max_rows_per_file",
    "target-file-size-bytes": "max_bytes_per_file",
    "startingVersion": "start_version",
    "streaming-max-rows-per-micro-batch": "max_rows_per_batch",
}
"""Our names of options, by theirs."""

MERGE_SCHEMA = "mergeschema"
"""In a read it has no effect: the columns are the same in all files. A write refuses it."""

_ADDED_ROWS = "a stream reads the rows that versions add, from option 'start_version' on"
_LIMITS = "use the options 'max_fragments_per_batch' and 'max_rows_per_batch'"
_ON_CHANGE = "use option 'on_change' with the value skip"
_ENCODING = (
    "Lance chooses the encoding and compression of each column: leave it out; option "
    "'data_storage_version' chooses the version of the file format"
)
_NO_PARTITIONS = (
    "Lance tables have no partitions: leave it out; the table properties 'write.distribute_by' and "
    "'write.order_by' arrange rows"
)
_ALWAYS_CHECKED = "columns are always matched by name and checked: leave it out"

REFUSED: Mapping[str, str] = {
    "snapshot-id": "versions have numbers: use option 'version'",
    "start-snapshot-id": _ADDED_ROWS,
    "end-snapshot-id": _ADDED_ROWS,
    "stream-from-timestamp": _ADDED_ROWS,
    "startingTimestamp": _ADDED_ROWS,
    "endingVersion": _ADDED_ROWS,
    "endingTimestamp": _ADDED_ROWS,
    "readChangeFeed": f"Lance tables have no change feed; {_ADDED_ROWS}",
    "readChangeData": f"Lance tables have no change feed; {_ADDED_ROWS}",
    "maxFilesPerTrigger": _LIMITS,
    "maxBytesPerTrigger": _LIMITS,
    "streaming-max-files-per-micro-batch": _LIMITS,
    "ignoreChanges": _ON_CHANGE,
    "ignoreDeletes": _ON_CHANGE,
    "skipChangeCommits": _ON_CHANGE,
    "streaming-skip-delete-snapshots": _ON_CHANGE,
    "streaming-skip-overwrite-snapshots": _ON_CHANGE,
    "replaceWhere": (
        "an overwrite replaces all rows: delete those rows and append the new ones, or use MERGE"
    ),
    "compression": _ENCODING,
    "compression-codec": _ENCODING,
    "compression-level": _ENCODING,
    "parquet.compression": _ENCODING,
    "orc.compress": _ENCODING,
    "write-format": _ENCODING,
    "fanout-enabled": _NO_PARTITIONS,
    "fan-out-enabled": _NO_PARTITIONS,
    "distribution-mode": _NO_PARTITIONS,
    "use-table-distribution-and-ordering": _NO_PARTITIONS,
    "check-nullability": _ALWAYS_CHECKED,
    "check-ordering": _ALWAYS_CHECKED,
}
"""What to do instead, by the name of the option."""

_NAMES = {name.lower(): (name, ours) for name, ours in OTHER_NAMES.items()}
_SENTENCES = {name.lower(): (name, sentence) for name, sentence in REFUSED.items()}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def translate(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return options under our names, and the names under which they were given, by ours.

    Args:
        given: Options by their names in lower case.

    Raises:
        InvalidInputError: (13) an option is refused, or given under two names.
    """
    options: dict[str, str] = {}
    names: dict[str, str] = {}
    for key, value in given.items():
        if key in _SENTENCES:
            name, sentence = _SENTENCES[key]
            raise invalid(f"The data source 'lance' has no option '{name}': {sentence}")
        name, ours = _NAMES.get(key, (key, key))
        if ours in options:
            both = " and ".join(sorted((names[ours], name)))
            raise invalid(f"Options {both} have the same meaning: give one of them")
        translated = _value(name, value)
        if translated is not None:
            options[ours], names[ours] = translated, name
    return options, names


def refuse_schema_merge() -> None:
    """Raise InvalidInput (13) for a write with `MERGE_SCHEMA`."""
    raise invalid(
        "The data source 'lance' has no option 'mergeSchema' for writes: add columns with ALTER "
        "TABLE, or write with INSERT or MERGE WITH SCHEMA EVOLUTION of SQL"
    )


def _value(name: str, value: str) -> str | None:
    """Return a value in our spelling, or None if it asks for the default."""
    if name == "maxRecordsPerFile" and _is_number(value.removeprefix("-")) and int(value) <= 0:
        return None
    if name != "as-of-timestamp":
        return value
    try:
        return (_EPOCH + timedelta(milliseconds=int(value))).isoformat()
    except (OverflowError, ValueError):
        raise invalid(
            f"Option 'as-of-timestamp' must be milliseconds since 1970, not {value[:60]!r}"
        ) from None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20

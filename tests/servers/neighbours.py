"""What other tools keep in catalogs beside Lance tables, the same for every catalog.

Each format says where an entry keeps the place of its data; a target makes real entries of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from lance_bridge.testing import Neighbour

_HIVE = "org.apache.hadoop.hive.ql.io"
TEXT = "org.apache.hadoop.mapred.TextInputFormat"
SEQUENCE = "org.apache.hadoop.mapred.SequenceFileInputFormat"
PARQUET = f"{_HIVE}.parquet.MapredParquetInputFormat"
ORC = f"{_HIVE}.orc.OrcInputFormat"
SYMLINKS = f"{_HIVE}.SymlinkTextInputFormat"
PROVIDER = "spark.sql.sources.provider"

EXTERNAL, MANAGED, VIEW = "EXTERNAL_TABLE", "MANAGED_TABLE", "VIRTUAL_VIEW"


@dataclass(frozen=True)
class Fields:
    """The fields of an entry that its format decides."""

    location: str | None
    parameters: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    """The parameters of the SerDe."""
    input_format: str = SEQUENCE
    partitions: tuple[str, ...] = ()
    entry_type: str = EXTERNAL


def uri(place: str) -> str:
    """Return a place as Hadoop spells it."""
    return f"file:{place}" if place.startswith("/") else place


def aside(place: str) -> str:
    """Return the location that Spark writes for a table whose place is an option."""
    return f"{uri(place)}-__PLACEHOLDER__"


def _of_spark(provider: str, place: str) -> Fields:
    return Fields(aside(place), {PROVIDER: provider}, {"path": uri(place)})


def _iceberg(place: str) -> Fields:
    metadata = f"{uri(place)}/metadata/00001-5f8b.metadata.json"
    return Fields(aside(place), {"table_type": "ICEBERG", "metadata_location": metadata})


def _projected(place: str) -> Fields:
    template = {"projection.enabled": "true", "storage.location.template": f"{uri(place)}/${{day}}"}
    return Fields(aside(place), template, input_format=PARQUET)


FORMATS: Mapping[str, Callable[[str], Fields]] = {
    "parquet": lambda place: Fields(uri(place), input_format=PARQUET),
    "orc": lambda place: Fields(uri(place), input_format=ORC),
    "text": lambda place: Fields(uri(place), input_format=TEXT),
    "csv": lambda place: _of_spark("csv", place),
    "json": lambda place: _of_spark("json", place),
    "avro": lambda place: _of_spark("avro", place),
    "delta": lambda place: _of_spark("delta", place),
    "hudi": lambda place: _of_spark("hudi", place),
    "delta_symlinks": lambda place: Fields(
        f"{uri(place)}/_symlink_format_manifest", input_format=SYMLINKS
    ),
    "iceberg": _iceberg,
    "projected": _projected,
    "partitioned": lambda place: Fields(
        aside(place), input_format=PARQUET, partitions=(uri(place),)
    ),
    "unknown_format": lambda place: Fields(
        aside(place), {PROVIDER: "com.example.shards"}, {"shards": uri(place)}
    ),
}
"""Name of a format to the fields of an entry whose data is at a place."""

VIEW_FIELDS = Fields(None, entry_type=VIEW)


def neighbours_at(location: str, odd_name: str) -> Iterator[tuple[Neighbour, Fields]]:
    """Yield what a real catalog holds, with its data below a location.

    Args:
        odd_name: A name that the catalog takes and Lance tables cannot have.
    """
    for name, fields in FORMATS.items():
        yield Neighbour(name, [f"{location}/{name}"]), fields(f"{location}/{name}")
    for name, place in (
        ("above", f"{location}/outer"),
        ("below", f"{location}/outer/data/inner"),
        (odd_name, f"{location}/odd"),
    ):
        yield Neighbour(name, [place]), FORMATS["parquet"](place)
    yield Neighbour("a_view"), VIEW_FIELDS
    lost = f"{location}/lost.lance"
    yield Neighbour("lost", [lost], is_lance=True), Fields(uri(lost), {"table_type": "lance"})

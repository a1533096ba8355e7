"""The formats of Lance entries in Hive Metastore and Glue, which engines read files by.

Every entry needs all three. AWS's client for Spark and Hive fails for a whole database if one
entry lacks any; Trino fails without a SerDe. Engines must refuse to read Lance files, and no tool
may take them for text:

- The input and output formats are abstract classes, which Hive and Spark have but cannot create,
  and which Trino, Athena and Impala do not know. A class that does not exist would break DESCRIBE
  in Hive as well.
- The SerDe is one whose columns Hive and its metastore take from the entry. Catalog crawlers
  take ``LazySimpleSerDe``, the SerDe of Hive's text files, for CSV; none knows this one.
"""

from __future__ import annotations

from dataclasses import dataclass

from .records import Published

INPUT_FORMAT = "org.apache.hadoop.mapred.FileInputFormat"
OUTPUT_FORMAT = "org.apache.hadoop.mapred.FileOutputFormat"
SERDE = "org.apache.hadoop.hive.serde2.lazybinary.LazyBinarySerDe"
_TEXT_SERDE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
"""What lance-bridge wrote before, together with `INPUT_FORMAT`."""

ROWS, SIZE = "numRows", "totalSize"
"""Parameters that engines estimate by, and data catalogs show."""


@dataclass(frozen=True)
class Formats:
    """The Java classes that an entry names; None or "" if it names none."""

    input_format: str | None = INPUT_FORMAT
    output_format: str | None = OUTPUT_FORMAT
    serde: str | None = SERDE

    def completed(self) -> Formats:
        """Return the formats of a Lance entry with what is missing; other clients' stay."""
        serde = SERDE if self._has_text_serde else self.serde
        return Formats(
            self.input_format or INPUT_FORMAT, self.output_format or OUTPUT_FORMAT, serde or SERDE
        )

    def problems(self) -> tuple[str, ...]:
        """Return what `completed` would correct, for people."""
        missing = {
            "no input format": not self.input_format,
            "no output format": not self.output_format,
            "no SerDe": not self.serde,
            "the SerDe of text files": self._has_text_serde,
        }
        return tuple(problem for problem, is_found in missing.items() if is_found)

    @property
    def _has_text_serde(self) -> bool:
        return (self.input_format, self.serde) == (INPUT_FORMAT, _TEXT_SERDE)


def statistics_of(published: Published) -> dict[str, str]:
    """Return the parameters of an entry for the rows and size of its table."""
    values = {ROWS: published.rows, SIZE: published.size}
    return {key: str(value) for key, value in values.items() if value is not None}

"""Published columns: what an entry says of its table's data, for tools that read only entries.

Data catalogs, consoles and DESCRIBE read the columns of an entry, and no files. With the property
`PUBLISH_COLUMNS`, each commit writes columns, rows and size into the entry.
"""

from __future__ import annotations

import lance

from .errors import translate_lance_errors
from .records import PUBLISH_COLUMNS, PUBLISHED, Published, TableRecord
from .type_table import columns_of

_MAX_FRAGMENTS = 10_000
"""The size of a table with more fragments is not published: it takes seconds to add up."""


def wants_columns(record: TableRecord) -> bool:
    """Return whether the property of an entry asks for its columns."""
    return record.properties.get(PUBLISH_COLUMNS, "").lower() == "true"


def has_columns(record: TableRecord) -> bool:
    """Return whether columns were published, and not removed since."""
    return PUBLISHED in record.properties


def published_version(record: TableRecord) -> int | None:
    """Return the version whose columns the entry has; None if it has none."""
    value = record.properties.get(PUBLISHED, "")
    return int(value) if value.isdecimal() else None


def with_data_of(record: TableRecord, dataset: lance.LanceDataset) -> TableRecord:
    """Return the record to write: with the columns, rows and size of a dataset's version.

    Raises:
        InvalidTableStateError: (19), ServiceUnavailableError: (17) or another error of Lance.
    """
    with translate_lance_errors(f"The data at {dataset.uri} could not be read"):
        stats = dataset.stats.dataset_stats()
        published = Published(columns_of(dataset.schema), int(dataset.count_rows()), None)
        if stats["num_fragments"] <= _MAX_FRAGMENTS:
            published = Published(published.columns, published.rows, _size_of(dataset))
    return record.with_published(published, {PUBLISHED: str(dataset.version)})


def without_data(record: TableRecord) -> TableRecord:
    """Return the record to write: without columns, rows and size."""
    return record.with_published(Published(), {})


def _size_of(dataset: lance.LanceDataset) -> int | None:
    """Return the size of the data files, in bytes; None if a manifest leaves one out."""
    files = [each for fragment in dataset.get_fragments() for each in fragment.metadata.files]
    sizes = [each.file_size_bytes for each in files if each.file_size_bytes is not None]
    return sum(sizes) if len(sizes) == len(files) else None

"""Small files with records of a source's files, which both readers read in the same way."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import types as spark

_FILE = "__file"
_OF_FILES = ("pathglobfilter", "modifiedbefore", "modifiedafter", "recursivefilelookup", "basepath")
"""Options that choose files, of which a sample has its own."""


class Samples:
    """Samples in a directory, read by Spark with options that may be tried one after another."""

    def __init__(self, session: Any, format: str, directory: Path, names: Sequence[str]) -> None:
        self._session = session
        self._format = format
        self._directory = directory
        self._names = names

    def read(
        self, options: Mapping[str, str], columns: spark.StructType | None
    ) -> tuple[spark.StructType, list[list[Any]]] | None:
        """Return Spark's columns and its rows of each sample; None if it cannot read them.

        Args:
            columns: The columns to read; None to have Spark infer them.
        """
        reader = self._session.read.format(self._format).option("enforceSchema", "true")
        reader = reader.options(**{k: v for k, v in options.items() if k.lower() not in _OF_FILES})
        if columns is not None:
            reader = reader.schema(columns)
        try:
            frame = reader.load(self._directory.as_uri())
            name = frame.metadataColumn("_metadata").getField("file_name").alias(_FILE)
            rows = frame.select("*", name).collect()
        except (PySparkException, Py4JError):
            return None
        found: dict[str, list[Any]] = {each: [] for each in self._names}
        for row in rows:
            found[row[len(row) - 1]].append(row)
        return frame.schema, [found[each] for each in self._names]


@contextmanager
def written(session: Any, format: str, texts: Sequence[bytes]) -> Iterator[Samples]:
    """Write samples to a temporary directory of this machine."""
    with tempfile.TemporaryDirectory(prefix="lance-bridge-sample-") as name:
        names = [f"{number:05d}.{format}" for number in range(len(texts))]
        for each, text in zip(names, texts, strict=True):
            (Path(name) / each).write_bytes(text)
        yield Samples(session, format, Path(name), names)


def spread(files: Sequence[str], most: int) -> list[str]:
    """Return at most so many files, evenly spaced from the first to the last."""
    if len(files) <= most:
        return list(files)
    last = len(files) - 1
    return sorted({files[number * last // (most - 1)] for number in range(most)})


def as_arguments(options: Mapping[str, str]) -> str:
    """Return read options as a shell takes them."""
    texts = [f"{key}={value}" for key, value in options.items()]
    shown = [f"$'{t!r}'".replace("''", "'") if "\n" in t else f"'{t}'" for t in texts]
    return " ".join(f"--read-option {each}" for each in shown)

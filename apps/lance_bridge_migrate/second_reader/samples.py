"""Small files with records of a source's files, which both readers read in the same way."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import types as spark

from ..plan import Problem, warning

_Item = TypeVar("_Item")
_Sample = TypeVar("_Sample")
_MOST = 20
"""The maximum number of files with odd records whose samples are compared, and of those without."""
REMOTE_BYTES = 1 << 20
"""The first bytes of a file on another machine, which are its sample."""
ACCEPT = "accept_differences (--accept-differences)"
"""The option that makes blockers warnings."""
_THREADS = 4
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


def spread(items: Sequence[_Item], most: int) -> list[_Item]:
    """Return at most so many files or numbers, evenly spaced from the first to the last."""
    if len(items) <= most:
        return list(items)
    last = len(items) - 1
    return [items[number * last // max(most - 1, 1)] for number in range(most)]


def samples_of(
    files: Sequence[str], sample: Callable[[str], _Sample | None], *, is_local: bool
) -> tuple[list[_Sample], list[Problem]]:
    """Return the samples of all files, or of some that are not on this machine, with a warning.

    Args:
        sample: Returns the sample of a file; None if it is empty.
    """
    chosen = files if is_local else spread(files, _MOST)
    with ThreadPoolExecutor(_THREADS) as threads:
        samples = [each for each in threads.map(sample, chosen) if each is not None]
    if is_local:
        return samples, []
    text = (
        f"The second reader compared the first {REMOTE_BYTES >> 20} MB of {len(samples)} of its "
        f"{len(files):,} files, because they are not on this machine"
    )
    return samples, [warning(text)]


def most_useful(samples: Sequence[_Sample], is_odd: Callable[[_Sample], object]) -> list[_Sample]:
    """Return the samples to compare: those with odd records first."""
    odd = [each for each in samples if is_odd(each)]
    plain = [each for each in samples if not is_odd(each)]
    return odd[:_MOST] + spread(plain, _MOST)


def as_arguments(options: Mapping[str, str]) -> str:
    """Return read options as a shell takes them."""
    texts = [f"{key}={value}" for key, value in options.items()]
    shown = [f"$'{t!r}'".replace("''", "'") if "\n" in t else f"'{t}'" for t in texts]
    return " ".join(f"--read-option {each}" for each in shown)

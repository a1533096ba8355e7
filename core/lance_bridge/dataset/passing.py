"""Handing batches to pylance, which tells no more than the text of what ended them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from ..lance_errors import LANCE_ERRORS, panics_as_errors


class Passing(Iterator[pa.RecordBatch]):
    """Batches as they come, and what ended them."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self.begin(batches)

    def begin(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Take other batches, of which nothing is known yet."""
        self._passing = iter(batches)
        self.failure: BaseException | None = None
        """What ended the batches, other than their end."""

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._passing)
        except StopIteration:
            raise
        except BaseException as error:
            self.failure = error
            raise

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Raise what ended the batches in the place of what pylance makes of it."""
        try:
            with panics_as_errors():
                yield
        except LANCE_ERRORS:
            if self.failure is not None:
                raise self.failure from None
            raise

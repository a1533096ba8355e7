"""Secrets that a pickle of a namespace left out: which the other side lacks, and how it gets them.

A pickle names the secrets that it left out, never their values. The process that loads it has them
in its environment, does without them, or fails with an error that says what is missing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache

from lance_namespace.errors import InvalidInputError

from .config import variable_of
from .errors import invalid

logger = logging.getLogger(__name__)


@contextmanager
def explain_missing_secrets(names: Iterable[str], left_out: Iterable[str]) -> Iterator[None]:
    """Say with an error that secrets were left out of the pickle, or log it where none is raised.

    Args:
        names: The names of the catalog under which the environment may have its properties; the
            first is the one to advise.
        left_out: Keys of the secret properties that the pickle does not carry.

    Raises:
        InvalidInputError: (13) the namespace cannot be made, with secrets missing here.
    """
    names = list(names)
    missing = tuple(
        key for key in left_out if not any(variable_of(name, key) in os.environ for name in names)
    )
    try:
        yield
    except InvalidInputError as error:
        if not missing:
            raise
        raise invalid(f"{error}. {_advice(names[0], missing)}") from None
    if missing:
        _log_once(_advice(names[0], missing))


def _advice(name: str, missing: tuple[str, ...]) -> str:
    variables = ", ".join(f"${variable_of(name, key)}" for key in missing)
    return (
        f"The namespace was pickled without its secrets ({', '.join(missing)}), and this process "
        "has none in its environment. Either connect with the property pickle.secrets=true before "
        "pickling, which carries those that were given as properties, or set in the environment of "
        f"this process: {variables}"
    )


@cache
def _log_once(text: str) -> None:
    """Log a warning, once in a process however many pickles it loads."""
    logger.warning("%s", text)

"""Modes of a request: PascalCase words or snake_case, in any letter case, and nothing else."""

from __future__ import annotations

import re
from enum import Enum
from typing import TypeVar

from .errors import invalid

ModeT = TypeVar("ModeT", bound=Enum)


class CreateMode(Enum):
    """What to do where the name exists already. Source: CreateNamespace, CreateTable."""

    CREATE = "Create"
    EXIST_OK = "ExistOk"
    OVERWRITE = "Overwrite"


class RegisterMode(Enum):
    """What to do where the name exists already. Source: RegisterTable."""

    CREATE = "Create"
    OVERWRITE = "Overwrite"


class DropMode(Enum):
    """What to do where the namespace does not exist. Source: DropNamespace."""

    FAIL = "Fail"
    SKIP = "Skip"


class DropBehavior(Enum):
    """What to do where the namespace holds something. Source: DropNamespace."""

    RESTRICT = "Restrict"
    CASCADE = "Cascade"


def _spellings(word: str) -> tuple[str, str]:
    """Return ``ExistOk`` as ``existok`` and ``exist_ok``."""
    return word.lower(), re.sub(r"(?<!^)(?=[A-Z])", "_", word).lower()


def parse(kind: type[ModeT], text: str | None, default: ModeT) -> ModeT:
    """Return the mode that ``text`` names, or ``default`` for None.

    Raises:
        InvalidInputError: (13) the mode is unknown.
    """
    if text is None:
        return default
    for mode in kind:
        if text.lower() in _spellings(str(mode.value)):
            return mode
    known = ", ".join(str(mode.value) for mode in kind)
    raise invalid(f"Unknown mode {text[:60]!r}: use one of {known}")

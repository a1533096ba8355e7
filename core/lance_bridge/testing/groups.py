"""The groups of cases, which ``-k`` selects by: one for each module of the kit that has cases."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

_PACKAGE = __package__ + "."


def groups_of(case: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the groups that a case is in, outermost first; none if not the kit's."""
    module = case.__module__
    return tuple(module.removeprefix(_PACKAGE).split(".")) if module.startswith(_PACKAGE) else ()


def groups() -> Iterator[str]:
    """Yield a line for each group: its name, its number of cases, and what they are about."""
    from .configured_suite import TestConfigured  # noqa: PLC0415 - pytest rewrites its asserts

    found: dict[tuple[str, ...], int] = {}
    for name in dir(TestConfigured):
        case = getattr(TestConfigured, name)
        if name.startswith("test_"):
            names = groups_of(case)
            for end in range(1, len(names) + 1):
                found[names[:end]] = found.get(names[:end], 0) + 1
    for names, count in sorted(found.items()):
        about = (sys.modules[_PACKAGE + ".".join(names)].__doc__ or "").partition("\n")[0]
        indent = "  " * (len(names) - 1)
        about = about.removeprefix("Cases: ").removeprefix("Case: ")
        yield f"{indent + names[-1]:16}{count:4}  {about}"

"""`lance_namespace`, imported when first used, because that takes more than a second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lance_namespace import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    import lance_namespace  # noqa: PLC0415 - see the top of this file

    return getattr(lance_namespace, name)

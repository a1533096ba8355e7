"""Import of attributes that properties and entry points name."""

from __future__ import annotations

import importlib
from typing import Any


def import_attribute(module: str, attribute: str) -> Any:
    """Return an attribute of a module.

    Raises:
        ImportError: the module, or one that it needs, cannot be imported.
        AttributeError: the module has no such attribute, or has an invalid name, such as `.vault`.
    """
    try:
        return getattr(importlib.import_module(module), attribute)
    except (TypeError, ValueError) as error:
        raise AttributeError(str(error)) from error

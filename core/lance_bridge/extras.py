"""Imports of what may not be installed: extras, and what properties and entry points name."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from lance_namespace.errors import UnsupportedOperationError


class MissingExtraError(UnsupportedOperationError):
    """A package of an extra is not installed (code 0); ``command`` installs it."""

    def __init__(self, package: str, command: str) -> None:
        super().__init__(f"This needs the package '{package}': {command}")
        self.command = command


def require(extra: str, *packages: str) -> None:
    """Check that the packages of an extra are installed.

    Raises:
        MissingExtraError: (0) one is missing; the message has the command to install it.
    """
    for package in packages:
        if not _is_installed(package):
            raise MissingExtraError(package, f"pip install 'lance-bridge[{extra}]'")


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # a package inside a missing one
        return False


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

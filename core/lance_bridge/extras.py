"""Packages that only one extra installs, checked before they are imported."""

from __future__ import annotations

import importlib.util

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

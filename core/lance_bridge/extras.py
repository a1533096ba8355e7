"""Packages that only one extra brings: looked for before they are imported."""

from __future__ import annotations

import importlib.util

from .errors import unsupported


def require(extra: str, *packages: str) -> None:
    """Check that the packages of an extra are installed.

    Raises:
        UnsupportedOperationError: (0) one is missing; the message has the command to install it.
    """
    for package in packages:
        if not _is_installed(package):
            raise unsupported(
                f"This needs the package '{package}': pip install 'lance-bridge[{extra}]'"
            )


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # a package inside one that is not there
        return False

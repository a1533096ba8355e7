"""What the shell completes: the catalogs that there are."""

from __future__ import annotations

from lance_namespace.errors import LanceNamespaceError

from ..config import named_catalogs
from ..registry import catalogs


def catalog_names(incomplete: str) -> list[str]:
    """Return the catalogs that are installed or configured and begin so.

    A configuration file that cannot be read completes nothing: the command will say what is wrong.
    """
    return sorted({name for name in (*catalogs(), *configured("")) if name.startswith(incomplete)})


def configured(incomplete: str) -> list[str]:
    """Return the catalogs of the configuration file that begin so."""
    try:
        return sorted(name for name in named_catalogs() if name.startswith(incomplete))
    except LanceNamespaceError:
        return []

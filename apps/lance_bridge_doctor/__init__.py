"""Finds problems of a catalog and its tables, and the command that fixes each problem.

`diagnose` changes nothing and works page by page. If the catalog or the storage does not respond,
that is a finding itself; what could not be read never counts as absent.

Names are imported when first used: ``lance-bridge doctor --help`` needs none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .diagnosis import MIN_IDLE, Diagnosis, diagnose, diagnose_namespace, diagnose_table
    from .findings import Finding, Kind

__all__ = [
    "MIN_IDLE",
    "Diagnosis",
    "Finding",
    "Kind",
    "diagnose",
    "diagnose_namespace",
    "diagnose_table",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "findings" if name in ("Finding", "Kind") else "diagnosis"
    return getattr(import_module(f"{__name__}.{module}"), name)

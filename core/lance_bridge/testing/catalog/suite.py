"""All cases on a catalog in one class, to be subclassed."""

from __future__ import annotations

from .connections import ConnectionCases
from .declarations import CapabilityCases
from .entries import EntryCases
from .faults import FaultCases
from .guards import GuardCases
from .listings import ListingCases
from .namespaces import NamespaceCases
from .neighbours import NeighbourCases
from .properties import PropertyCases
from .renames import RenameCases
from .shared_locations import SharedLocationCases


class CatalogSuite(
    FaultCases,
    GuardCases,
    ListingCases,
    ConnectionCases,
    PropertyCases,
    RenameCases,
    SharedLocationCases,
    NeighbourCases,
    EntryCases,
    NamespaceCases,
    CapabilityCases,
):
    """Every case on a catalog. A subclass needs only a ``target`` fixture in its module or class.

    Each group of cases is a class that can be used by itself.
    """

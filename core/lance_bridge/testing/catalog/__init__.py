"""`CatalogSuite`: tests of a ``lance_bridge.Catalog``, whose methods they call directly.

The suite of namespaces calls an adapter through core, which checks, repairs and reads back. These
cases test what core hides: every property, page and revision, and the response to faults.
"""

from __future__ import annotations

from .connections import CapabilityCases, ConnectionCases, FaultCases
from .entries import EntryCases, RenameCases
from .guards import GuardCases
from .listings import ListingCases, NeighbourCases, SharedLocationCases
from .namespaces import NamespaceCases
from .properties import PropertyCases


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

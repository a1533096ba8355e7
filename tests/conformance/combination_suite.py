"""The cases of the kit for a catalog behind another layer: a gateway, or a federation.

Catalog and layer have each passed the kit by themselves. What is left to their combination is how
it hands on names, errors, tokens of pages, and the entry that a commit compares; and whether each
operation works at all.
"""

from __future__ import annotations

from lance_bridge.testing.data_operations import EveryOperationCases, SmokeCases
from lance_bridge.testing.identifiers import IdentifierCases
from lance_bridge.testing.listings import PagingCases
from lance_bridge.testing.managed import ManagedCases


class CombinationSuite(SmokeCases, EveryOperationCases, ManagedCases, PagingCases, IdentifierCases):
    """Each operation, the errors of each, commits, pages, and names."""

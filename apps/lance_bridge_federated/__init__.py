"""A Lance namespace over several others: ``impl=federated``.

The first name of an identifier is a catalog's name; the rest is passed on to that catalog.

    ns = lance_bridge.connect("federated", {"catalogs": "prod, aws"})
    ns.describe_table(DescribeTableRequest(id=["prod", "sales", "orders"]))

Programs can combine namespace objects: ``FederatedNamespace({"prod": hive, "files": directory})``.
Names are imported when first used: ``lance-bridge search --help`` needs none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .namespace import FederatedNamespace
    from .search import Match, Scope, Search

__all__ = ["FederatedNamespace", "Match", "Scope", "Search"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "namespace" if name == "FederatedNamespace" else "search"
    return getattr(import_module(f"{__name__}.{module}"), name)

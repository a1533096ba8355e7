"""A Lance namespace over several others: ``impl=federated``.

The first name of an identifier is that of a catalog; the rest is passed on to that catalog.

    ns = lance_bridge.connect("federated", {"catalogs": "prod, aws"})
    ns.describe_table(DescribeTableRequest(id=["prod", "sales", "orders"]))

Programs can combine namespace objects: ``FederatedNamespace({"prod": hive, "files": directory})``.
"""

from .namespace import FederatedNamespace

__all__ = ["FederatedNamespace"]

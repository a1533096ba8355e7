"""Credentials for tables' storage: who vends them, for what, to whom, and how long they are kept.

A catalog vends them itself (`Catalog.vend_credentials`), or a `Vendor` does that the properties
``credentials.*`` name. A vendor is a class in the entry point group ``lance_bridge.vendors``.
"""

from .cache import CredentialCache
from .caller import CALLER, PRINCIPAL, Caller, acting_for
from .options import EXPIRES_AT, REFRESH_OFFSET, expiring_options
from .scope import Roots, storage_prefix
from .sources import VendedCredentials
from .vendor import Grant, Vendor, VendorOptions

__all__ = [
    "CALLER",
    "EXPIRES_AT",
    "PRINCIPAL",
    "REFRESH_OFFSET",
    "Caller",
    "CredentialCache",
    "Grant",
    "Roots",
    "VendedCredentials",
    "Vendor",
    "VendorOptions",
    "acting_for",
    "expiring_options",
    "storage_prefix",
]

"""Credentials for tables' storage: who vends them, for what, to whom, and how long they are kept.

A catalog vends them itself (`Catalog.vend_credentials`), or a `Vendor` does that the properties
``credentials.*`` name. A vendor is a class in the entry point group ``lance_bridge.vendors``.
"""

from .cache import CredentialCache
from .caller import Caller, acting_for, current_caller
from .options import EXPIRES_AT, REFRESH_OFFSET, expiring_options
from .scope import Roots, storage_prefix
from .sources import VendedCredentials
from .vendor import Grant, Vendor, VendorOptions

__all__ = [
    "EXPIRES_AT",
    "REFRESH_OFFSET",
    "Caller",
    "CredentialCache",
    "Grant",
    "Roots",
    "VendedCredentials",
    "Vendor",
    "VendorOptions",
    "acting_for",
    "current_caller",
    "expiring_options",
    "storage_prefix",
]

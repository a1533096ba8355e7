"""Credentials for tables' storage: vendors, scope, callers and caching.

Either the catalog vends them (`Catalog.vend_credentials`), or the `Vendor` that the properties
``credentials.*`` name. A vendor is a class in the entry point group ``lance_bridge.vendors``.
"""

from .scope import Roots, storage_prefix
from .sources import (
    EXPIRES_AT,
    REFRESH_OFFSET,
    CredentialCache,
    VendedCredentials,
    expiring_options,
)
from .vendor_interface import CALLER, PRINCIPAL, Caller, Grant, Vendor, VendorOptions, acting_for

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

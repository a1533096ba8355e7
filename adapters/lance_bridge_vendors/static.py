"""The credentials of ``storage.*``, handed out unchanged: ``credentials.vendor=static``."""

from __future__ import annotations

from collections.abc import Mapping

from lance_bridge.catalog import TableCredentials
from lance_bridge.credentials import Grant, Vendor


class StaticVendor(Vendor):
    """Hands out all options of ``storage.*``, to readers and writers of every table.

    They do not expire, and allow everything that their owner may do.
    """

    stores = None

    def vend(self, grant: Grant) -> Mapping[str, str]:  # noqa: ARG002 - the same for all
        """Return the options of ``storage.*``."""
        return TableCredentials(self.storage)

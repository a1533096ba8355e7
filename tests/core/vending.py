"""A vendor in memory, which notes what it is asked for: a double for services that make keys.

What it cannot show: how a store limits what keys may do. Its keys are good for nothing.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import lance_namespace as api
import pytest
from pydantic import Field

from lance_bridge.catalog import TableRecord
from lance_bridge.credentials import Grant, Vendor, VendorOptions, expiring_options

from .building import TABLE, at
from .memory_catalog import Client, MemoryNamespace, server_of

ASKED: dict[str, list[Grant]] = defaultdict(list)
"""The grants that vendors were asked for, by their option ``log``."""
BEFORE: dict[str, Callable[[], None]] = {}
"""What is called before a vendor of that log answers; it may raise."""
VENDOR = f"{__name__}.NotedVendor"
LOCATION = "s3://lake/tables/t.lance"
"""Where a test's table is."""
OWN = {
    "storage.aws_access_key_id": "own",
    "storage.aws_secret_access_key": "own-secret",
    "storage.token": "own-secret",
}
"""The catalog's own credentials."""


class NotedOptions(VendorOptions):
    """The options of a `NotedVendor`."""

    log: str = Field(description="Where it notes what it is asked for.")
    clock: float = Field(default=0.0, description="By how many seconds its clock is ahead.")


class NotedVendor(Vendor):
    """Makes numbered keys."""

    options_type = NotedOptions
    stores = frozenset({"s3"})
    options: NotedOptions
    _lock = threading.Lock()

    def vend(self, grant: Grant) -> Mapping[str, str]:
        """Return a key that names its number, its table and its right."""
        log = self.options.log
        with self._lock:
            ASKED[log].append(grant)
            number = len(ASKED[log])
        BEFORE.get(log, lambda: None)()
        right = "write" if grant.write else "read"
        options = {
            "aws_access_key_id": f"{number}-{grant.principal}-{right}",
            "aws_secret_access_key": "hidden",
        }
        now = time.time() + self.options.clock
        return expiring_options(options, now + self.options.duration_seconds)


def vendor_properties(log: str, **more: str) -> dict[str, str]:
    """Return the properties of a catalog whose credentials the vendor makes."""
    return {
        "credentials.vendor": VENDOR,
        "credentials.log": log,
        "credentials.allowed_roots": "s3://lake/tables",
        **more,
    }


def put(client: Client, name: str, location: str, **more: Any) -> None:
    """Have an entry at a location, as another client would."""
    properties = {"table_type": "lance", **more.pop("properties", {})}
    tables = server_of(client).tables
    tables[at(name)] = TableRecord(at(name), location, properties, identity=name, **more)


def connect(request: pytest.FixtureRequest, **properties: str) -> MemoryNamespace:
    return MemoryNamespace(uri=request.node.nodeid, **properties)


def described(namespace: MemoryNamespace, name: str = TABLE[-1], **more: Any) -> dict[str, str]:
    answer = namespace.describe_table(api.DescribeTableRequest(id=list(at(name)), **more))
    return answer.storage_options or {}

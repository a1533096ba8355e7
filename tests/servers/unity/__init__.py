"""Doubles of Unity Catalog: the open-source server in its dialects, and Databricks.

No Unity server can be had as a package, so tests talk to these over HTTP. What they do was
measured on the open-source server 0.3.1 to 0.7, and read in its source and in the documentation of
Databricks. Each request and reply is held against models that others generated from the published
API (see ``published``), so that the double cannot drift from it in shape.

What a double cannot show: that a release behaves as it was measured or documented to; times; all
rules of privileges, which here are refusals by route (`UnityServer.refuse`) and the rights of users
to list, read and create (``grants``); Databricks above all, which was never measured. Its error
codes for missing and non-empty objects, the wording of its errors, and what a warehouse answers to
a statement that fails follow its documentation and reports of its users. Unlike Databricks, and the
open-source server with authorization, the double lets tables share locations, unless
``warehouse.refuses_overlaps`` is set; unlike Databricks, tables may lie in files of this machine.
"""

from __future__ import annotations

from .catalog_api import Bucket
from .databricks import WAREHOUSE_ID
from .dialects import (
    DATABRICKS,
    DIALECTS,
    OPEN_SOURCE_0_3,
    OPEN_SOURCE_0_4,
    OPEN_SOURCE_0_6,
    Dialect,
    ErrorKind,
)
from .http import Request
from .server import UnityServer

__all__ = [
    "DATABRICKS",
    "DIALECTS",
    "OPEN_SOURCE_0_3",
    "OPEN_SOURCE_0_4",
    "OPEN_SOURCE_0_6",
    "WAREHOUSE_ID",
    "Bucket",
    "Dialect",
    "ErrorKind",
    "Request",
    "UnityServer",
]

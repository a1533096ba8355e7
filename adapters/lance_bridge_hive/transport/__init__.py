"""Connections to a metastore: endpoints, sockets, the pool, and its faults."""

from __future__ import annotations

from ..endpoint import Endpoint, parse_endpoints
from .connection import Connection
from .pool import ClientPool

__all__ = ["ClientPool", "Connection", "Endpoint", "parse_endpoints"]

"""The way to a metastore: endpoints, sockets, the pool of connections, and what may go wrong."""

from __future__ import annotations

from .connection import Connection
from .endpoint import Endpoint, parse_endpoints
from .pool import ClientPool

__all__ = ["ClientPool", "Connection", "Endpoint", "parse_endpoints"]

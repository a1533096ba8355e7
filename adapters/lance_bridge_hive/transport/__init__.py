"""Connections to a metastore: sockets, authentication, the pool, and its retries."""

from __future__ import annotations

from .connection import Connection
from .pool import ClientPool

__all__ = ["ClientPool", "Connection"]

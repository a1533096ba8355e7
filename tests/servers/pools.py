"""Pools of connections for tests, and the least that can be asked of one."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from hmsclient.genthrift.hive_metastore.ttypes import Database

from lance_bridge_hive.transport import ClientPool
from lance_bridge_metastore import Metastore

Connect = Callable[..., ClientPool]
"""Makes a pool behind the proxy, with these properties."""


def read(pool: ClientPool, name: str = "default") -> str:
    """Ask for a database; return the name in the answer."""
    database = pool.call(lambda c: c.hms.get_database(name), name="get_database", repeatable=True)
    return str(database.name)


def create(pool: ClientPool, metastore: Metastore) -> str:
    """Make a database, which must not be tried twice; return its name."""
    name = f"d{uuid.uuid4().hex}"
    record = Database(name=name, locationUri=f"{metastore.warehouse}/{name}", parameters={})
    pool.call(lambda c: c.hms.create_database(record), name="create_database", repeatable=False)
    return name

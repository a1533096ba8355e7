"""Calls to a metastore over one pool, with the bindings that the configuration asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import hmsclient.genthrift.hive_metastore.ttypes as hms_types
from thrift.Thrift import TApplicationException

from lance_bridge.errors import unsupported

from .config import HiveConfig
from .errors import translated, with_familiar_errors
from .transport import ClientPool, Connection

T = TypeVar("T")


class Calls:
    """Sends calls by name. Raises Thrift errors as they come."""

    def __init__(self, config: HiveConfig) -> None:
        self._config = config
        self._pool = ClientPool(config)
        self._has_catalogs = False

    @property
    def types(self) -> Any:
        """The bindings in use: hmsclient's, or with catalogs those that have fields for them."""
        if not self._config.catalog_levels:
            return hms_types
        from pymetastore.hive_metastore import ttypes  # noqa: PLC0415 - large, and seldom needed

        return ttypes

    def close(self) -> None:
        """Let go of all connections."""
        self._pool.close()

    def read(self, name: str, operation: Callable[[Any], T]) -> T:
        """Make a call that only reads, and may be repeated."""
        return self._call(name, operation, repeatable=True)

    def change(self, name: str, operation: Callable[[Any], T]) -> T:
        """Make a call that changes something; raises OutcomeUnknownError (17), never repeats it."""
        return self._call(name, operation, repeatable=False)

    def _call(self, name: str, operation: Callable[[Any], T], *, repeatable: bool) -> T:
        if not self._config.catalog_levels:
            return self._pool.call(lambda c: operation(c.hms), name=name, repeatable=repeatable)
        self._require_catalogs()
        return self._pool.call(
            lambda c: with_familiar_errors(operation, c.catalogs), name=name, repeatable=repeatable
        )

    def _require_catalogs(self) -> None:
        """Refuse Hive 2, which takes no notice of catalogs and would use its only one."""
        if self._has_catalogs:
            return

        def probe(connection: Connection) -> None:
            connection.catalogs.get_catalogs()

        with translated("list catalogs"):
            try:
                self._pool.call(probe, name="get_catalogs", repeatable=True)
            except TApplicationException as error:
                if error.type != TApplicationException.UNKNOWN_METHOD:
                    raise
                raise unsupported(
                    f"The metastore at {self._config.uri} is older than Hive 3 and has no "
                    "catalogs: leave out catalog_levels"
                ) from error
        self._has_catalogs = True

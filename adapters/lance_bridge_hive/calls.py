"""Calls to a metastore over one pool, with the bindings that the configuration requires."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import hmsclient.genthrift.hive_metastore.ttypes as hms_types
from tenacity import (
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_before_delay,
    wait_random,
)
from thrift.Thrift import TApplicationException, TException

from lance_bridge.errors import unsupported

from .config import HiveConfig
from .connection import Connection
from .errors import is_vanished_row, translate_errors
from .pool import ClientPool

T = TypeVar("T")

_MAX_READS = 10
"""Attempts at a read while rows are being deleted; each attempt meets fewer of them."""
_LONGEST_PAUSE = 0.2


class Calls:
    """Sends calls by name. Raises Thrift errors unchanged."""

    def __init__(self, config: HiveConfig, pool: ClientPool | None = None) -> None:
        self._config = config
        self.pool = pool or ClientPool(config)
        self._has_catalogs = False
        self._retrying = Retrying(
            retry=retry_if_exception(is_vanished_row),
            stop=stop_after_attempt(_MAX_READS) | stop_before_delay(config.retry_timeout),
            wait=wait_random(0, _LONGEST_PAUSE),
            reraise=True,
        )

    @property
    def types(self) -> Any:
        """The bindings in use: hmsclient's, or pymetastore's with catalogs."""
        if not self._config.catalog_levels:
            return hms_types
        from pymetastore.hive_metastore import ttypes  # noqa: PLC0415 - large, and seldom needed

        return ttypes

    def close(self) -> None:
        """Close all connections."""
        self.pool.close()

    def read(self, name: str, operation: Callable[[Any], T]) -> T:
        """Make a read-only call, which may be retried.

        It is also retried, within ``client.retry-timeout``, if a row was deleted while the
        metastore read it.
        """
        result: T = self._retrying(self._call, name, operation, repeatable=True)
        return result

    def change(self, name: str, operation: Callable[[Any], T]) -> T:
        """Make a call that changes something. Raises OutcomeUnknownError if its reply is lost."""
        return self._call(name, operation, repeatable=False)

    def _call(self, name: str, operation: Callable[[Any], T], *, repeatable: bool) -> T:
        if not self._config.catalog_levels:
            return self.pool.call(lambda c: operation(c.hms), name=name, repeatable=repeatable)
        self._require_catalogs()
        return self.pool.call(
            lambda c: _with_hmsclient_errors(operation, c.catalogs),
            name=name,
            repeatable=repeatable,
        )

    def _require_catalogs(self) -> None:
        """Raise UnsupportedOperationError for Hive 2, which ignores catalogs in requests."""
        if self._has_catalogs:
            return

        def probe(connection: Connection) -> None:
            _with_hmsclient_errors(lambda c: c.get_catalogs(), connection.catalogs)

        with translate_errors("list catalogs"):
            try:
                self.pool.call(probe, name="get_catalogs", repeatable=True)
            except TApplicationException as error:
                if error.type != TApplicationException.UNKNOWN_METHOD:
                    raise
                raise unsupported(
                    f"The metastore at {self._config.uri} is older than Hive 3 and has no "
                    "catalogs: leave out catalog_levels"
                ) from error
        self._has_catalogs = True


def _with_hmsclient_errors(operation: Callable[[Any], T], client: Any) -> T:
    """Run an operation with pymetastore's client, but raise hmsclient's errors.

    Errors of newer Thrift bindings are immutable, and contextlib sets attributes on an error that
    passes through a context manager, which would raise a TypeError.
    """
    try:
        return operation(client)
    except TApplicationException:
        raise  # an error of Thrift itself; a new one would lack its type
    except TException as error:
        error_type = getattr(hms_types, type(error).__name__, None)
        if error_type is None:
            raise
        raise error_type(message=getattr(error, "message", str(error))) from error

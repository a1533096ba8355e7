"""Secrets that change while a catalog is used: they are read again when a server refuses them.

Tokens expire and passwords are changed. Properties from `secrets.file` and `secrets.provider` are
read again when a server refuses them, once for all callers that it refused, so that a process which
runs for days needs no restart.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from lance_namespace.errors import InvalidInputError

from .forks import restart_in_children

logger = logging.getLogger(__name__)

ConfigT = TypeVar("ConfigT")


@dataclass(frozen=True)
class Renewal:
    """The result of reading secrets again."""

    changed: bool
    """Whether there are others than those that were refused: repeat the request once."""
    advice: str
    """A sentence for the error if the request is not repeated, or is refused again; or empty."""


NO_SOURCE = Renewal(changed=False, advice="")
"""The result if no secret comes from a file or a function."""


class SecretRenewal(Generic[ConfigT]):
    """The configuration of a catalog with its current secrets. Safe to share between threads.

    An adapter takes `config` for each login, keeps it with the connection or the request that uses
    it, and passes it to `renew` if the server refuses it.

    Args:
        config: The first configuration.
        source: The properties that name the sources of secrets; empty if there are none.
        read: Reads the configuration again. Raises InvalidInputError if it cannot.
    """

    def __init__(self, config: ConfigT, source: str, read: Callable[[], ConfigT]) -> None:
        self._source = source
        self._read = read
        self.config = config
        """The configuration with the secrets to use now."""
        self._problem = ""
        self._listeners: list[Callable[[ConfigT], None]] = []
        self.restart_in_child()
        restart_in_children(self)

    def restart_in_child(self) -> None:
        """Implement `lance_bridge.forks.Restartable`."""
        self._lock = threading.Lock()

    def call_before_use(self, listener: Callable[[ConfigT], None]) -> None:
        """Call a function with each new configuration before any request uses it."""
        self._listeners.append(listener)

    def renew(self, refused: ConfigT) -> Renewal:
        """Read the secrets again, unless that was done since ``refused`` was taken from `config`.

        Every reading replaces the object in `config`, also if its content is the same: so all
        callers that used the previous object share one reading. Raises nothing.
        """
        if not self._source:
            return NO_SOURCE
        with self._lock:
            if self.config is refused:
                self._read_again()
            if self._problem:
                return Renewal(
                    changed=False, advice=f"The secrets could not be read again: {self._problem}"
                )
            again = f"The secrets were read again from {self._source}"
            if self.config == refused:
                return Renewal(
                    changed=False, advice=f"{again}, and are the same: provide new ones there"
                )
            return Renewal(changed=True, advice=f"{again}, and the new ones are refused, too")

    def _read_again(self) -> None:
        try:
            found = self._read()
        except InvalidInputError as error:
            self._problem = str(error)
            # A new object, so that the others whose requests were refused do not read, too.
            self.config = copy.copy(self.config)
            return
        self._problem = ""
        if found != self.config:
            for listener in self._listeners:
                listener(found)
            logger.info("the server refused the secrets, and %s has others", self._source)
        self.config = found

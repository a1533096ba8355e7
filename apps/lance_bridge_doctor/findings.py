"""Findings: the kinds of problems, and the commands that fix them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

PROGRAM = "lance-bridge"


class Kind(str, Enum):
    """The type of a problem."""

    MISSING_EXTRA = "missing-extra"
    CONFIGURATION = "configuration"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    CATALOG = "catalog-error"
    STORAGE = "storage-error"
    CLOCK_SKEW = "clock-skew"
    BROKEN_NAME = "broken-name"
    LOCATION_GONE = "location-gone"
    DECLARED_ONLY = "declared-only"
    INCONSISTENT_ENTRY = "inconsistent-entry"
    MANAGED_ELSEWHERE = "managed-elsewhere"
    INCOMPLETE_ENTRY = "incomplete-entry"
    OUTDATED_COLUMNS = "outdated-columns"
    OUT_OF_BAND = "out-of-band"
    UNPROTECTED_DATA = "unprotected-data"
    ORPHANED_DATA = "orphaned-data"
    UNKNOWN_DATA = "unknown-data"


@dataclass(frozen=True)
class Finding:
    """One problem.

    ``subject`` names the object: a catalog, a namespace, a table or a location. ``command`` fixes
    it when run in a shell; it may prompt for what only the user knows, such as a password.
    """

    kind: Kind
    subject: str
    message: str
    command: str


@dataclass(frozen=True)
class Commands:
    """Builds commands for one catalog, with the name and the properties that the user gave.

    The value of a secret property is not shown: the user fills it in.
    """

    catalog: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_configured: bool = False
    is_secret: Callable[[str], bool] = field(default=lambda _key: False)

    def on_catalog(self, command: str, *arguments: str) -> str:
        """Return a command on the catalog: its words, the catalog, and its arguments."""
        given = [
            part
            for key, value in self.properties.items()
            for part in ("-p", f"{key}={f'<{key}>' if self.is_secret(key) else value}")
        ]
        return shlex.join([PROGRAM, *command.split(), self.catalog, *arguments, *given])

    def set(self, *keys: str) -> str:
        """Return the command that prompts for properties and stores them in the configuration."""
        if self.is_configured:
            return shlex.join([PROGRAM, "config", "set", self.catalog, *keys])
        placeholders = [part for key in keys for part in ("-p", f"{key}=<{key}>")]
        return self._without(keys).on_catalog("catalogs test", *placeholders)

    def unset(self, key: str) -> str:
        """Return the command that removes a property."""
        if self.is_configured:
            return shlex.join([PROGRAM, "config", "set", self.catalog, "--unset", key])
        return self._without([key]).on_catalog("catalogs test")

    def _without(self, keys: Sequence[str]) -> Commands:
        rest = {key: value for key, value in self.properties.items() if key not in keys}
        return replace(self, properties=rest)

"""What is found, and the commands that mend it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

PROGRAM = "lance-bridge"


class Kind(str, Enum):
    """What is wrong."""

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
    MARKS_DISAGREE = "marks-disagree"
    OUT_OF_BAND = "out-of-band"
    ORPHANED_DATA = "orphaned-data"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    ``subject`` names the object: a catalog, a namespace, a table or a location. ``command`` mends
    it when it is run in a shell; it may ask for what only a person knows, such as a password.
    """

    kind: Kind
    subject: str
    message: str
    command: str


def _nothing_is_secret(_key: str) -> bool:
    return False


@dataclass(frozen=True)
class Commands:
    """Writes commands about one catalog, as it was named and with the properties that were given.

    A property that is secret is not shown: whoever runs the command puts its value in.
    """

    catalog: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_configured: bool = False
    is_secret: Callable[[str], bool] = _nothing_is_secret

    def on_catalog(self, command: Sequence[str], *arguments: str) -> str:
        """Return a command on the catalog: its words, the catalog, and what follows."""
        return shlex.join([PROGRAM, *command, self.catalog, *arguments, *self._given()])

    def on_table(self, command: str, table: str, *arguments: str) -> str:
        """Return a command of the group ``table``."""
        return self.on_catalog(["table", command], table, *arguments)

    def set(self, *keys: str) -> str:
        """Return the command that asks for properties, and puts them where the catalog's are."""
        if self.is_configured:
            return shlex.join([PROGRAM, "config", "set", self.catalog, *keys])
        asked = [part for key in keys for part in ("-p", f"{key}=<{key}>")]
        rest = {key: value for key, value in self.properties.items() if key not in keys}
        others = Commands(self.catalog, rest, False, self.is_secret)
        return others.on_catalog(["catalogs", "test"], *asked)

    def unset(self, key: str) -> str:
        """Return the command that leaves a property out."""
        if self.is_configured:
            return shlex.join([PROGRAM, "config", "set", self.catalog, "--unset", key])
        rest = {each: value for each, value in self.properties.items() if each != key}
        return Commands(self.catalog, rest, False, self.is_secret).on_catalog(["catalogs", "test"])

    def _given(self) -> list[str]:
        return [
            part
            for key, value in self.properties.items()
            for part in ("-p", f"{key}={f'<{key}>' if self.is_secret(key) else value}")
        ]


def both(*commands: str) -> str:
    """Return one line for a shell that runs commands one after another, if each succeeds."""
    return " && ".join(commands)

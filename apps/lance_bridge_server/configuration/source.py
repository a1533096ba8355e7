"""The source of a server's configuration: a file and the options of the command."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lance_bridge.config_file import read_mapping
from lance_bridge.errors import invalid

from .problems import explain
from .settings import ServerSettings, catalogs_by_name

CONFIG_VARIABLE = "LANCE_BRIDGE_SERVER_CONFIG"
_ARGUMENTS = "the options of the command"


@dataclass(frozen=True)
class SettingsSource:
    """Reads the configuration; worker processes and reloads read it again.

    Args:
        file: The configuration file.
        overrides: Top-level keys that replace those of the file.
        catalogs: Catalogs that are added to those of the file: name to ``impl`` and properties,
            which override those of the file and of the environment.
    """

    file: Path | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    catalogs: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    content: Mapping[str, Any] | None = field(default=None, repr=False)
    """The file's content when the source was pinned; None reads the file each time."""

    @classmethod
    def of_environment(cls) -> SettingsSource:
        """Return the file that ``LANCE_BRIDGE_SERVER_CONFIG`` names.

        Raises:
            InvalidInputError: (13) the variable is not set.
        """
        named = os.environ.get(CONFIG_VARIABLE)
        if not named:
            raise invalid(f"${CONFIG_VARIABLE} must name the configuration file of the server")
        return cls(Path(named))

    def pinned(self) -> SettingsSource:
        """Return a source that keeps the file's current content, even if the file changes.

        Raises:
            InvalidInputError: (13) the file cannot be read.
        """
        return replace(self, content=read_mapping(self.file) if self.file else {})

    def unpinned(self) -> SettingsSource:
        """Return a source that reads the file each time."""
        return replace(self, content=None)

    def read(self) -> ServerSettings:
        """Return the settings.

        Raises:
            InvalidInputError: (13) the file cannot be read, or a setting is unknown or wrong. The
                message contains the path of its key, and no value of a catalog's property.
        """
        origin = str(self.file) if self.file else _ARGUMENTS
        pinned = self if self.content is not None else self.pinned()
        content = {**(pinned.content or {}), **self.overrides}
        if self.catalogs:
            content["catalogs"] = self._add_catalogs(content.get("catalogs", {}))
        try:
            return ServerSettings.model_validate(content)
        except ValidationError as error:
            raise invalid(f"{origin}: {explain(ServerSettings, error)}") from None

    def _add_catalogs(self, catalogs: Any) -> Any:
        """Return the catalogs of the file and the added ones, without the added properties.

        The environment overrides the file and is overridden by the added properties, which
        `catalogs.connect_catalogs` takes separately.
        """
        catalogs = catalogs_by_name(catalogs)
        if not isinstance(catalogs, dict):
            return catalogs
        return {**{name: {} for name in self.catalogs}, **catalogs}

"""What CREATE and REPLACE TABLE say of a table, checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lance_bridge import location as locations
from lance_bridge.catalog import Path
from lance_bridge.entries import properties as entry_properties
from lance_bridge.errors import display, invalid, unsupported

from . import schemas

_PROVIDER = "provider"
LANCE = "lance"
_LOCATION = "location"
_EXTERNAL = "external"
_SPARKS_OWN = frozenset({_PROVIDER, _LOCATION, _EXTERNAL, "owner", "is_managed_location"})
"""Properties by which Spark tells what is not one; the catalog knows its owners better."""


@dataclass(frozen=True)
class Definition:
    """A table as it is to be. ``properties`` are the caller's own, and its ``comment``."""

    path: Path
    struct: str
    """The JSON text of its ``StructType``."""
    properties: Mapping[str, str] = field(default_factory=dict)
    location: str | None = None
    """Where the caller wants it; None leaves that to the catalog."""

    @classmethod
    def of(cls, path: Path, args: Mapping[str, Any]) -> Definition:
        """Return what Spark was asked for.

        Raises:
            InvalidInputError: (13) a provider other than ``lance``, a bad location or property.
            UnsupportedOperationError: (0) an external table.
        """
        given: Mapping[str, str] = args.get("properties") or {}
        _check_provider(path, given.get(_PROVIDER) or LANCE)
        if given.get(_EXTERNAL, "false").lower() == "true":
            raise unsupported(
                f"Table '{display(path)}' cannot be EXTERNAL: DROP TABLE deletes the data of every "
                "Lance table. Leave EXTERNAL out"
            )
        location = given.get(_LOCATION)
        own = {key: value for key, value in given.items() if key not in _SPARKS_OWN}
        entry_properties.checked(own)
        place = None if location is None else locations.check(location)
        return cls(path, args["schema"], own, place)

    @property
    def has_columns(self) -> bool:
        return bool(json.loads(self.struct).get("fields"))

    def schema(self) -> pa.Schema:
        """Return the table's Arrow schema. Raises InvalidInput (13) as `schemas.to_arrow` does."""
        return schemas.to_arrow(self.struct, self.properties)


def _check_provider(path: Path, provider: str) -> None:
    if provider.lower() != LANCE:
        raise invalid(
            f"Table '{display(path)}' cannot be of {provider[:60]!r}: this catalog makes Lance "
            "tables only. Leave USING out or write USING lance; from a DataFrame, write "
            ".format('lance') before saveAsTable, whose default is another"
        )

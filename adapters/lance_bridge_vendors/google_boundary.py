"""Credential access boundaries that limit a token to one table's objects. Pure functions.

What a boundary allows is what the token's owner may do as well: a token has the intersection.
Sources: Google's "Credential Access Boundaries" and "AccessBoundary", and the strings of the Common
Expression Language (CEL), whose escapes are those of JSON.
"""

from __future__ import annotations

import json
from typing import Any

from lance_bridge.credentials import Grant

MAX_CHARACTERS = 2048
"""Google's limit for a condition."""
_READ = "inRole:roles/storage.objectViewer"
_WRITE = "inRole:roles/storage.objectUser"
"""Unlike ``storage.objectAdmin``, it does not change who else may read an object."""
_CATALOGS_OWN = (".manifest", ".batch.json")
"""What only the catalog writes in a governed table: final manifests, and records of batches."""


def access_boundary(grant: Grant) -> dict[str, Any]:
    """Return the boundary for a grant, as the Security Token Service takes it."""
    bucket = f"projects/_/buckets/{grant.bucket}"
    objects = f"resource.name.startsWith({literal(f'{bucket}/objects/{grant.prefix}/')})"
    listing = (
        'api.getAttribute("storage.googleapis.com/objectListPrefix", "").startsWith('
        f"{literal(f'{grant.prefix}/')})"
    )
    below = f"{objects} || {listing}"
    if not grant.write:
        rules = {_READ: below}
    elif grant.governed:
        # A condition cannot deny what another rule allows: no rule has the catalog's own files.
        others = "".join(f" && !resource.name.endsWith({literal(each)})" for each in _CATALOGS_OWN)
        rules = {_READ: below, _WRITE: f"{objects}{others}"}
    else:
        rules = {_WRITE: below}
    return {
        "accessBoundary": {
            "accessBoundaryRules": [
                {
                    "availableResource": f"//storage.googleapis.com/{bucket}",
                    "availablePermissions": [role],
                    "availabilityCondition": {"expression": condition},
                }
                for role, condition in rules.items()
            ]
        }
    }


def conditions(boundary: dict[str, Any]) -> list[str]:
    """Return the conditions of a boundary's rules."""
    rules = boundary["accessBoundary"]["accessBoundaryRules"]
    return [each["availabilityCondition"]["expression"] for each in rules]


def literal(text: str) -> str:
    """Return a string of CEL, with quotes, that stands for a text."""
    # Escaped to ASCII, characters beyond U+FFFF would become two, which CEL refuses.
    return json.dumps(text, ensure_ascii=False)

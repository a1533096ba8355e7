"""Credential access boundaries that limit a token to one table's objects. Pure functions.

A token's rights are the intersection of its owner's and the boundary's.
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
"""Unlike ``storage.objectAdmin``, it does not allow changing who may read an object."""
_CATALOG_FILES = (".manifest", ".batch.json", "/.manager.json")
"""Endings of files that only the catalog writes in a governed table: manifests, records of batches,
and the file that says which entry manages the versions."""


def access_boundary(grant: Grant) -> dict[str, Any]:
    """Return the boundary for a grant, in the form that the Security Token Service takes."""
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
        # A condition cannot deny what another rule allows: the only write rule excludes these.
        others = "".join(f" && !resource.name.endsWith({literal(each)})" for each in _CATALOG_FILES)
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
    """Return a text as a quoted CEL string."""
    # ASCII escapes would split characters beyond U+FFFF in two, which CEL refuses.
    return json.dumps(text, ensure_ascii=False)

"""Google: an access token with a credential access boundary that limits it to one table's objects.

In a bucket with a hierarchical namespace, creating objects requires rights to folders, which the
boundary does not include: use buckets without one for tables that are written to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from lance_namespace.errors import InvalidTableStateError
from pydantic import Field, field_validator

from lance_bridge import extras
from lance_bridge.credentials import Grant, Vendor, VendorOptions, expiring_options
from lance_bridge.errors import display
from lance_bridge.storage_options import options_of_store

from . import URL, without_slash

_KEY = "service_account_key"
_KEY_FILES = ("service_account", "service_account_path", "application_credentials")
_MAX_SECONDS = 43_200
MAX_CHARACTERS = 2048
"""Google's limit for a condition."""
_READ = "inRole:roles/storage.objectViewer"
_WRITE = "inRole:roles/storage.objectUser"
"""Unlike ``storage.objectAdmin``, it does not allow changing who may read an object."""
_CATALOG_FILES = (".manifest", ".batch.json", "/.manager.json")
"""Endings of files that only the catalog writes in a governed table: manifests, records of batches,
and the file that says which entry manages the versions."""


class GoogleOptions(VendorOptions):
    """The options of ``credentials.vendor=google``."""

    holds_secrets: ClassVar[bool] = False

    service_account: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9-]+@[a-z0-9.-]+\.gserviceaccount\.com$",
        description="The service account whose tokens clients get, each limited to one table. The "
        "vendor's own account needs the role Service Account Token Creator on it. By default, the "
        "vendor's own account.",
    )
    duration_seconds: int = Field(
        default=3600,
        ge=60,
        le=_MAX_SECONDS,
        description="The lifetime of credentials in seconds. Google allows more than 3600 only by "
        "a policy of the organization. Without `service_account`, credentials have the lifetime of "
        "the token of the vendor's own account, at most an hour. Issued credentials keep a "
        "revoked right until they expire.",
    )
    sts_endpoint: str = Field(
        default="https://sts.googleapis.com", pattern=URL,
        description="The address of Google's Security Token Service.",
    )  # fmt: skip
    iam_endpoint: str = Field(
        default="https://iamcredentials.googleapis.com", pattern=URL,
        description="The address of Google's service that creates tokens of `service_account`.",
    )  # fmt: skip

    _has_no_slash = field_validator("sts_endpoint", "iam_endpoint")(without_slash)


class GoogleVendor(Vendor):
    """Vends downscoped access tokens."""

    options_type = GoogleOptions
    stores = frozenset({"gs"})
    options: GoogleOptions

    def __init__(self, options: GoogleOptions, storage: Mapping[str, str]) -> None:
        super().__init__(options, storage)
        extras.require("vend-google", "google.auth", "requests")
        from .google_sts import TokenService  # noqa: PLC0415 - needs the extra

        self._service = TokenService(
            own_key(storage),
            options.sts_endpoint,
            options.iam_endpoint,
            options.service_account,
            options.duration_seconds,
        )

    def vend(self, grant: Grant) -> Mapping[str, str]:
        """Return a token that is limited to the grant."""
        what = f"credentials for table '{display(grant.table)}'"
        boundary = access_boundary(grant)
        if max(map(len, conditions(boundary))) > MAX_CHARACTERS:
            raise InvalidTableStateError(
                f"No {what}: its location is too long for a condition, which has at most "
                f"{MAX_CHARACTERS} characters. Give the table a shorter one"
            )
        token, expires = self._service.token(boundary, what)
        return expiring_options({"google_storage_token": token}, expires)


def own_key(storage: Mapping[str, str]) -> Mapping[str, Any] | None:
    """Return the service account key in ``storage.*``, or in a file that it names.

    Raises:
        ValueError: it cannot be read, or is not a service account key.
    """
    own = options_of_store(storage, "google")
    file = next((own[each] for each in _KEY_FILES if each in own), None)
    text = own.get(_KEY)
    if text is None and file is None:
        return None
    try:
        found = json.loads(text if text is not None else Path(str(file)).read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError:
        raise ValueError("the service account's key in storage.google_* is not JSON") from None
    if not isinstance(found, dict) or found.get("type") != "service_account":
        raise ValueError(
            "storage.google_* has credentials that are no service account's key: leave them out, "
            "and set GOOGLE_APPLICATION_CREDENTIALS"
        )
    return found


# -- credential access boundaries ------------------------------------------------------------------
# A token's rights are the intersection of its owner's and the boundary's. Sources: Google's
# "Credential Access Boundaries" and "AccessBoundary", and the strings of the Common Expression
# Language (CEL), whose escapes are those of JSON.


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

"""Checks whether a catalog can be reached, and finds the reason if not."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from lance_namespace import ListNamespacesRequest
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
    ThrottlingError,
    UnauthenticatedError,
    UnsupportedOperationError,
)

from lance_bridge import locations
from lance_bridge.config import STORAGE_PREFIX
from lance_bridge.extras import MissingExtraError
from lance_bridge.namespace import LanceBridgeNamespace

from .findings import Commands, Finding, Kind

_ADDRESSES = ("uri", "host", "endpoint", "region")
"""Properties with the address of a catalog."""
_IDENTITIES = ("access_key_id", "client_id", "auth.username")
"""Properties that belong to a secret."""
_PROPERTY = re.compile(r"property '([^']+)'")
_STORAGE_SECRETS = {
    "s3": ("aws_access_key_id", "aws_secret_access_key"),
    "gs": ("google_service_account",),
    "az": ("azure_storage_account_name", "azure_storage_account_key"),
}


def properties_finding(error: LanceNamespaceError, commands: Commands) -> Finding:
    """Return the problem of properties with which no namespace could be created, without a call.

    If the implementation is unknown, so are the secret properties: no value is repeated.
    """
    if isinstance(error, MissingExtraError):
        return Finding(Kind.MISSING_EXTRA, commands.catalog, str(error), error.command)
    named = _PROPERTY.search(str(error))
    if isinstance(error, UnsupportedOperationError) or named is None:
        return Finding(
            Kind.CONFIGURATION, commands.catalog, str(error), "lance-bridge catalogs list"
        )
    key = named[1]
    is_unknown = f"has no property '{key}'" in str(error)
    command = commands.unset(key) if is_unknown else commands.set(key)
    return Finding(Kind.CONFIGURATION, commands.catalog, str(error), command)


def check_catalog(namespace: LanceBridgeNamespace, commands: Commands) -> Iterator[Finding]:
    """Yield a finding if the smallest call to the catalog fails."""
    try:
        namespace.list_namespaces(ListNamespacesRequest(limit=1))
    except LanceNamespaceError as error:
        yield _catalog_finding(error, namespace, commands)


def _catalog_finding(
    error: LanceNamespaceError, namespace: LanceBridgeNamespace, commands: Commands
) -> Finding:
    declared = list(namespace.config_type.declared())
    kind, command = Kind.CATALOG, commands.on_catalog(["catalogs", "test"])
    if isinstance(error, MissingExtraError):
        kind, command = Kind.MISSING_EXTRA, error.command
    elif isinstance(error, UnauthenticatedError | PermissionDeniedError):
        kind = Kind.REFUSED
        secret = [each.key for each in declared if each.secret]
        command = commands.set(*_credentials(secret, namespace.properties))
    elif isinstance(error, ServiceUnavailableError):
        kind = Kind.UNREACHABLE
        keys = [each.key for each in declared]
        command = commands.set(next((key for key in _ADDRESSES if key in keys), keys[0]))
    elif isinstance(error, InvalidInputError):
        kind = Kind.CONFIGURATION
    elif isinstance(error, ThrottlingError):
        command = commands.on_catalog(["doctor"])
    return Finding(kind, commands.catalog, str(error), command)


def _credentials(secret: Sequence[str], given: Mapping[str, str]) -> list[str]:
    """Return the credential properties that are set, or the first that could be set."""
    used = [key for key in (*_IDENTITIES, *secret) if key in given]
    return used or list(secret[:1])


def storage_finding(
    error: LanceNamespaceError, subject: str, location: str, commands: Commands
) -> Finding:
    """Return a finding that storage could not be read, so its content is unknown."""
    scheme = locations.key(location)[0]
    if scheme == "file" and isinstance(error, PermissionDeniedError):
        command = f"chmod -R u+rwX {shlex.quote(locations.for_lance(location))}"
    elif scheme == "file":  # the disk or the mount failed: check again when it works
        command = commands.on_catalog(["doctor"])
    elif isinstance(error, UnauthenticatedError | PermissionDeniedError):
        keys = _STORAGE_SECRETS.get(scheme, ())
        command = commands.set(*(STORAGE_PREFIX + key for key in keys))
    else:
        command = commands.set(STORAGE_PREFIX + _endpoint(scheme))
    return Finding(Kind.STORAGE, subject, str(error), command)


def _endpoint(scheme: str) -> str:
    prefix = {"s3": "aws", "gs": "google", "az": "azure_storage"}.get(scheme, "aws")
    return f"{prefix}_endpoint"

"""Checks of catalogs, gateways and clocks: whether they respond, and what to do if not."""

from __future__ import annotations

import http.client
import json
import logging
import re
import shlex
import ssl
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

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
from lance_bridge.config import STORAGE_PREFIX, CatalogConfig
from lance_bridge.connection import DECLARED_AT
from lance_bridge.entry import TableEntry
from lance_bridge.errors import invalid, reason_in
from lance_bridge.extras import MissingExtraError
from lance_bridge.namespace import LanceBridgeNamespace
from lance_bridge_federated.children import HEADERS

from .findings import PROGRAM, Commands, Finding, Kind

# -- reachability ----------------------------------------------------------------------------------


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
    kind, command = Kind.CONFIGURATION, f"{PROGRAM} catalogs list"
    named = _PROPERTY.search(str(error))
    if isinstance(error, MissingExtraError):
        kind, command = Kind.MISSING_EXTRA, error.command
    elif named is not None and not isinstance(error, UnsupportedOperationError):
        is_unknown = f"has no {named[0]}" in str(error)
        command = commands.unset(named[1]) if is_unknown else commands.set(named[1])
    return Finding(kind, commands.catalog, str(error), command)


def check_catalog(namespace: LanceBridgeNamespace, commands: Commands) -> Finding | None:
    """Return a finding if the smallest call to the catalog fails."""
    try:
        namespace.list_namespaces(ListNamespacesRequest(limit=1))
    except LanceNamespaceError as error:
        return _catalog_finding(error, namespace, commands)
    return None


def _catalog_finding(
    error: LanceNamespaceError, namespace: LanceBridgeNamespace, commands: Commands
) -> Finding:
    declared = list(namespace.config_type.declared())
    kind, command = Kind.CATALOG, commands.on_catalog("catalogs test")
    if isinstance(error, MissingExtraError):
        kind, command = Kind.MISSING_EXTRA, error.command
    elif isinstance(error, UnauthenticatedError | PermissionDeniedError):
        kind = Kind.REFUSED
        secret = [each.key for each in declared if each.secret]
        used = [key for key in (*_IDENTITIES, *secret) if key in namespace.properties]
        command = commands.set(*(used or secret[:1]))
    elif isinstance(error, ServiceUnavailableError):
        kind = Kind.UNREACHABLE
        keys = [each.key for each in declared]
        command = commands.set(next((key for key in _ADDRESSES if key in keys), keys[0]))
    elif isinstance(error, InvalidInputError):
        kind = Kind.CONFIGURATION
    elif isinstance(error, ThrottlingError):
        command = commands.on_catalog("doctor")
    return Finding(kind, commands.catalog, str(error), command)


def storage_finding(
    error: LanceNamespaceError, location: str, commands: Commands, subject: str = ""
) -> Finding:
    """Return a finding that the storage of a subject or a location could not be read."""
    scheme = locations.key(location)[0]
    if scheme == "file" and isinstance(error, PermissionDeniedError):
        command = f"chmod -R u+rwX {shlex.quote(locations.for_lance(location))}"
    elif scheme == "file":  # the disk or the mount failed: check again when it works
        command = commands.on_catalog("doctor")
    elif isinstance(error, UnauthenticatedError | PermissionDeniedError):
        keys = _STORAGE_SECRETS.get(scheme, ())
        command = commands.set(*(STORAGE_PREFIX + key for key in keys))
    else:
        prefix = {"gs": "google", "az": "azure_storage"}.get(scheme, "aws")
        command = commands.set(f"{STORAGE_PREFIX}{prefix}_endpoint")
    return Finding(Kind.STORAGE, subject or location, str(error), command)


# -- clocks ----------------------------------------------------------------------------------------


TOLERANCE = 30.0
"""Seconds by which clocks may differ. AWS accepts a signature within 300."""
FIX = "sudo timedatectl set-ntp true"
_CLOCK_SECONDS = 5.0

logger = logging.getLogger(__name__)


def check_servers(config: CatalogConfig) -> Iterator[Finding]:
    """Yield a finding for each server of a configuration whose clock differs.

    Only servers with an HTTP address are checked; one that does not respond is skipped.
    """
    for origin in sorted(_origins(config)):
        yield from check_clock(origin, origin)


def check_clock(origin: str, name: str) -> Iterator[Finding]:
    """Yield a finding if the clock of a server differs. Args: name: Of the server."""
    skew = _measure_skew(origin)
    if skew is not None and abs(skew) > TOLERANCE:
        text = f"Its clock is {_format(skew)} this machine's: one of them is wrong"
        yield Finding(Kind.CLOCK_SKEW, name, text, FIX)


def _measure_skew(origin: str) -> float | None:
    """Return by how many seconds a server's clock is ahead; None if it is unknown."""
    parts = urlsplit(origin)
    is_secure = parts.scheme == "https"
    connect = http.client.HTTPSConnection if is_secure else http.client.HTTPConnection
    connection = connect(parts.netloc, timeout=_CLOCK_SECONDS)
    try:
        started = time.time()
        connection.request("HEAD", "/")
        date = connection.getresponse().getheader("Date")
        middle = (started + time.time()) / 2
    except (OSError, http.client.HTTPException, ssl.SSLError) as error:
        logger.info("the clock of %s is unknown: %s", origin, error)
        return None
    finally:
        connection.close()
    try:
        # A date has no fractions of a second: on average it is half a second behind.
        return parsedate_to_datetime(date or "").timestamp() + 0.5 - middle
    except ValueError:
        return None


def check_entry(entry: TableEntry, now: float) -> Iterator[Finding]:
    """Yield a finding if an entry has a time in the future."""
    times, state = [entry.record.properties.get(DECLARED_AT, "")], entry.managed
    if state is not None and state.held is not None:
        times.append(str(state.held))
    ahead = max((int(each) / 1000 - now for each in times if each.isdecimal()), default=0.0)
    if ahead > TOLERANCE:
        text = (
            f"Its entry was written at a time that is {_format(ahead)} this machine's: the "
            "writer's clock, or this one, is wrong"
        )
        yield Finding(Kind.CLOCK_SKEW, entry.name, text, FIX)


def _origins(config: CatalogConfig) -> set[str]:
    texts = [value for value in vars(config).values() if isinstance(value, str)]
    texts += [value for key, value in config.storage.items() if "endpoint" in key.lower()]
    return {
        f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        for parts in map(urlsplit, texts)
        if parts.scheme in ("http", "https") and parts.netloc
    }


def _format(seconds: float) -> str:
    return f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'}"


# -- gateways --------------------------------------------------------------------------------------


_GATEWAY_SECONDS = 10.0
_LONGEST = 1 << 20
_OK = "OK"
_KINDS = {
    "NO_ANSWER": Kind.UNREACHABLE,
    "SERVICE_UNAVAILABLE": Kind.UNREACHABLE,
    "UNAUTHENTICATED": Kind.REFUSED,
}
_ADVICE = {
    Kind.UNREACHABLE: (
        "Start the catalog's server, or correct its address in the gateway's configuration; the "
        "gateway tries it again every half second"
    ),
    Kind.REFUSED: "Correct the catalog's credentials in the gateway's configuration",
    Kind.CATALOG: "The gateway's log, and `lance-bridge serve --check` on its machine, say more",
}
_NO_CREDENTIALS = (
    "With credentials that may see the catalog, such as -p header.x-api-key=…, the gateway says "
    "since when, and why"
)


def check_gateway(properties: Mapping[str, str], commands: Commands) -> tuple[list[Finding], int]:
    """Return the problems of a gateway's catalogs, and the number of catalogs.

    Args:
        properties: Those of pylance's namespace ``rest``.

    Raises:
        InvalidInputError: (13) it has no `/readyz` with catalogs: it is another server.
    """
    uri = properties.get("uri", "")
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        text = "property 'uri' is required: the http:// or https:// address of the gateway"
        return [Finding(Kind.CONFIGURATION, commands.catalog, text, commands.set("uri"))], 0
    origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    address = origin + parts.path.rstrip("/")
    try:
        content = _read_state(address, properties)
    except (OSError, http.client.HTTPException) as error:
        reason = reason_in(getattr(error, "strerror", None) or error) or type(error).__name__
        text = f"The gateway at {address} does not respond: {reason}. Start it, or correct uri"
        return [Finding(Kind.UNREACHABLE, commands.catalog, text, commands.set("uri"))], 0
    states = content.get("catalogs")
    if content.get("status") == "stopping":
        text = f"The gateway at {address} is stopping"
        again = commands.on_catalog("doctor")
        return [Finding(Kind.UNREACHABLE, commands.catalog, text, again)], 0
    if not isinstance(states, dict):
        raise invalid(
            f"'{commands.catalog}' is no gateway of lance-bridge: {address}/readyz does not list "
            "catalogs. The doctor needs a gateway, or one of lance-bridge's own catalogs"
        )
    found = [*check_clock(origin, address), *_states(states, content.get("problems"), commands)]
    return found, len(states)


def _states(states: Mapping[str, Any], problems: Any, commands: Commands) -> Iterator[Finding]:
    """Yield a finding for each catalog that does not respond."""
    known = problems if isinstance(problems, dict) else {}
    for name, state in states.items():
        if state == _OK:
            continue
        kind = _KINDS.get(str(state), Kind.CATALOG)
        problem = known.get(name)
        if isinstance(problem, dict):
            since, error = problem.get("since"), str(problem.get("error")).rstrip(".")
            text = f"It has not responded to the gateway since {since}: {error}. {_ADVICE[kind]}"
        else:
            text = (
                f"It does not respond to the gateway: {state}. {_ADVICE[kind]}. {_NO_CREDENTIALS}"
            )
        yield Finding(kind, name, text, commands.on_catalog("doctor"))


def _read_state(address: str, properties: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the content of `/readyz`; nothing if it is not JSON.

    Raises:
        OSError, http.client.HTTPException: the server does not respond.
    """
    parts = urlsplit(address)
    if parts.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            parts.netloc, timeout=_GATEWAY_SECONDS, context=_tls(properties)
        )
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=_GATEWAY_SECONDS)
    headers = {
        key.partition(".")[2]: value for key, value in properties.items() if key.startswith(HEADERS)
    }
    try:
        connection.request("GET", f"{parts.path}/readyz", headers=headers)
        content = json.loads(connection.getresponse().read(_LONGEST))
    except ValueError:
        return {}
    finally:
        connection.close()
    return content if isinstance(content, dict) else {}


def _tls(properties: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=properties.get("tls.ssl_ca_cert"))
    if properties.get("tls.assert_hostname", "true").lower() == "false":
        context.check_hostname = False
    if "tls.cert_file" in properties:
        context.load_cert_chain(properties["tls.cert_file"], properties.get("tls.key_file"))
    return context

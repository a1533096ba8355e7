"""Finds the catalogs of a gateway that do not respond, by what its `/readyz` knows."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from lance_bridge.errors import invalid, reason_in
from lance_bridge_federated.children import HEADERS

from .findings import Commands, Finding, Kind, check_clock

_SECONDS = 10.0
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
            parts.netloc, timeout=_SECONDS, context=_tls(properties)
        )
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=_SECONDS)
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

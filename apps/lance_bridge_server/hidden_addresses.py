"""Network addresses of backends: they are logged, and removed from responses.

Errors of catalogs and of storage name the address that could not be reached, which may be an
internal host. Locations of tables are kept, because responses contain them anyway.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from lance_namespace import LanceNamespace

from .secret_values import SecretValues, property_texts_of

_SHOWN = "[address]"
_END = r"(?:\[[^\]\s]*\])?[^\s\"'<>,;()\[\]{}]*[^\s\"'<>,;()\[\]{}.:]"
_THRIFT = re.compile(rf"\bthrift://{_END}")
_ADDRESS = re.compile(
    rf"\bhttps?://{_END}"
    r"|(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?![\w.])"
    r"|(?<![\w./-])[A-Za-z][\w-]*(?:\.[\w-]+)*:\d{3,5}(?![\w.])"
    r"|\[[0-9a-fA-F:]{2,45}\]:\d+"
    r"|(?<=\bhost=')[^']+|(?<=\bresolve ')[^']+"  # of urllib3
)
_HOST = re.compile(r"\b(?:thrift|https?)://(?:[^/@\s,]*@)?([^/\s,:\[\]]+)")

HOSTS = SecretValues(_SHOWN)
"""Names of the hosts of this process's catalogs."""


def hosts_of(namespace: LanceNamespace, properties: Mapping[str, str]) -> Iterator[str]:
    """Yield the host names in a catalog's properties, in quotes if they could be common words."""
    for key, value in property_texts_of(namespace, properties).items():
        found = _HOST.findall(value) or ([value] if key == "host" else [])
        yield from (each if "." in each else f"'{each}'" for each in found)


def hide_addresses(text: str, *, repeats_request: bool = False) -> str:
    """Return a text with its addresses replaced.

    Args:
        repeats_request: Whether the text repeats a part of the request, such as a wrong location.
            If so, only thrift addresses and the hosts of catalogs are hidden.
    """
    text = _THRIFT.sub(_SHOWN, text)
    if not repeats_request:
        text = _ADDRESS.sub(_SHOWN, text)
    return HOSTS.hide(text)

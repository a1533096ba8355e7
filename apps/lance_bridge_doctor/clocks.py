"""Clocks: those of servers, as they tell them with every answer over HTTP, against this one.

A signed request is refused where clocks differ by minutes, and what a crash left is told from what
somebody is making by its age.
"""

from __future__ import annotations

import http.client
import logging
import ssl
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from lance_bridge.catalog import TableRecord
from lance_bridge.config import CatalogConfig
from lance_bridge.entries.declarations import DECLARED_AT
from lance_bridge.errors import display
from lance_bridge.managed.state import State

from .findings import Finding, Kind

TOLERANCE = 30.0
"""Seconds by which clocks may differ. AWS takes a signature within 300."""
MEND = "sudo timedatectl set-ntp true"
_SECONDS = 5.0

logger = logging.getLogger(__name__)


def of_servers(config: CatalogConfig) -> Iterator[Finding]:
    """Yield the servers of a configuration whose clocks differ from this machine's.

    Only those whose address it has, and which answer; whether they do is not asked here.
    """
    for origin in sorted(_origins(config)):
        skew = skew_of(origin)
        if skew is not None and abs(skew) > TOLERANCE:
            yield Finding(
                Kind.CLOCK_SKEW,
                origin,
                f"Its clock is {_shown(skew)} this machine's: one of them is wrong",
                MEND,
            )


def skew_of(origin: str) -> float | None:
    """Return by how many seconds a server's clock is ahead; None where that cannot be known."""
    parts = urlsplit(origin)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=_SECONDS)
    try:
        begun = time.time()
        connection.request("HEAD", "/")
        told = connection.getresponse().getheader("Date")
        middle = (begun + time.time()) / 2
    except (OSError, http.client.HTTPException, ssl.SSLError) as error:
        logger.info("the clock of %s is not known: %s", origin, error)
        return None
    finally:
        connection.close()
    try:
        # A date has no fractions of a second: on average it is half of one behind.
        return parsedate_to_datetime(told or "").timestamp() + 0.5 - middle
    except ValueError:
        return None


def of_entry(record: TableRecord, state: State | None, now: float) -> Iterator[Finding]:
    """Yield that an entry has a time that is still to come."""
    times = [record.properties.get(DECLARED_AT, "")]
    if state is not None and state.held is not None:
        times.append(str(state.held))
    ahead = max((int(each) / 1000 - now for each in times if each.isdecimal()), default=0.0)
    if ahead > TOLERANCE:
        yield Finding(
            Kind.CLOCK_SKEW,
            display(record.path),
            f"Its entry was written at a time that is {_shown(ahead)} this machine's: the clock of "
            "who wrote it, or this one, is wrong",
            MEND,
        )


def _origins(config: CatalogConfig) -> set[str]:
    texts = [value for value in vars(config).values() if isinstance(value, str)]
    texts += [value for key, value in config.storage.items() if "endpoint" in key.lower()]
    return {
        f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        for parts in map(urlsplit, texts)
        if parts.scheme in ("http", "https") and parts.netloc
    }


def _shown(seconds: float) -> str:
    return f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'}"

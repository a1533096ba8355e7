"""Compares the clocks of servers, from the date of their HTTP responses, with this machine's.

A signed request is refused if clocks differ by minutes, and the age of a file distinguishes what a
crash left behind from what is being written.
"""

from __future__ import annotations

import http.client
import logging
import ssl
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from lance_bridge.config import CatalogConfig
from lance_bridge.declarations import DECLARED_AT
from lance_bridge.entry import TableEntry

from .findings import Finding, Kind

TOLERANCE = 30.0
"""Seconds by which clocks may differ. AWS accepts a signature within 300."""
FIX = "sudo timedatectl set-ntp true"
_SECONDS = 5.0

logger = logging.getLogger(__name__)


def check_servers(config: CatalogConfig) -> Iterator[Finding]:
    """Yield a finding for each server of a configuration whose clock differs.

    Only servers with an HTTP address are checked; one that does not respond is skipped.
    """
    for origin in sorted(_origins(config)):
        skew = measure_skew(origin)
        if skew is not None and abs(skew) > TOLERANCE:
            text = f"Its clock is {_format(skew)} this machine's: one of them is wrong"
            yield Finding(Kind.CLOCK_SKEW, origin, text, FIX)


def measure_skew(origin: str) -> float | None:
    """Return by how many seconds a server's clock is ahead; None if it is unknown."""
    parts = urlsplit(origin)
    is_secure = parts.scheme == "https"
    connect = http.client.HTTPSConnection if is_secure else http.client.HTTPConnection
    connection = connect(parts.netloc, timeout=_SECONDS)
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

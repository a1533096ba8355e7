"""A vendor whose sessions end after seconds, and a store that refuses them from then on.

STS makes none of less than 15 minutes. So clients get an earlier end, and a proxy in front
of the store refuses what is signed with a key that has ended, as the store would.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from servers.http_proxy import Answer, HttpProxy, Request

from lance_bridge.credentials import EXPIRES_AT, REFRESH_OFFSET, Grant, expiring_options
from lance_bridge_vendors.aws import AwsVendor

SECONDS = 3.0
_SKEW_SECONDS = 1.0
"""How much longer the store takes a key: the clock of a busy machine's client is late."""
_KEY = re.compile(r"Credential=([^/]+)/")
_EXPIRED = Answer(
    400,
    b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>",
    {"Content-Type": "application/xml"},
)


class ShortLivedAws(AwsVendor):
    """Vends sessions that clients are to use for `SECONDS`."""

    grants: ClassVar[dict[str, Grant]] = {}
    """What was vended, by the session's key."""
    seconds: ClassVar[float] = SECONDS
    ends: ClassVar[dict[str, float]] = {}
    """When it ends (seconds since 1970), by the session's key."""

    def vend(self, grant: Grant) -> Mapping[str, str]:
        """As the base class."""
        vended = dict(super().vend(grant))
        del vended[EXPIRES_AT], vended[REFRESH_OFFSET]
        key, end = vended["aws_access_key_id"], time.time() + self.seconds
        self.grants[key], self.ends[key] = grant, end
        return expiring_options(vended, end)


def key_of(request: Request) -> str:
    """Return the key that a request is signed with."""
    found = _KEY.search(request.headers.get("authorization", ""))
    return found[1] if found else ""


@contextmanager
def expiring_store(store: str) -> Iterator[HttpProxy]:
    """Serve a store at another address, where sessions end as `ShortLivedAws` says."""

    def has_ended(request: Request) -> bool:
        end = ShortLivedAws.ends.get(key_of(request))
        return end is not None and time.time() > end + _SKEW_SECONDS

    with HttpProxy(store) as proxy:
        proxy.fail_next(has_ended, _EXPIRED, times=float("inf"))
        yield proxy

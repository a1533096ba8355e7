"""The storage options that say how long the others are valid."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ..records import TableCredentials

EXPIRES_AT = "expires_at_millis"
"""The storage option with the expiry time of the others (milliseconds since 1970)."""
REFRESH_OFFSET = "refresh_offset_millis"
"""The storage option that says how long before that time a client requests new ones."""

_LONGEST_OFFSET = 300.0


def expiring_options(options: Mapping[str, str], expires: float) -> TableCredentials:
    """Return a table's credentials with their expiry time (seconds since 1970).

    Clients refresh them when a quarter of their lifetime is left, or five minutes if that is
    shorter. `CredentialCache` replaces credentials after half of their lifetime, so that clients
    then always get newer ones.
    """
    offset = min(_LONGEST_OFFSET, max(expires - time.time(), 0.0) / 4)
    times = {EXPIRES_AT: str(int(expires * 1000)), REFRESH_OFFSET: str(int(offset * 1000))}
    return TableCredentials({**options, **times})


def remaining_seconds(options: Mapping[str, str]) -> float:
    """Return how long options are valid, by this machine's clock; 0 without an expiry time."""
    if EXPIRES_AT not in options:
        return 0.0
    return max(int(options[EXPIRES_AT]) / 1000 - time.time(), 0.0)


def limit_refresh_offset(options: Mapping[str, str], most_seconds: float) -> Mapping[str, str]:
    """Return options with a refresh offset of at most a quarter of ``most_seconds``.

    If this machine's clock is behind, the lifetime seems longer: clients would refresh them before
    `CredentialCache` has newer ones.
    """
    most = int(most_seconds / 4 * 1000)
    if int(options.get(REFRESH_OFFSET, 0)) <= most:
        return options
    return TableCredentials({**options, REFRESH_OFFSET: str(most)})

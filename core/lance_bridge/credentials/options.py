"""Storage options that say how long others are valid, and where the buckets of a region are."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

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


def s3_endpoint(session: Any, region: str) -> dict[str, str]:
    """Return the options for S3 in a region; none if Lance uses that endpoint by itself.

    Regions of China and of isolated partitions have hosts of their own. botocore also knows the
    settings of the profile and the environment: an ``endpoint_url``, FIPS and dual stack. Makes no
    call.

    Args:
        session: A session of boto3.
        region: The region's name.
    """
    from botocore.config import Config  # noqa: PLC0415 - only AWS needs it

    client = session.client(
        "s3",
        region_name=region,
        config=Config(s3={"us_east_1_regional_endpoint": "regional"}),
        # With any keys, no credentials are looked up.
        aws_access_key_id="none",
        aws_secret_access_key="none",
    )
    found = str(client.meta.endpoint_url).rstrip("/")
    client.close()
    return {} if found == f"https://s3.{region}.amazonaws.com" else endpoint_options(found)


def endpoint_options(endpoint: str) -> dict[str, str]:
    """Return the options of a store with which Lance uses an endpoint."""
    plain = {"allow_http": "true"} if endpoint.startswith("http://") else {}
    return {"aws_endpoint": endpoint, **plain}

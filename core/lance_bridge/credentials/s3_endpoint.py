"""Where the buckets of a region are, as AWS's tools find them and Lance does not."""

from __future__ import annotations

from typing import Any


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

"""Options of object stores: which are credentials or public, and the endpoints of S3."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

STORAGE_PREFIX = "storage."
_NON_SECRET_OPTIONS = frozenset({
    # of the client
    "allow_http", "allow_invalid_certificates", "client_max_retries", "client_retry_timeout",
    "connect_timeout", "default_content_type", "download_retry_count", "http1_only", "http2_only",
    "http2_keep_alive_interval", "http2_keep_alive_timeout", "http2_keep_alive_while_idle",
    "http2_max_frame_size", "pool_idle_timeout", "pool_max_idle_per_host", "proxy_ca_certificate",
    "proxy_excludes", "randomize_addresses", "request_timeout", "timeout", "user_agent",
    # of every store
    "bucket", "bucket_name", "container", "container_name", "default_region", "endpoint",
    "endpoint_url", "region", "skip_signature",
    # of one kind of store
    "access_key_id", "account_name", "authority_host", "authority_id", "authority_url",
    "checksum_algorithm", "client_id", "conditional_put", "copy_if_not_exists", "disable_tagging",
    "imdsv1_fallback", "metadata_endpoint", "msi_endpoint", "msi_resource_id", "object_id",
    "request_payer", "role_arn", "role_session_name", "s3_express", "server_side_encryption",
    "service_account_path", "sse_bucket_key_enabled", "sse_kms_key_id", "tenant_id",
    "unsigned_payload", "use_azure_cli", "use_emulator", "use_fabric_endpoint",
    "virtual_hosted_style_request",
})  # fmt: skip
"""Options of stores that hold no secret, without the prefix of the store."""
VENDOR_PREFIX = "credentials."
_AUTHENTICATION = frozenset({
    # of S3, and of OSS
    "access_key_id", "access_key_secret", "container_authorization_token_file",
    "container_credentials_full_uri", "container_credentials_relative_uri", "profile", "role_arn",
    "role_session_name", "secret_access_key", "security_token", "session_token", "skip_signature",
    "web_identity_token_file",
    # of Azure; its emulator has a known key
    "access_key", "account_key", "authority_id", "bearer_token", "client_id", "client_secret",
    "fabric_session_token", "federated_token_file", "identity_endpoint", "master_key",
    "msi_endpoint", "msi_resource_id", "object_id", "sas_key", "sas_token", "tenant_id",
    "use_azure_cli", "use_emulator",
    # of Google
    "application_credentials", "service_account", "service_account_key", "service_account_path",
    "storage_token",
    "token",
})  # fmt: skip
"""Options of stores that determine the identity, without the prefix of the store."""
_KEY_ID = "access_key_id"
"""Not a secret, but useless without the secret that belongs to it."""
_PREFIXES = "aws|azure_storage|azure|google|gcs|oss"
"""With which names of Lance's options may begin, to be for one kind of store alone."""
_PREFIX = re.compile(rf"^({_PREFIXES})_")
SECRET_STORAGE_PATTERN = (
    rf"storage\.(?!(?i:(?:(?:{_PREFIXES})_)?(?:{'|'.join(sorted(_NON_SECRET_OPTIONS))}))$)\S+$"
)
"""A regular expression of the options in `storage.*` that may hold a secret, as Java reads it."""


def option_name(option: str) -> str:
    """Return the name of an option without the prefix of its store."""
    return _PREFIX.sub("", option.strip().lower())


def options_of_store(options: Mapping[str, str], store: str) -> dict[str, str]:
    """Return the options of a store, by their names without its prefix.

    Args:
        store: ``aws``, ``azure``, ``google`` or ``oss``. Options without a prefix are for
            every store.
    """
    found = {}
    for option, value in options.items():
        match = _PREFIX.match(option.strip().lower())
        if match is None or match[1].removesuffix("_storage") == store:
            found[option_name(option)] = value
    return found


def is_secret_option(option: str) -> bool:
    """Return whether an option of a store may hold a secret: it is not known to hold none."""
    return option_name(option) not in _NON_SECRET_OPTIONS


def without_authentication(options: Mapping[str, str]) -> dict[str, str]:
    """Return options of a store without those that determine the identity."""
    return {key: value for key, value in options.items() if option_name(key) not in _AUTHENTICATION}


def authentication(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a store that determine the identity."""
    others = without_authentication(options)
    return {key: value for key, value in options.items() if key not in others}


def sanitize_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a store that are known not to be credentials."""
    return {option: value for option, value in options.items() if not may_be_credential(option)}


@lru_cache(1024)
def may_be_credential(option: str) -> bool:
    """Return whether an option of a store may be a secret, or is the id of a key."""
    return is_secret_option(option) or option_name(option) == _KEY_ID


def option_names(text: str) -> frozenset[str]:
    """Return the names in a comma-separated list of options, without prefixes of stores."""
    return frozenset(option_name(each) for each in text.split(",") if each.strip())


def public_only(options: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """Return the options whose names, without the prefix of the store, are in ``names``."""
    return {option: value for option, value in options.items() if option_name(option) in names}


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

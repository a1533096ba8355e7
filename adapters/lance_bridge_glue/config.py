"""The properties of ``impl=glue``."""

from __future__ import annotations

import re
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from lance_namespace.errors import PermissionDeniedError
from pydantic import Field, SecretStr, field_validator, model_validator

from lance_bridge.config import (
    CallerIdentity,
    CatalogConfig,
    Seconds,
    is_visible_ascii,
    require_visible_ascii,
)

_REGION = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_ACCOUNT = re.compile(r"[0-9]{12}")
_ROLE_ARN = re.compile(r"arn:[a-z0-9-]+:iam::[0-9]{12}:role/\S+")


_SOURCE_IDENTITY = re.compile(r"[\w+=,.@-]{2,64}", re.ASCII)


def _caller(name: str, _groups: frozenset[str], _token: str | None) -> dict[str, str]:
    if not _SOURCE_IDENTITY.fullmatch(name):
        raise PermissionDeniedError(f"The catalog does not accept the user name '{name}'")
    return {"assume_role_source_identity": name, "assume_role_session_name": name}


class GlueConfig(CatalogConfig):
    """The properties of ``impl=glue``; see the descriptions of the fields."""

    caller_identity: ClassVar = CallerIdentity(_caller, required="assume_role_arn")

    catalog_id: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description="The id of the catalog: an account's number, or the id of a catalog in it. "
        "By default, the catalog of the caller's account.",
        examples=["123456789012"],
    )
    region: str | None = Field(
        default=None,
        description="The AWS region. By default, the region of the environment or of the profile.",
        examples=["us-east-1"],
    )
    endpoint: str | None = Field(
        default=None,
        description="The address of Glue, `http(s)://host`, if it is not AWS's own.",
        examples=["http://localhost:5000"],
    )
    access_key_id: str | None = Field(
        default=None,
        min_length=1,
        description="The id of a key pair, with `secret_access_key`. Without both, credentials "
        "come from the same sources as for AWS's tools: environment, files, container, instance.",
        examples=["AKIAIOSFODNN7EXAMPLE"],
    )
    secret_access_key: SecretStr | None = Field(
        default=None, description="The secret of the key pair."
    )
    session_token: SecretStr | None = Field(
        default=None,
        description="The session token of a temporary key pair.",
    )
    profile_name: str | None = Field(
        default=None,
        min_length=1,
        description="A profile in AWS's configuration files, for credentials and region.",
        examples=["analytics"],
    )
    assume_role_arn: str | None = Field(
        default=None,
        description="A role to assume with the credentials above, for the catalog and for storage.",
        examples=["arn:aws:iam::123456789012:role/lake"],
    )
    assume_role_region: str | None = Field(
        default=None,
        description="The region of the STS endpoint that issues the role. By default, `region`.",
        examples=["us-east-1"],
    )
    assume_role_endpoint: str | None = Field(
        default=None,
        description="The address of STS, if it is not AWS's own.",
        examples=["https://sts.us-east-1.amazonaws.com"],
    )
    assume_role_external_id: str | None = Field(
        default=None,
        min_length=2,
        max_length=1224,
        description="The external id that the role's trust policy requires.",
        examples=["lake-reader"],
    )
    assume_role_session_name: str = Field(
        default="lance-bridge",
        pattern=r"^[\w+=,.@-]{2,64}$",
        description="The name of the role's session, as it appears in AWS's logs.",
        examples=["nightly-load"],
    )
    assume_role_source_identity: str | None = Field(
        default=None,
        pattern=r"^[\w+=,.@-]{2,64}$",
        description="The source identity of the role's session, which AWS's logs show for all that "
        "it does. The role's trust policy must allow `sts:SetSourceIdentity`.",
        examples=["ann@example.com"],
    )
    assume_role_timeout_sec: int = Field(
        default=3600,
        ge=900,
        le=43_200,
        description="The duration of the role's session in seconds. It is renewed before it ends.",
    )
    retry_mode: Literal["standard", "adaptive", "legacy"] = Field(
        default="standard",
        description="How botocore retries calls that failed or were throttled.",
    )
    max_retries: int = Field(
        default=4,
        ge=0,
        le=50,
        description="The maximum number of retries of a call.",
    )
    connect_timeout: Seconds = Field(
        default=5.0,
        alias="client.connect-timeout",
        description="Time limit for opening a connection.",
    )
    read_timeout: Seconds = Field(
        default=30.0,
        alias="client.read-timeout",
        description="Time limit for each wait for a part of a reply.",
    )
    pool_size: int = Field(
        default=16,
        ge=1,
        le=1024,
        alias="client.pool-size",
        description="The maximum number of connections that are kept open.",
    )
    drop_check_functions: bool = Field(
        default=True,
        alias="drop.check-functions",
        description="Whether a namespace with user-defined functions cannot be dropped, because "
        "that would delete them. `false` saves the call that lists them.",
    )
    lake_formation: bool = Field(
        default=False,
        alias="lakeformation.vend-credentials",
        description="Whether storage is accessed with credentials of Lake Formation that are "
        "valid for the table only. Requires `catalog_id`, an account's number.",
    )
    lake_formation_duration: int = Field(
        default=3600,
        ge=900,
        le=21_600,
        alias="lakeformation.credentials-duration",
        description="The lifetime of these credentials in seconds.",
    )
    lake_formation_endpoint: str | None = Field(
        default=None,
        alias="lakeformation.endpoint",
        description="The address of Lake Formation, if it is not AWS's own.",
        examples=["https://lakeformation.us-east-1.amazonaws.com"],
    )

    @property
    def names_credentials(self) -> bool:
        """True if the properties contain credentials, or refer to them."""
        return bool(self.access_key_id or self.profile_name or self.assume_role_arn)

    @field_validator("endpoint", "assume_role_endpoint", "lake_formation_endpoint")
    @classmethod
    def _endpoint_is_a_url(cls, endpoint: str | None) -> str | None:
        if endpoint is not None:
            _check_endpoint(endpoint)
        return endpoint

    @field_validator("region", "assume_role_region")
    @classmethod
    def _region_is_a_name(cls, region: str | None) -> str | None:
        if region is not None and not is_region(region):
            raise ValueError("write a region's name, such as us-east-1")
        return region

    _fits_a_header = field_validator(
        "catalog_id", "access_key_id", "assume_role_external_id", "secret_access_key",
        "session_token",
    )(require_visible_ascii)  # fmt: skip

    @field_validator("assume_role_arn")
    @classmethod
    def _arn_names_a_role(cls, arn: str | None) -> str | None:
        if arn is not None and not _ROLE_ARN.fullmatch(arn):
            raise ValueError("write a role's ARN, arn:aws:iam::123456789012:role/name")
        return arn

    @model_validator(mode="after")
    def _fields_fit_together(self) -> GlueConfig:
        problem = self._key_problem() or self._role_problem()
        if not problem and self.lake_formation and not _ACCOUNT.fullmatch(self.catalog_id or ""):
            problem = "lakeformation.vend-credentials needs catalog_id, an account's 12 digits"
        if problem:
            raise ValueError(problem)
        return self

    def _key_problem(self) -> str:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            return "access_key_id and secret_access_key need each other"
        if self.session_token is not None and self.access_key_id is None:
            return "session_token needs access_key_id and secret_access_key"
        if self.profile_name is not None and self.access_key_id is not None:
            return "profile_name and access_key_id exclude each other: leave one of them out"
        return ""

    def _role_problem(self) -> str:
        if self.assume_role_arn is not None:
            return ""
        for name in sorted(self.model_fields_set):
            if name.startswith("assume_role_") and getattr(self, name) is not None:
                return f"{name} needs assume_role_arn"
        return ""


def is_region(text: str) -> bool:
    """Return True for a valid name of a region, which becomes part of a host name."""
    return _REGION.fullmatch(text) is not None and len(text) <= 63


def _check_endpoint(endpoint: str) -> None:
    try:
        parts = urlsplit(endpoint)
        wrong = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
    except ValueError:
        wrong = True
    if wrong:
        raise ValueError("must begin with http:// or https:// and a host")
    has_more = parts.username is not None or parts.query or parts.fragment
    if has_more or not is_visible_ascii(endpoint):
        raise ValueError("must not contain a user, '?', '#', spaces or non-ASCII characters")

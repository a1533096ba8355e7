"""AWS STS: a session of a role, with a policy that limits it to one table's objects.

S3-compatible stores whose STS has session policies, such as MinIO and Ceph, work the same way: set
``endpoint`` and ``sts_endpoint``. A client cannot detect whether an STS applies the policy; one
that does not grants all rights of the role.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from lance_namespace.errors import InvalidTableStateError
from pydantic import Field, field_validator

from lance_bridge import extras
from lance_bridge.credentials import Grant, Vendor, VendorOptions, expiring_options
from lance_bridge.errors import display
from lance_bridge.storage_options import endpoint_options, options_of_store

from . import URL, without_slash

_MAX_SECONDS = 43_200
_SESSION_NAME = 64
_TAG = 256
_NOT_IN_NAMES = re.compile(r"[^\w+=,.@-]", re.ASCII)
_NOT_IN_TAGS = re.compile(r"[^\w .:/=+@-]")
_OWN_KEYS = ("access_key_id", "secret_access_key", "session_token")
_POLICY_VERSION = "2012-10-17"
"""The policy language version that has variables, and therefore these escapes."""
MAX_CHARACTERS = 2048
"""AWS's limit for the plain text of a session policy."""

_DOMAINS = {"aws": "amazonaws.com", "aws-cn": "amazonaws.com.cn", "aws-us-gov": "amazonaws.com"}
_PARTITIONS = tuple(_DOMAINS)
"""The known partitions; the first is the default for S3-compatible stores."""
_READ = ["s3:GetObject", "s3:GetObjectVersion"]
_WRITE = ["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
_FINAL_MANIFESTS = "*_versions/*.manifest"
"""Relative to the table, for every branch. Staged manifests do not match: they end in
``.manifest-`` and a UUID. Writers may delete final manifests, to clean up old versions."""
_BATCH_RECORDS = "*/_transactions/*.batch.json"
"""In any table, because policies are short. They decide versions of other tables, too."""
_MARK = "*/_versions/.manager.json"
"""In any table. It says which entry manages the versions."""

Statement = dict[str, Any]


class AwsOptions(VendorOptions):
    """The options of ``credentials.vendor=aws``."""

    holds_secrets: ClassVar[bool] = False

    role_arn: str = Field(
        pattern=r"^arn:[a-z0-9-]+:iam::[^\s]*:role/[^\s]+$",
        max_length=2048,
        description="The role that is assumed for clients. It needs the permissions of a writer "
        "in the tables' buckets; each session is limited to one table.",
    )
    region: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9-]+$",
        description="The region of STS and of the buckets. By default `storage.aws_region`, or "
        "what AWS's tools find.",
    )
    external_id: str | None = Field(
        default=None, min_length=2, max_length=1224, pattern=r"^[\w+=,.@:/-]+$",
        description="The external id that the role's trust policy requires.",
    )  # fmt: skip
    duration_seconds: int = Field(
        default=3600,
        ge=900,
        le=_MAX_SECONDS,
        description="The lifetime of credentials in seconds. AWS allows 900 to 43200, at most "
        "the maximum of the role, and at most 3600 if the vendor's own credentials are a role's. "
        "Issued credentials keep a revoked right until they expire.",
    )
    kms_key_arn: str | None = Field(
        default=None,
        pattern=r"^arn:[a-z0-9-]+:kms:[a-z0-9-]+:\d{12}:key/[\w*-]+$",
        description="The KMS key that encrypts the buckets. Sessions may use it only through S3.",
    )
    web_identity_token_file: str | None = Field(
        default=None,
        min_length=1,
        description="A file with a token, such as Kubernetes mounts, to assume the role with "
        "instead of AWS credentials. It is read for each session.",
    )
    session_tags: bool = Field(
        default=False,
        description="Whether sessions carry the tags `principal` and `table`. The role's trust "
        "policy must allow `sts:TagSession`.",
    )
    source_identity: bool = Field(
        default=False,
        description="Whether sessions carry the principal as their source identity. The role's "
        "trust policy must allow `sts:SetSourceIdentity`.",
    )
    endpoint: str | None = Field(
        default=None, pattern=URL,
        description="The address of an S3-compatible store, which is returned with the "
        "credentials. By default `storage.aws_endpoint`.",
    )  # fmt: skip
    sts_endpoint: str | None = Field(
        default=None, pattern=URL,
        description="The address of STS; required with an S3-compatible store.",
    )  # fmt: skip

    _has_no_slash = field_validator("endpoint", "sts_endpoint")(without_slash)


class AwsVendor(Vendor):
    """Vends sessions of a role."""

    options_type = AwsOptions
    stores = frozenset({"s3"})
    options: AwsOptions

    def __init__(self, options: AwsOptions, storage: Mapping[str, str]) -> None:
        super().__init__(options, storage)
        extras.require("vend-aws", "boto3")
        from .aws_sts import SecurityTokenService  # noqa: PLC0415 - needs the extra

        own = options_of_store(storage, "aws")
        store = options.endpoint or own.get("endpoint") or own.get("endpoint_url")
        is_amazon = not store or ".amazonaws.com" in store
        if not is_amazon and options.sts_endpoint is None:
            raise ValueError(f"the store at {store} is not Amazon's: set sts_endpoint as well")
        self._names_store = bool(store)
        self._sts = SecurityTokenService(
            options.sts_endpoint,
            options.region or own.get("region") or own.get("default_region"),
            {f"aws_{key}": own[key] for key in _OWN_KEYS if key in own},
            options.web_identity_token_file,
        )
        self._partition = self._check_partition(is_amazon=is_amazon)

    def _check_partition(self, *, is_amazon: bool) -> str:
        """Return the role's partition. Raises ValueError if it is unknown or not the region's.

        For an S3-compatible store, an unknown partition is replaced by the first known one.
        """
        found = self.options.role_arn.split(":")[1]
        if not is_amazon:
            return found if found in _PARTITIONS else _PARTITIONS[0]
        if found not in _PARTITIONS:
            raise ValueError(f"role_arn is in the partition '{found}', which is not known")
        actual = self._sts.partition()
        if actual != found:
            raise ValueError(f"role_arn is in '{found}', and region {self._sts.region} in {actual}")
        return found

    def vend(self, grant: Grant) -> Mapping[str, str]:
        """Return the keys of a session that is limited to the grant."""
        options = self.options
        what = f"credentials for table '{display(grant.table)}'"
        policy = session_policy(grant, self._partition, options.kms_key_arn, self._sts.region)
        if len(policy) > MAX_CHARACTERS:
            raise InvalidTableStateError(
                f"No {what}: its location is too long for a session policy, which has at most "
                f"{MAX_CHARACTERS} characters. Give the table a shorter one"
            )
        keys = self._sts.assume(self._arguments(grant, policy), what)
        vended = {
            "aws_access_key_id": keys["AccessKeyId"],
            "aws_secret_access_key": keys["SecretAccessKey"],
            "aws_session_token": keys["SessionToken"],
            "aws_region": self._sts.region,
        }
        if options.endpoint:
            vended |= endpoint_options(options.endpoint)
        elif not self._names_store:
            vended |= self._sts.storage_endpoint()
        return expiring_options(vended, keys["Expiration"].timestamp())

    def _arguments(self, grant: Grant, policy: str) -> dict[str, Any]:
        options = self.options
        principal = grant.principal or "lance-bridge"
        arguments: dict[str, Any] = {
            "RoleArn": options.role_arn,
            "RoleSessionName": session_name(principal, display(grant.table)),
            "Policy": policy,
            "DurationSeconds": options.duration_seconds,
        }
        if options.external_id is not None:
            arguments["ExternalId"] = options.external_id
        if options.session_tags:
            arguments["Tags"] = [
                {"Key": "principal", "Value": tag_value(principal)},
                {"Key": "table", "Value": tag_value(display(grant.table))},
            ]
        if options.source_identity:
            arguments["SourceIdentity"] = session_name(principal)
        return arguments


def session_name(principal: str, table: str = "") -> str:
    """Return a valid session name of 2 to 64 characters; a changed name gets a digest."""
    wanted = f"{principal}@{table}" if table else principal
    allowed = _NOT_IN_NAMES.sub("-", wanted)
    if allowed == wanted and 2 <= len(wanted) <= _SESSION_NAME:
        return wanted
    digest = hashlib.sha256(wanted.encode()).hexdigest()[:8]
    return f"{allowed[: _SESSION_NAME - 9]}-{digest}"


def tag_value(text: str) -> str:
    """Return a tag's value of at most 256 allowed characters; others become ``_``."""
    return _NOT_IN_TAGS.sub("_", text)[:_TAG]


# -- session policies ------------------------------------------------------------------------------
# A session's rights are the intersection of the role's and the policy's. Sources: AWS's "Session
# policies", "IAM JSON policy elements: Resource", and "Policy variables", which define ``${$}``,
# ``${*}`` and ``${?}`` as the literal characters.


def escape(text: str) -> str:
    """Return a text escaped so that a resource or a ``StringLike`` pattern matches it literally."""
    return text.replace("$", "${$}").replace("*", "${*}").replace("?", "${?}")


def session_policy(
    grant: Grant, partition: str, kms_key_arn: str | None = None, region: str | None = None
) -> str:
    """Return the policy for a grant, as JSON.

    Args:
        partition: The first part of ARNs: ``aws``, ``aws-cn``, ``aws-us-gov``.
        kms_key_arn: The key that encrypts the objects, which S3 may then use for the session.
        region: The bucket's region; required with a key.
    """
    bucket = f"arn:{partition}:s3:::{escape(grant.bucket)}"
    prefix = escape(grant.prefix)
    objects = f"{bucket}/{prefix}/*"
    statements: list[Statement] = [
        _allow(_READ + (_WRITE if grant.write else []), objects),
        # Without the slash, it would allow listing siblings whose names begin with the table's.
        _allow(["s3:ListBucket"], bucket, {"StringLike": {"s3:prefix": [f"{prefix}/*"]}}),
        _allow(["s3:GetBucketLocation"], bucket),
    ]
    if grant.write and grant.governed:
        table = f"{bucket}/{prefix}"
        statements += [
            _deny(["s3:PutObject"], f"{table}/{_FINAL_MANIFESTS}"),
            _deny(
                ["s3:PutObject", "s3:DeleteObject"],
                [f"arn:{partition}:s3:::{each}" for each in (_BATCH_RECORDS, _MARK)],
            ),
        ]
    if kms_key_arn:
        statements.append(_use_key(kms_key_arn, f"s3.{region}.{_DOMAINS[partition]}", grant.write))
    return policy_text(statements)


def policy_text(statements: list[Statement]) -> str:
    """Return the policy with these statements; without any, one that denies everything.

    A session without a policy would have all rights of its role.
    """
    nothing = {"Effect": "Deny", "Action": "*", "Resource": "*"}
    policy = {"Version": _POLICY_VERSION, "Statement": statements or [nothing]}
    return json.dumps(policy, separators=(",", ":"))


def _allow(actions: list[str], resource: str, condition: Any = None) -> Statement:
    statement: Statement = {"Effect": "Allow", "Action": actions, "Resource": resource}
    return {**statement, "Condition": condition} if condition else statement


def _deny(actions: list[str], resource: str | list[str]) -> Statement:
    return {"Effect": "Deny", "Action": actions, "Resource": resource}


def _use_key(key: str, service: str, write: bool) -> Statement:
    actions = ["kms:Decrypt"] + (["kms:GenerateDataKey"] if write else [])
    return _allow(actions, key, {"StringEquals": {"kms:ViaService": service}})

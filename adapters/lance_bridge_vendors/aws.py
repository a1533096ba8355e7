"""AWS STS: a session of a role, with a policy that limits it to one table's objects.

S3-compatible stores whose STS has session policies, such as MinIO and Ceph, work the same way: set
``endpoint`` and ``sts_endpoint``. A client cannot detect whether an STS applies the policy; one
that does not grants all rights of the role.
"""

# What the extra installs is imported when a vendor is made: options are also read without it.
# ruff: noqa: PLC0415

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
    ThrottlingError,
    UnsupportedOperationError,
)
from pydantic import Field, field_validator

from lance_bridge import extras
from lance_bridge.credentials import Grant, Vendor, VendorOptions, expiring_options
from lance_bridge.errors import display, reason_in
from lance_bridge.forks import restart_in_children
from lance_bridge.storage_options import endpoint_options, options_of_store, s3_endpoint

from . import CLOCK, LATER, URL, without_slash

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

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


# -- sessions --------------------------------------------------------------------------------------


_LIMITS = {"connect_timeout": 3, "read_timeout": 8, "retries": {"total_max_attempts": 2}}
"""Timeouts in seconds, and attempts: a call without a response fails within half a minute."""
_NOT_WITH_TOKEN = ("ExternalId", "Tags", "SourceIdentity")
"""Arguments that a web identity's token replaces."""

_REFUSED = (
    "AccessDenied", "AccessDeniedException", "ExpiredToken", "ExpiredTokenException",
    "IDPRejectedClaim", "InvalidClientTokenId", "InvalidIdentityToken", "RegionDisabledException",
    "UnrecognizedClientException", "InvalidAccessKeyId", "MissingAuthenticationToken",
)  # fmt: skip
_THROTTLED = (
    "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequestsException",
    "SlowDown", "RequestThrottled",
)  # fmt: skip
_CLOCK = ("RequestExpired", "RequestTimeTooSkewed")
_CLOCK_TEXTS = ("Signature expired", "Signature not yet current")
_MISSING = ("NotImplemented", "InvalidAction", "MethodNotAllowed", "UnknownOperationException")
_TOO_LARGE = ("PackedPolicyTooLarge", "PackedPolicyTooLargeException")
_BY_CODE: dict[str, tuple[type[LanceNamespaceError], str]] = {
    **dict.fromkeys(_REFUSED, (
        PermissionDeniedError,
        "Check role_arn, external_id and the role's trust policy, and the vendor's own credentials",
    )),
    **dict.fromkeys(_THROTTLED, (ThrottlingError, LATER)),
    **dict.fromkeys(_CLOCK, (ServiceUnavailableError, CLOCK)),
    **dict.fromkeys(_MISSING, (
        UnsupportedOperationError,
        "The service at sts_endpoint has no sessions with policies: use another vendor, or none",
    )),
    **dict.fromkeys(_TOO_LARGE, (
        InvalidTableStateError,
        "The location, or the session's tags, are too long: give the table a shorter location",
    )),
    "ValidationError": (
        InvalidInputError,
        "Check role_arn, external_id and duration_seconds: a role allows at most its own "
        "maximum, and one hour where it is assumed by another role",
    ),
}  # fmt: skip


class SecurityTokenService:
    """Assumes roles. Safe to share between threads, and across a fork."""

    def __init__(
        self,
        endpoint: str | None,
        region: str | None,
        keys: Mapping[str, str],
        token_file: str | None,
    ) -> None:
        """Determine the region and the credentials, without a call.

        Args:
            keys: boto3's arguments with credentials; if empty, boto3 searches for credentials.
            token_file: A file with a token in place of credentials.

        Raises:
            ValueError: no region is configured, or AWS's configuration cannot be used.
        """
        import boto3
        from botocore import exceptions as boto

        self._endpoint, self._keys, self._token_file = endpoint, keys, token_file
        self.restart_in_child()
        try:
            self._session: Any = boto3.Session(region_name=region)
        except (boto.ProfileNotFound, boto.ConfigParseError) as error:
            raise ValueError(f"AWS's configuration cannot be used: {error}") from error
        if not self._session.region_name:
            raise ValueError("set region: neither storage.aws_region nor the environment has one")
        self.region = str(self._session.region_name)
        restart_in_children(self)

    def restart_in_child(self) -> None:
        """Implement `Restartable`: a session can hold locks and connections for credentials."""
        self._lock = threading.Lock()
        self._session = None
        self._cached_client: Any = None
        self._storage_endpoint: dict[str, str] | None = None

    def partition(self) -> str:
        """Return the partition of the region. Raises ValueError for an unknown region."""
        from botocore.exceptions import UnknownRegionError

        try:
            return str(self._own_session().get_partition_for_region(self.region))
        except UnknownRegionError as error:
            raise ValueError(str(error)) from error

    def storage_endpoint(self) -> dict[str, str]:
        """Return the options with the endpoint of S3; none if Lance uses that by itself."""
        with self._lock:
            if self._storage_endpoint is None:
                self._storage_endpoint = s3_endpoint(self._own_session(), self.region)
            return self._storage_endpoint

    def assume(self, arguments: Mapping[str, Any], what: str) -> Any:
        """Return the ``Credentials`` of a new session.

        Args:
            arguments: The arguments of AssumeRole.
            what: What is requested, for messages.

        Raises the errors of `translate_errors`.
        """
        with translate_errors(what):
            if self._token_file is None:
                return self._client().assume_role(**arguments)["Credentials"]
            token = Path(self._token_file).read_text(encoding="utf-8").strip()
            kept = {k: v for k, v in arguments.items() if k not in _NOT_WITH_TOKEN}
            answer = self._client().assume_role_with_web_identity(WebIdentityToken=token, **kept)
            return answer["Credentials"]

    def _own_session(self) -> Any:
        import boto3

        if self._session is None:
            self._session = boto3.Session(region_name=self.region)
        return self._session

    def _client(self) -> Any:
        from botocore import UNSIGNED
        from botocore.config import Config

        with self._lock:
            if self._cached_client is None:
                unsigned = {"signature_version": UNSIGNED} if self._token_file else {}
                self._cached_client = self._own_session().client(
                    "sts",
                    endpoint_url=self._endpoint,
                    config=Config(**_LIMITS, **unsigned),
                    **self._keys,
                )
            return self._cached_client


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Translate errors of STS into errors of the namespace.

    Args:
        what: What is requested, for the message.

    Raises:
        PermissionDeniedError: (15) STS refuses, or no credentials are configured.
        ThrottlingError: (21)
        ServiceUnavailableError: (17) it does not respond, or clocks differ.
        InvalidTableStateError: (19) the policy is too large.
        InvalidInputError: (13) the options do not fit the role.
        UnsupportedOperationError: (0) the service has no such sessions.
        InternalError: (18) anything else.
    """
    from botocore import exceptions as boto
    from botocore.parsers import ResponseParserError

    try:
        yield
    except boto.ClientError as error:
        raise _to_error(error, what) from error
    except (boto.NoCredentialsError, boto.PartialCredentialsError) as error:
        raise PermissionDeniedError(
            f"No {what}: there are no credentials to assume the role with. Set storage.aws_*, or "
            "what AWS's tools read from the environment"
        ) from error
    except (boto.HTTPClientError, boto.EndpointConnectionError, ResponseParserError) as error:
        raise ServiceUnavailableError(
            f"No {what}: STS does not respond: {reason_in(error)}. {LATER}"
        ) from error
    except boto.BotoCoreError as error:
        raise InternalError(f"No {what}: {type(error).__name__}: {reason_in(error)}") from error
    except OSError as error:
        raise ServiceUnavailableError(
            f"No {what}: web_identity_token_file cannot be read: {error.strerror}"
        ) from error


def _to_error(error: ClientError, what: str) -> LanceNamespaceError:
    code = str(error.response.get("Error", {}).get("Code", ""))
    text = reason_in(error.response.get("Error", {}).get("Message", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if any(each in text for each in _CLOCK_TEXTS):
        code = _CLOCK[0]
    error_type, advice = _BY_CODE.get(code) or _classify_status(status)
    said = f"{code}: {text}" if text else code or f"HTTP status {status}"
    return error_type(f"No {what}: STS returned {said}" + (f". {advice}" if advice else ""))


def _classify_status(status: int) -> tuple[type[LanceNamespaceError], str]:
    if status in (404, 405, 501):
        return _BY_CODE[_MISSING[0]]
    if status in (401, 403):
        return _BY_CODE[_REFUSED[0]]
    if status == 429:
        return _BY_CODE[_THROTTLED[0]]
    return (ServiceUnavailableError, "") if status >= 500 else (InternalError, "")

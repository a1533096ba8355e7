"""Calls to AWS STS with boto3, and the translation of its errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore import UNSIGNED
from botocore import exceptions as boto
from botocore.config import Config
from botocore.parsers import ResponseParserError
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

from lance_bridge.errors import reason_in
from lance_bridge.forks import restart_in_children
from lance_bridge.storage_options import s3_endpoint

from . import CLOCK, LATER

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
_NO_ANSWER = (
    boto.HTTPClientError,
    boto.EndpointConnectionError,
    ResponseParserError,
)


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
        try:
            return str(self._own_session().get_partition_for_region(self.region))
        except boto.UnknownRegionError as error:
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
        if self._session is None:
            self._session = boto3.Session(region_name=self.region)
        return self._session

    def _client(self) -> Any:
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
    try:
        yield
    except boto.ClientError as error:
        raise _to_error(error, what) from error
    except (boto.NoCredentialsError, boto.PartialCredentialsError) as error:
        raise PermissionDeniedError(
            f"No {what}: there are no credentials to assume the role with. Set storage.aws_*, or "
            "what AWS's tools read from the environment"
        ) from error
    except _NO_ANSWER as error:
        raise ServiceUnavailableError(
            f"No {what}: STS does not respond: {reason_in(error)}. {LATER}"
        ) from error
    except boto.BotoCoreError as error:
        raise InternalError(f"No {what}: {type(error).__name__}: {reason_in(error)}") from error
    except OSError as error:
        raise ServiceUnavailableError(
            f"No {what}: web_identity_token_file cannot be read: {error.strerror}"
        ) from error


def _to_error(error: boto.ClientError, what: str) -> LanceNamespaceError:
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

"""Translates errors of Glue and botocore to those of the Lance namespace.

The meaning of "not found" and "already exists" depends on the call: `catalog.py` handles those;
this module translates all others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from botocore import exceptions as boto
from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
    ThrottlingError,
    UnauthenticatedError,
    UnsupportedOperationError,
)

from lance_bridge.errors import ObjectUnavailableError, OutcomeUnknownError, reason_in

ABSENT = "EntityNotFoundException"
CHANGED = "ConcurrentModificationException"
_FEDERATION = "FederationSourceException"
_QUOTA = "ResourceNumberLimitExceededException"
_BAD_SIGNATURE = ("InvalidSignatureException", "SignatureDoesNotMatch")
UNAUTHENTICATED = (
    *_BAD_SIGNATURE, "ExpiredTokenException", "ExpiredToken", "RequestExpired",
    "UnrecognizedClientException", "InvalidClientTokenId", "InvalidCredentialsException",
    "MissingAuthenticationToken", "MissingAuthenticationTokenException",
    "IncompleteSignature", "IncompleteSignatureException", "AuthFailure", "OptInRequired",
    "NotAuthorized",
)  # fmt: skip
ADVICE = "LanceBridgeAdvice"
"""The key in a reply for a sentence that its error ends with."""
_UNKNOWN_OPERATION = ("UnknownOperationException", "InvalidAction")

_BY_CODE: dict[str, type[LanceNamespaceError]] = {
    **dict.fromkeys(
        ("AccessDeniedException", "AccessDenied", "AccessDeniedFault", "UnauthorizedOperation"),
        PermissionDeniedError,
    ),
    **dict.fromkeys(UNAUTHENTICATED, UnauthenticatedError),
    **dict.fromkeys(
        (
            "ThrottlingException", "Throttling", "ThrottledException", "RequestThrottled",
            "RequestThrottledException", "RequestLimitExceeded", "TooManyRequestsException",
            "TooManyRequests", "SlowDown", "LimitExceededException",
        ),
        ThrottlingError,
    ),
    **dict.fromkeys(
        ("InvalidInputException", "ValidationException", "ValidationError"),
        InvalidInputError,
    ),
    **dict.fromkeys(
        (
            "OperationTimeoutException", "RequestTimeout", "ServiceUnavailable",
            "ServiceUnavailableException", "ResourceNotReadyException",
            "FederationSourceRetryableException",
        ),
        ServiceUnavailableError,
    ),
    **dict.fromkeys(
        (*_UNKNOWN_OPERATION, "OperationNotSupportedException"),
        UnsupportedOperationError,
    ),
    CHANGED: ConcurrentModificationError,
    _QUOTA: ThrottlingError,
}  # fmt: skip

_BY_STATUS: dict[int, type[LanceNamespaceError]] = {
    401: UnauthenticatedError, 403: PermissionDeniedError, 408: ServiceUnavailableError,
    429: ThrottlingError, 502: ServiceUnavailableError, 503: ServiceUnavailableError,
    504: ServiceUnavailableError,
}  # fmt: skip

_NO_CREDENTIALS = (
    boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError,
    boto.TokenRetrievalError, boto.NoAuthTokenError, boto.UnknownCredentialError,
    boto.RefreshWithMFAUnsupportedError, boto.MetadataRetrievalError, boto.SSOError,
    getattr(boto, "LoginError", boto.SSOError),  # not in every release that is supported
)  # fmt: skip
_BAD_CONFIGURATION = (
    boto.ParamValidationError, boto.ValidationError, boto.InvalidConfigError, boto.ConfigNotFound,
    boto.ConfigParseError, boto.ProfileNotFound, boto.BaseEndpointResolverError,
    boto.EndpointProviderError, boto.InvalidEndpointConfigurationError,
    boto.InvalidRetryConfigurationError, boto.MissingDependencyException, boto.UnknownRegionError,
)  # fmt: skip
_UNREACHABLE = (boto.ConnectionError, boto.HTTPClientError, boto.IncompleteReadError)

_NOT_ALLOWED = re.compile(r"not authorized to perform: ?([\w-]+:\w+)")
_LAKE_FORMATION = re.compile(r"Lake ?Formation|does not have any privilege", re.I)
_STILL_EXPIRED = "still expired"


class LostReplyError(Exception):
    """A change may have been made, but its reply was lost. Holds the name of the operation."""


class UnreadableReplyError(Exception):
    """A reply does not fit its operation. Holds the name of the operation."""


def is_a(error: BaseException, *codes: str) -> bool:
    """Return True if Glue answered with one of these error codes."""
    return isinstance(error, boto.ClientError) and code_of(error) in codes


def code_of(error: boto.ClientError) -> str:
    """Return the code of an error; for a federated source, the code of the source."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    return (
        str(error.response.get("FederationSourceErrorCode") or code)
        if code == _FEDERATION
        else code
    )


def is_unknown_operation(error: boto.ClientError) -> bool:
    """Return True if a server does not implement the operation.

    AWS documents codes for it, and HTTP the status 501. A status 500 of AWS means a failure.
    """
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return code_of(error) in _UNKNOWN_OPERATION or status == 501 or _is_moto_error_page(error)


def _is_moto_error_page(error: boto.ClientError) -> bool:
    """Return True for the reply of moto's server to an operation that it does not implement.

    moto raises NotImplementedError, and werkzeug serves its page for status 500. AWS sends an error
    code and a request id with every error.
    """
    metadata: Mapping[str, Any] = error.response.get("ResponseMetadata", {})
    headers: Mapping[str, str] = metadata.get("HTTPHeaders", {})
    return (
        metadata.get("HTTPStatusCode") == 500
        and code_of(error) == "500"  # botocore's, if the reply has no code
        and "x-amzn-requestid" not in headers
        and headers.get("server", "").startswith("Werkzeug/")
        and headers.get("content-type", "").startswith("text/html")
    )


def safe_cause(error: Exception) -> Exception | None:
    """Return an error as the cause of another, or None if it contains a secret.

    AWS's message about a bad signature repeats the request, with its session token.
    """
    return None if is_a(error, *_BAD_SIGNATURE) else error


@contextmanager
def map_errors(errors: Mapping[str, LanceNamespaceError]) -> Iterator[None]:
    """Raise the errors that error codes mean for this call; others pass."""
    try:
        yield
    except boto.ClientError as error:
        meant = errors.get(code_of(error))
        if meant is None:
            raise
        raise meant from error


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Translate every error of botocore to one of the library.

    Args:
        what: The action, with its object: "create table 'db.t'".
    """
    try:
        yield
    except LostReplyError as error:
        reason = f": {reason_in(error.__cause__)}" if error.__cause__ is not None else ""
        raise OutcomeUnknownError(
            f"The reply to {error}, sent to {what}, was lost, so the change may or may not have "
            f"happened{reason}"
        ) from error
    except UnreadableReplyError as error:
        raise InternalError(f"Glue's reply to the request to {what} cannot be read") from error
    except boto.ClientError as error:
        raise _from_client_error(error, what) from safe_cause(error)
    except boto.BotoCoreError as error:
        raise _from_botocore_error(error, what) from error
    except RuntimeError as error:
        if _STILL_EXPIRED not in str(error):
            raise
        raise UnauthenticatedError(f"Credentials could not be refreshed to {what}") from error


def _from_client_error(error: boto.ClientError, what: str) -> LanceNamespaceError:
    response: Mapping[str, Any] = error.response
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    error_type = _BY_CODE.get(code_of(error)) or _BY_STATUS.get(status) or InternalError
    is_of_source = str(response.get("Error", {}).get("Code", "")).startswith("FederationSource")
    if error_type in (ServiceUnavailableError, UnauthenticatedError) and is_of_source:
        error_type = ObjectUnavailableError  # Glue itself responds
    text = reason_in(response.get("Error", {}).get("Message") or f"HTTP status {status}")
    renewal = f". {response[ADVICE]}" if response.get(ADVICE) else ""
    if error.operation_name == "AssumeRole":
        return error_type(
            f"The role could not be assumed to {what}: {text}. Check assume_role_arn, "
            f"assume_role_external_id and the role's trust policy{renewal}"
        )
    # Glue also returns this if it may not use an encryption key.
    if error_type is PermissionDeniedError or (
        error_type is InternalError and _NOT_ALLOWED.search(text)
    ):
        return PermissionDeniedError(_permission_message(what, text))
    advice = {
        UnauthenticatedError: ". Check the credentials: they are wrong, incomplete or expired",
        ThrottlingError: ". Repeat it later, or raise max_retries",
    }.get(error_type, "")
    if code_of(error) == _QUOTA:
        advice = ". A quota of the account is used up: have it raised, or clean up"
    verb = "cannot" if error_type is InvalidInputError else "failed to"
    return error_type(f"Glue {verb} {what}: {code_of(error)}: {text}{advice}{renewal}")


def _permission_message(what: str, text: str) -> str:
    """Return a message that names the service that refused: IAM, or Lake Formation."""
    action = _NOT_ALLOWED.search(text)
    if action:
        return (
            f"IAM does not allow the caller to {what}: {text}. Its policies must allow "
            f"{action[1]} on the catalog, the database and the table"
        )
    if _LAKE_FORMATION.search(text):
        return (
            f"Lake Formation does not allow the caller to {what}: {text}. The permission must be "
            "granted in Lake Formation; a policy of IAM does not help"
        )
    return f"AWS refused to {what}: {text}"


def _from_botocore_error(error: boto.BotoCoreError, what: str) -> LanceNamespaceError:
    text = reason_in(error)
    if isinstance(error, _NO_CREDENTIALS):
        return UnauthenticatedError(
            f"There are no credentials to {what}: {text}. Set access_key_id and "
            "secret_access_key, profile_name, or what AWS's tools read from the environment"
        )
    if isinstance(error, _BAD_CONFIGURATION):
        return InvalidInputError(f"The request to {what} cannot be sent: {text}")
    if isinstance(error, _UNREACHABLE):
        return ServiceUnavailableError(
            f"Glue could not be reached to {what}: {text}. Try again, or check region and endpoint"
        )
    return InternalError(f"The request to {what} failed: {type(error).__name__}: {text}")

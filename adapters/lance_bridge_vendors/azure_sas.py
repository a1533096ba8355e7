"""User delegation keys of Azure's storage, and the signatures that are made with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import Any

from azure.core.exceptions import (
    AzureError,
    DecodeError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.identity import (
    ClientSecretCredential,
    CredentialUnavailableError,
    DefaultAzureCredential,
)
from azure.storage.blob import BlobServiceClient
from azure.storage.filedatalake import generate_directory_sas
from lance_namespace.errors import PermissionDeniedError, ServiceUnavailableError

from lance_bridge.credentials import Grant

from .common import CLOCK, Refusals, first_line

_LIMITS = {
    "connection_timeout": 3, "read_timeout": 8, "retry_total": 1, "retry_backoff_factor": 0.5,
    "initial_backoff": 0, "increment_base": 1, "random_jitter_range": 0,
}  # fmt: skip
"""Seconds and attempts: a service that does not answer is given up within half a minute."""
_READ = "rl"
_WRITE = "rcwdl"
_SKEW = timedelta(minutes=5)
"""By how much clocks may differ: signatures of so short a life could not be used."""
_NO_ANSWER_TEXTS = ("ConnectionPool", "Connection aborted", "timed out")
_REFUSALS = Refusals(
    "Azure",
    clock=("AADSTS700024", "AADSTS50013", "RequestTimeTooSkewed"),
    throttled=("ServerBusy", "AADSTS50196", "AADSTS90055", "TooManyRequests"),
    refused=("AADSTS", "failed to retrieve a token", "Authentication"),
    advice="The vendor's own identity needs the role Storage Blob Delegator, and those roles by "
    "which it reads and writes the tables",
    addresses="account_name and endpoint",
)


class DelegationKeys:
    """Asks an account for keys. Safe to share between threads."""

    def __init__(self, endpoint: str, principal: Mapping[str, str]) -> None:
        """Make the client, without a call.

        Args:
            principal: ``tenant_id``, ``client_id`` and ``client_secret`` to ask with; without all
                of them, what Azure's tools find.
        """
        credential: Any = (
            ClientSecretCredential(**principal, **_LIMITS)
            if len(principal) == 3
            else DefaultAzureCredential(**_LIMITS)
        )
        self._client = BlobServiceClient(endpoint, credential=credential, **_LIMITS)

    def get(self, seconds: int, what: str) -> tuple[Any, datetime]:
        """Return a new key, and when it expires.

        Args:
            seconds: How long it is good.
            what: What is wanted, for messages.

        Raises what `translate_errors` does.
        """
        now = datetime.now(timezone.utc).replace(microsecond=0)
        expires = now + timedelta(seconds=seconds)
        dates: list[str] = []
        with translate_errors(what, dates):
            key = self._client.get_user_delegation_key(
                now - _SKEW, expires,
                raw_response_hook=lambda answer: dates.append(
                    answer.http_response.headers.get("Date", "")
                ),
            )  # fmt: skip
        if _differs(dates):
            raise _wrong_clock(what)
        return key, expires


def directory_signature(key: Any, account: str, grant: Grant, expires: datetime) -> str:
    """Return a shared access signature for a table's directory, which a key signs."""
    # It has no time when it begins: that is when the service gets it, whatever our clock says.
    return str(
        generate_directory_sas(
            account,
            grant.bucket,
            grant.prefix,
            key,
            permission=_WRITE if grant.write else _READ,
            expiry=expires,
            protocol="https",
        )
    )


@contextmanager
def translate_errors(what: str, dates: list[str]) -> Iterator[None]:
    """Raise what Azure refuses as an error of the namespace.

    Args:
        what: What is wanted, for the message.
        dates: The times of its answers, by its own clock.

    Raises:
        PermissionDeniedError: (15) Azure refuses, or there are no credentials to ask with.
        ThrottlingError: (21)
        ServiceUnavailableError: (17) it does not answer, or clocks differ.
        UnsupportedOperationError: (0) there is no such service at the address.
        InternalError: (18) anything else.
    """
    try:
        yield
    except AzureError as error:
        if _differs(dates):
            raise _wrong_clock(what) from error
        raise _of_azure(error, what) from error


def _of_azure(error: AzureError, what: str) -> Exception:
    text = first_line(error.message)
    if isinstance(error, CredentialUnavailableError):
        return PermissionDeniedError(
            f"No {what}: there are no credentials to ask Azure with. Set "
            "storage.azure_storage_client_id, _client_secret and _tenant_id, or what Azure's tools "
            f"read from the environment: {text}"
        )
    if _is_unanswered(error) or any(each in str(error) for each in _NO_ANSWER_TEXTS):
        return ServiceUnavailableError(f"No {what}: Azure does not answer: {text}")
    status = error.status_code if isinstance(error, HttpResponseError) else None
    code = getattr(error, "error_code", None)
    if code:
        text = f"{getattr(code, 'value', code)}: {text}"
    return _REFUSALS.to_error(what, status or 0, text)


def _is_unanswered(error: BaseException | None) -> bool:
    """Return whether a service did not answer, or what it said made no sense."""
    while error is not None:
        if isinstance(error, (DecodeError, ServiceRequestError, ServiceResponseError)):
            return True
        error = error.__cause__
    return False


def _differs(dates: list[str]) -> bool:
    if not dates or not dates[-1]:
        return False
    return abs(parsedate_to_datetime(dates[-1]) - datetime.now(timezone.utc)) > _SKEW


def _wrong_clock(what: str) -> ServiceUnavailableError:
    return ServiceUnavailableError(f"No {what}: Azure's clock shows another time. {CLOCK}")

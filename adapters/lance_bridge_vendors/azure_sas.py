"""User delegation keys of Azure Storage, and signatures made with them."""

from __future__ import annotations

import threading
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
from lance_bridge.errors import reason_in
from lance_bridge.forks import restart_in_children

from . import CLOCK, LATER, Refusals

_LIMITS = {
    "connection_timeout": 3, "read_timeout": 8, "retry_total": 1, "retry_backoff_factor": 0.5,
    "initial_backoff": 0, "increment_base": 1, "random_jitter_range": 0,
}  # fmt: skip
"""Timeouts in seconds, and retries: a call without a response fails within half a minute."""
_READ = "rl"
_WRITE = "rcwdl"
_SKEW = timedelta(minutes=5)
"""How much clocks may differ: with a larger skew, short-lived signatures could be unusable."""
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
    """Requests keys from an account. Safe to share between threads, and across a fork."""

    def __init__(self, endpoint: str, principal: Mapping[str, str]) -> None:
        """Create the client, without a call.

        Args:
            principal: ``tenant_id``, ``client_id`` and ``client_secret``; unless all are given,
                `DefaultAzureCredential` is used.
        """
        self._endpoint, self._principal = endpoint, principal
        self.restart_in_child()
        self._client()
        restart_in_children(self)

    def restart_in_child(self) -> None:
        """Implement `Restartable`."""
        self._lock = threading.Lock()
        self._cached_client: BlobServiceClient | None = None

    def _client(self) -> BlobServiceClient:
        with self._lock:
            if self._cached_client is None:
                credential: Any = (
                    ClientSecretCredential(**self._principal, **_LIMITS)
                    if len(self._principal) == 3
                    else DefaultAzureCredential(**_LIMITS)
                )
                self._cached_client = BlobServiceClient(
                    self._endpoint, credential=credential, **_LIMITS
                )
            return self._cached_client

    def get(self, seconds: int, what: str) -> tuple[Any, datetime]:
        """Return a new key and its expiry time.

        Args:
            seconds: The lifetime of the key.
            what: What is requested, for messages.

        Raises the errors of `translate_errors`.
        """
        now = datetime.now(timezone.utc).replace(microsecond=0)
        expires = now + timedelta(seconds=seconds)
        dates: list[str] = []
        with translate_errors(what, dates):
            key = self._client().get_user_delegation_key(
                now - _SKEW, expires,
                raw_response_hook=lambda answer: dates.append(
                    answer.http_response.headers.get("Date", "")
                ),
            )  # fmt: skip
        if _clock_differs(dates):
            raise _wrong_clock_error(what)
        return key, expires


def directory_signature(key: Any, account: str, grant: Grant, expires: datetime) -> str:
    """Return a shared access signature for a table's directory, signed with a key."""
    # Without a start time it is valid at once, even if our clock is ahead of the service's.
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
    """Translate errors of Azure into errors of the namespace.

    Args:
        what: What is requested, for the message.
        dates: The ``Date`` headers of its responses.

    Raises:
        PermissionDeniedError: (15) Azure refuses, or no credentials are configured.
        ThrottlingError: (21)
        ServiceUnavailableError: (17) it does not respond, or clocks differ.
        UnsupportedOperationError: (0) there is no such service at the address.
        InternalError: (18) anything else.
    """
    try:
        yield
    except AzureError as error:
        if _clock_differs(dates):
            raise _wrong_clock_error(what) from error
        raise _to_error(error, what) from error


def _to_error(error: AzureError, what: str) -> Exception:
    text = reason_in(error.message)
    if isinstance(error, CredentialUnavailableError):
        return PermissionDeniedError(
            f"No {what}: there are no credentials to ask Azure with. Set "
            "storage.azure_storage_client_id, _client_secret and _tenant_id, or what Azure's tools "
            f"read from the environment: {text}"
        )
    if _has_no_response(error) or any(each in str(error) for each in _NO_ANSWER_TEXTS):
        return ServiceUnavailableError(f"No {what}: Azure does not respond: {text}. {LATER}")
    status = error.status_code if isinstance(error, HttpResponseError) else None
    code = getattr(error, "error_code", None)
    if code:
        text = f"{getattr(code, 'value', code)}: {text}"
    return _REFUSALS.to_error(what, status or 0, text)


def _has_no_response(error: BaseException | None) -> bool:
    """Return whether a service did not respond, or its response cannot be parsed."""
    while error is not None:
        if isinstance(error, (DecodeError, ServiceRequestError, ServiceResponseError)):
            return True
        error = error.__cause__
    return False


def _clock_differs(dates: list[str]) -> bool:
    if not dates or not dates[-1]:
        return False
    return abs(parsedate_to_datetime(dates[-1]) - datetime.now(timezone.utc)) > _SKEW


def _wrong_clock_error(what: str) -> ServiceUnavailableError:
    return ServiceUnavailableError(f"No {what}: Azure's clock shows another time. {CLOCK}")

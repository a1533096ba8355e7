"""Azure: a shared access signature for one table's directory, made with a user delegation key.

The account must have a hierarchical namespace: otherwise Azure refuses signatures for directories,
and a signature for the container would allow access to all tables in it. A signature cannot exclude
file names, so a client that may write to a table can also create its versions.
"""

# What the extra installs is imported when a vendor is made: options are also read without it.
# ruff: noqa: PLC0415

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, ClassVar

from lance_namespace.errors import PermissionDeniedError, ServiceUnavailableError
from pydantic import Field, field_validator

from lance_bridge import extras
from lance_bridge.credentials import Grant, Vendor, VendorOptions, expiring_options
from lance_bridge.errors import display, reason_in
from lance_bridge.forks import restart_in_children
from lance_bridge.storage_options import options_of_store

from . import CLOCK, HTTPS_URL, LATER, Refusals, without_slash

if TYPE_CHECKING:
    from azure.core.exceptions import AzureError
    from azure.storage.blob import BlobServiceClient

_ACCOUNT = r"^[a-z0-9]{3,24}$"
_OWN = ("tenant_id", "client_id", "client_secret")
_MAX_SECONDS = 604_500
"""Azure's limit of seven days for a key, minus `_SKEW`."""


class AzureOptions(VendorOptions):
    """The options of ``credentials.vendor=azure``."""

    holds_secrets: ClassVar[bool] = False

    account_name: str | None = Field(
        default=None,
        pattern=_ACCOUNT,
        description="The storage account of the tables. By default "
        "`storage.azure_storage_account_name`.",
    )
    duration_seconds: int = Field(
        default=3600,
        ge=60,
        le=_MAX_SECONDS,
        description="The lifetime of credentials in seconds. Issued credentials keep a "
        "revoked right until they expire.",
    )
    endpoint: str | None = Field(
        default=None, pattern=HTTPS_URL,
        description="The address of the account's Blob service, if it is not "
        "`https://<account_name>.blob.core.windows.net`. It is returned with the credentials.",
    )  # fmt: skip

    _has_no_slash = field_validator("endpoint")(without_slash)


class AzureVendor(Vendor):
    """Vends shared access signatures."""

    options_type = AzureOptions
    stores = frozenset({"az"})
    options: AzureOptions

    def __init__(self, options: AzureOptions, storage: Mapping[str, str]) -> None:
        super().__init__(options, storage)
        extras.require("vend-azure", "azure.identity", "azure.storage.filedatalake")

        own = options_of_store(storage, "azure")
        account = options.account_name or own.get("account_name")
        if not account:
            raise ValueError("set account_name: storage.azure_storage_account_name has none")
        self._account = account
        self._keys = DelegationKeys(
            options.endpoint or f"https://{account}.blob.core.windows.net",
            {key: own[key] for key in _OWN if key in own},
        )

    def vend(self, grant: Grant) -> Mapping[str, str]:
        """Return a signature that is limited to the grant."""
        what = f"credentials for table '{display(grant.table)}'"
        if grant.account not in (None, self._account):
            raise PermissionDeniedError(
                f"No {what}: it is in the storage account '{grant.account}', and the vendor is for "
                f"'{self._account}'"
            )
        key, expires = self._keys.get(self.options.duration_seconds, what)
        signature = directory_signature(key, self._account, grant, expires)
        vended = {
            "azure_storage_account_name": self._account,
            "azure_storage_sas_token": signature,
        }
        if self.options.endpoint:
            vended["azure_storage_endpoint"] = self.options.endpoint
        return expiring_options(vended, expires.timestamp())


# -- signatures ------------------------------------------------------------------------------------


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
        from azure.identity import ClientSecretCredential, DefaultAzureCredential
        from azure.storage.blob import BlobServiceClient

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
    from azure.storage.filedatalake import generate_directory_sas

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
    from azure.core.exceptions import AzureError

    try:
        yield
    except AzureError as error:
        if _clock_differs(dates):
            raise _wrong_clock_error(what) from error
        raise _to_error(error, what) from error


def _to_error(error: AzureError, what: str) -> Exception:
    from azure.core.exceptions import HttpResponseError
    from azure.identity import CredentialUnavailableError

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
    from azure.core.exceptions import DecodeError, ServiceRequestError, ServiceResponseError

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

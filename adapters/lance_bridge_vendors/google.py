"""Google: an access token with a credential access boundary that limits it to one table's objects.

In a bucket with a hierarchical namespace, creating objects requires rights to folders, which the
boundary does not include: use buckets without one for tables that are written to.
"""

# What the extra installs is imported when a vendor is made: options are also read without it.
# ruff: noqa: PLC0415

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timezone
from pathlib import Path
from typing import Any, ClassVar

from lance_namespace.errors import (
    InvalidTableStateError,
    PermissionDeniedError,
    ServiceUnavailableError,
)
from pydantic import Field, field_validator

from lance_bridge import extras
from lance_bridge.credentials import Grant, Vendor, VendorOptions, expiring_options
from lance_bridge.errors import display, reason_in
from lance_bridge.forks import restart_in_children
from lance_bridge.storage_options import options_of_store

from . import LATER, URL, Refusals, without_slash

_KEY = "service_account_key"
_KEY_FILES = ("service_account", "service_account_path", "application_credentials")
_MAX_SECONDS = 43_200
MAX_CHARACTERS = 2048
"""Google's limit for a condition."""
_READ = "inRole:roles/storage.objectViewer"
_WRITE = "inRole:roles/storage.objectUser"
"""Unlike ``storage.objectAdmin``, it does not allow changing who may read an object."""
_CATALOG_FILES = (".manifest", ".batch.json", "/.manager.json")
"""Endings of files that only the catalog writes in a governed table: manifests, records of batches,
and the file that says which entry manages the versions."""


class GoogleOptions(VendorOptions):
    """The options of ``credentials.vendor=google``."""

    holds_secrets: ClassVar[bool] = False

    service_account: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9-]+@[a-z0-9.-]+\.gserviceaccount\.com$",
        description="The service account whose tokens clients get, each limited to one table. The "
        "vendor's own account needs the role Service Account Token Creator on it. By default, the "
        "vendor's own account.",
    )
    duration_seconds: int = Field(
        default=3600,
        ge=60,
        le=_MAX_SECONDS,
        description="The lifetime of credentials in seconds. Google allows more than 3600 only by "
        "a policy of the organization. Without `service_account`, credentials have the lifetime of "
        "the token of the vendor's own account, at most an hour. Issued credentials keep a "
        "revoked right until they expire.",
    )
    sts_endpoint: str = Field(
        default="https://sts.googleapis.com", pattern=URL,
        description="The address of Google's Security Token Service.",
    )  # fmt: skip
    iam_endpoint: str = Field(
        default="https://iamcredentials.googleapis.com", pattern=URL,
        description="The address of Google's service that creates tokens of `service_account`.",
    )  # fmt: skip

    _has_no_slash = field_validator("sts_endpoint", "iam_endpoint")(without_slash)


class GoogleVendor(Vendor):
    """Vends downscoped access tokens."""

    options_type = GoogleOptions
    stores = frozenset({"gs"})
    options: GoogleOptions

    def __init__(self, options: GoogleOptions, storage: Mapping[str, str]) -> None:
        super().__init__(options, storage)
        extras.require("vend-google", "google.auth", "requests")

        self._service = TokenService(
            own_key(storage),
            options.sts_endpoint,
            options.iam_endpoint,
            options.service_account,
            options.duration_seconds,
        )

    def vend(self, grant: Grant) -> Mapping[str, str]:
        """Return a token that is limited to the grant."""
        what = f"credentials for table '{display(grant.table)}'"
        boundary = access_boundary(grant)
        if max(map(len, conditions(boundary))) > MAX_CHARACTERS:
            raise InvalidTableStateError(
                f"No {what}: its location is too long for a condition, which has at most "
                f"{MAX_CHARACTERS} characters. Give the table a shorter one"
            )
        token, expires = self._service.token(boundary, what)
        return expiring_options({"google_storage_token": token}, expires)


def own_key(storage: Mapping[str, str]) -> Mapping[str, Any] | None:
    """Return the service account key in ``storage.*``, or in a file that it names.

    Raises:
        ValueError: it cannot be read, or is not a service account key.
    """
    own = options_of_store(storage, "google")
    file = next((own[each] for each in _KEY_FILES if each in own), None)
    text = own.get(_KEY)
    if text is None and file is None:
        return None
    try:
        found = json.loads(text if text is not None else Path(str(file)).read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError:
        raise ValueError("the service account's key in storage.google_* is not JSON") from None
    if not isinstance(found, dict) or found.get("type") != "service_account":
        raise ValueError(
            "storage.google_* has credentials that are no service account's key: leave them out, "
            "and set GOOGLE_APPLICATION_CREDENTIALS"
        )
    return found


# -- credential access boundaries ------------------------------------------------------------------
# A token's rights are the intersection of its owner's and the boundary's. Sources: Google's
# "Credential Access Boundaries" and "AccessBoundary", and the strings of the Common Expression
# Language (CEL), whose escapes are those of JSON.


def access_boundary(grant: Grant) -> dict[str, Any]:
    """Return the boundary for a grant, in the form that the Security Token Service takes."""
    bucket = f"projects/_/buckets/{grant.bucket}"
    objects = f"resource.name.startsWith({literal(f'{bucket}/objects/{grant.prefix}/')})"
    listing = (
        'api.getAttribute("storage.googleapis.com/objectListPrefix", "").startsWith('
        f"{literal(f'{grant.prefix}/')})"
    )
    below = f"{objects} || {listing}"
    if not grant.write:
        rules = {_READ: below}
    elif grant.governed:
        # A condition cannot deny what another rule allows: the only write rule excludes these.
        others = "".join(f" && !resource.name.endsWith({literal(each)})" for each in _CATALOG_FILES)
        rules = {_READ: below, _WRITE: f"{objects}{others}"}
    else:
        rules = {_WRITE: below}
    return {
        "accessBoundary": {
            "accessBoundaryRules": [
                {
                    "availableResource": f"//storage.googleapis.com/{bucket}",
                    "availablePermissions": [role],
                    "availabilityCondition": {"expression": condition},
                }
                for role, condition in rules.items()
            ]
        }
    }


def conditions(boundary: dict[str, Any]) -> list[str]:
    """Return the conditions of a boundary's rules."""
    rules = boundary["accessBoundary"]["accessBoundaryRules"]
    return [each["availabilityCondition"]["expression"] for each in rules]


def literal(text: str) -> str:
    """Return a text as a quoted CEL string."""
    # ASCII escapes would split characters beyond U+FFFF in two, which CEL refuses.
    return json.dumps(text, ensure_ascii=False)


# -- tokens ----------------------------------------------------------------------------------------


_SECONDS = 8
"""The timeout of each call: without responses, all calls fail within half a minute."""
_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
_REFUSALS = Refusals(
    "Google",
    clock=("reasonable timeframe", "iat and exp"),
    throttled=("RESOURCE_EXHAUSTED", "rateLimitExceeded"),
    refused=("invalid_grant", "unauthorized_client", "access_denied", "invalid_client"),
    advice="Check service_account, the roles of the vendor's own account, and its credentials",
    addresses="service_account, sts_endpoint and iam_endpoint",
)


class TokenService:
    """Creates access tokens with a boundary. Safe to share between threads, and across a fork.

    Each request has connections of its own.
    """

    def __init__(
        self,
        key: Mapping[str, Any] | None,
        sts_endpoint: str,
        iam_endpoint: str,
        target: str | None,
        seconds: int,
    ) -> None:
        """Read the vendor's own key, without a call.

        Args:
            key: A service account key; None for Google's application default credentials.
            target: The service account whose tokens are limited; None for the vendor's own.
            seconds: The lifetime of a target's tokens.

        Raises:
            ValueError: the key is malformed.
        """
        from google.oauth2 import service_account, sts

        self._sts = sts.Client(f"{sts_endpoint}/v1/token")
        self._iam_endpoint, self._target, self._seconds = iam_endpoint, target, seconds
        self.restart_in_child()
        self._own: Any = None
        if key is not None:
            try:
                self._own = service_account.Credentials.from_service_account_info(
                    key, scopes=_SCOPES
                )
            except ValueError as error:
                raise ValueError(f"the service account's key: {reason_in(error)}") from None
        restart_in_children(self)

    def restart_in_child(self) -> None:
        """Implement `Restartable`."""
        self._lock = threading.Lock()

    def token(self, boundary: Mapping[str, Any], what: str) -> tuple[str, float]:
        """Return a token with a boundary, and its expiry time (seconds since 1970).

        Args:
            what: What is requested, for messages.

        Raises the errors of `translate_errors`.
        """
        sent = _BoundedRequest()
        with translate_errors(what, sent):
            source = self._source(sent)
            source.refresh(sent)
            answer = self._sts.exchange_token(
                request=sent,
                grant_type=_EXCHANGE,
                subject_token=source.token,
                subject_token_type=_ACCESS_TOKEN,
                requested_token_type=_ACCESS_TOKEN,
                additional_options=boundary,
            )
            return str(answer["access_token"]), _expiry(source, answer)

    def _source(self, sent: _BoundedRequest) -> Any:
        """Return a copy of the credentials to limit, for this thread alone."""
        import google.auth
        from google.auth import impersonated_credentials

        with self._lock:
            if self._own is None:
                self._own, _ = google.auth.default(scopes=_SCOPES, request=sent)
        own = copy.copy(self._own)
        if self._target is None:
            return own
        account = f"projects/-/serviceAccounts/{self._target}"
        return impersonated_credentials.Credentials(
            own,
            self._target,
            _SCOPES,
            lifetime=self._seconds,
            iam_endpoint_override=f"{self._iam_endpoint}/v1/{account}:generateAccessToken",
        )


def _expiry(source: Any, answer: Mapping[str, Any]) -> float:
    """Return the expiry time of a token: no later than that of its source token.

    Raises:
        ValueError: neither the source nor the response has an expiry time.
    """
    known = []
    if source.expiry is not None:
        known.append(source.expiry.replace(tzinfo=timezone.utc).timestamp())
    if answer.get("expires_in"):
        known.append(time.time() + float(answer["expires_in"]))
    return float(min(known))


class _BoundedRequest:
    """Sends requests of google-auth for one caller, with a time limit."""

    def __init__(self) -> None:
        import requests
        from google.auth.transport.requests import Request

        self._send = Request(requests.Session())
        self.status = 0
        """The status of the last response."""

    def __call__(self, url: str, method: str = "GET", body: Any = None, headers: Any = None,
                 timeout: float | None = None, **more: Any) -> Any:  # fmt: skip
        answer = self._send(
            url, method, body, headers, timeout=min(timeout or _SECONDS, _SECONDS), **more
        )
        self.status = int(answer.status)
        return answer


@contextmanager
def translate_errors(what: str, sent: _BoundedRequest) -> Iterator[None]:
    """Translate errors of Google into errors of the namespace.

    Args:
        what: What is requested, for the message.
        sent: The transport that sends the requests.

    Raises:
        PermissionDeniedError: (15) Google refuses, or no credentials are configured.
        ThrottlingError: (21)
        ServiceUnavailableError: (17) it does not respond, or clocks differ.
        UnsupportedOperationError: (0) there is no such service at the address.
        InternalError: (18) anything else.
    """
    import requests
    from google.auth import exceptions

    try:
        yield
    except exceptions.DefaultCredentialsError as error:
        raise PermissionDeniedError(
            f"No {what}: there are no credentials to ask Google with. Set "
            "storage.google_service_account_key, or what Google's tools read from the environment"
        ) from error
    except (exceptions.TransportError, requests.RequestException) as error:
        raise ServiceUnavailableError(
            f"No {what}: Google does not respond: {reason_in(error)}. {LATER}"
        ) from error
    except exceptions.GoogleAuthError as error:
        raise _REFUSALS.to_error(what, sent.status, reason_in(error)) from error
    except (KeyError, ValueError) as error:
        raise ServiceUnavailableError(
            f"No {what}: Google's response cannot be parsed: {type(error).__name__}"
        ) from error

"""Calls to Google's token services with google-auth, and the translation of their errors."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timezone
from typing import Any

import google.auth
import requests
from google.auth import exceptions, impersonated_credentials
from google.auth.transport.requests import Request
from google.oauth2 import service_account, sts
from lance_namespace.errors import PermissionDeniedError, ServiceUnavailableError

from lance_bridge.errors import reason_in
from lance_bridge.forks import restart_in_children

from . import LATER, Refusals

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

"""Authentication: a fixed token, or credentials that Databricks' SDK finds and refreshes."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass, field

import requests
from databricks.sdk import errors
from databricks.sdk.core import Config
from lance_namespace.errors import UnauthenticatedError

from lance_bridge.forks import restart_in_children
from lance_bridge.secrets import Renewal

from .config import UnityConfig
from .errors import LostReply

_SHOWN = 300
_WORKSPACE_HEADER = "X-Databricks-Workspace-Id"
_CACHE_SECONDS = 1.0
"""How long credentials of the SDK are reused; they are valid for at least 40 seconds."""

_SDK_FAILURES = (OSError, ValueError, NotImplementedError, LookupError, TypeError, AttributeError)
"""What the SDK raises: OSError for its own errors, the others for unexpected replies."""
_OUTAGES = (
    requests.RequestException,
    TimeoutError,
    NotImplementedError,
    LookupError,
    TypeError,
    AttributeError,
    errors.InternalError,
    errors.TooManyRequests,
    errors.TemporarilyUnavailable,
    errors.DeadlineExceeded,
)
_OUTAGE_TEXT = re.compile(
    r"b['\"]|unknown: |unable to parse |(?:server_error|temporarily_unavailable)\b"
)
"""The beginning of the SDK's message for an error of a token server other than a refusal."""


@dataclass(frozen=True)
class Access:
    """The server's address (without a trailing slash), and the headers with credentials."""

    address: str
    headers: dict[str, str] = field(repr=False)
    config: UnityConfig | None = field(default=None, repr=False)
    """The configuration with the secrets from which the headers were made."""


class Login:
    """Provides the address and credentials. Safe to share between threads, and across a fork."""

    def __init__(self, config: UnityConfig) -> None:
        self._config = config
        self._secrets = config.renewal
        self._seconds = config.connect_timeout + config.read_timeout
        self.restart_in_child()
        restart_in_children(self)

    def restart_in_child(self) -> None:
        """Implement `Restartable`: the SDK has locks and connections of its own."""
        self._lock = threading.Lock()
        self._sdk: Config | None = None
        self._access: Access | None = None
        self._good_until = 0.0

    def access(self) -> Access:
        """Return the address and headers for a request; one thread fetches them for all.

        Raises:
            UnauthenticatedError: there are no credentials, or they are refused.
            LostReply: no server answered.
        """
        config = self._secrets.config
        if not config.uses_sdk:
            bearer = config.bearer.get_secret_value() if config.bearer else None
            headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
            return Access(self._config.address or "", headers, config)
        if not self._lock.acquire(timeout=self._seconds):
            raise self._timed_out()
        try:
            if self._access is not None and self._access.config is not self._secrets.config:
                self._access = self._sdk = None
            if self._access is None or time.monotonic() >= self._good_until:
                self._access = None
                self._access = self._authenticate_with_current_secret()
                self._good_until = time.monotonic() + _CACHE_SECONDS
            return self._access
        finally:
            self._lock.release()

    def renew(self, access: Access) -> Renewal:
        """Replace credentials that the server refused."""
        config = access.config or self._config
        if config.bearer or not config.uses_sdk:
            return self._secrets.renew(config)
        with self._lock:
            if self._access is access:  # otherwise another thread has renewed it
                self._access = self._sdk = None
        return Renewal(changed=True, advice="")

    def _authenticate_with_current_secret(self) -> Access:
        """Authenticate; read the secret again if it is refused."""
        config = self._secrets.config
        try:
            return self._authenticate(config)
        except UnauthenticatedError as error:
            renewal = self._secrets.renew(config)
            if not renewal.changed:
                raise _advise(error, renewal) from error.__cause__
        try:
            return self._authenticate(self._secrets.config)
        except UnauthenticatedError as error:
            raise _advise(error, renewal) from error.__cause__

    def _authenticate(self, config: UnityConfig) -> Access:
        """Authenticate with the SDK, within a time limit, which it lacks for tokens."""
        results: list[tuple[Config, Access]] = []
        failures: list[Exception] = []
        known = self._sdk

        def authenticate() -> None:
            try:
                sdk = known or self._sdk_config(config)
                # The configured address: the SDK removes its path.
                address = self._config.address or str(sdk.host).rstrip("/")
                headers = dict(sdk.authenticate())
                if workspace := getattr(sdk, "workspace_id", None):  # missing in older releases
                    headers[_WORKSPACE_HEADER] = workspace
                results.append((sdk, Access(address, headers, config)))
            except _SDK_FAILURES as error:
                failures.append(error)

        # A daemon: a token server that never responds must not keep the process alive.
        worker = threading.Thread(target=authenticate, name="unity-login", daemon=True)
        worker.start()
        worker.join(self._seconds)
        # Discarded after a failure: it may have wrong addresses, or still be waiting.
        self._sdk = None
        if failures:
            raise self._to_error(failures[0]) from failures[0]
        if not results:
            raise self._timed_out()
        self._sdk, access = results[0]
        return access

    def _sdk_config(self, config: UnityConfig) -> Config:
        secret = config.client_secret
        return Config(
            host=self._config.address,
            token=config.bearer.get_secret_value() if config.bearer else None,
            profile=config.profile,
            client_id=config.client_id,
            client_secret=secret.get_secret_value() if secret else None,
            # Otherwise other credentials in the environment would be an error.
            auth_type="pat" if config.bearer else "oauth-m2m" if config.client_id else None,
            http_timeout_seconds=config.read_timeout,
            # The client retries all of this; the SDK accepts whole seconds above zero.
            retry_timeout_seconds=1,
            product="lance-bridge",
        )

    def _to_error(self, error: Exception) -> Exception:
        if _is_outage(error):
            where = f" from {self._config.address}" if self._config.address else ""
            text = f"credentials could not be fetched{where}: {_text(error)}"
            return LostReply(text, sent=False, change=False)
        profile = f" of profile '{self._config.profile}'" if self._config.profile else ""
        return UnauthenticatedError(
            f"Unity Catalog's credentials{profile} are missing or not accepted: {_text(error)}. "
            "Set token, or client_id and client_secret, or profile"
        )

    def _timed_out(self) -> LostReply:
        text = f"credentials could not be fetched within {self._seconds:g} seconds"
        return LostReply(text, sent=False, change=False)


def _advise(error: UnauthenticatedError, renewal: Renewal) -> UnauthenticatedError:
    return UnauthenticatedError(f"{error}. {renewal.advice}") if renewal.advice else error


def _text(error: BaseException) -> str:
    if "Invalid URL 'None'" in str(error):
        return "the server did not say where it issues tokens"
    # The SDK then lists every setting; secrets are masked, but it is long.
    return str(error).split(". Config:")[0].split(". Env:")[0][:_SHOWN]


def _is_outage(error: BaseException) -> bool:
    """Return True if a server sent no readable reply; False if it refused the credentials."""
    if isinstance(error, _OUTAGES) or _OUTAGE_TEXT.match(str(error)):
        return True
    return error.__cause__ is not None and _is_outage(error.__cause__)

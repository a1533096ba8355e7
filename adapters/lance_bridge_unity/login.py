"""Who one is to the server: a fixed token, or what Databricks' SDK finds out and keeps fresh."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import requests
from databricks.sdk.core import Config, DatabricksError
from lance_namespace.errors import UnauthenticatedError

from .config import UnityConfig
from .errors import Lost

T = TypeVar("T")

_SHOWN = 300
_WORKSPACE_HEADER = "X-Databricks-Workspace-Id"


class Login:
    """Gives each request its headers. Safe to share between threads."""

    def __init__(self, config: UnityConfig) -> None:
        self._config = config
        self._seconds = config.connect_timeout + config.read_timeout
        self._lock = threading.Lock()
        self._sdk: Config | None = None

    def address(self) -> str:
        """Return the server's base URL, without a slash at the end.

        Raises what `headers` raises.
        """
        return self._config.address or str(self._found().host).rstrip("/")

    def headers(self) -> dict[str, str]:
        """Return the headers that say who is asking.

        Raises:
            UnauthenticatedError: (16) there are no credentials, or they are refused.
            Lost: nobody answered who could say.
        """
        if not self._config.asks_sdk:
            bearer = self._config.bearer
            return {"Authorization": f"Bearer {bearer.get_secret_value()}"} if bearer else {}
        sdk = self._found()
        if self._config.bearer:  # fixed: nothing to wait for
            headers = dict(sdk.authenticate())
        else:
            headers = dict(self._in_time(sdk.authenticate))
        workspace = getattr(sdk, "workspace_id", None)  # older releases have no such setting
        return {**headers, _WORKSPACE_HEADER: workspace} if workspace else headers

    def _found(self) -> Config:
        if not self._lock.acquire(timeout=self._seconds):
            raise Lost(self._too_late(), sent=False, change=False)
        try:
            if self._sdk is None:
                self._sdk = self._in_time(self._look)
            return self._sdk
        finally:
            self._lock.release()

    def _look(self) -> Config:
        config = self._config
        secret = config.client_secret
        return Config(
            host=config.address,
            token=config.bearer.get_secret_value() if config.bearer else None,
            profile=config.profile,
            client_id=config.client_id,
            client_secret=secret.get_secret_value() if secret else None,
            # Without this, credentials of another kind in the environment would be an error.
            auth_type="pat" if config.bearer else "oauth-m2m" if config.client_id else None,
            http_timeout_seconds=config.read_timeout,
            retry_timeout_seconds=max(1, int(config.retry_timeout)),
            product="lance-bridge",
        )

    def _in_time(self, ask: Callable[[], T]) -> T:
        """Run what may ask servers without a limit of its own; the SDK sets none for tokens."""
        answers: list[T] = []
        failures: list[BaseException] = []

        def run() -> None:
            try:
                answers.append(ask())
            except (ValueError, NotImplementedError, OSError) as error:
                failures.append(error)

        # A daemon: a token server that never answers must not keep the process from ending.
        worker = threading.Thread(target=run, name="unity-login", daemon=True)
        worker.start()
        worker.join(self._seconds)
        if failures:
            raise _explained(failures[0]) from failures[0]
        if not answers:
            raise Lost(self._too_late(), sent=False, change=False)
        return answers[0]

    def _too_late(self) -> str:
        return f"credentials were not found out within {self._seconds:g} seconds"


def _explained(error: BaseException) -> Exception:
    """Tell credentials that were refused from a server that did not answer."""
    # What the SDK adds behind this names every setting; secrets are masked, but it is long.
    text = str(error).split(". Config:")[0].split(". Env:")[0][:_SHOWN]
    cause: BaseException | None = error
    while cause is not None:
        network = isinstance(cause, requests.RequestException | TimeoutError)
        if network and not isinstance(cause, DatabricksError):
            return Lost(f"credentials could not be found out: {text}", sent=False, change=False)
        cause = cause.__cause__
    return UnauthenticatedError(f"Unity Catalog's credentials were not accepted: {text}")

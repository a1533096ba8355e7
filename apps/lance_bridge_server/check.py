"""``lance-bridge serve --check``: whether the catalogs and identity providers respond."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import anyio
from lance_namespace import LanceNamespace
from lance_namespace.errors import LanceNamespaceError

from lance_bridge.errors import internal

from .authentication.oidc import OidcTokens
from .configuration.authentication import OidcSettings
from .configuration.settings import ServerSettings
from .monitoring.health import probe
from .secret_values import hide_secrets


def check(
    settings: ServerSettings, catalogs: Mapping[str, LanceNamespace], seconds: float
) -> list[dict[str, str]]:
    """Call every catalog and identity provider once, all of them concurrently.

    Args:
        seconds: How long they may take.

    Returns:
        The type and name of each, and its problem, which is empty if it responds.
    """
    asked: dict[tuple[str, str], Callable[[], Any]] = {
        ("catalog", name): partial(_require_answer, each) for name, each in catalogs.items()
    }
    for method in settings.authentication:
        if isinstance(method, OidcSettings):
            asked["issuer", method.issuer] = partial(_fetch_keys, method.make())
    problems = _run_all(asked, seconds)
    return [
        {"type": kind, "name": name, "problem": hide_secrets(problems[kind, name])}
        for kind, name in asked
    ]


def _require_answer(namespace: LanceNamespace) -> None:
    error = probe(namespace)
    if error is not None:
        raise error


def _fetch_keys(tokens: OidcTokens) -> None:
    anyio.run(tokens.keys.fetch)


def _run_all(
    calls: Mapping[tuple[str, str], Callable[[], Any]], seconds: float
) -> dict[tuple[str, str], str]:
    """Run calls in threads, and return the problem of each. Abandon calls that take too long."""
    done: queue.Queue[tuple[tuple[str, str], str]] = queue.Queue()
    for key, call in calls.items():
        threading.Thread(target=_run, args=(key, call, done), daemon=True).start()
    problems = dict.fromkeys(calls, f"no response within {seconds:g} s")
    deadline = time.monotonic() + seconds
    for _ in calls:
        try:
            key, problem = done.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        problems[key] = problem
    return problems


def _run(key: tuple[str, str], call: Callable[[], Any], done: queue.Queue[Any]) -> None:
    try:
        call()
    except LanceNamespaceError as error:
        done.put((key, str(error)))
    except BaseException as error:  # noqa: BLE001 - other libraries' namespaces raise anything
        done.put((key, str(internal("The call", error))))
    else:
        done.put((key, ""))

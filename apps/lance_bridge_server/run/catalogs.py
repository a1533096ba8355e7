"""Creates the namespace that a server serves from the catalogs of its configuration."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import anyio
from lance_namespace import LanceNamespace
from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from lance_bridge.config import config_path, named_catalogs, property_texts
from lance_bridge.errors import internal, invalid
from lance_bridge.namespace import LanceBridgeNamespace
from lance_bridge.registry import connect_configured, find, is_implementation
from lance_bridge.storage_options import option_names
from lance_bridge_federated import FederatedNamespace

from ..access.oidc import OidcTokens
from ..config import OidcSettings, ServerSettings
from ..gateway.callers import CallerNamespaces, RootNamespaces
from ..gateway.health import probe
from ..redaction import (
    HOSTS,
    SECRETS,
    PublicAnswers,
    hide_renewed_secrets,
    hide_secrets,
    hosts_of,
    secrets_of,
)

_PUBLIC = "credentials.public-options"

Properties = Mapping[str, Mapping[str, str]]
"""Properties by catalog."""


def connect_catalogs(settings: ServerSettings, given: Properties) -> dict[str, LanceNamespace]:
    """Connect to the catalogs of a server. No catalog is called.

    Args:
        given: Properties that override those of the configuration and of the environment.

    Raises:
        InvalidInputError: (13) a catalog or one of its properties is unknown or wrong.
        UnsupportedOperationError: (0) a catalog needs an extra that is not installed.
    """
    for name in given:
        if name not in settings.catalogs:
            raise invalid(f"Cannot set a property of catalog '{name}': there is no such catalog")
    return {
        name: _connect(name, entry, given.get(name, {}), settings.public_storage_options)
        for name, entry in settings.catalogs.items()
    }


def connect_callers(
    settings: ServerSettings, given: Properties, catalogs: Mapping[str, LanceNamespace]
) -> RootNamespaces | None:
    """Return the namespaces of callers, or None if no catalog is called as the principal.

    Args:
        given: As for `connect_catalogs`.
        catalogs: The result of `connect_catalogs`.

    Raises:
        InvalidInputError: (13) a catalog does not support it.
    """
    callers = {}
    for name in settings.caller_identity.catalogs:
        if name not in catalogs:
            raise invalid(f"caller_identity: there is no catalog '{name}'")
        connect = partial(_connect_as, settings, name, given.get(name, {}))
        most = settings.caller_identity.max_callers
        callers[name] = CallerNamespaces(name, catalogs[name], connect, most)
    return RootNamespaces(catalogs, callers, settings.root) if callers else None


def _connect_as(
    settings: ServerSettings, name: str, given: Mapping[str, str], caller: Mapping[str, str]
) -> LanceNamespace:
    entry, public = settings.catalogs[name], settings.public_storage_options
    return _connect(name, entry, {**given, **caller}, public, is_caller=True)


def root_namespace(
    settings: ServerSettings, catalogs: Mapping[str, LanceNamespace]
) -> LanceNamespace:
    """Return the catalog that is configured as the root, or a federation of all catalogs."""
    return catalogs[settings.root] if settings.root else FederatedNamespace(catalogs)


def _connect(
    name: str,
    entry: Mapping[str, Any],
    given: Mapping[str, str],
    public: Sequence[str],
    *,
    is_caller: bool = False,
) -> LanceNamespace:
    try:
        stored, more = _properties(name, property_texts(name, entry), given)
        is_own = issubclass(find(stored["impl"]), LanceBridgeNamespace)
        if is_own:
            stored = {_PUBLIC: ",".join(public), **stored}
        made = connect_configured(name, stored, more)
        if not is_caller:  # tokens of callers are many, and are recognised by their form
            SECRETS.add(secrets_of(made, {**stored, **more}))
            HOSTS.add(hosts_of(made, {**stored, **more}))
        hide_renewed_secrets(made)
        return made if is_own else PublicAnswers(made, option_names(",".join(public)))
    except InvalidInputError as error:
        raise invalid(f"catalog '{name}': {error}") from error


def _properties(
    name: str, stored: Mapping[str, str], given: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the properties that the environment overrides, and those that override it."""
    impl = given.get("impl") or stored.get("impl")
    more = {key: value for key, value in given.items() if key != "impl"}
    if impl:
        return {**stored, "impl": impl}, more
    if is_implementation(name):
        return {"impl": name}, {**stored, **more}
    named = named_catalogs()
    if name not in named:
        raise invalid(f"it has no impl, and {config_path()} has no catalog of this name")
    return dict(named[name]), {**stored, **more}


# -- check -----------------------------------------------------------------------------------------


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

"""Creates the namespace that a server serves from the catalogs of its configuration."""

from __future__ import annotations

import pickle
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anyio
from lance_namespace import LanceNamespace
from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from lance_bridge.config import config_path, declared_properties, named_catalogs, property_texts
from lance_bridge.errors import internal, invalid
from lance_bridge.namespace import LanceBridgeNamespace
from lance_bridge.registry import connect_configured, find, is_implementation
from lance_bridge.storage_options import option_names
from lance_bridge_federated import FederatedNamespace
from lance_bridge_federated.probes import probe

from ..access.authentication import Principal
from ..access.oidc import OidcTokens
from ..config import OidcSettings, ServerSettings
from ..gateway.callers import CallerNamespaces, RootNamespaces
from ..gateway.threads import catalog_share
from ..redaction import (
    HOSTS,
    SECRETS,
    PublicAnswers,
    hide_renewed_secrets,
    hide_secrets,
    hosts_of,
    secrets_of,
)

_PUBLIC, _POOL = "credentials.public-options", "client.pool-size"

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
    return {name: each.connect() for name, each in catalog_sources(settings, given).items()}


def catalog_sources(settings: ServerSettings, given: Properties) -> dict[str, CatalogSource]:
    """Return what the catalogs of a server are connected with.

    Args:
        given: As for `connect_catalogs`.

    Raises:
        InvalidInputError: (13) `given` names an unknown catalog.
    """
    for name in given:
        if name not in settings.catalogs:
            raise invalid(f"Cannot set a property of catalog '{name}': there is no such catalog")
    public = tuple(settings.public_storage_options)
    calls = catalog_share(settings.limits.threads)
    return {
        name: CatalogSource(name, entry, given.get(name, {}), public, calls)
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
    callers, sources = {}, catalog_sources(settings, given)
    for name in settings.caller_identity.catalogs:
        if name not in catalogs:
            raise invalid(f"caller_identity: there is no catalog '{name}'")
        most = settings.caller_identity.max_callers
        callers[name] = CallerNamespaces(name, catalogs[name], sources[name].connect_as, most)
    return RootNamespaces(catalogs, callers, settings.root) if callers else None


@dataclass(frozen=True)
class CatalogSource:
    """What a catalog is connected with. It can be pickled, and has secrets."""

    name: str
    entry: Mapping[str, Any] = field(repr=False)
    """Its entry in the configuration."""
    given: Mapping[str, str] = field(repr=False)
    """Properties that override those of the entry and of the environment."""
    public: tuple[str, ...]
    """The names of storage options that clients may read."""
    calls: int
    """How many calls the server makes at once."""
    is_caller: bool = False
    """Whether it is connected for a caller, whose token is recognised by its form."""

    def of_caller(self, properties: Mapping[str, str]) -> CatalogSource:
        """Return the source with the properties of a caller."""
        return replace(self, given={**self.given, **properties}, is_caller=True)

    def connect_as(self, properties: Mapping[str, str]) -> LanceNamespace:
        """Connect with the properties of a caller."""
        return self.of_caller(properties).connect()

    def connect(self) -> LanceNamespace:
        """Connect, and make this process hide the secrets in its messages.

        Raises:
            InvalidInputError: (13) the catalog or one of its properties is unknown or wrong.
            UnsupportedOperationError: (0) it needs an extra that is not installed.
        """
        try:
            entry = property_texts(self.name, self.entry)
            stored, more = _properties(self.name, entry, self.given)
            cls = find(stored["impl"])
            if issubclass(cls, LanceBridgeNamespace):
                known = {each.key for each in declared_properties(cls.config_type)}
                defaults = {_PUBLIC: ",".join(self.public), _POOL: str(self.calls)}
                stored = {key: defaults[key] for key in defaults.keys() & known} | stored
            made = connect_configured(self.name, stored, more)
            if not self.is_caller:
                SECRETS.add(secrets_of(made, {**stored, **more}))
                HOSTS.add(hosts_of(made, {**stored, **more}))
            hide_renewed_secrets(made)
            options = option_names(",".join(self.public))
            return made if isinstance(made, LanceBridgeNamespace) else PublicAnswers(made, options)
        except InvalidInputError as error:
            raise invalid(f"catalog '{self.name}': {error}") from error


@dataclass(frozen=True)
class RootSource:
    """What the root namespace of a principal is connected with. It can be pickled."""

    catalogs: Mapping[str, CatalogSource]
    root: str | None
    """The catalog that is the root itself."""

    def __call__(self) -> LanceNamespace:
        """Connect. Each catalog of a federation is connected when it is first used."""
        if self.root:
            return self.catalogs[self.root].connect()
        return FederatedNamespace({name: each.connect for name, each in self.catalogs.items()})


class RootSources:
    """The pickled `RootSource` of each principal."""

    def __init__(
        self,
        settings: ServerSettings,
        given: Properties,
        callers: RootNamespaces | None,
    ) -> None:
        """Args: given: As for `connect_catalogs`."""
        self._source = RootSource(catalog_sources(settings, given), settings.root)
        self._own = pickle.dumps(self._source)
        self._callers = callers

    def of(self, principal: Principal) -> bytes:
        """Return the source of a principal. Raises what `CallerNamespaces.of` does for a root."""
        if self._callers is None:
            return self._own
        catalogs = dict(self._source.catalogs)
        for name, properties in self._callers.properties_of(principal).items():
            source = catalogs.pop(name)
            if properties is not None:  # never the server's own identity in place of the caller's
                catalogs[name] = source.of_caller(properties)
        return pickle.dumps(replace(self._source, catalogs=catalogs))


def root_namespace(
    settings: ServerSettings, catalogs: Mapping[str, LanceNamespace]
) -> LanceNamespace:
    """Return the catalog that is configured as the root, or a federation of all catalogs."""
    return catalogs[settings.root] if settings.root else FederatedNamespace(catalogs)


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
    error = probe(lambda: namespace)
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

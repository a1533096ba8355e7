"""The catalogs of a federation. Each is connected when it is first used.

If a catalog cannot be connected, only the requests for it fail.
"""

from __future__ import annotations

import difflib
import pickle
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from lance_namespace import LanceNamespace
from lance_namespace.errors import LanceNamespaceError

from lance_bridge import LanceBridgeNamespace
from lance_bridge.config import STORAGE_PREFIX, CatalogConfig, named_catalogs, property_texts
from lance_bridge.errors import invalid
from lance_bridge.forks import restart_in_children
from lance_bridge.redaction import contains_secret, is_secret, redact
from lance_bridge.registry import connect, connect_configured, find

from .identifiers import check_catalog_name, with_text
from .probes import ProbedCatalog

T = TypeVar("T")

Connect = Callable[[], LanceNamespace]

HEADERS = ("header.", "headers.")
"""Prefixes of pylance's properties for HTTP headers, any of which may be a credential."""


class Gate(Protocol):
    """Knows whether a catalog responds."""

    def check(self) -> None:
        """Return normally if the catalog may be called. What this raises is the call's error."""

    def run(self, call: Callable[[], T]) -> T:
        """Make a call for a request about several catalogs, and return its result.

        Raises an error if the catalog does not respond, soon.
        """


class Child:
    """One catalog, whose namespace is created by the first call that needs it.

    Args:
        source: The namespace, or a function that creates it. A function that failed is called
            again by the next request.
        identity: The namespace's `namespace_id`, if that is known without creating it.
    """

    def __init__(
        self, name: str, source: LanceNamespace | Connect, identity: str | None = None
    ) -> None:
        self.name = name
        self.gate: Gate | None = None
        """Consulted before each use; None for probes of calls that take long."""
        self.restart_in_child()
        restart_in_children(self)
        self._identity = identity
        self._namespace = source if isinstance(source, LanceNamespace) else None
        self._source = source

    def restart_in_child(self) -> None:
        """Implement `lance_bridge.forks.Restartable`."""
        self._lock = threading.Lock()

    @property
    def made(self) -> LanceNamespace | None:
        """The namespace, if it was created."""
        return self._namespace

    @property
    def is_native(self) -> bool:
        """Whether its properties say that it is another library's."""
        return isinstance(self._source, NativeCatalog)

    def namespace(self) -> LanceNamespace:
        """Return the namespace. Raises the errors of creating it, and of `gate`."""
        if self.gate is not None:
            self.gate.check()
        made = self.made
        return self._connected() if made is None else made

    def _connected(self) -> LanceNamespace:
        if self._namespace is None:
            with self._lock:
                if self._namespace is None:
                    self._namespace = self._create()
        return self._namespace

    def call(self, function: Callable[[LanceNamespace], T]) -> T:
        """Call a function with the namespace, for a request about several catalogs.

        Raises the errors of `namespace`, those of the function, and those of `gate`.
        """
        return self.run(lambda: function(self.namespace()))

    def run(self, call: Callable[[], T]) -> T:
        """Make a call of the catalog, as `Gate.run` does."""
        gate = self.gate or ProbedCatalog(self.name, lambda: self.made)
        return gate.run(call)

    def _create(self) -> LanceNamespace:
        assert not isinstance(self._source, LanceNamespace)
        made: object = self._source()
        if not isinstance(made, LanceNamespace):
            raise invalid(f"Catalog '{self.name}' is a {type(made).__name__}, not a LanceNamespace")
        return made

    def identity(self) -> str:
        """Return what this is connected to, without secrets."""
        return self._identity or self.namespace().namespace_id()

    def close(self) -> None:
        """Close the namespace if it was created and can be closed."""
        if self._namespace is not None:
            close_namespace(self._namespace)

    def __deepcopy__(self, _memo: object) -> Child:
        """Return self: a copy in the same process can share the connection."""
        return self

    def __reduce__(self) -> tuple[type[Child], tuple[Any, ...]]:
        """Pickle the source separately: one that cannot be loaded fails when it is first used."""
        known = self._identity or (
            self._namespace.namespace_id() if self._namespace is not None else None
        )
        is_pickled = isinstance(self._source, Pickled)
        source = self._source if is_pickled else Pickled(pickle.dumps(self._source))
        return Child, (self.name, source, known)


def close_namespace(namespace: LanceNamespace) -> None:
    """Close a namespace of any library, if it can be closed: the trait has no such method."""
    close = getattr(namespace, "close", None)
    if callable(close):
        close()


@dataclass(frozen=True)
class Pickled:
    """Loads a namespace, or a function that creates one, when it is called."""

    data: bytes = field(repr=False)

    def __call__(self) -> LanceNamespace:
        loaded = pickle.loads(self.data)
        made: LanceNamespace = loaded if isinstance(loaded, LanceNamespace) else loaded()
        return made


@dataclass(frozen=True)
class NativeCatalog:
    """Connects one of pylance's own namespaces, or another library's.

    Their objects cannot be pickled, so this pickles their properties, without the secret ones
    unless ``pickle_secrets``.
    """

    impl: str
    properties: Mapping[str, str] = field(repr=False)
    pickle_secrets: bool = False
    left_out: tuple[str, ...] = ()
    """Keys of the secrets that were not in the pickle from which this was loaded."""

    def __call__(self) -> LanceNamespace:
        if self.left_out:
            raise invalid(
                f"impl={self.impl} was pickled without its secrets ({', '.join(self.left_out)}). "
                "Connect with its property pickle.secrets=true before pickling"
            )
        return connect(self.impl, self.properties)

    @property
    def identity(self) -> str:
        """What this is connected to: its properties except the secret ones."""
        shown = (f"{k}={redact(v)}" for k, v in sorted(self.properties.items()) if not hides(k))
        return f"{self.impl}({', '.join(shown)})"

    def __reduce__(self) -> tuple[Any, ...]:
        may_pickle, given = self.pickle_secrets, self.properties.items()
        secrets = [] if may_pickle else [k for k, v in given if hides(k) or contains_secret(v)]
        carried = {k: v for k, v in self.properties.items() if k not in secrets}
        left_out = tuple(sorted({*secrets, *self.left_out}))
        return NativeCatalog, (self.impl, carried, self.pickle_secrets, left_out)


def hides(key: str) -> bool:
    """Return whether a property of any library's namespace may hold a secret."""
    is_stored = key.startswith(STORAGE_PREFIX)
    secret = CatalogConfig.is_secret(key) if is_stored else is_secret(key)
    return secret or key.startswith(HEADERS)


# -- configuration ---------------------------------------------------------------------------------


IMPL = "federated"
CATALOGS = "catalogs"
PREFIX = "catalog."
PICKLE_SECRETS = "pickle.secrets"
_KEY = re.compile(rf"{re.escape(PREFIX)}([^.]+)\.(.+)")
_SHAPE = f"{PREFIX}<name>.<property>"

Entry = Mapping[str, str]
"""``impl`` and the properties of one catalog."""


def children_from(properties: Mapping[str, Any], refused: type[LanceNamespace]) -> dict[str, Child]:
    """Return the catalogs in properties, or all of the configuration file. None is called.

    Args:
        refused: A type of namespace that cannot be among them.

    Raises:
        InvalidInputError: (13) a property or a catalog is unknown, or a catalog's own are wrong.
        UnsupportedOperationError: (0) a catalog needs an extra that is not installed.
    """
    texts = property_texts(IMPL, properties)
    inline = _inline_entries(texts)
    listed = [each.strip() for each in texts[CATALOGS].split(",")] if CATALOGS in texts else None
    if listed is None and not inline:
        listed = _all_configured(refused)
    configured = _configured_entries(listed or ())
    for name in inline.keys() & configured.keys():
        raise _config_error(
            f"catalog '{name}' is in `{CATALOGS}` and has `{PREFIX}{name}.impl` as well"
        )
    made = {name: _create_child(name, entry, {}, refused) for name, entry in configured.items()}
    for name, entry in inline.items():
        given = {key: value for key, value in entry.items() if key != "impl"}
        made[name] = _create_child(name, {"impl": entry["impl"]}, given, refused)
    return made


def _inline_entries(texts: Mapping[str, str]) -> dict[str, dict[str, str]]:
    entries: dict[str, dict[str, str]] = {}
    for key, value in texts.items():
        match = _KEY.fullmatch(key)
        if match is not None:
            entries.setdefault(match[1], {})[match[2]] = value
        elif key != CATALOGS:
            near = difflib.get_close_matches(key, [CATALOGS], n=1)
            hint = (
                f"did you mean '{near[0]}'?" if near else f"known properties: {CATALOGS}, {_SHAPE}"
            )
            raise invalid(f"impl={IMPL} has no property '{key}': {hint}")
    for name, entry in entries.items():
        check_catalog_name(name)
        if "impl" not in entry:
            raise _config_error(
                f"property '{PREFIX}{name}.impl' is required. A catalog of the configuration file "
                f"is named in `{CATALOGS}` instead"
            )
    return entries


def _all_configured(refused: type[LanceNamespace]) -> list[str]:
    named = named_catalogs()
    # `named[name]` raises the problem of an entry that is invalid.
    names = [name for name in named if not issubclass(find(named[name]["impl"]), refused)]
    if not names:
        raise _config_error(
            f"it has no catalogs: set `{CATALOGS}`, `{_SHAPE}`, or add some to the configuration "
            "file"
        )
    return names


def _configured_entries(names: Iterable[str]) -> dict[str, Entry]:
    named = named_catalogs() if names else {}
    entries: dict[str, Entry] = {}
    for name in names:
        if name not in named:
            raise _config_error(
                f"`{CATALOGS}` names '{name}', which the configuration file does not have"
            )
        if name in entries:
            raise _config_error(f"`{CATALOGS}` names '{name}' twice")
        check_catalog_name(name)
        entries[name] = named[name]
    return entries


def _create_child(name: str, entry: Entry, given: Entry, refused: type[LanceNamespace]) -> Child:
    try:
        implementation = find(entry["impl"])
        if issubclass(implementation, refused):
            raise invalid("a federation cannot be a catalog of another one")
        if issubclass(implementation, LanceBridgeNamespace):
            # Its constructor checks the properties and makes no call.
            return Child(name, connect_configured(name, entry, given))
    except LanceNamespaceError as error:
        raise with_text(error, f"impl={IMPL}: catalog '{name}': {error}") from error
    properties = {**entry, **given}
    impl = properties.pop("impl")
    pickle_secrets = properties.pop(PICKLE_SECRETS, "false") == "true"
    native = NativeCatalog(impl, properties, pickle_secrets)
    return Child(name, native, native.identity)


def _config_error(text: str) -> Exception:
    return invalid(f"impl={IMPL}: {text}")

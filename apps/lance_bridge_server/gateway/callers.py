"""Catalogs that are called as the principal instead of as the server: one namespace object each.

A namespace object has its own connections, temporary credentials and caches. It is never used for
another caller: a request gets the object of its principal, by name, groups and token.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial

from lance_namespace import LanceNamespace
from lance_namespace.errors import PermissionDeniedError, UnauthenticatedError

from lance_bridge.config import CallerIdentity
from lance_bridge.errors import invalid
from lance_bridge.namespace import LanceBridgeNamespace
from lance_bridge_federated import FederatedNamespace
from lance_bridge_federated.children import Gate, close_namespace

from ..access.authentication import ANONYMOUS, Principal

Connect = Callable[[Mapping[str, str]], LanceNamespace]
"""Connects to a catalog with further properties."""


class CallerNamespaces:
    """Keeps a namespace object of one catalog for each caller. Safe to share between threads."""

    def __init__(self, name: str, own: LanceNamespace, connect: Connect, most: int) -> None:
        """Check that the catalog supports caller identity.

        Args:
            own: The namespace object of the server itself.
            most: How many objects are kept; the least recently used ones are closed.

        Raises:
            InvalidInputError: (13) the catalog or its properties do not support it.
        """
        self._identity = _identity_of(name, own)
        self._connect = connect
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[object, LanceNamespace] = OrderedDict()

    def of(self, principal: Principal) -> LanceNamespace:
        """Return the namespace object of a caller.

        Raises:
            UnauthenticatedError: (16) the caller is anonymous, or lacks a token that is needed.
            PermissionDeniedError: (15) the catalog does not accept the name.
        """
        properties = self.properties_of(principal)
        key = tuple(sorted(properties.items()))
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                found = self._kept[key] = self._connect(properties)
            self._kept.move_to_end(key)
            unused = [self._kept.popitem(last=False)[1]] if len(self._kept) > self._most else []
        for each in unused:
            close_namespace(each)
        return found

    def properties_of(self, principal: Principal) -> dict[str, str]:
        """Return the properties that connect as a caller. Raises what `of` does."""
        if principal.method == ANONYMOUS.method:
            raise UnauthenticatedError("This catalog requires an authenticated caller")
        given = self._identity.properties(principal.name, principal.groups, principal.token)
        return dict(given)

    def close(self) -> None:
        """Close all objects."""
        with self._lock:
            unused = list(self._kept.values())
            self._kept.clear()
        for each in unused:
            close_namespace(each)


def _identity_of(name: str, own: LanceNamespace) -> CallerIdentity:
    identity = None
    if isinstance(own, LanceBridgeNamespace):
        config = own.connection.config
        identity = config.caller_identity
    if identity is None:
        raise invalid(f"caller_identity: catalog '{name}' does not support caller identity")
    values = {
        field.alias or each: getattr(config, each)
        for each, field in type(config).model_fields.items()
    }
    for key in identity.conflicts:
        if values[key] not in (None, "none"):
            raise invalid(f"caller_identity: catalog '{name}' already sets its user with '{key}'")
    if identity.required is not None and values[identity.required] is None:
        raise invalid(f"caller_identity: catalog '{name}' needs '{identity.required}'")
    return identity


class RootNamespaces:
    """Creates the root namespace of each caller."""

    def __init__(
        self,
        catalogs: Mapping[str, LanceNamespace],
        callers: Mapping[str, CallerNamespaces],
        root: str | None = None,
    ) -> None:
        """Create one.

        Args:
            catalogs: The namespace objects of all catalogs for the server itself.
            callers: The catalogs that are called as the principal.
            root: The catalog that is the root itself.
        """
        self._catalogs = catalogs
        self._callers = callers
        self._root = root
        self.gates: Mapping[str, Gate] = {}
        """The gates of the catalogs in each federation, as for `FederatedNamespace.guard`."""

    def of(self, principal: Principal) -> LanceNamespace:
        """Return the root for a caller. Raises what `CallerNamespaces.of` does for a single one.

        A federation is created for each request, which takes microseconds: its catalogs keep their
        connections. A cached one could refer to objects that `CallerNamespaces` has closed.
        """
        if self._root is not None:
            return self._callers[self._root].of(principal)
        made = {
            name: partial(self._callers[name].of, principal) if name in self._callers else own
            for name, own in self._catalogs.items()
        }
        namespace = FederatedNamespace(made)
        namespace.guard(self.gates)
        return namespace

    def properties_of(self, principal: Principal) -> dict[str, dict[str, str] | None]:
        """Return the properties that connect as a caller, by catalog; None if it refuses.

        Raises what `CallerNamespaces.of` does for the catalog that is the root.
        """
        found: dict[str, dict[str, str] | None] = {}
        for name, namespaces in self._callers.items():
            try:
                found[name] = namespaces.properties_of(principal)
            except (PermissionDeniedError, UnauthenticatedError):
                if self._root is not None:
                    raise
                found[name] = None
        return found

    def close(self) -> None:
        """Close the objects of all callers."""
        for each in self._callers.values():
            each.close()

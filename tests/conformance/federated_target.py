"""Another target, seen through a federation of which it is one catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from lance_namespace import LanceNamespace

from lance_bridge.testing import Neighbour, Target
from lance_bridge.testing.data import EveryOperationCases, SmokeCases
from lance_bridge.testing.listings import PagingCases
from lance_bridge.testing.managed import ManagedCases
from lance_bridge.testing.requests import IdentifierCases
from lance_bridge_federated import FederatedNamespace


class FederatedTarget(Target):
    """A catalog beside others; its own hooks are called without the catalog's name.

    Args:
        name: The catalog under test, one of ``targets``.
        targets: All catalogs of the federation.
    """

    def __init__(self, name: str, targets: Mapping[str, Target]) -> None:
        self._targets = dict(targets)
        self._inner = inner = targets[name]
        self.features = inner.features
        self.parent = (name, *inner.parent)
        self.data_root = inner.data_root
        self.storage_options = inner.storage_options
        self.deviations = inner.deviations
        self.other_entry_types = inner.other_entry_types
        self.broken_entry_types = inner.broken_entry_types
        self.unreadable_types = inner.unreadable_types
        self.restart_deadline = inner.restart_deadline

    def connect(self) -> LanceNamespace:
        return FederatedNamespace({name: t.connect() for name, t in self._targets.items()})

    def lacks(self, need: str) -> str:
        # A gateway before the federation lacks a feature that the catalog has.
        return super().lacks(need) if hasattr(self.features, need) else self._inner.lacks(need)

    def register_location(self, location: str) -> str:
        return self._inner.register_location(location)

    def make_foreign_table(self, namespace_id: Sequence[str], name: str, location: str) -> None:
        self._inner.make_foreign_table(namespace_id[1:], name, location)

    def make_entry(
        self, namespace_id: Sequence[str], name: str, location: str, entry_type: str
    ) -> None:
        self._inner.make_entry(namespace_id[1:], name, location, entry_type)

    def remove_entry(self, namespace_id: Sequence[str], name: str) -> None:
        self._inner.remove_entry(namespace_id[1:], name)

    def inhabit(self, namespace_id: Sequence[str], location: str) -> Sequence[Neighbour]:
        return self._inner.inhabit(namespace_id[1:], location)

    @contextmanager
    def unreadable(self, unreadable_type: str) -> Iterator[Sequence[str]]:
        with self._inner.unreadable(unreadable_type) as found:
            yield [self.parent[0], *found]

    def stop_server(self) -> None:
        self._inner.stop_server()

    def start_server(self) -> None:
        self._inner.start_server()


# -- cases of a catalog behind another layer -------------------------------------------------------


class CombinationSuite(SmokeCases, EveryOperationCases, ManagedCases, PagingCases, IdentifierCases):
    """Each operation, the errors of each, commits, pages, and names."""

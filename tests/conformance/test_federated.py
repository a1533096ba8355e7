"""The kit over a federation: a target that is one of its catalogs, and a metastore and Glue so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest
from lance_namespace import LanceNamespace
from servers.glue_server import SECRET_KEY, GlueServer
from servers.http_proxy import HttpProxy
from servers.metastores import Metastores

from lance_bridge.testing import EntrySuite, Neighbour, RequestSuite, Target
from lance_bridge.testing.data import EveryOperationCases, SmokeCases
from lance_bridge.testing.listings import PagingCases
from lance_bridge.testing.managed import ManagedCases
from lance_bridge.testing.requests import IdentifierCases
from lance_bridge_federated import FederatedNamespace

from .glue_target import GlueOnDiskTarget
from .hive_target import hive_target


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


# -- a metastore and Glue --------------------------------------------------------------------------


RELEASE = "4.2"


@pytest.fixture(scope="module")
def targets(
    metastores: Metastores, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Target]]:
    with (
        GlueServer() as server,
        HttpProxy(server.endpoint) as proxy,
        pytest.MonkeyPatch.context() as environment,
    ):
        # Pickles hold no secrets: the reader of a pickle takes them from the environment.
        environment.setenv("LANCE_BRIDGE_GLUE_SECRET_ACCESS_KEY", SECRET_KEY)
        yield {
            "prod": hive_target(RELEASE, metastores, tmp_path_factory.mktemp("hive")),
            "aws": GlueOnDiskTarget(server, proxy, tmp_path_factory.mktemp("glue")),
        }


@pytest.mark.servers
class TestFederatedHive(EntrySuite, RequestSuite):
    """The metastore's tables: what a federation could break."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, targets: dict[str, Target]) -> Target:
        return FederatedTarget("prod", targets)


@pytest.mark.slow
class TestFederatedGlue(CombinationSuite):
    """The same of Glue's, as far as the catalog decides it."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, targets: dict[str, Target]) -> Target:
        return FederatedTarget("aws", targets)

"""The kit on pylance's own directory namespace, which shows that the kit is fair."""

from __future__ import annotations

from pathlib import Path

import lance_namespace
import pytest
from lance.namespace import DirectoryNamespace

from lance_bridge.testing import (
    Features,
    RequestSuite,
    ServerSuite,
    Target,
    inherited_operations,
)
from lance_bridge.testing.data import EveryOperationCases
from lance_bridge.testing.stateful import StatefulCases

from .directory_deviations import DEVIATIONS


class DirectoryTarget(Target):
    """A directory namespace on local disk."""

    features = Features(
        fixed_depth=False,
        nested_namespaces=True,
        table_properties=False,
        managed_tables=False,
        rename=False,
        rename_across=False,
        chosen_location=False,
        cascade=False,
        list_all=False,
        declare_again=False,
        absent=inherited_operations(DirectoryNamespace)
        | {"alter_table_backfill_columns", "refresh_materialized_view", "rename_table"},
    )
    deviations = DEVIATIONS

    def __init__(self, root: Path) -> None:
        self.data_root = str(root)

    def connect(self) -> lance_namespace.LanceNamespace:
        return lance_namespace.connect("dir", {"root": self.data_root})

    def register_location(self, location: str) -> str:
        """Registered locations must be relative to the root."""
        return location.removeprefix(f"{self.data_root}/")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("directory")


@pytest.fixture(scope="class")
def target(root: Path) -> DirectoryTarget:
    return DirectoryTarget(root)


@pytest.mark.servers
class TestDirectory(ServerSuite, RequestSuite, EveryOperationCases):
    """pylance's DirectoryNamespace, with its known deviations."""


@pytest.mark.slow
class TestDirectoryAtRandom(StatefulCases):
    """Random sequences without the steps that deviate."""

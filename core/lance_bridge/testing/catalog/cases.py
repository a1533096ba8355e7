"""What every group of cases on a catalog shares: the workspace, and skips by capability."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..cases import Cases
from ..target import Target
from .workspace import Workspace


class CatalogCases(Cases):
    """Base of every group. A test module supplies the ``target`` fixture."""

    @pytest.fixture
    def workspace(self, target: Target, _declared: None) -> Iterator[Workspace]:
        """A catalog and a namespace of the case's own."""
        workspace = open_workspace(target)
        yield workspace
        workspace.close()


def open_workspace(target: Target) -> Workspace:
    """Return a workspace; skip where the target has no catalog of lance-bridge's."""
    catalog = target.catalog()
    if catalog is None:
        pytest.skip(f"{type(target).__name__} has no lance_bridge.Catalog to test")
    return Workspace(target, catalog)


def skip_if(workspace: Workspace, *capabilities: str) -> None:
    """Skip a case where one of these capabilities is set, saying which and what it says."""
    for name in capabilities:
        value = getattr(workspace.capabilities, name)
        if value:
            pytest.skip(f"capabilities.{name}: {value}")


def skip_unless(workspace: Workspace, capability: str) -> None:
    """Skip a case that is about a capability which is not set."""
    value = getattr(workspace.capabilities, capability)
    if not value:
        pytest.skip(f"capabilities.{capability} is {value!r}")

"""The base of kinds whose target, or both of whose ends, is a catalog."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from lance_bridge.bridge import Bridge
from lance_bridge.namespace import LanceBridgeNamespace

from ..ends import bridge_of, catalog_at
from ..kind import Kind, OptionsT, SourceT
from ..plan import Address
from ..targets import AnyWork

Namespace = LanceBridgeNamespace

AnyT = TypeVar("AnyT")


def target_bridge(work: AnyWork) -> Bridge:
    """Return the bridge of the catalog that a work changes."""
    return bridge_of(work.ends.target)


class IntoCatalog(Kind[SourceT, Namespace, OptionsT]):
    """A kind whose target is a catalog."""

    def connect_target(
        self, address: Address, secrets: Mapping[str, str]
    ) -> AbstractContextManager[Namespace]:
        return catalog_at(address, secrets)


class BetweenCatalogs(IntoCatalog[Namespace, OptionsT]):
    """A kind whose source is a catalog, too; or whose one catalog is both ends."""

    def connect_source(
        self, address: Address, secrets: Mapping[str, str]
    ) -> AbstractContextManager[Namespace]:
        return catalog_at(address, secrets)


AnyKindOfCatalog = BetweenCatalogs[Any]

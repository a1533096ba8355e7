"""The suite as ``python -m lance_bridge.testing`` runs it; the command supplies the ``target``."""

from __future__ import annotations

from .catalog import CatalogSuite
from .suite import ConformanceSuite


class TestConfigured(ConformanceSuite):
    """The configured catalog."""


class TestAdapter(CatalogSuite):
    """The adapter behind it, if it is one of lance-bridge's."""

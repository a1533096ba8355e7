"""The suite as ``python -m lance_bridge.testing`` runs it; the ``target`` comes from there."""

from __future__ import annotations

from .suite import ConformanceSuite


class TestConfigured(ConformanceSuite):
    """The configured catalog."""

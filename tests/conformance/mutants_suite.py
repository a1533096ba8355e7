"""The kit's suite of catalogs on a correct adapter, and on wrong ones.

Not collected by itself: most of what is here fails, and must. `test_kit` runs it, with
the names of the mutants in the environment variable `CHOSEN`.
"""

from __future__ import annotations

import os

import pytest

from lance_bridge.testing import CatalogSuite, Target

from .tiny.adapter import TinyCatalog
from .tiny.mutants import all_mutants
from .tiny.target import TinyTarget

pytestmark = pytest.mark.slow

CHOSEN = "LANCE_BRIDGE_TEST_MUTANTS"


class OfAdapter(CatalogSuite):
    """A suite whose class says which adapter it is for. It ends with the first case that fails."""

    __test__ = False
    kind: type[TinyCatalog] = TinyCatalog

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, tmp_path_factory: pytest.TempPathFactory) -> Target:
        return TinyTarget(tmp_path_factory.mktemp("tiny"), cls.kind)

    @pytest.fixture(scope="class")
    @classmethod
    def failed_before(cls, request: pytest.FixtureRequest) -> int:
        """How many cases of other adapters had failed when this one's began."""
        return int(request.session.testsfailed)

    @pytest.fixture(autouse=True)
    def _declared(self, request: pytest.FixtureRequest, target: Target, failed_before: int) -> None:
        if request.session.testsfailed > failed_before:
            pytest.skip("it has been found out")
        for need in getattr(request.function, "lance_bridge_needs", ()):
            assert not target.lacks(need), need


def _suite(kind: type[TinyCatalog]) -> type[OfAdapter]:
    return type(f"Test{kind.__name__}", (OfAdapter,), {"kind": kind, "__test__": True})


globals().update({f"Test{n}": _suite(all_mutants()[n]) for n in os.environ[CHOSEN].split(",")})


class TestTinyCatalog(OfAdapter):
    """The adapter without a mistake: the control."""

    __test__ = True

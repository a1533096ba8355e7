"""Cases: what the target declares of itself."""

from __future__ import annotations

from .cases import Cases
from .target import Target


class DeclarationCases(Cases):
    """The target's own declarations must be true."""

    def test_every_declared_deviation_names_a_case(self, target: Target) -> None:
        unknown = [key for key in target.deviations if not hasattr(type(self), key.split("[")[0])]
        assert not unknown, f"no such cases: {unknown}"

"""Cases: the target's declarations."""

from __future__ import annotations

from .cases import Cases
from .catalog import CatalogSuite
from .target import Target


class DeclarationCases(Cases):
    """The target's own declarations must be true."""

    def test_every_declared_deviation_names_a_case(self, target: Target) -> None:
        # One target may run both suites.
        suites = (type(self), CatalogSuite)
        names = {key: key.split("[")[0] for key in target.deviations}
        unknown = [k for k, name in names.items() if not any(hasattr(s, name) for s in suites)]
        assert not unknown, f"deviations of cases that do not exist: {unknown}"

"""The conformance kit: what every Lance namespace must do, for anyone's ``LanceNamespace``.

Describe the catalog under test in a :class:`Target`, give it as a fixture, and subclass the suite::

    import pytest
    from lance_bridge.testing import ConformanceSuite, Features, Target

    class MyTarget(Target):
        features = Features(rename=False)

        def __init__(self, data_root):
            self.data_root = data_root

        def connect(self):
            return my_package.MyNamespace(...)

    @pytest.fixture(scope="module")
    def target(tmp_path_factory):
        return MyTarget(str(tmp_path_factory.mktemp("data")))

    class TestMine(ConformanceSuite):
        pass

The fixture's scope is that of the class or wider: the cases of what happens inside a table share a
namespace and some tables. They are most of all cases, and depend little on the catalog: of several
targets of one kind, all but one may declare ``Features(inside_in_full=False)`` and run one case of
each group of operations. The others are then skipped with that for a reason. An operation that is
not there is declared by its name, in ``Features(absent=…)``: it must answer Unsupported.

Needs pytest and hypothesis (``pip install 'lance-bridge[testing]'``). Without writing any code, a
configured catalog is put through the same cases by ``python -m lance_bridge.testing``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from .declared import from_capabilities, inherited_operations, without
from .target import Features, StatefulBounds, Target

if TYPE_CHECKING:
    from .suite import ConformanceSuite

_CASES = (
    "bad_requests",
    "concurrency",
    "data",
    "declarations",
    "drops",
    "foreign",
    "inside",
    "managed",
    "mapping_requests",
    "names",
    "namespaces",
    "paging",
    "pylance_io",
    "registration",
    "rename",
    "restart",
    "stateful",
    "tables",
)


def rewrite_asserts() -> None:
    """Let plain asserts of the cases explain themselves; pytest must run already.

    It does so of its own accord only in test files, and only in modules that were not imported
    before. Hence the suite is imported when it is first asked for.
    """
    pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in _CASES))


rewrite_asserts()

__all__ = [
    "ConformanceSuite",
    "Features",
    "StatefulBounds",
    "Target",
    "from_capabilities",
    "inherited_operations",
    "without",
]


def __getattr__(name: str) -> object:
    if name == "ConformanceSuite":
        return import_module(f"{__name__}.suite").ConformanceSuite
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The conformance kit: tests of what every ``LanceNamespace`` must do.

Describe the catalog under test in a `Target`, give it as a fixture, and subclass the suite::

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

The fixture's scope is the class or wider: the cases on the data of tables share a namespace.
Operations that the implementation lacks are declared in ``Features(absent=…)``: they must raise
UnsupportedOperationError.

`ConformanceSuite` has all cases, and a catalog should pass it once. Further targets of the same
kind can run a part of it:

- `EntrySuite`: entries and namespaces, and a smoke test of the operations on data.
- `ServerSuite`: all cases that depend on the server, for further releases of it. They are those of
  `EntrySuite`, concurrent clients and restarts.
- `RequestSuite`: the cases that depend on the kind of catalog: identifiers, requests, and whole
  tables of data. It is for another configuration, such as one more level of namespaces.

Optional methods of the target add cases: ``make_foreign_table`` and ``make_entry`` those of other
tools' entries, ``inhabit`` those of a catalog full of them, ``unreadable`` those of what cannot be
read, ``stop_server`` those of restarts, ``second_user`` those of a user whose listings do
not show all that she may use. Without them, these cases are skipped with that reason.

The author of a ``lance_bridge.Catalog`` runs `CatalogSuite` as well. It calls the catalog's own
methods, with the same target and the same fixture::

    from lance_bridge.testing import CatalogSuite, Faults, RawEntry

    class TestMyCatalog(CatalogSuite):
        pass

By default it takes the catalog from the namespace that ``connect`` returns; other targets override
``catalog``. Set ``page_size`` to the number of entries on a page of the server: the suite makes a
few more. The other hooks are optional, and a case that lacks one is skipped with that reason:

- ``read_entry`` and ``write_entry`` read and write an entry in the server without the adapter. They
  show that the adapter stores all of it, and reads what other clients have stored.
- ``faults`` makes faults between the adapter and the server (see `Faults`): refused requests, a
  busy or broken server, an interrupted listing, a lost reply, or a change that is delayed until
  another one has been made. Most adapters that pass without it fail with it.
- ``other_catalog``, ``secrets`` and ``grants`` are for descriptions and for vended credentials.

The declared capabilities decide which cases run: what is declared must work, and what is declared
impossible must raise UnsupportedOperationError and change nothing. A property may be refused as
InvalidInput; it may not be changed or lost.

Needs pytest and hypothesis (``pip install 'lance-bridge[testing]'``). ``python -m
lance_bridge.testing`` runs both suites on a configured catalog without any code, and without the
hooks.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

import pytest

from .target import (
    Faults,
    Features,
    HeldChange,
    Neighbour,
    RawEntry,
    StatefulBounds,
    Target,
    from_capabilities,
    inherited_operations,
    without,
)

if TYPE_CHECKING:
    from .catalog import CatalogSuite
    from .suite import ConformanceSuite, EntrySuite, RequestSuite, ServerSuite

_WITHOUT_ASSERTS = {"__main__", "calls", "command", "target"}


def rewrite_asserts() -> None:
    """Enable pytest's assertion rewriting for the cases; pytest must be running.

    By default, pytest rewrites only test files, and never a module that is imported already. So the
    suite is imported when it is first used.
    """
    names = {each.name for each in iter_modules(__path__)} - _WITHOUT_ASSERTS
    pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in sorted(names)))


rewrite_asserts()

__all__ = [
    "CatalogSuite",
    "ConformanceSuite",
    "EntrySuite",
    "Faults",
    "Features",
    "HeldChange",
    "Neighbour",
    "RawEntry",
    "RequestSuite",
    "ServerSuite",
    "StatefulBounds",
    "Target",
    "from_capabilities",
    "inherited_operations",
    "without",
]


def __getattr__(name: str) -> object:
    if name == "CatalogSuite":
        return import_module(f"{__name__}.catalog").CatalogSuite
    if name in ("ConformanceSuite", "EntrySuite", "RequestSuite", "ServerSuite"):
        return getattr(import_module(f"{__name__}.suite"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

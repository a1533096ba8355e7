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
namespace and some tables. An operation that is not there is declared by its name, in
``Features(absent=…)``: it must answer Unsupported.

`ConformanceSuite` is everything, and what a catalog should pass once. Much of it depends little on
the server, so that further targets of the same kind may be put through less:

- `ServerSuite` is what a server decides: entries, namespaces, many clients at once, restarts, and
  one case inside a table. It is for further releases of a server.
- `RequestSuite` is what the kind of catalog decides: names, requests, and whole tables of data. It
  is for another configuration with other names, such as one more level of namespaces.
- ``Features(inside_in_full=False)`` leaves one case of each group of operations inside a table, for
  data in another kind of store. The others are skipped with that for a reason.

Whoever writes an adapter, a ``lance_bridge.Catalog``, puts that through `CatalogSuite` as well. It
calls the catalog's own methods, with the same target and the same fixture::

    from lance_bridge.testing import CatalogSuite, Faults, RawEntry

    class TestMyCatalog(CatalogSuite):
        pass

By default it takes the catalog from the namespace that ``connect`` returns; a target without one
overrides ``catalog``. Set ``page_size`` to what the server puts on a page: the suite makes a few
entries more. The other hooks are optional, and a case that lacks one is skipped and says so:

- ``read_entry`` and ``write_entry`` see an entry as the server has it, past the adapter: is it
  whole there, and is what the adapter says of entries of others true?
- ``faults`` makes trouble on the way to the server (see `Faults`): it refuses, is busy or broken,
  breaks off a listing, loses a reply, or is slow with one change until another has been made. Most
  adapters that pass without it fail with it.
- ``other_catalog``, ``secrets`` and ``grants`` are for descriptions and for vended credentials.

What the capabilities declare decides which cases run: what is declared must work, and what is
declared impossible must raise UnsupportedOperationError and change nothing. A property may be
refused as InvalidInput; it may not be changed or lost.

Needs pytest and hypothesis (``pip install 'lance-bridge[testing]'``). Without writing any code, a
configured catalog is put through both suites by ``python -m lance_bridge.testing``, which has none
of the hooks.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from .features import Features, StatefulBounds, from_capabilities, inherited_operations, without
from .hooks import Faults, HeldChange, RawEntry
from .target import Target

if TYPE_CHECKING:
    from .catalog.suite import CatalogSuite
    from .suite import ConformanceSuite, RequestSuite, ServerSuite

_CASES = (
    "cases",
    "catalog",
    "client_requests",
    "concurrency",
    "data",
    "data_operations",
    "declarations",
    "drops",
    "foreign",
    "identifiers",
    "managed",
    "missing",
    "namespaces",
    "paging",
    "pylance_io",
    "registration",
    "rename",
    "restart",
    "stateful",
    "tables",
)
"""The modules and packages with asserts."""


def rewrite_asserts() -> None:
    """Let plain asserts of the cases explain themselves; pytest must run already.

    It does so of its own accord only in test files, and only in modules that were not imported
    before. Hence the suite is imported when it is first asked for.
    """
    pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in _CASES))


rewrite_asserts()

__all__ = [
    "CatalogSuite",
    "ConformanceSuite",
    "Faults",
    "Features",
    "HeldChange",
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
        return import_module(f"{__name__}.catalog.suite").CatalogSuite
    if name in ("ConformanceSuite", "RequestSuite", "ServerSuite"):
        return getattr(import_module(f"{__name__}.suite"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The suites: all cases in one class, or a part of them, to be subclassed.

``python -m lance_bridge.testing`` runs the classes at the end, and supplies their ``target``.
"""

from __future__ import annotations

from .catalog import CatalogSuite
from .concurrency import ConcurrencyCases
from .data import DataCases, EveryOperationCases, PylanceCases, SmokeCases
from .declarations import DeclarationCases
from .foreign import ForeignCases, NeighbourCases
from .listings import PagingCases, PartialRightsCases
from .managed import ManagedCases
from .namespaces import NamespaceCases
from .requests import ClientCases, IdentifierCases, MissingCases
from .restart import RestartCases
from .stateful import StatefulCases
from .tables import DropCases, RegistrationCases, RenameCases, TableCases


class EntrySuite(
    SmokeCases,
    ManagedCases,
    ForeignCases,
    NeighbourCases,
    PagingCases,
    PartialRightsCases,
    DropCases,
    RenameCases,
    RegistrationCases,
    MissingCases,
    TableCases,
    NamespaceCases,
    DeclarationCases,
):
    """The cases of entries and namespaces, and a smoke test of the operations on data."""


class ServerSuite(RestartCases, ConcurrencyCases, EntrySuite):
    """The cases whose outcome depends on the server, for further releases of a tested one.

    They are those of `EntrySuite`, of concurrent clients, and of restarts.
    """


class RequestSuite(IdentifierCases, ClientCases, PylanceCases, DataCases):
    """The cases whose outcome depends on the kind of catalog, and not on its server's release.

    They are those of identifiers and requests, and of reading and writing whole tables.
    """


class ConformanceSuite(ServerSuite, RequestSuite, EveryOperationCases, StatefulCases):
    """Every case of the kit. A subclass needs only a ``target`` fixture in its module or class.

    Each group of cases is a class that can be used by itself. The random sequences of
    `StatefulCases` take most of the time.
    """


# -- the suites that the command runs --------------------------------------------------------------


class TestConfigured(ConformanceSuite):
    """The configured catalog."""


class TestAdapter(CatalogSuite):
    """The adapter behind it, if it is one of lance-bridge's."""

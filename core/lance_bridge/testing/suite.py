"""The suites: all cases in one class, or a half of them, to be subclassed."""

from __future__ import annotations

from .bad_requests import BadRequestCases
from .concurrency import ConcurrencyCases
from .data import DataCases
from .data_operations.smoke import SmokeCases
from .data_operations.suite import DataOperationSuite
from .declarations import DeclarationCases
from .drops import DropCases
from .foreign import ForeignCases
from .managed import ManagedCases
from .mapping_requests import MappingRequestCases
from .names import NameCases
from .namespaces import NamespaceCases
from .paging import PagingCases
from .pylance_io import PylanceCases
from .registration import RegistrationCases
from .rename import RenameCases
from .restart import RestartCases
from .stateful import StatefulCases
from .tables import TableCases


class ServerSuite(
    RestartCases,
    SmokeCases,
    ManagedCases,
    ConcurrencyCases,
    ForeignCases,
    PagingCases,
    DropCases,
    RenameCases,
    RegistrationCases,
    TableCases,
    NamespaceCases,
    DeclarationCases,
):
    """The cases that a server decides, for further releases of one that is tested in full.

    They are those of entries and namespaces, of many clients at once, and of restarts, and one
    case of what happens inside a table.
    """


class RequestSuite(
    BadRequestCases,
    MappingRequestCases,
    NameCases,
    PylanceCases,
    DataCases,
):
    """The cases that the kind of catalog decides, and not the release of its server.

    They are those of names and requests, and of reading and writing whole tables.
    """


class ConformanceSuite(
    ServerSuite,
    RequestSuite,
    DataOperationSuite,
    StatefulCases,
):
    """Every case of the kit. A subclass needs only a ``target`` fixture in its module or class.

    The groups are classes of their own, for who wants some of them. What this has beyond
    `ServerSuite` and `RequestSuite`, all cases inside a table and random sequences of operations,
    is most of the time it takes.
    """

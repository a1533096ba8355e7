"""All cases in one class, to be subclassed."""

from __future__ import annotations

from .bad_requests import BadRequestCases
from .concurrency import ConcurrencyCases
from .data import DataCases
from .declarations import DeclarationCases
from .drops import DropCases
from .foreign import ForeignCases
from .inside.suite import InsideTableCases
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


class ConformanceSuite(
    RestartCases,
    InsideTableCases,
    StatefulCases,
    ManagedCases,
    ConcurrencyCases,
    ForeignCases,
    BadRequestCases,
    MappingRequestCases,
    NameCases,
    PagingCases,
    PylanceCases,
    DataCases,
    DropCases,
    RenameCases,
    RegistrationCases,
    TableCases,
    NamespaceCases,
    DeclarationCases,
):
    """Every case of the kit. A subclass needs only a ``target`` fixture in its module or class.

    The groups are classes of their own, for who wants some of them.
    """

"""All cases inside a table in one class."""

from __future__ import annotations

from .branched import BranchedCases
from .columns import ColumnCases
from .indices import IndexCases
from .missing import MissingCases
from .queries import QueryCases
from .references import BranchCases, TagCases
from .rows import RowCases
from .searches import SearchCases
from .transactions import TransactionCases
from .versions import VersionCases


class DataOperationSuite(
    MissingCases,
    BranchedCases,
    TransactionCases,
    BranchCases,
    TagCases,
    VersionCases,
    IndexCases,
    ColumnCases,
    SearchCases,
    QueryCases,
    RowCases,
):
    """Every case of what happens inside a table."""

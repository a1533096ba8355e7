"""The tables and namespaces of a catalog: operations on their entries.

`collection` has `Tables`, which a namespace object has as ``tables``. Each larger change has a
module, `creation` and `dropping`; `namespaces` does the same for namespaces. `creation` also
decides where new tables are.
"""

from .collection import Tables

__all__ = ["Tables"]

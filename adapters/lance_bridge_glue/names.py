"""Names in AWS Glue: what is allowed."""

from __future__ import annotations

import re

from lance_bridge.catalog import Capabilities, NameRule, NamespaceWords

_LONGEST = 255
# Glue takes nearly everything. What is left out here means something in a path, in an ARN, in a
# filter or in SQL; or is folded to lower case in more ways than one, as letters beyond ASCII are.
_ALLOWED = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)
_SAYS = "letters, digits, underscores, hyphens and dots of ASCII, and not begin with '-' or '.'"


def capabilities() -> Capabilities:
    """Return what Glue can do: it neither renames a table nor keeps a database that is not empty.

    Sources: UpdateTable, which takes no other name; DeleteDatabase, which drops what is inside.
    """
    return Capabilities(
        namespace_levels=(NameRule("database", _ALLOWED, _SAYS, _LONGEST),),
        table_rule=NameRule("table", _ALLOWED, _SAYS, _LONGEST),
        namespace_words=(NamespaceWords(comment="description"),),
        folds_case=True,
        renames_by_copy=True,
        has_partitions=True,
    )

"""The kinds of migrations, by name. A kind's module is imported when it is asked for."""

from __future__ import annotations

import importlib

from lance_bridge.errors import invalid

from .kind import AnyKind

KINDS = {
    "register": "lance_bridge_migrate.kinds.register.Register",
    "entries": "lance_bridge_migrate.kinds.entries.Entries",
    "marks": "lance_bridge_migrate.kinds.marks.Marks",
    "management": "lance_bridge_migrate.kinds.management.Management",
    "copy": "lance_bridge_migrate.kinds.copying.Copy",
    "convert": "lance_bridge_migrate.kinds.convert.Convert",
    "catch-up": "lance_bridge_migrate.kinds.catchup.CatchUp",
    "export": "lance_bridge_migrate.kinds.export.Export",
}
"""Name to class."""


def kind_named(name: str) -> AnyKind:
    """Return a kind. Raises InvalidInput (13) where there is none of that name.

    Raises UnsupportedOperation (0), with the command that installs it, where an extra is missing.
    """
    if name not in KINDS:
        raise invalid(f"There is no migration '{name}': known are {', '.join(sorted(KINDS))}")
    module, _, attribute = KINDS[name].rpartition(".")
    kind: AnyKind = getattr(importlib.import_module(module), attribute)()
    return kind

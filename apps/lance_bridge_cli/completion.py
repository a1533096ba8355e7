"""What the shell completes: catalogs, namespaces and tables.

The shell waits for this at each press of the key, so it imports little, and where something cannot
be read it completes nothing: the command itself will say what is wrong.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Any

import typer

from _lance_bridge_names import catalogs
from lance_bridge.user_files import config_path

from . import api

_MOST = 1000
"""Names that are asked for at a time."""
_SECONDS = 5
"""A catalog that takes longer to answer completes nothing."""


def catalog_names(incomplete: str) -> list[str]:
    """Return the catalogs that are installed or configured and begin so."""
    return sorted({name for name in (*catalogs(), *configured("")) if name.startswith(incomplete)})


def configured(incomplete: str) -> list[str]:
    """Return the catalogs of the configuration file that begin so."""
    import yaml  # noqa: PLC0415 - to complete the names of catalogs alone

    try:
        content: Any = yaml.safe_load(config_path().read_text(encoding="utf-8"))
        return sorted(str(each) for each in content["catalogs"] if str(each).startswith(incomplete))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError):
        return []


def table_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the tables that begin so; while the namespace is typed, namespaces with a dot."""
    return _ask(context, incomplete, with_tables=True)


def namespace_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the namespaces that begin so."""
    return _ask(context, incomplete, with_tables=False)


def _ask(context: typer.Context, incomplete: str, *, with_tables: bool) -> list[str]:
    """Ask the catalog that the command names before; one that is slow completes nothing."""
    # What would be a warning of a command must not appear in the line that is being typed.
    logging.getLogger().addHandler(logging.NullHandler())
    found: list[str] = []

    def ask() -> None:
        try:
            found.extend(_names(context.params, incomplete, with_tables=with_tables))
        except api.LanceNamespaceError:
            return

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_SECONDS)
    return [] if asking.is_alive() else sorted(found)


def _names(given: dict[str, Any], incomplete: str, *, with_tables: bool) -> list[str]:
    from lance_bridge import connect  # noqa: PLC0415 - takes seconds to import
    from lance_bridge.names import parts_of  # noqa: PLC0415 - the same
    from lance_bridge.namespace import LanceBridgeNamespace  # noqa: PLC0415 - the same

    pairs = [each.partition("=") for each in given.get("properties") or ()]
    parent, dot, _ = incomplete.rpartition(".")
    namespace = connect(given["catalog"], {key: value for key, _, value in pairs})
    if not isinstance(namespace, LanceBridgeNamespace):
        return []
    with namespace:
        path = parts_of(parent) if dot else []
        levels = len(namespace.capabilities.namespace_levels)
        while len(path) < levels:
            found = namespace.list_namespaces(api.ListNamespacesRequest(id=path, limit=_MOST))
            fitting = _fitting(path, found.namespaces, incomplete)
            if not with_tables or len(fitting) != 1:
                return [f"{each}." for each in fitting] if with_tables else fitting
            path = parts_of(fitting[0])  # the only one: go on with what is in it
        tables = namespace.list_tables(api.ListTablesRequest(id=path, limit=_MOST)).tables
        return _fitting(path, tables, incomplete)


def _fitting(path: list[str], names: Iterable[str], incomplete: str) -> list[str]:
    from lance_bridge.names import written  # noqa: PLC0415 - takes seconds to import

    found = (written([*path, each]) for each in names)
    return [each for each in found if each.startswith(incomplete)]

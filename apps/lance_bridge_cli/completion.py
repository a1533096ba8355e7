"""Shell completion of catalogs, namespaces and tables.

The shell waits for it at each press of the key, so it imports little. Errors complete nothing: the
command itself reports them.
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

_LIMIT = 1000
"""Names per listing."""
_SECONDS = 5
"""A catalog that takes longer to respond completes nothing."""


def catalog_names(incomplete: str) -> list[str]:
    """Return the matching catalogs that are installed or configured."""
    return sorted(
        {name for name in (*catalogs(), *configured_names("")) if name.startswith(incomplete)}
    )


def configured_names(incomplete: str) -> list[str]:
    """Return the matching catalogs of the configuration file."""
    import yaml  # noqa: PLC0415 - only for names of catalogs

    try:
        content: Any = yaml.safe_load(config_path().read_text(encoding="utf-8"))
        return sorted(str(each) for each in content["catalogs"] if str(each).startswith(incomplete))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError):
        return []


def table_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the matching tables; while the namespace is typed, namespaces with a dot."""
    return _complete(context, incomplete, with_tables=True)


def namespace_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the matching namespaces."""
    return _complete(context, incomplete, with_tables=False)


def _complete(context: typer.Context, incomplete: str, *, with_tables: bool) -> list[str]:
    """Return names from the command's catalog; a slow catalog completes nothing."""
    # Warnings must not appear in the command line that the user types.
    logging.getLogger().addHandler(logging.NullHandler())
    found: list[str] = []

    def list_names() -> None:
        try:
            found.extend(_list_names(context.params, incomplete, with_tables=with_tables))
        except api.LanceNamespaceError:
            return

    thread = threading.Thread(target=list_names, daemon=True)
    thread.start()
    thread.join(_SECONDS)
    return [] if thread.is_alive() else sorted(found)


def _list_names(given: dict[str, Any], incomplete: str, *, with_tables: bool) -> list[str]:
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
            found = namespace.list_namespaces(api.ListNamespacesRequest(id=path, limit=_LIMIT))
            matching = _find_matches(path, found.namespaces, incomplete)
            if not with_tables or len(matching) != 1:
                return [f"{each}." for each in matching] if with_tables else matching
            path = parts_of(matching[0])  # the only match: list its content
        tables = namespace.list_tables(api.ListTablesRequest(id=path, limit=_LIMIT)).tables
        return _find_matches(path, tables, incomplete)


def _find_matches(path: list[str], names: Iterable[str], incomplete: str) -> list[str]:
    from lance_bridge.names import written  # noqa: PLC0415 - takes seconds to import

    found = (written([*path, each]) for each in names)
    return [each for each in found if each.startswith(incomplete)]

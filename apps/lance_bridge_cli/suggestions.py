"""The nearest existing names, in the message about a table or namespace that does not exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches

import lance_bridge

from . import api

_LISTED = 1000
"""The maximum number of names to compare: those of one listing."""
_MOST = 3
_SIMILARITY = 0.6
"""Of `difflib`: 1 for equal names. Its default, which typer uses for options, too."""


@contextmanager
def suggesting_names(namespace: api.LanceNamespace) -> Iterator[None]:
    """Name similar tables or namespaces in the block's error about one that does not exist.

    They are those of one more listing, so only what the caller may see. If that fails, or nothing
    is similar, the error stays.
    """
    try:
        yield
    except (api.TableNotFoundError, api.NamespaceNotFoundError) as error:
        path = _missing_path(error, namespace)
        found = _find_similar(namespace, path, of_table=isinstance(error, api.TableNotFoundError))
        if not found:
            raise
        beginning = str(error).partition(": ")[0]
        text = f"{beginning}: {_written(path)}: did you mean {_enumerate(found)}?"
        raise type(error)(text) from error


@contextmanager
def suggesting_conversion(
    namespace: api.LanceNamespace, catalog: str, given: Mapping[str, str]
) -> Iterator[None]:
    """Name the command that converts a table, in the block's error that it is not a Lance table.

    Args:
        catalog: The name of the catalog in the command.
        given: The properties that were passed with it.
    """
    from lance_bridge.errors import NotLanceError  # noqa: PLC0415 - takes seconds to import

    try:
        yield
    except NotLanceError as error:
        is_ours = isinstance(namespace, lance_bridge.LanceBridgeNamespace)
        if "view" in error.format or not is_ours:
            raise
        command = ["lance-bridge", "migrate", "convert", catalog]
        command += ["--include", _written(error.path), *property_options(namespace, given)]
        raise api.InvalidInputError(f"{error}. To convert it: {shlex.join(command)}") from error


def property_options(namespace: api.LanceNamespace, given: Mapping[str, str]) -> list[str]:
    """Return options of a command for properties; secrets are replaced by ``<key>``."""
    assert isinstance(namespace, lance_bridge.LanceBridgeNamespace)
    is_secret = namespace.config_type.is_secret
    shown = [f"{key}={f'<{key}>' if is_secret(key) else value}" for key, value in given.items()]
    return [part for each in shown for part in ("-p", each)]


def _missing_path(error: Exception, namespace: api.LanceNamespace) -> tuple[str, ...]:
    """Return what does not exist; () if that is not known."""
    from lance_bridge.errors import display, missing_path  # noqa: PLC0415 - takes seconds to import

    path = missing_path(error)
    named = str(error).partition(": ")[2]
    is_ours = isinstance(namespace, lance_bridge.LanceBridgeNamespace)
    if not path or is_ours or named.startswith(display(path)):
        return path
    # A federation puts the name of the catalog before the catalog's own message.
    catalog = re.match(rf"(\S+)\.{re.escape(display(path))}", named, re.I)
    return (catalog[1], *path) if catalog else ()


def _find_similar(
    namespace: api.LanceNamespace, path: Sequence[str], *, of_table: bool
) -> list[str]:
    if not path:
        return []
    parent = list(path[:-1])
    try:
        if of_table:
            tables = api.ListTablesRequest(id=parent, limit=_LISTED)
            names = namespace.list_tables(tables).tables
        else:
            namespaces = api.ListNamespacesRequest(id=parent, limit=_LISTED)
            names = namespace.list_namespaces(namespaces).namespaces
    except api.LanceNamespaceError:
        return []
    return [_written([*parent, each]) for each in similar(path[-1], names)]


def similar(name: str, names: Iterable[str]) -> list[str]:
    """Return the names that are like another, the nearest first. Letter case does not count."""
    spelt = {each.casefold(): each for each in names}
    found = get_close_matches(name.casefold(), spelt, n=_MOST, cutoff=_SIMILARITY)
    return [spelt[each] for each in found]


def _written(path: Sequence[str]) -> str:
    from lance_bridge.dotted_names import written  # noqa: PLC0415 - takes seconds to import

    return written(path)


def _enumerate(names: Sequence[str]) -> str:
    quoted = [f"'{each}'" for each in names]
    return " or ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))

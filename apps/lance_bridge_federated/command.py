"""The command ``lance-bridge search``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

import lance_bridge
from lance_bridge.dotted_names import first_names, written
from lance_bridge.exit_codes import FAILED
from lance_bridge_cli.arguments import (
    CatalogName,
    OutputOption,
    Properties,
    exit_on_error,
    parse_key_values,
    usage_error,
)
from lance_bridge_cli.output import (
    UNLIMITED,
    Output,
    message,
    one_line,
    state_empty,
    to_json,
    write_array,
)

if TYPE_CHECKING:
    from .search import Match, Search

_NAMED = 5
"""The maximum number of tables in a message."""


def search(
    catalog: CatalogName,
    word: Annotated[str, typer.Argument(help="Text that a name contains; case-insensitive.")],
    *,
    within: Annotated[
        list[str] | None,
        typer.Option("--in", help="What to search: name, column or property. Repeatable."),
    ] = None,
    properties: Properties = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Search the names, columns and properties of all tables for a word.

    CATALOG is one catalog, or "federated" for all of the configuration file. Matches are printed
    as they are found. The exit code is 1 if a catalog or a table could not be searched.

    Example: lance-bridge search prod price --in column
    """
    from .search import Scope, Search  # noqa: PLC0415 - takes seconds to import

    known = [each.value for each in Scope]
    if not word:
        raise usage_error("WORD must not be empty")
    if not set(within or ()) <= set(known):
        raise usage_error(f"--in is one of {', '.join(known)}")
    given = parse_key_values(properties)
    with exit_on_error():
        namespace = lance_bridge.connect(catalog, given)
    found = Search.of(namespace, catalog, word, [Scope(each) for each in within or known])
    if output is Output.JSON:
        _print_json(found)
    else:
        _print_text(found)
    _exit_if_incomplete(found)


def _print_text(found: Search) -> None:
    gap = "  " if sys.stdout.isatty() else "\t"
    has_matches = False
    for each in found:
        has_matches = True
        name = written([each.catalog, *each.table])
        cells = (one_line(text, UNLIMITED) for text in (name, each.scope.value, each.text))
        print(gap.join(cells), flush=True)
    if not has_matches:
        state_empty("matches")


def _print_json(found: Search) -> None:
    """Print one object, whose matches are written as they are found."""
    print('{"matches": ', end="")
    write_array(_rows(found))
    unread = [
        {"catalog": catalog, "table": written(path), "reason": why}
        for (catalog, path), why in sorted(found.unread.items())
    ]
    print(f',\n "unavailable": {to_json(found.unavailable)}, "unread": {to_json(unread)}}}')


def _rows(matches: Iterable[Match]) -> Iterator[dict[str, Any]]:
    for each in matches:
        yield {
            "catalog": each.catalog,
            "table": written(each.table),
            "in": each.scope.value,
            "text": each.text,
        }
        sys.stdout.flush()


def _exit_if_incomplete(found: Search) -> None:
    """Print what could not be searched, and exit; return if everything was searched."""
    for catalog, why in found.unavailable.items():
        message(f"the catalog '{catalog}' could not be searched: {why}")
    if found.unread:
        names = [written([catalog, *path]) for catalog, path in sorted(found.unread)]
        why = next(iter(found.unread.values()))
        message(f"only the names of these were searched: {first_names(names, _NAMED)}: {why}")
    if found.unavailable or found.unread:
        raise typer.Exit(FAILED)

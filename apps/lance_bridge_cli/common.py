"""What all commands share: the catalog that is named, names, and how failures are told."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

import lance_bridge
from _lance_bridge_names import catalogs
from lance_bridge.exit_codes import FAILED, MISUSED

from . import api
from .completion import catalog_names, namespace_names, table_names
from .output import Output, message, printable

if TYPE_CHECKING:
    from lance_bridge import LanceBridgeNamespace

_NAMES_OF_CATALOGS = (
    f"An installed implementation ({', '.join(sorted(catalogs()))}), a catalog of the "
    "configuration file (see: catalogs list), or a class path."
)
CatalogName = Annotated[str, typer.Argument(help=_NAMES_OF_CATALOGS, autocompletion=catalog_names)]
TableName = Annotated[
    str,
    typer.Argument(
        help="The table's names, joined with dots: db.table. Backticks quote one with dots in it.",
        autocompletion=table_names,
    ),
]
NamespaceName = Annotated[
    str,
    typer.Argument(
        help="The namespace's names, joined with dots, quoted as a table's.",
        autocompletion=namespace_names,
    ),
]
Properties = Annotated[
    list[str] | None,
    typer.Option("--property", "-p", help="A property of the catalog: key=value. Repeatable."),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="text or json.")]
_DIRECTORY = (
    "To register the tables of a directory in a catalog, see lance-bridge migrate register --help"
)
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@contextmanager
def told() -> Iterator[None]:
    """End the command with a message where anything in it fails."""
    try:
        yield
    except api.LanceNamespaceError as error:
        message(str(error))
        raise typer.Exit(FAILED) from error


@contextmanager
def connected(catalog: str, properties: Sequence[str] | None) -> Iterator[LanceBridgeNamespace]:
    """Connect to a catalog; end the command with a message where anything fails."""
    given = pairs(properties)
    require_catalog(catalog)
    with told():
        namespace = lance_bridge.connect(catalog, given)
        assert isinstance(namespace, lance_bridge.LanceBridgeNamespace)
        with namespace:
            yield namespace


def require_catalog(name: str) -> None:
    """End the command where a name is that of a namespace which is not lance-bridge's.

    A name that stands for nothing passes: connecting to it says why.
    """
    from lance_bridge import registry  # noqa: PLC0415 - takes seconds to import

    try:
        found = registry.implementation(name)
    except api.LanceNamespaceError:
        return
    is_directory = f"{found.__module__}.{found.__name__}" == api.NATIVE_IMPLS["dir"]
    try:
        registry.require_lance_bridge_class(found, name, _DIRECTORY if is_directory else "")
    except api.InvalidInputError as error:
        raise misused(str(error)) from error


def pairs(given: Sequence[str] | None) -> dict[str, str]:
    """Return options of the form key=value as a mapping; end the command where one is not."""
    split = [each.partition("=") for each in given or ()]
    if not all(key and equals for key, equals, _ in split):
        raise misused("A property is given as key=value")
    return {key: value for key, _, value in split}


def names_of(name: str) -> list[str]:
    """Return the identifier that a name stands for; end the command where it is malformed."""
    from lance_bridge.names import parts_of  # noqa: PLC0415 - takes seconds to import

    try:
        return parts_of(name)
    except api.InvalidInputError as error:
        raise misused(str(error)) from error


def misused(text: str) -> typer.Exit:
    """Tell what is wrong with the command that was given; return what ends it."""
    message(text)
    return typer.Exit(MISUSED)


def confirm(question: str, *, yes: bool) -> None:
    """Ask whether to go on, where nobody has said so; end the command where the answer is no.

    Where nobody is there to answer, because the input is no terminal, nothing is done.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise misused(f"{question} Nobody is there to answer: give --yes")
    answer = ask(f"{question} [y/N] ")
    if answer.strip().lower() not in ("y", "yes"):
        message("nothing was done")
        raise typer.Exit(FAILED)


def ask(question: str) -> str:
    """Return what somebody types; the question goes where messages go. Ctrl-C ends the command."""
    sys.stderr.write(printable(question))
    sys.stderr.flush()
    return sys.stdin.readline()

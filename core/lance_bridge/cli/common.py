"""What all commands share: the catalog that is named, names, and how failures are told."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer
from lance_namespace import LanceNamespace
from lance_namespace.errors import InvalidInputError, LanceNamespaceError

import lance_bridge
from lance_bridge import LanceBridgeNamespace

from ..errors import invalid
from ..exit_codes import FAILED, MISUSED
from ..names import parts_of
from .completion import catalog_names
from .output import Output, message

CatalogName = Annotated[
    str,
    typer.Argument(
        help="hive, glue, unity, or a catalog of the configuration file.",
        autocompletion=catalog_names,
    ),
]
TableName = Annotated[
    str,
    typer.Argument(
        help="The table's names, joined with dots: db.table. Backticks quote one with dots in it."
    ),
]
NamespaceName = Annotated[
    str, typer.Argument(help="The namespace's names, joined with dots, quoted as a table's.")
]
Properties = Annotated[
    list[str] | None,
    typer.Option("--property", "-p", help="A property of the catalog: key=value. Repeatable."),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="text or json.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@contextmanager
def told() -> Iterator[None]:
    """End the command with a message where anything in it fails."""
    try:
        yield
    except LanceNamespaceError as error:
        message(str(error))
        raise typer.Exit(FAILED) from error


@contextmanager
def connected(catalog: str, properties: Sequence[str] | None) -> Iterator[LanceBridgeNamespace]:
    """Connect to a catalog; end the command with a message where anything fails."""
    given = pairs(properties)
    with told():
        namespace = bridged(lance_bridge.connect(catalog, given), catalog)
        with namespace:
            yield namespace


def bridged(namespace: LanceNamespace, catalog: str) -> LanceBridgeNamespace:
    """Return a namespace that is one of ours.

    Raises:
        InvalidInputError: (13) it is pylance's own.
    """
    if not isinstance(namespace, LanceBridgeNamespace):
        raise invalid(f"'{catalog}' is pylance's own implementation: this is about catalogs")
    return namespace


def pairs(given: Sequence[str] | None) -> dict[str, str]:
    """Return options of the form key=value as a mapping; end the command where one is not."""
    split = [each.partition("=") for each in given or ()]
    if not all(key and equals for key, equals, _ in split):
        raise misused("A property is given as key=value")
    return {key: value for key, _, value in split}


def names_of(name: str) -> list[str]:
    """Return the identifier that a name stands for; end the command where it is malformed."""
    try:
        return parts_of(name)
    except InvalidInputError as error:
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
    sys.stderr.write(question)
    sys.stderr.flush()
    return sys.stdin.readline()

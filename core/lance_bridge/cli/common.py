"""What all commands share: the catalog that is named, identifiers, and how failures are told."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Annotated, Any

import typer
from lance_namespace.errors import LanceNamespaceError

import lance_bridge
from lance_bridge import LanceBridgeNamespace

from ..errors import invalid

FAILED = 1
"""The exit code where the catalog or the storage refused, or failed."""


class Output(str, Enum):
    """For people, or for programs."""

    TEXT = "text"
    JSON = "json"


CatalogName = Annotated[
    str, typer.Argument(help="hive, glue, unity, or a catalog of the configuration file.")
]
TableName = Annotated[str, typer.Argument(help="The table's names, joined with dots: db.table.")]
Properties = Annotated[
    list[str] | None,
    typer.Option("--property", "-p", help="A property of the catalog: key=value. Repeatable."),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="text or json.")]


@contextmanager
def connected(catalog: str, properties: Sequence[str] | None) -> Iterator[LanceBridgeNamespace]:
    """Connect to a catalog; end the command with a message where anything fails."""
    try:
        namespace = lance_bridge.connect(catalog, _parsed(properties or []))
        if not isinstance(namespace, LanceBridgeNamespace):
            raise invalid(f"'{catalog}' is pylance's own implementation: this is about catalogs")
        with namespace:
            yield namespace
    except LanceNamespaceError as error:
        typer.echo(f"lance-bridge: {error}", err=True)
        raise typer.Exit(FAILED) from error


def _parsed(properties: Sequence[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in properties]
    if not all(key and equals for key, equals, _ in pairs):
        raise invalid("A property is given as key=value")
    return {key: value for key, _, value in pairs}


def names_of(table: str) -> list[str]:
    """Return the identifier that a table's name stands for."""
    return table.split(".")


def tell(output: Output, text: str, fields: Mapping[str, Any]) -> None:
    """Print an answer: a sentence, or its fields as one JSON object."""
    sys.stdout.write((json.dumps(fields) if output is Output.JSON else text) + "\n")

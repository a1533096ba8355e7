"""The configuration file: what it says, without secrets, and changing it."""

from __future__ import annotations

import getpass
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

import lance_bridge
from lance_bridge.user_files import config_path

from . import api
from .common import OutputOption, misused, told
from .completion import configured
from .output import Output, message, table_of, tell, tell_parts
from .rows import RowsOption, RowsOutput, print_listed

if TYPE_CHECKING:
    from lance_bridge.namespace import LanceBridgeNamespace

app = typer.Typer()

HIDDEN = "(hidden)"
_USER = re.compile(r"(?<=//)[^/?#\s]*@")

ConfiguredName = Annotated[
    str, typer.Argument(help="A catalog of the configuration file.", autocompletion=configured)
]


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(help="Show this catalog only.", autocompletion=configured)
    ] = "",
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """Show the catalogs of the configuration file. Secrets are hidden.

    Example: lance-bridge config show prod
    """
    with told():
        named = lance_bridge.config.named_catalogs()
        if name and name not in named:
            raise lance_bridge.errors.invalid(f"The configuration file has no catalog '{name}'")
        chosen = {name: named[name]} if name else named.valid
        for problem in () if name else named.problems.values():
            message(problem)
        shown = {each: _shown(each, properties) for each, properties in chosen.items()}
    path = config_path()
    rows = [
        {"catalog": each, "property": key, **value}
        for each, properties in shown.items()
        for key, value in properties.items()
    ]
    columns = ["catalog", "property", "value", "from"]
    if output is RowsOutput.CSV:
        print_listed(output, columns, rows, "catalogs")
        return
    table = table_of(columns, rows)
    tell_parts(Output(output.value), {"file": str(path), "catalogs": shown}, [str(path), table])


def _shown(name: str, properties: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return each property with its value, or that it is hidden, and where it comes from."""
    kind = _kind(properties["impl"])
    shown = {key: {"value": value, "from": "file"} for key, value in properties.items()}
    if kind is not None:
        for key, value in lance_bridge.config.environment(kind.config_type, name).items():
            shown[key] = {"value": value, "from": "environment"}
    for key, each in shown.items():
        each["value"] = _USER.sub(f"{HIDDEN}@", each["value"])
        if key != "impl" and (kind is None or kind.config_type.is_secret(key)):
            # Of an implementation that is not ours, nobody knows which are secrets.
            each["value"] = HIDDEN
    return shown


def _kind(impl: str) -> type[LanceBridgeNamespace] | None:
    from lance_bridge.registry import find  # noqa: PLC0415 - takes seconds to import

    try:
        kind = find(impl)
    except api.LanceNamespaceError:
        return None
    return kind if issubclass(kind, lance_bridge.LanceBridgeNamespace) else None


@app.command("set")
def set_properties(
    name: ConfiguredName,
    settings: Annotated[
        list[str] | None,
        typer.Argument(help="key=value, or only the key: its value is asked for then, unseen."),
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", help="Take this property away. Repeatable.")
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Set properties of a catalog, and add it if it is not there: impl=hive and its address.

    The file is replaced in one step, and is for its owner only. A value that others must not see,
    in the history of the shell or the list of processes, is asked for, or read from the input
    where that is no terminal.

    Example: lance-bridge config set staging impl=hive uri=thrift://localhost:9083
    """
    given: dict[str, str | None] = _given(name, settings or ())
    given |= dict.fromkeys(unset or ())
    if not given:
        raise misused("Nothing is to be set: give key=value, a key, or --unset key")
    from . import configfile  # noqa: PLC0415 - takes seconds to import

    with told():
        path = config_path()
        before = configfile.stored(path).get(name, {})
        merged = {k: v for k, v in {**before, **given}.items() if v is not None}
        _check(name, merged)
        configfile.change(path, name, given)
    keys = ", ".join(given)
    tell(output, f"{name}: {keys} set in {path}", {"catalog": name, "set": list(given)})


def _given(name: str, settings: Sequence[str]) -> dict[str, str | None]:
    given: dict[str, str | None] = {}
    for each in settings:
        key, equals, value = each.partition("=")
        if not key:
            raise misused("A property is given as key=value")
        given[key] = value if equals else _asked(f"{name}: {key}")
    return given


def _asked(what: str) -> str:
    """Return a value that is not seen while it is typed, or a line of the input."""
    if sys.stdin.isatty():
        value = getpass.getpass(f"{what} = ", stream=sys.stderr)
    else:
        value = sys.stdin.readline().rstrip("\r\n")
    if not value:
        raise misused(f"No value for {what}")
    return value


def _check(name: str, properties: Mapping[str, str]) -> None:
    """Check a catalog before it is written, as connecting would.

    Raises:
        InvalidInputError: (13) a property is not known; the message has those that are.
    """
    from lance_bridge.registry import find, is_implementation  # noqa: PLC0415 - takes seconds to import

    if is_implementation(name):
        raise lance_bridge.errors.invalid(
            f"'{name}' is the name of an implementation: give the catalog another name"
        )
    impl = properties.get("impl")
    if impl is None:
        raise lance_bridge.errors.invalid(
            f"Catalog '{name}' is not in the file yet: give its impl=, too"
        )
    kind = find(impl)
    if not issubclass(kind, lance_bridge.LanceBridgeNamespace):
        return
    rest = {key: value for key, value in properties.items() if key != "impl"}
    known = [each.key for each in kind.config_type.declared() if each.key != "storage.*"]
    unknown = [
        k for k in rest if k not in known and not k.startswith(lance_bridge.config.STORAGE_PREFIX)
    ]
    if unknown:
        allowed = ", ".join(["impl", *known, lance_bridge.config.STORAGE_OPTIONS])
        raise lance_bridge.errors.invalid(
            f"impl={impl} has no property '{unknown[0]}': allowed are {allowed}"
        )
    found: dict[str, Any] = {**rest, **lance_bridge.config.environment(kind.config_type, name)}
    lance_bridge.config.load(kind.config_type, impl, found)

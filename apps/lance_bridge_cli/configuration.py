"""Commands that show the configuration file without secrets, and change it."""

from __future__ import annotations

import getpass
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import lance_bridge
from lance_bridge.user_files import config_path

from . import api
from .arguments import OutputOption, configured_names, exit_on_error, usage_error
from .output import (
    Output,
    RowsOption,
    RowsOutput,
    make_table,
    message,
    print_list,
    print_parts,
    print_result,
)

if TYPE_CHECKING:
    from lance_bridge.config import CatalogConfig

app = typer.Typer()

HIDDEN = "(hidden)"
_USER = re.compile(r"(?<=//)[^/?#\s]*@")

ConfiguredName = Annotated[
    str,
    typer.Argument(help="A catalog of the configuration file.", autocompletion=configured_names),
]


@app.command()
def show(name: ConfiguredName = "", output: RowsOption = RowsOutput.TEXT) -> None:
    """Show the catalogs of the configuration file, or one of them. Secrets are hidden.

    Example: lance-bridge config show prod
    """
    with exit_on_error():
        named = lance_bridge.config.named_catalogs()
        if name and name not in named:
            raise lance_bridge.errors.invalid(f"The configuration file has no catalog '{name}'")
        chosen = {name: named[name]} if name else named.valid
        for problem in () if name else named.problems.values():
            message(problem)
        shown = {each: _hide_secrets(each, properties) for each, properties in chosen.items()}
    path = config_path()
    rows = [
        {"catalog": each, "property": key, **value}
        for each, properties in shown.items()
        for key, value in properties.items()
    ]
    columns = ["catalog", "property", "value", "from"]
    if output is RowsOutput.CSV:
        print_list(output, columns, rows, "catalogs")
        return
    table = make_table(columns, rows)
    print_parts(Output(output.value), {"file": str(path), "catalogs": shown}, [str(path), table])


def _hide_secrets(name: str, properties: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the value of each property, or `HIDDEN` for a secret, and its source."""
    config_type = _config_type(properties["impl"])
    shown = {key: {"value": value, "from": "file"} for key, value in properties.items()}
    if config_type is not None:
        for key, value in lance_bridge.config.environment(config_type, name).items():
            shown[key] = {"value": value, "from": "environment"}
    for key, each in shown.items():
        each["value"] = _USER.sub(f"{HIDDEN}@", each["value"])
        # For another library's implementation, it is unknown which properties are secret.
        if key != "impl" and (config_type is None or config_type.is_secret(key)):
            each["value"] = HIDDEN
    return shown


def _config_type(impl: str) -> type[CatalogConfig] | None:
    """Return the configuration class of an implementation; None if it is not lance-bridge's."""
    from lance_bridge.registry import find  # noqa: PLC0415 - takes seconds to import

    try:
        found = find(impl)
    except api.LanceNamespaceError:
        return None
    return found.config_type if issubclass(found, lance_bridge.LanceBridgeNamespace) else None


@app.command("set")
def set_properties(
    name: ConfiguredName,
    settings: Annotated[
        list[str] | None,
        typer.Argument(help="key=value, or only the key to be prompted for its value."),
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", help="Remove this property. Repeatable.")
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Set properties of a catalog. A new one needs an impl, such as impl=hive, and its address.

    The file is replaced atomically, and only its owner can read it. With a key alone, the command
    prompts for the value, which keeps secrets out of the shell history and the process list. If
    standard input is not a terminal, it reads one line from it.

    Example: lance-bridge config set staging impl=hive uri=thrift://localhost:9083
    """
    given = _parse_settings(name, settings or ()) | dict.fromkeys(unset or ())
    if not given:
        raise usage_error("Nothing to set: pass key=value, a key, or --unset key")
    from . import config_file  # noqa: PLC0415 - takes seconds to import

    with exit_on_error():
        path = config_path()
        before = config_file.read(path).get(name, {})
        if before and given.get("impl", "") is None:
            raise lance_bridge.errors.invalid(
                f"A catalog has an impl. To remove it: lance-bridge config remove {name}"
            )
        _check_catalog(name, {k: v for k, v in {**before, **given}.items() if v is not None})
        config_file.change(path, name, given)
    done = {
        "set": [key for key, value in given.items() if value is not None],
        "unset": [key for key, value in given.items() if value is None],
    }
    text = "; ".join(f"{', '.join(keys)} {verb}" for verb, keys in done.items() if keys)
    print_result(output, f"{name}: {text} in {path}", {"catalog": name, **done})


@app.command()
def remove(name: ConfiguredName, output: OutputOption = Output.TEXT) -> None:
    """Remove a catalog from the configuration file; the catalog itself is not changed.

    Example: lance-bridge config remove staging
    """
    from . import config_file  # noqa: PLC0415 - takes seconds to import

    with exit_on_error():
        path = config_path()
        if name not in config_file.read(path):
            raise lance_bridge.errors.invalid(f"The configuration file has no catalog '{name}'")
        config_file.change(path, name, None)
    print_result(output, f"{name}: removed from {path}", {"catalog": name})


def _parse_settings(name: str, settings: Sequence[str]) -> dict[str, str | None]:
    given: dict[str, str | None] = {}
    for each in settings:
        key, equals, value = each.partition("=")
        if not key:
            raise usage_error("A property must be key=value")
        given[key] = value if equals else _read_secret(f"{name}: {key}")
    return given


def _read_secret(name: str) -> str:
    """Return a value that is typed without echo, or a line of the input."""
    if sys.stdin.isatty():
        value = getpass.getpass(f"{name} = ", stream=sys.stderr)
    else:
        value = sys.stdin.readline().rstrip("\r\n")
    if not value:
        raise usage_error(f"No value for {name}")
    return value


def _check_catalog(name: str, properties: Mapping[str, str]) -> None:
    """Check a catalog like connecting to it would, before it is written.

    Raises:
        InvalidInputError: (13) a property is unknown, missing or wrong.
    """
    from lance_bridge import registry  # noqa: PLC0415 - takes seconds to import
    from lance_bridge.errors import invalid  # noqa: PLC0415 - the same

    if registry.is_implementation(name):
        raise invalid(f"'{name}' is the name of an implementation: give the catalog another name")
    rest = dict(properties)
    impl = rest.pop("impl", None)
    if impl is None:
        raise invalid(f"Catalog '{name}' is not in the file yet: also pass impl=")
    found = registry.find(impl)
    if issubclass(found, lance_bridge.LanceBridgeNamespace):
        overrides = lance_bridge.config.environment(found.config_type, name)
        lance_bridge.config.load(found.config_type, impl, {**rest, **overrides})
    elif impl == "dir" and "://" not in rest.get("root", ""):
        _require_absolute(rest.get("root", ""))


def _require_absolute(root: str) -> None:
    if not Path(root).is_absolute():  # commands may run in other directories
        raise lance_bridge.errors.invalid(
            f"root '{root}' is not an absolute path: give root={Path(root).absolute()}"
        )

"""Commands that show the configuration file without secrets, and change it.

It is changed one catalog at a time, atomically, and comments are kept.
"""

from __future__ import annotations

import getpass
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from rich.table import Table

import lance_bridge
from lance_bridge.user_files import config_path

from . import api
from .arguments import (
    DEFAULT_KEY,
    OutputOption,
    configured_names,
    exit_on_error,
    read_default,
    usage_error,
)
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
from .suggestions import similar

if TYPE_CHECKING:
    from lance_bridge.config import CatalogConfig, NamedCatalogs

app = typer.Typer()

HIDDEN = "(hidden)"
_INDENT = "  "
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
            raise api.InvalidInputError(_no_catalog(name, named))
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
    if output in (RowsOutput.CSV, RowsOutput.JSONL):
        print_list(output, columns, rows, "catalogs")
        return
    table = make_table(columns, rows)
    first = read_default()
    fields = {"file": str(path), "default": first, "catalogs": shown}
    parts: list[Table | str] = [str(path), *([f"default: {first}"] if first else []), table]
    print_parts(Output(output.value), fields, parts)


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
    with exit_on_error():
        path = config_path()
        before = _read(path).get(name, {})
        if before and given.get("impl", "") is None:
            raise api.InvalidInputError(
                f"A catalog has an impl. To remove it: lance-bridge config remove {name}"
            )
        _check_catalog(name, {k: v for k, v in {**before, **given}.items() if v is not None})
        _change(path, partial(_edit, path, catalog=name, properties=given))
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
    with exit_on_error():
        path = config_path()
        if name not in _read(path):
            raise api.InvalidInputError(_no_catalog(name, _read(path)))
        if read_default() == name:
            _change(path, partial(_edit_default, path, name=None))
        _change(path, partial(_edit, path, catalog=name, properties=None))
    print_result(output, f"{name}: removed from {path}", {"catalog": name})


@app.command()
def default(
    name: ConfiguredName = "",
    *,
    unset: Annotated[bool, typer.Option("--unset", help="Have no default.")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show or set the default catalog, which a command uses if its catalog is left out.

    It is left out if exactly one argument is missing, as in: lance-bridge table head sales.orders

    Example: lance-bridge config default prod
    """
    if name and unset:
        raise usage_error("Pass a catalog or --unset, not both")
    with exit_on_error():
        path = config_path()
        if not name and not unset:
            found = read_default()
            if found is None:
                raise api.InvalidInputError(f"{path} has no default catalog")
            print_result(output, found, {"default": found})
            return
        if name and name not in _read(path):
            raise api.InvalidInputError(_no_catalog(name, _read(path)))
        if name or read_default() is not None:
            _change(path, partial(_edit_default, path, name=name or None))
    text = f"{name} is the default catalog" if name else "no default catalog"
    print_result(output, f"{text} in {path}", {"default": name or None})


def _no_catalog(name: str, known: Iterable[str]) -> str:
    text = f"The configuration file has no catalog '{name}'"
    near = similar(name, known)
    return f"{text}: did you mean '{near[0]}'?" if near else text


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
        root = rest.get("root", "")
        if not Path(root).is_absolute():  # commands may run in other directories
            absolute = Path(root).absolute()
            raise invalid(f"root '{root}' is not an absolute path: give root={absolute}")


# -- the file --------------------------------------------------------------------------------------


def _read(path: Path) -> NamedCatalogs:
    """Return the catalogs of a file; none if it is empty or does not exist.

    Raises:
        InvalidInputError: (13) it cannot be read, or is malformed.
    """
    try:
        text = _read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise api.InvalidInputError(f"{path} cannot be read: {error}") from error
    return _parse(path, text)


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _parse(path: Path, text: str) -> NamedCatalogs:
    """Return the catalogs of a file's text, which may be empty, unlike that of a file in use."""
    if _is_empty(text):
        return lance_bridge.config.NamedCatalogs({}, {})
    return lance_bridge.config.catalogs_in(path, text)


def _is_empty(text: str) -> bool:
    """Return whether a file has nothing but comments."""
    return all(not line.strip() or line.lstrip().startswith("#") for line in text.splitlines())


def _change(path: Path, edit: Callable[[str], str]) -> None:
    """Edit the file's text.

    The file is replaced atomically, and afterwards only its owner can read it.

    Raises:
        InvalidInputError: (13) it cannot be read or written.
    """
    try:
        edited = edit(_read_text(path))
        # A symbolic link to the file is kept.
        _replace(path.resolve(), edited)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)  # without the temporary file's name
        raise api.InvalidInputError(f"{path} cannot be changed: {reason}") from error


def _edit_default(path: Path, text: str, *, name: str | None) -> str:
    """Return the text with another default catalog, or with None."""
    content: dict[str, Any] = {} if _is_empty(text) else yaml.safe_load(text)
    wanted = {
        DEFAULT_KEY: name,
        **{key: value for key, value in content.items() if key != DEFAULT_KEY},
    }
    expected = {
        key: value for key, value in wanted.items() if value is not None or key != DEFAULT_KEY
    }
    edited = _edit_default_line(text, name)
    try:
        if yaml.safe_load(edited) == expected:
            return edited
    except yaml.YAMLError:  # a line cannot be inserted into flow style, for example
        pass
    for problem in _parse(path, text).problems.values():
        raise api.InvalidInputError(f"{path} cannot be changed before this is corrected: {problem}")
    return yaml.safe_dump(expected, sort_keys=False, allow_unicode=True)


def _edit_default_line(text: str, name: str | None) -> str:
    root = yaml.compose(text, yaml.SafeLoader)
    key, node = _find(root, DEFAULT_KEY)
    if key is None:
        catalogs, _ = _find(root, "catalogs")
        start = 0 if catalogs is None else catalogs.start_mark.index
        return f"{text[:start]}{_line(DEFAULT_KEY, name)}{text[start:]}"
    if name is None:
        return _remove_line(text, key.start_mark.index, node.end_mark.index)
    return text[: node.start_mark.index] + _scalar(name) + text[node.end_mark.index :]


def _edit(
    path: Path, text: str, *, catalog: str, properties: Mapping[str, str | None] | None
) -> str:
    """Return the text with properties of a catalog set, or a catalog added.

    None removes a property, or the catalog.
    """
    before = _parse(path, text)
    expected = before.valid
    if properties is None:
        del expected[catalog]
        edited = _remove_catalog(text, catalog)
    else:
        merged = {**before.get(catalog, {}), **properties}
        expected[catalog] = {key: value for key, value in merged.items() if value is not None}
        edited = _edit_lines(text, catalog, properties)
    if _has_catalogs(path, edited, expected):
        return edited
    for problem in before.problems.values():
        raise api.InvalidInputError(f"{path} cannot be changed before this is corrected: {problem}")
    # Lines cannot be inserted into flow style, for example: write the whole file.
    content: dict[str, Any] = {} if _is_empty(text) else yaml.safe_load(text)
    content["catalogs"] = expected
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def _has_catalogs(path: Path, text: str, expected: Mapping[str, Mapping[str, str]]) -> bool:
    try:
        found: NamedCatalogs = lance_bridge.config.catalogs_in(path, text)
    except api.LanceNamespaceError:
        return False
    return found.valid == expected


def _edit_lines(text: str, catalog: str, properties: Mapping[str, str | None]) -> str:
    edited = text
    try:
        for key, value in properties.items():
            edited = _edit_line(edited, catalog, key, value)
    except yaml.YAMLError:  # the edited text is not valid YAML
        return ""
    return edited


def _edit_line(text: str, catalog: str, key: str, value: str | None) -> str:
    """Return the text with one line inserted, changed or removed."""
    catalogs = _find_mapping(yaml.compose(text, yaml.SafeLoader), "catalogs")
    if catalogs is None:
        return (
            text
            + ("\n" if text and not text.endswith("\n") else "")
            + (f"catalogs:\n{_INDENT}{_scalar(catalog)}:\n{_INDENT * 2}{_line(key, value)}")
        )
    properties = _find_mapping(catalogs, catalog)
    if properties is None:
        return _insert_after(
            text, catalogs, f"{_scalar(catalog)}:\n{_INDENT * 2}{_line(key, value)}"
        )
    name, node = _find(properties, key)
    if name is None:
        return text if value is None else _insert_after(text, properties, _line(key, value))
    if value is None:
        return _remove_line(text, name.start_mark.index, node.end_mark.index)
    return text[: node.start_mark.index] + _scalar(value) + text[node.end_mark.index :]


def _find(mapping: Any, key: str) -> tuple[Any, Any]:
    """Return the nodes of a key and of its value, or None for both."""
    pairs = mapping.value if isinstance(mapping, yaml.MappingNode) else ()
    return next((each for each in pairs if each[0].value == key), (None, None))


def _find_mapping(mapping: Any, key: str) -> Any:
    """Return the mapping under a key, or None if it is missing or empty."""
    _, node = _find(mapping, key)
    return node if isinstance(node, yaml.MappingNode) and node.value else None


def _insert_after(text: str, mapping: Any, line: str) -> str:
    """Insert a line after the last line of a mapping, indented like its first line."""
    column = int(mapping.value[0][0].start_mark.column)
    end = text.find("\n", _last_index(mapping))
    head, tail = (text + "\n", "") if end < 0 else (text[: end + 1], text[end + 1 :])
    return f"{head}{' ' * column}{line}{tail}"


def _last_index(node: Any) -> int:
    """Return where the last value in a node ends; the node itself ends after comments."""
    while isinstance(node, yaml.MappingNode) and node.value and not node.flow_style:
        node = node.value[-1][1]
    return int(node.end_mark.index)


def _remove_catalog(text: str, catalog: str) -> str:
    catalogs = _find_mapping(yaml.compose(text, yaml.SafeLoader), "catalogs")
    name, node = _find(catalogs, catalog)
    return text if name is None else _remove_line(text, name.start_mark.index, _last_index(node))


def _remove_line(text: str, start: int, end: int) -> str:
    """Remove the lines of a range."""
    after = text.find("\n", end)
    return text[: text.rfind("\n", 0, start) + 1] + ("" if after < 0 else text[after + 1 :])


def _line(key: str, value: str | None) -> str:
    return "" if value is None else f"{_scalar(key)}: {_scalar(value)}\n"


def _scalar(text: str) -> str:
    """Return text as a YAML scalar on one line."""
    dumped = str(yaml.safe_dump(text, width=100_000, allow_unicode=True))
    return dumped.removesuffix("\n").removesuffix("...").removesuffix("\n")


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        # mkstemp creates files that only the owner can read and write: 0600.
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise

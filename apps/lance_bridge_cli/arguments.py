"""Arguments that commands share: options, completion, parsing, and the catalog that they name.

A mistake in an argument, and an error of the catalog, end the command with one message. A command
whose first argument is a catalog takes the default catalog if it is left out.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

import lance_bridge
from _lance_bridge_names import catalogs, implementations
from lance_bridge.exit_codes import FAILED, MISUSED
from lance_bridge.user_files import config_path

from . import api
from .output import Output, message, printable
from .suggestions import suggesting_conversion, suggesting_names

if TYPE_CHECKING:
    from lance_bridge import LanceBridgeNamespace

logger = logging.getLogger(__name__)

# -- completion ------------------------------------------------------------------------------------


_LIMIT = 1000
"""Names per listing."""
_SECONDS = 5
"""A catalog that takes longer to respond completes nothing."""


def catalog_names(incomplete: str) -> list[str]:
    """Return the matching catalogs that are installed or configured."""
    installed = {each for each in catalogs() if each.startswith(incomplete)}
    return sorted(installed.union(configured_names(incomplete)))


def configured_names(incomplete: str) -> list[str]:
    """Return the matching catalogs of the configuration file."""
    return sorted(str(each) for each in _configured() if str(each).startswith(incomplete))


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
    from lance_bridge.dotted_names import parts_of  # noqa: PLC0415 - takes seconds to import

    pairs = [each.partition("=") for each in given.get("properties") or ()]
    parent, dot, _ = incomplete.rpartition(".")
    namespace = lance_bridge.connect(given["catalog"], {key: value for key, _, value in pairs})
    if not isinstance(namespace, lance_bridge.LanceBridgeNamespace):
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
    from lance_bridge.dotted_names import written  # noqa: PLC0415 - takes seconds to import

    found = (written([*path, each]) for each in names)
    return [each for each in found if each.startswith(incomplete)]


# -- options ---------------------------------------------------------------------------------------


_CATALOG = (
    f"An installed implementation ({', '.join(sorted(catalogs()))}), a catalog of the "
    "configuration file (see: catalogs list), or a class path."
)
CatalogName = Annotated[str, typer.Argument(help=_CATALOG, autocompletion=catalog_names)]
TableName = Annotated[
    str,
    typer.Argument(
        help="Table name: db.table. Quote a part that contains dots with backticks.",
        autocompletion=table_names,
    ),
]
NamespaceName = Annotated[
    str,
    typer.Argument(
        help="Namespace name, quoted like a table name.",
        autocompletion=namespace_names,
    ),
]
Properties = Annotated[
    list[str] | None,
    typer.Option("--property", "-p", help="A property of the catalog: key=value. Repeatable."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="A property of the new entry: key=value. Repeatable."),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="text or json.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Limit = Annotated[
    int | None, typer.Option("--limit", "-n", min=1, help="Maximum number of results per page.")
]
PageToken = Annotated[
    str | None, typer.Option("--page-token", help="Continue from this page token.")
]

_DIRECTORY = (
    "To register the tables of a directory in a catalog, see lance-bridge migrate register --help"
)
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_MAX_DIGITS = 6


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Print an error as one message and exit, without a traceback.

    Its causes, also in the words of other libraries, are printed with ``--verbose``.
    """
    try:
        yield
    except api.LanceNamespaceError as error:
        from lance_bridge.lance_texts import (  # noqa: PLC0415 - only for errors
            cut_message,
            is_for_developers,
        )

        text = str(error)
        _log_causes(error)
        # pylance's own namespaces raise errors of the API, too.
        message(cut_message(text) if is_for_developers(text) else text)
        raise typer.Exit(FAILED) from error


def _log_causes(error: BaseException) -> None:
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        seen.append(cause)
        logger.debug("%s: %s", type(cause).__qualname__, cause)
        cause = cause.__cause__ or cause.__context__


@contextmanager
def connected_or_federated(
    catalog: str, properties: Sequence[str] | None, *, or_federation: bool = True
) -> Iterator[api.LanceNamespace]:
    """Connect to a catalog or a federation, for commands that need only the namespace API.

    Both also have ``query_table_reader``. If connecting or the block fails, exit with a message.
    """
    require_catalog(catalog, or_federation=or_federation)
    given = parse_key_values(properties)
    with exit_on_error():
        connection: Any = lance_bridge.connect(catalog, given)
        with (
            connection as namespace,
            suggesting_names(namespace),
            suggesting_conversion(namespace, catalog, given),
        ):
            yield namespace


@contextmanager
def connected(catalog: str, properties: Sequence[str] | None) -> Iterator[LanceBridgeNamespace]:
    """Connect to a catalog, like `connected_or_federated`; exit if it is a federation."""
    with connected_or_federated(catalog, properties, or_federation=False) as namespace:
        assert isinstance(namespace, lance_bridge.LanceBridgeNamespace)
        yield namespace


def require_catalog(name: str, *, or_federation: bool = False, or_gateway: bool = False) -> None:
    """Exit if a name refers to a namespace that is not lance-bridge's.

    An unknown name passes: connecting to it reports the error.

    Args:
        or_gateway: Whether it may be pylance's client of a REST server.
    """
    from lance_bridge import registry  # noqa: PLC0415 - takes seconds to import

    try:
        found = registry.implementation(name)
    except api.LanceNamespaceError:
        return
    if or_federation and registry.is_federation(found):
        return
    class_path = f"{found.__module__}.{found.__name__}"
    if or_gateway and class_path == api.NATIVE_IMPLS["rest"]:
        return
    is_directory = class_path == api.NATIVE_IMPLS["dir"]
    try:
        registry.require_lance_bridge_class(found, name, _DIRECTORY if is_directory else "")
    except api.InvalidInputError as error:
        raise usage_error(str(error)) from error


def parse_key_values(given: Sequence[str] | None, option: str = "--property") -> dict[str, str]:
    """Return the values of an option, key=value, as a mapping; exit if one has another form."""
    split = [each.partition("=") for each in given or ()]
    if not all(key and equals for key, equals, _ in split):
        raise usage_error(f"{option} must be key=value")
    return {key: value for key, _, value in split}


def parse_name(name: str) -> list[str]:
    """Return the identifier in a name; exit if it is malformed."""
    from lance_bridge.dotted_names import parts_of  # noqa: PLC0415 - takes seconds to import

    try:
        return parts_of(name)
    except api.InvalidInputError as error:
        raise usage_error(str(error)) from error


def parse_duration(option: str, text: str) -> timedelta:
    """Return the duration in an option, such as 90m or 14d; exit if it is malformed."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isdecimal() or len(number) > _MAX_DIGITS:
        raise usage_error(f"{option} must be a number and a unit, such as 90m, 36h or 14d")
    return timedelta(**{_UNITS[unit]: int(number)})


def usage_error(text: str) -> typer.Exit:
    """Print what is wrong with the arguments; return the exception that exits."""
    message(text)
    return typer.Exit(MISUSED)


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation unless ``yes``; exit if it is refused or stdin is not a terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise usage_error(f"{question} stdin is not a terminal; pass --yes to confirm")
    sys.stderr.write(printable(f"{question} [y/N] "))
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        message("nothing was done")
        raise typer.Exit(FAILED)


# -- the default catalog ---------------------------------------------------------------------------

DEFAULT_KEY = "default"
"""The key in the configuration file, beside ``catalogs``."""


def read_default() -> str | None:
    """Return the default catalog of the configuration file, if it has one and can be read."""
    name = _read_configuration().get(DEFAULT_KEY)
    return name if isinstance(name, str) else None


def _configured() -> dict[Any, Any]:
    """Return the catalogs of the configuration file, if it can be read."""
    found = _read_configuration().get("catalogs")
    return found if isinstance(found, dict) else {}


def _read_configuration() -> dict[Any, Any]:
    import yaml  # noqa: PLC0415 - only for names of catalogs

    try:
        content: Any = yaml.safe_load(config_path().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


def take_default(command: Any) -> None:
    """Let a command whose first argument is a catalog take the default if one is missing.

    Not a command that asks for confirmation: with a forgotten argument, it would drop something
    else.
    """
    required = [
        each for each in command.params if each.param_type_name == "argument" and each.required
    ]
    asks = any(each.name == "yes" for each in command.params)
    if required and required[0].name == "catalog" and not asks:
        command.parse_args = partial(_parse_with_default, command, command.parse_args, required)


def _parse_with_default(
    command: Any,
    parse: Callable[[Any, list[str]], list[str]],
    required: list[Any],
    context: Any,
    args: list[str],
) -> list[str]:
    """Parse arguments, preceded by the default catalog if exactly one of them is missing.

    If the first one is a catalog, another one was forgotten.
    """
    if context.resilient_parsing:
        return parse(context, args)
    given, _, _ = command.make_parser(context).parse_args(args=list(args))
    missing = [each for each in required if given.get(each.name) in (None, ())]
    default = read_default() if len(missing) == 1 else None
    if default is None or _is_catalog(given.get("catalog")):
        return parse(context, args)
    return parse(context, [default, *args])


def _is_catalog(name: Any) -> bool:
    """Return whether a name is an implementation's or in the configuration file."""
    if name is None:
        return False
    return name in implementations() or name in api.NATIVE_IMPLS or name in _configured()

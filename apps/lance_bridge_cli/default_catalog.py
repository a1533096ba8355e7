"""The default catalog: the first argument of a command, if it is left out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from _lance_bridge_names import implementations
from lance_bridge.user_files import config_path

from . import api

KEY = "default"
"""The key in the configuration file, beside ``catalogs``."""


def read_default() -> str | None:
    """Return the default catalog of the configuration file, if it has one and can be read."""
    name = _read_file().get(KEY)
    return name if isinstance(name, str) else None


def _read_file() -> dict[Any, Any]:
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
        command.parse_args = partial(_parse, command, command.parse_args, required)


def _parse(
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
    configured = _read_file().get("catalogs")
    return (
        name in implementations()
        or name in api.NATIVE_IMPLS
        or (isinstance(configured, dict) and name in configured)
    )

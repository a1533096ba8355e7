"""The default catalog: the first argument of a command, if it is left out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from lance_bridge.user_files import config_path

KEY = "default"
"""The key in the configuration file, beside ``catalogs``."""


def read_default() -> str | None:
    """Return the default catalog of the configuration file, if it has one and can be read."""
    import yaml  # noqa: PLC0415 - only for names of catalogs

    try:
        content: Any = yaml.safe_load(config_path().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None
    name = content.get(KEY) if isinstance(content, dict) else None
    return name if isinstance(name, str) else None


def take_default(command: Any) -> None:
    """Let a command whose first argument is a catalog take the default if one is missing."""
    required = [
        each for each in command.params if each.param_type_name == "argument" and each.required
    ]
    if required and required[0].name == "catalog":
        command.parse_args = partial(_parse, command, command.parse_args, required)


def _parse(
    command: Any,
    parse: Callable[[Any, list[str]], list[str]],
    required: list[Any],
    context: Any,
    args: list[str],
) -> list[str]:
    """Parse arguments, preceded by the default catalog if exactly one of them is missing."""
    if context.resilient_parsing:
        return parse(context, args)
    given, _, _ = command.make_parser(context).parse_args(args=list(args))
    missing = [each for each in required if given.get(each.name) in (None, ())]
    default = read_default() if len(missing) == 1 else None
    return parse(context, args if default is None else [default, *args])

"""Where a catalog's secrets are, if not in its properties: a file, or a function that is named.

Properties end up in many places: the settings of a Spark session, its event log, the arguments of
its processes. The name of a file or of a function may stand there.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from .errors import invalid

SECRETS_FILE = "secrets.file"
SECRETS_PROVIDER = "secrets.provider"


def read_secrets(impl: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the properties that `secrets.file` and `secrets.provider` give; the latter count.

    Raises:
        InvalidInputError: (13) the file cannot be read, or is no mapping; the function cannot be
            imported, fails, or returns none. No message repeats a value.
    """
    found: dict[str, Any] = {}
    if properties.get(SECRETS_FILE):
        found.update(_from_file(impl, properties[SECRETS_FILE]))
    if properties.get(SECRETS_PROVIDER):
        found.update(_from_provider(impl, properties))
    for key in (SECRETS_FILE, SECRETS_PROVIDER):
        if key in found:
            raise invalid(f"impl={impl}: property '{key}' cannot come from a source of secrets")
    return found


def _from_file(impl: str, name: str) -> dict[str, Any]:
    try:
        content = yaml.safe_load(Path(name).expanduser().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        # The parser's own message quotes the line.
        reason = getattr(error, "strerror", None) or f"it is no YAML ({type(error).__name__})"
        raise invalid(f"impl={impl}: property '{SECRETS_FILE}': {name}: {reason}") from None
    if not isinstance(content, dict):
        raise invalid(
            f"impl={impl}: property '{SECRETS_FILE}': {name} must be a YAML mapping of properties"
        )
    return content


def _from_provider(impl: str, properties: Mapping[str, str]) -> dict[str, Any]:
    name = properties[SECRETS_PROVIDER]
    problem = f"impl={impl}: property '{SECRETS_PROVIDER}': {name}"
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise invalid(f"{problem} is not of the form module:function")
    try:
        provider = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise invalid(f"{problem} cannot be imported: {error}") from error
    try:
        secrets = provider(dict(properties))
    except Exception as error:  # noqa: BLE001 - the function is the user's, and may raise anything
        # Neither its message nor its traceback: both may hold what it was fetching.
        raise invalid(f"{problem} failed with {type(error).__name__}") from None
    if not isinstance(secrets, Mapping):
        raise invalid(f"{problem} must return a mapping of properties")
    return dict(secrets)

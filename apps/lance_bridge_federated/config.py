"""The properties of ``impl=federated``: which catalogs it combines."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from lance_namespace import LanceNamespace
from lance_namespace.errors import LanceNamespaceError

from lance_bridge import LanceBridgeNamespace
from lance_bridge.config import named_catalogs, property_texts
from lance_bridge.errors import invalid
from lance_bridge.registry import connect_configured, find

from .children import Child, NativeCatalog
from .error_text import with_text
from .identifiers import check_catalog_name

IMPL = "federated"
CATALOGS = "catalogs"
PREFIX = "catalog."
PICKLE_SECRETS = "pickle.secrets"
_KEY = re.compile(rf"{re.escape(PREFIX)}([^.]+)\.(.+)")
_SHAPE = f"{PREFIX}<name>.<property>"

Entry = Mapping[str, str]
"""``impl`` and the properties of one catalog."""


def children_from(properties: Mapping[str, Any], refused: type[LanceNamespace]) -> dict[str, Child]:
    """Return the catalogs in properties, or all of the configuration file. None is called.

    Args:
        refused: A type of namespace that cannot be among them.

    Raises:
        InvalidInputError: (13) a property or a catalog is unknown, or a catalog's own are wrong.
        UnsupportedOperationError: (0) a catalog needs an extra that is not installed.
    """
    texts = property_texts(IMPL, properties)
    inline = _inline_entries(texts)
    listed = [each.strip() for each in texts[CATALOGS].split(",")] if CATALOGS in texts else None
    if listed is None and not inline:
        listed = _all_configured(refused)
    configured = _configured_entries(listed or ())
    for name in inline.keys() & configured.keys():
        raise _config_error(
            f"catalog '{name}' is in `{CATALOGS}` and has `{PREFIX}{name}.impl` as well"
        )
    made = {name: _create_child(name, entry, {}, refused) for name, entry in configured.items()}
    for name, entry in inline.items():
        given = {key: value for key, value in entry.items() if key != "impl"}
        made[name] = _create_child(name, {"impl": entry["impl"]}, given, refused)
    return made


def _inline_entries(texts: Mapping[str, str]) -> dict[str, dict[str, str]]:
    entries: dict[str, dict[str, str]] = {}
    for key, value in texts.items():
        match = _KEY.fullmatch(key)
        if match is not None:
            entries.setdefault(match[1], {})[match[2]] = value
        elif key != CATALOGS:
            near = difflib.get_close_matches(key, [CATALOGS], n=1)
            hint = (
                f"did you mean '{near[0]}'?" if near else f"known properties: {CATALOGS}, {_SHAPE}"
            )
            raise invalid(f"impl={IMPL} has no property '{key}': {hint}")
    for name, entry in entries.items():
        check_catalog_name(name)
        if "impl" not in entry:
            raise _config_error(
                f"property '{PREFIX}{name}.impl' is required. A catalog of the configuration file "
                f"is named in `{CATALOGS}` instead"
            )
    return entries


def _all_configured(refused: type[LanceNamespace]) -> list[str]:
    named = named_catalogs()
    # `named[name]` raises the problem of an entry that is invalid.
    names = [name for name in named if not issubclass(find(named[name]["impl"]), refused)]
    if not names:
        raise _config_error(
            f"it has no catalogs: set `{CATALOGS}`, `{_SHAPE}`, or add some to the configuration "
            "file"
        )
    return names


def _configured_entries(names: Iterable[str]) -> dict[str, Entry]:
    named = named_catalogs() if names else {}
    entries: dict[str, Entry] = {}
    for name in names:
        if name not in named:
            raise _config_error(
                f"`{CATALOGS}` names '{name}', which the configuration file does not have"
            )
        if name in entries:
            raise _config_error(f"`{CATALOGS}` names '{name}' twice")
        check_catalog_name(name)
        entries[name] = named[name]
    return entries


def _create_child(name: str, entry: Entry, given: Entry, refused: type[LanceNamespace]) -> Child:
    try:
        implementation = find(entry["impl"])
        if issubclass(implementation, refused):
            raise invalid("a federation cannot be a catalog of another one")
        if issubclass(implementation, LanceBridgeNamespace):
            # Its constructor checks the properties and makes no call.
            return Child(name, connect_configured(name, entry, given))
    except LanceNamespaceError as error:
        raise with_text(error, f"impl={IMPL}: catalog '{name}': {error}") from error
    properties = {**entry, **given}
    impl = properties.pop("impl")
    pickle_secrets = properties.pop(PICKLE_SECRETS, "false") == "true"
    native = NativeCatalog(impl, properties, pickle_secrets)
    return Child(name, native, native.identity)


def _config_error(text: str) -> Exception:
    return invalid(f"impl={IMPL}: {text}")

"""Properties from outside the process: the configuration file, and sources of secrets.

The configuration file maps names of catalogs to their properties. An invalid entry is an error only
when that catalog is requested.

Properties end up in many places, such as the settings of a Spark session, its event log and the
arguments of its processes. Instead of a secret, they can name a file or a function that has it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from lance_namespace.errors import InvalidInputError

from .errors import invalid
from .extras import import_attribute
from .user_files import CONFIG_FILE_VARIABLE, config_path

_CATALOGS = "catalogs"
_NAME_LIST = "catalogs"
"""The property with a federation's catalog names, which may be a YAML list."""


class NamedCatalogs(Mapping[str, dict[str, str]]):
    """The catalogs of a configuration file: name to properties, ``impl`` among them.

    Args:
        entries: The properties of the catalogs with valid entries.
        problems: The errors of the others, by name. Iteration includes these names; reading their
            properties raises InvalidInput (13).
    """

    def __init__(self, entries: Mapping[str, dict[str, str]], problems: Mapping[str, str]) -> None:
        self._entries = dict(entries)
        self.problems = dict(problems)

    def __getitem__(self, name: str) -> dict[str, str]:
        if name in self.problems:
            raise invalid(self.problems[name])
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self.problems

    def __iter__(self) -> Iterator[str]:
        return iter({**self._entries, **self.problems})

    def __len__(self) -> int:
        return len({**self._entries, **self.problems})

    @property
    def valid(self) -> dict[str, dict[str, str]]:
        """The catalogs with valid entries."""
        return dict(self._entries)


class _Loader(yaml.SafeLoader):
    """Records repeated keys; YAML's own loader keeps the last one silently."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.repeated: list[yaml.ScalarNode] = []

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Check keys before merges (``<<``) are resolved: merged keys may be overridden."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                self.repeated.append(key)
            seen.add(key.value)
        return node


def named_catalogs() -> NamedCatalogs:
    """Return the catalogs of the configuration file.

    Raises:
        InvalidInputError: (13) the file is not YAML, or not of the documented shape.
    """
    path = config_path()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if os.environ.get(CONFIG_FILE_VARIABLE):
            raise invalid(f"${CONFIG_FILE_VARIABLE} names {path}, which does not exist") from None
        return NamedCatalogs({}, {})
    except (OSError, UnicodeDecodeError) as error:
        raise invalid(f"{path} cannot be read as YAML: {type(error).__name__}") from error
    return catalogs_in(path, text)


def longer_names(name: str) -> list[str]:
    """Return the names in the configuration file that are longer than ``name``, longest first.

    Empty if the file cannot be read: that is an error where a catalog of the file is requested.
    """
    try:
        return sorted((each for each in named_catalogs() if len(each) > len(name)), key=len)[::-1]
    except InvalidInputError:
        return []


def catalogs_in(path: Path, text: str) -> NamedCatalogs:
    """Return the catalogs of a configuration file's text; `path` is for messages.

    Raises:
        InvalidInputError: (13) it is not YAML, or not of the documented shape.
    """
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        content = loader.construct_document(root) if root is not None else None
    except yaml.YAMLError as error:
        # Its own message quotes the file, which may contain a secret.
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}" if mark else ""
        text = f"{path} cannot be read as YAML: {type(error).__name__}{place}"
        raise invalid(text) from None
    problems = _repeated_keys(path, root, loader.repeated)
    catalogs = content.get(_CATALOGS) if isinstance(content, dict) else None
    if not isinstance(catalogs, dict):
        raise invalid(f"{path} must contain a mapping `catalogs:` of names to properties")
    entries = {}
    for key, properties in catalogs.items():
        name = str(key)
        if name in problems:
            continue
        try:
            entries[name] = _check_entry(name, properties)
        except InvalidInputError as error:
            problems[name] = f"{path}: {error}"
    return NamedCatalogs(entries, problems)


def _check_entry(name: str, properties: Any) -> dict[str, str]:
    if not isinstance(properties, dict) or not isinstance(properties.get("impl"), str):
        raise invalid(f"catalog '{name}' must be a mapping with `impl:`")
    names = properties.get(_NAME_LIST)
    if isinstance(names, list) and all(isinstance(each, str) for each in names):
        properties = {**properties, _NAME_LIST: ",".join(names)}
    return property_texts(name, properties)


def _repeated_keys(path: Path, root: Any, repeated: list[yaml.ScalarNode]) -> dict[str, str]:
    """Return the errors of catalogs that repeat a key, or that are repeated themselves.

    Raises:
        InvalidInputError: (13) a key outside all catalogs is repeated.
    """
    problems: dict[str, str] = {}
    for key in repeated:
        line = key.start_mark.line + 1
        problem = f"{path}: the key '{key.value}' is duplicated in line {line}"
        name = _enclosing_catalog(root, key)
        if name is None:
            raise invalid(problem)
        problems[name] = problem
    return problems


def _enclosing_catalog(root: Any, inner: yaml.Node) -> str | None:
    """Return the name of the catalog whose key or entry contains a node, or None."""
    for key, catalogs in root.value if isinstance(root, yaml.MappingNode) else ():
        if key.value != _CATALOGS or not isinstance(catalogs, yaml.MappingNode):
            continue
        for name, entry in catalogs.value:
            if name.start_mark.index <= inner.start_mark.index < entry.end_mark.index:
                return str(name.value)
    return None


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the content of a YAML file that holds a mapping.

    Raises:
        InvalidInputError: (13) it cannot be read, is not a mapping, or has a duplicate key. The
            message contains no value.
    """
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))
        content = loader.get_single_data()
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", None) or f"it is not YAML ({type(error).__name__})"
        # The parser's own message quotes the line.
        raise invalid(f"{path} cannot be read: {reason}") from None
    for key in loader.repeated:
        line = key.start_mark.line + 1
        raise invalid(f"{path}: the key '{key.value}' is duplicated in line {line}")
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise invalid(f"{path} must contain a mapping of keys to values")
    return content


def property_texts(name: str, properties: Mapping[Any, Any]) -> dict[str, str]:
    """Convert booleans and numbers to strings.

    Args:
        name: The name of the catalog or of its implementation, for messages.

    Raises:
        InvalidInputError: (13) a key is not a string, or a value has another type.
    """
    texts: dict[str, str] = {}
    for key, value in properties.items():
        if not isinstance(key, str) or not isinstance(value, str | bool | int | float):
            raise invalid(f"'{name}': property {key!r} must be a string, a boolean or a number")
        texts[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


SECRETS_FILE = "secrets.file"
SECRETS_PROVIDER = "secrets.provider"


def read_secrets(impl: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the properties from `secrets.file` and `secrets.provider`, which takes precedence.

    Raises:
        InvalidInputError: (13) the file cannot be read, or is not a mapping; the function cannot be
            imported, fails, or returns no mapping. No message contains a value.
    """
    found: dict[str, Any] = {}
    if properties.get(SECRETS_FILE):
        found.update(_read_secrets_file(impl, properties[SECRETS_FILE]))
    if properties.get(SECRETS_PROVIDER):
        found.update(_call_secrets_provider(impl, properties))
    for key in (SECRETS_FILE, SECRETS_PROVIDER):
        if key in found:
            raise invalid(f"impl={impl}: property '{key}' cannot come from a source of secrets")
    return found


def _read_secrets_file(impl: str, name: str) -> dict[str, Any]:
    try:
        return read_mapping(Path(name).expanduser())
    except InvalidInputError as error:
        raise invalid(f"impl={impl}: property '{SECRETS_FILE}': {error}") from None


def _call_secrets_provider(impl: str, properties: Mapping[str, str]) -> dict[str, Any]:
    name = properties[SECRETS_PROVIDER]
    problem = f"impl={impl}: property '{SECRETS_PROVIDER}': {name}"
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise invalid(f"{problem} is not of the form module:function")
    try:
        provider = import_attribute(module, attribute)
    except (ImportError, AttributeError) as error:
        raise invalid(f"{problem} cannot be imported: {error}") from error
    try:
        secrets = provider(dict(properties))
    except Exception as error:  # noqa: BLE001 - the function is the user's, and may raise anything
        # Omit its message and traceback, which may contain the secrets.
        raise invalid(f"{problem} failed with {type(error).__name__}") from None
    if not isinstance(secrets, Mapping):
        raise invalid(f"{problem} must return a mapping of properties")
    return dict(secrets)

"""Changing the configuration file: one catalog's properties, in one step, with comments kept."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from lance_namespace.errors import LanceNamespaceError

from lance_bridge.config import NamedCatalogs, catalogs_in
from lance_bridge.errors import invalid

_INDENT = "  "


def stored(path: Path) -> Mapping[str, dict[str, str]]:
    """Return the catalogs of a file that need not be there yet, and may be empty.

    Raises:
        InvalidInputError: (13) it cannot be read, or is not of the documented shape.
    """
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise invalid(f"{path} cannot be read: {error}") from error
    return {} if _is_empty(text) else catalogs_in(path, text)


def _is_empty(text: str) -> bool:
    """Return whether there is nothing but comments."""
    return all(not line.strip() or line.lstrip().startswith("#") for line in text.splitlines())


def change(path: Path, catalog: str, properties: Mapping[str, str | None]) -> None:
    """Set properties of a catalog, which is added if need be; those that are None go.

    The file is replaced as a whole, and only its owner may read it from then on.

    Raises:
        InvalidInputError: (13) it is there and cannot be read, or cannot be written.
    """
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        after = _changed(path, before, catalog, properties)
        # A link to it stays a link.
        _replace(path.resolve(), after)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)  # without the temporary file's name
        raise invalid(f"{path} cannot be changed: {reason}") from error


def _changed(path: Path, text: str, catalog: str, properties: Mapping[str, str | None]) -> str:
    is_empty = _is_empty(text)
    before = NamedCatalogs({}, {}) if is_empty else catalogs_in(path, text)
    wanted = before.valid
    merged = {**before.get(catalog, {}), **properties}
    wanted[catalog] = {key: value for key, value in merged.items() if value is not None}
    edited = _with_lines(text, catalog, properties)
    if _says(path, edited, wanted):
        return edited
    for problem in before.problems.values():
        raise invalid(f"{path} cannot be changed before this is corrected: {problem}")
    # The file has a form in which lines cannot be put; then it is written anew.
    content: dict[str, Any] = {} if is_empty else yaml.safe_load(text)
    content["catalogs"] = wanted
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def _says(path: Path, text: str, wanted: Mapping[str, Mapping[str, str]]) -> bool:
    try:
        return catalogs_in(path, text).valid == wanted
    except LanceNamespaceError:
        return False


def _with_lines(text: str, catalog: str, properties: Mapping[str, str | None]) -> str:
    edited = text
    try:
        for key, value in properties.items():
            edited = _edited(edited, catalog, key, value)
    except yaml.YAMLError:  # a line was put where none can be
        return ""
    return edited


def _edited(text: str, catalog: str, key: str, value: str | None) -> str:
    """Return the text with one line put in, changed or left out."""
    catalogs = _value(_root(text), "catalogs")
    if catalogs is None:
        return (
            text
            + ("\n" if text and not text.endswith("\n") else "")
            + (f"catalogs:\n{_INDENT}{_scalar(catalog)}:\n{_INDENT * 2}{_line(key, value)}")
        )
    own = _value(catalogs, catalog)
    if own is None:
        return _after(text, catalogs, f"{_scalar(catalog)}:\n{_INDENT * 2}{_line(key, value)}")
    for name, node in own.value:
        if name.value == key:
            if value is None:
                return _without_line(text, name.start_mark.index, node.end_mark.index)
            return text[: node.start_mark.index] + _scalar(value) + text[node.end_mark.index :]
    return text if value is None else _after(text, own, _line(key, value))


def _root(text: str) -> Any:
    return yaml.compose(text, yaml.SafeLoader)


def _value(mapping: Any, key: str) -> Any:
    """Return the mapping under a key, or None where there is none, or none with anything in it."""
    if not isinstance(mapping, yaml.MappingNode):
        return None
    for name, node in mapping.value:
        if name.value == key and isinstance(node, yaml.MappingNode) and node.value:
            return node
    return None


def _after(text: str, mapping: Any, line: str) -> str:
    """Put a line behind the last of a mapping, as far from the margin as its first."""
    column = int(mapping.value[0][0].start_mark.column)
    last = mapping.value[-1][1]
    while isinstance(last, yaml.MappingNode) and last.value and not last.flow_style:
        last = last.value[-1][1]
    end = text.find("\n", last.end_mark.index)
    head, tail = (text + "\n", "") if end < 0 else (text[: end + 1], text[end + 1 :])
    return f"{head}{' ' * column}{line}{tail}"


def _without_line(text: str, start: int, end: int) -> str:
    after = text.find("\n", end)
    return text[: text.rfind("\n", 0, start) + 1] + ("" if after < 0 else text[after + 1 :])


def _line(key: str, value: str | None) -> str:
    return "" if value is None else f"{_scalar(key)}: {_scalar(value)}\n"


def _scalar(text: str) -> str:
    """Return text as YAML reads it back, on one line."""
    dumped = str(yaml.safe_dump(text, width=100_000, allow_unicode=True))
    return dumped.removesuffix("\n").removesuffix("...").removesuffix("\n")


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        # mkstemp lets the owner read and write, and nobody else: 0600.
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise

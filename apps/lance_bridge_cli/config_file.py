"""Changes the configuration file: one catalog at a time, atomically, keeping comments."""

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


def read(path: Path) -> Mapping[str, dict[str, str]]:
    """Return the catalogs of a file; none if it is empty or does not exist.

    Raises:
        InvalidInputError: (13) it cannot be read, or is malformed.
    """
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise invalid(f"{path} cannot be read: {error}") from error
    return {} if _is_empty(text) else catalogs_in(path, text)


def _is_empty(text: str) -> bool:
    """Return whether a file has nothing but comments."""
    return all(not line.strip() or line.lstrip().startswith("#") for line in text.splitlines())


def change(path: Path, catalog: str, properties: Mapping[str, str | None] | None) -> None:
    """Set properties of a catalog, or add it; None removes a property, or the catalog.

    The file is replaced atomically, and afterwards only its owner can read it.

    Raises:
        InvalidInputError: (13) it cannot be read or written.
    """
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        after = _edit(path, before, catalog, properties)
        # A symbolic link to the file is kept.
        _replace(path.resolve(), after)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)  # without the temporary file's name
        raise invalid(f"{path} cannot be changed: {reason}") from error


def _edit(path: Path, text: str, catalog: str, properties: Mapping[str, str | None] | None) -> str:
    is_empty = _is_empty(text)
    before = NamedCatalogs({}, {}) if is_empty else catalogs_in(path, text)
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
        raise invalid(f"{path} cannot be changed before this is corrected: {problem}")
    # Lines cannot be inserted into flow style, for example: write the whole file.
    content: dict[str, Any] = {} if is_empty else yaml.safe_load(text)
    content["catalogs"] = expected
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def _has_catalogs(path: Path, text: str, expected: Mapping[str, Mapping[str, str]]) -> bool:
    try:
        return catalogs_in(path, text).valid == expected
    except LanceNamespaceError:
        return False


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
    for name, node in properties.value:
        if name.value == key:
            if value is None:
                return _remove_line(text, name.start_mark.index, node.end_mark.index)
            return text[: node.start_mark.index] + _scalar(value) + text[node.end_mark.index :]
    return text if value is None else _insert_after(text, properties, _line(key, value))


def _find_mapping(mapping: Any, key: str) -> Any:
    """Return the mapping under a key, or None if it is missing or empty."""
    if not isinstance(mapping, yaml.MappingNode):
        return None
    for name, node in mapping.value:
        if name.value == key and isinstance(node, yaml.MappingNode) and node.value:
            return node
    return None


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
    for name, node in catalogs.value if catalogs else ():
        if name.value == catalog:
            return _remove_line(text, name.start_mark.index, _last_index(node))
    return text


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

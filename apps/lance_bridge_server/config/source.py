"""The source of a server's configuration: a file and the options of the command."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, ValidationError

from lance_bridge.config_file import read_mapping
from lance_bridge.errors import invalid

from .settings import ServerSettings, catalogs_by_name

CONFIG_VARIABLE = "LANCE_BRIDGE_SERVER_CONFIG"
_ARGUMENTS = "the options of the command"


@dataclass(frozen=True)
class SettingsSource:
    """Reads the configuration; worker processes and reloads read it again.

    Args:
        file: The configuration file.
        overrides: Top-level keys that replace those of the file.
        catalogs: Catalogs that are added to those of the file: name to ``impl`` and properties,
            which override those of the file and of the environment.
    """

    file: Path | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    catalogs: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    content: Mapping[str, Any] | None = field(default=None, repr=False)
    """The file's content when the source was pinned; None reads the file each time."""

    @classmethod
    def of_environment(cls) -> SettingsSource:
        """Return the file that ``LANCE_BRIDGE_SERVER_CONFIG`` names.

        Raises:
            InvalidInputError: (13) the variable is not set.
        """
        named = os.environ.get(CONFIG_VARIABLE)
        if not named:
            raise invalid(f"${CONFIG_VARIABLE} must name the configuration file of the server")
        return cls(Path(named))

    def pinned(self) -> SettingsSource:
        """Return a source that keeps the file's current content, even if the file changes.

        Raises:
            InvalidInputError: (13) the file cannot be read.
        """
        return replace(self, content=read_mapping(self.file) if self.file else {})

    def unpinned(self) -> SettingsSource:
        """Return a source that reads the file each time."""
        return replace(self, content=None)

    def read(self) -> ServerSettings:
        """Return the settings.

        Raises:
            InvalidInputError: (13) the file cannot be read, or a setting is unknown or wrong. The
                message contains the path of its key, and no value of a catalog's property.
        """
        origin = str(self.file) if self.file else _ARGUMENTS
        pinned = self if self.content is not None else self.pinned()
        content = {**(pinned.content or {}), **self.overrides}
        if self.catalogs:
            content["catalogs"] = self._add_catalogs(content.get("catalogs", {}))
        try:
            return ServerSettings.model_validate(content)
        except ValidationError as error:
            raise invalid(f"{origin}: {explain(ServerSettings, error)}") from None

    def _add_catalogs(self, catalogs: Any) -> Any:
        """Return the catalogs of the file and the added ones, without the added properties.

        The environment overrides the file and is overridden by the added properties, which
        `catalogs.connect_catalogs` takes separately.
        """
        catalogs = catalogs_by_name(catalogs)
        if not isinstance(catalogs, dict):
            return catalogs
        return {**{name: {} for name in self.catalogs}, **catalogs}


# -- messages --------------------------------------------------------------------------------------


_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_MISSING = ("missing", "union_tag_not_found")


def explain(settings: type[BaseModel], error: ValidationError) -> str:
    """Return the problems of settings, each with the path of its key."""
    problems = (
        _problem(settings, each) for each in error.errors(include_url=False, include_input=False)
    )
    return "; ".join(dict.fromkeys(problems))


def _problem(settings: type[BaseModel], item: Any) -> str:
    path, known = _resolve(settings, item["loc"])
    text = str(item["msg"]).removeprefix("Value error, ")
    if item["type"] in _UNKNOWN:
        key = str(item["loc"][-1])
        near = difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known keys are {', '.join(known)}"
        return f"there is no key '{path}': {hint}"
    if item["type"] in _MISSING:
        tag = ".method" if item["type"] == "union_tag_not_found" else ""
        return f"'{path}{tag}' is required"
    if item["type"] == "union_tag_invalid":
        return f"'{path}.method' must be one of {item['ctx']['expected_tags']}"
    return f"'{path}': {text}" if path else text


def _resolve(settings: type[BaseModel], location: Sequence[int | str]) -> tuple[str, list[str]]:
    """Return the path of a key as in the file, and the known keys at its level.

    In a list of several models, a location also contains the method's name, which is no key.
    """
    path, models = "", [settings]
    known: list[str] = []
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
            continue
        tagged = [each for each in models if _tag(each) == part]
        if tagged and len(models) > 1:
            models = tagged
            continue
        known = [key for each in models for key in _keys(each)]
        annotations = [_annotation(each, part) for each in models]
        models = [model for each in annotations for model in _models(each)] or models
        path += f".{part}" if path else part
    return path.removesuffix(".[key]"), known


def _keys(model: Any) -> list[str]:
    return list(getattr(model, "model_fields", None) or model.__dataclass_fields__)


def _annotation(model: Any, key: str) -> Any:
    """Return the type of a key in a model or dataclass, or None if the key is unknown."""
    if issubclass(model, BaseModel):
        field = model.model_fields.get(key)
        return field.annotation if field else None
    return get_type_hints(model).get(key)


def _tag(model: Any) -> Any:
    field = getattr(model, "model_fields", {}).get("method")
    return next(iter(get_args(field.annotation)), None) if field else None


def _models(annotation: Any) -> Iterator[Any]:
    """Yield the models and dataclasses in a type."""
    if isinstance(annotation, type) and (
        issubclass(annotation, BaseModel) or hasattr(annotation, "__dataclass_fields__")
    ):
        yield annotation
    for each in get_args(annotation):
        yield from _models(each)

"""Messages about wrong settings. They repeat no values."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, ValidationError

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

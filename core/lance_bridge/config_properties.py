"""The properties that a pydantic model declares, for documentation and messages.

A field is a property. Its alias is the key, its description the meaning; a `SecretStr` is a secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo

_HIDDEN = "********"
"""The example of a secret property."""


@dataclass(frozen=True)
class Property:
    """One declared property, as a spec's table of properties shows it."""

    key: str
    type: str
    required: bool
    default: str | None
    secret: bool
    meaning: str
    example: str

    @property
    def default_text(self) -> str:
        """The default for a table: ``required`` where a value must be given, empty without one."""
        return "required" if self.required else self.default or ""


@cache
def declared_properties(model: type[BaseModel]) -> tuple[Property, ...]:
    """Return the properties of a model, in the order of their declaration."""
    return tuple(_property(name, field) for name, field in model.model_fields.items())


def _property(name: str, field: FieldInfo) -> Property:
    key = field.alias or name
    is_secret = SecretStr in _types_in(field.annotation)
    has_options = key.endswith(".*")
    return Property(
        key=key,
        type="string" if has_options else _type_name(field.annotation),
        required=field.is_required(),
        default=None if has_options else _default_text(field.get_default()),
        secret=is_secret,
        meaning=field.description or "",
        example=_HIDDEN if is_secret else _example_text(field),
    )


def _types_in(annotation: Any) -> tuple[Any, ...]:
    inner = get_args(annotation) if get_origin(annotation) is not Literal else ()
    return (annotation, *(t for a in inner for t in _types_in(a)))


def _type_name(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " | ".join(f"`{choice}`" for choice in get_args(annotation))
    types = [a for a in (get_args(annotation) or (annotation,)) if a is not type(None)]
    if len(types) == 1 and get_origin(types[0]) is Literal:
        return _type_name(types[0])
    names = {bool: "boolean", int: "integer", float: "number of seconds"}
    return names.get(types[0], "string")


def _default_text(value: Any) -> str | None:
    if value is None or "Undefined" in type(value).__name__:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _example_text(field: FieldInfo) -> str:
    """Return the declared example, or a value that differs from the default, if any is known."""
    if field.examples:
        return str(field.examples[0])
    default = field.get_default()
    choices = [a for a in _types_in(field.annotation) if get_origin(a) is Literal]
    if choices:
        return next(str(each) for each in get_args(choices[0]) if each != default)
    if isinstance(default, bool):
        return str(not default).lower()
    return str(round(default * 2)) if isinstance(default, int | float) else ""


def problems_of(error: ValidationError, prefix: str = "") -> str:
    """Return which properties are invalid and why, without their values.

    Args:
        prefix: Added in front of the field's name.
    """
    problems = []
    for item in error.errors(include_url=False, include_input=False):
        key = ".".join(str(part) for part in item["loc"])
        text = item["msg"].removeprefix("Value error, ")
        if item["type"] == "missing":
            problems.append(f"property '{prefix}{key}' is required")
        else:
            problems.append(f"property '{prefix}{key}': {text}" if key else text)
    return "; ".join(problems)

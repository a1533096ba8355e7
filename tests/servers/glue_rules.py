"""What AWS Glue requires of every request, after its service model and API reference."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from botocore.session import get_session
from moto.core.exceptions import JsonRESTError

Parameters = dict[str, Any]

_PAGE = 100
_ABOVE_BMP = r"\uD800\uDC00-\uDBFF\uDFFF"
"""How the model says U+10000 to U+10FFFF; Java reads it so, and Python does not."""


@cache
def operation_shape(operation: str) -> Any:
    """Return what the service model says of an operation's request."""
    return get_session().get_service_model("glue").operation_model(operation).input_shape


@cache
def _pattern(text: str) -> re.Pattern[str] | None:
    if r"\p" in text:
        return None
    return re.compile(text.replace(_ABOVE_BMP, r"\U00010000-\U0010FFFF"))


def violations(value: Any, shape: Any, where: str) -> Iterator[str]:
    """Yield each constraint of the model that a value breaks."""
    kind = shape.type_name
    if kind == "structure":
        for name, member in shape.members.items():
            if value.get(name) is not None:
                inner = name[0].lower() + name[1:]
                yield from violations(value[name], member, f"{where}.{inner}".lstrip("."))
    elif kind == "list":
        for number, item in enumerate(value, 1):
            yield from violations(item, shape.member, f"{where}.{number}.member")
    elif kind == "map":
        for key, item in value.items():
            broken = (*violations(key, shape.key, ""), *violations(item, shape.value, ""))
            if broken:
                yield f"Value at '{where}' failed to satisfy constraint: Map entry {broken[0]}"
    elif kind in ("string", "integer"):
        for broken_rule in _broken_rules(value, shape.metadata):
            yield f"Value '{str(value)[:60]}' at '{where}' {broken_rule}"


def _broken_rules(value: Any, rules: dict[str, Any]) -> Iterator[str]:
    size = len(value) if isinstance(value, str) else value
    noun = "length" if isinstance(value, str) else "value"
    must = f"failed to satisfy constraint: Member must have {noun}"
    if size < rules.get("min", size):
        yield f"{must} greater than or equal to {rules['min']}"
    if size > rules.get("max", size):
        yield f"{must} less than or equal to {rules['max']}"
    pattern = _pattern(rules.get("pattern", r"\p"))
    if pattern is not None and not pattern.fullmatch(value):
        yield f"failed to satisfy constraint: Member must satisfy {rules['pattern']}"


def folded(parameters: Parameters, action: str) -> Parameters:
    """Return a request with its names in lower case."""
    about_names = action.endswith(("Database", "Table"))
    result = {
        key: value.lower()
        if key in ("DatabaseName", "TableName") or (key == "Name" and about_names)
        else value
        for key, value in parameters.items()
    }
    for key in ("DatabaseInput", "TableInput"):
        if key in result:
            result[key] = {**result[key], "Name": result[key]["Name"].lower()}
    return result


def page_of(
    items: list[Any], name: Callable[[Any], str], parameters: Parameters, most: int = _PAGE
) -> tuple[list[Any], Parameters]:
    """Return the page after the request's token, and the next token where more follows.

    Raises:
        JsonRESTError: (InvalidInputException) the token is not one of ours.
    """
    token = parameters.get("NextToken")
    if token:
        after = _after(token)
        items = [item for item in items if name(item) > after]
    size = min(parameters.get("MaxResults", _PAGE), most)
    page = items[:size]
    if len(items) <= size:
        return page, {}
    return page, {"NextToken": base64.b64encode(name(page[-1]).encode()).decode()}


def _after(token: str) -> str:
    try:
        return base64.b64decode(token, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise JsonRESTError("InvalidInputException", "NextToken is not valid.") from None

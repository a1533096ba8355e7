"""Requests as they arrive: models of the API, or mappings of the same fields.

pylance's and LanceDB's Rust code calls a namespace with a `dict` that has a `model_dump` method.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from .errors import invalid

ModelT = TypeVar("ModelT", bound=BaseModel)


def as_model(request_type: type[ModelT], request: Any) -> ModelT:
    """Return a request as a model of its type. Fields that the type does not have are ignored.

    Args:
        request: Such a model, a mapping of its fields, or anything else that has `model_dump`.

    Raises:
        InvalidInputError: It is none of these, or a field has a wrong value.
    """
    if isinstance(request, request_type):
        return request
    try:
        return request_type.model_validate(_fields_of(request))
    except ValidationError as error:
        raise invalid(f"Not a {request_type.__name__}: {_describe(error)}") from None
    except (TypeError, ValueError) as error:
        raise invalid(f"Not a {request_type.__name__}: {str(error)[:300]}") from error


def _fields_of(request: Any) -> dict[str, Any]:
    if isinstance(request, Mapping):
        return dict(request)
    if hasattr(request, "model_dump"):
        return dict(request.model_dump())
    raise TypeError(f"it is a {type(request).__name__}, neither a model nor a mapping")


def _describe(error: ValidationError) -> str:
    """Return which fields are wrong and why, without their values, which may be secret."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in problems[:3]]
    return "; ".join(shown)[:300]

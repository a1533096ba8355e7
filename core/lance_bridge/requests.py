"""Requests as they arrive: models of the API, or the mappings that pylance sends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from .errors import invalid

ModelT = TypeVar("ModelT", bound=BaseModel)


def as_model(kind: type[ModelT], request: ModelT | Mapping[str, Any]) -> ModelT:
    """Return a request as a model: pylance sends those of managed tables as mappings.

    Raises:
        InvalidInputError: (13) it is not such a request.
    """
    if isinstance(request, kind):
        return request
    try:
        return kind.model_validate(dict(request))
    except (ValidationError, TypeError, ValueError) as error:
        raise invalid(f"Not a {kind.__name__}: {str(error)[:300]}") from error

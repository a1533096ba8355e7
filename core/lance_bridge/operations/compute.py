"""Operations that no catalog can do: they need a compute engine that runs queries by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn

from lance_namespace import (
    CreateMaterializedViewRequest,
    CreateMaterializedViewResponse,
    RefreshMaterializedViewRequest,
    RefreshMaterializedViewResponse,
)

from ..errors import unsupported
from .base import Operations

_NEEDS_AN_ENGINE = (
    "it needs a compute engine that keeps the view's query and runs it over all rows, and a "
    "catalog has none"
)

UNSUPPORTED: Final[Mapping[str, str]] = {
    "create_materialized_view": _NEEDS_AN_ENGINE,
    "refresh_materialized_view": _NEEDS_AN_ENGINE,
}
"""Operations that no catalog can do, each with the reason, which its error tells too."""


class ComputeOperations(Operations):
    """Materialized views. Every method refuses: `UNSUPPORTED` says why."""

    def create_materialized_view(
        self,
        request: CreateMaterializedViewRequest,  # noqa: ARG002 - nothing in it could be done
    ) -> CreateMaterializedViewResponse:
        """Refuse. Errors: 0."""
        _refuse("create_materialized_view")

    def refresh_materialized_view(
        self,
        request: RefreshMaterializedViewRequest,  # noqa: ARG002 - nothing in it could be done
    ) -> RefreshMaterializedViewResponse:
        """Refuse. Errors: 0."""
        _refuse("refresh_materialized_view")


def _refuse(operation: str) -> NoReturn:
    raise unsupported(f"Not supported: {operation}: {UNSUPPORTED[operation]}")

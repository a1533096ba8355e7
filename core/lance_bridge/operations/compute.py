"""Operations that need a compute engine, which runs queries over all rows: see `engine`."""

from __future__ import annotations

import base64
import binascii
from typing import Final

import lance_namespace as api
import pyarrow as pa

from .. import engine
from ..errors import invalid, unsupported
from . import Operations

UNSUPPORTED: Final = ("create_materialized_view", "refresh_materialized_view")
"""Operations that no catalog supports by itself."""

_QUERY = "query"
_ENGINE_OPTIONS = (
    "concurrency",
    "intra_applier_concurrency",
    "source_task_size",
    "cluster",
    "manifest",
)


class ComputeOperations(Operations):
    """Materialized views. Unsupported without a compute engine."""

    def create_materialized_view(
        self, request: api.CreateMaterializedViewRequest
    ) -> api.CreateMaterializedViewResponse:
        """Create a view of a query; it is complete on return.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, TableAlreadyExists,
        TableColumnNotFound, InvalidInput, ConcurrentModification, ServiceUnavailable.
        """
        worker = engine.require_engine("create_materialized_view")
        if request.kind != _QUERY:
            raise unsupported(f"kind '{request.kind[:60]}' is not supported: only {_QUERY} is")
        if request.udtf_spec is not None:
            raise invalid(f"udtf_spec is not allowed with kind {_QUERY}")
        if request.auto_refresh:
            raise unsupported(
                "auto_refresh is not supported: call RefreshMaterializedView when the sources have "
                "changed"
            )
        schema = _decode_schema(request.output_schema)
        made = worker.create_materialized_view(
            self,
            self.tables.path_of(request.id),
            request.source_query,
            schema,
            with_data=request.with_no_data is False,
        )
        return api.CreateMaterializedViewResponse(version=made.version, job_id=made.job_id)

    def refresh_materialized_view(
        self, request: api.RefreshMaterializedViewRequest
    ) -> api.RefreshMaterializedViewResponse:
        """Compute the rows of a view again; they are complete on return.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, TableVersionNotFound,
        TableColumnNotFound, InvalidInput, ConcurrentModification, ServiceUnavailable,
        InvalidTableState.
        """
        worker = engine.require_engine("refresh_materialized_view")
        for name in _ENGINE_OPTIONS:
            if getattr(request, name) is not None:
                raise unsupported(f"{name} is not supported: the engine decides on that itself")
        if request.output_limit is not None:
            raise invalid("output_limit is for chunker views, and there are only query views")
        if request.src_version is not None and request.src_version < 1:
            raise invalid(f"src_version must be 1 or more, not {request.src_version}")
        job = worker.refresh_materialized_view(
            self,
            self.tables.path_of(request.id),
            source_version=request.src_version,
            max_rows_per_fragment=request.max_rows_per_fragment,
        )
        return api.RefreshMaterializedViewResponse(job_id=job)


def _decode_schema(text: str) -> pa.Schema:
    """Decode a request's Arrow schema in base64. Raises InvalidInput (13)."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (binascii.Error, pa.ArrowException, OSError, ValueError) as error:
        raise invalid("output_schema is not an Arrow schema in base64") from error

"""Temporary credentials for storage, as both kinds of server vend them."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import published
from .dialects import Dialect, ErrorKind, Level
from .locations import bucket_of, normalized
from .messages import Answer, ApiError, Request, ServerFault, missing
from .router import Route
from .state import State, now
from .validation import check_reply

_TABLE_OPERATIONS = ("READ", "READ_WRITE")
_PATH_OPERATIONS = ("PATH_READ", "PATH_READ_WRITE", "PATH_CREATE_TABLE")


@dataclass(frozen=True)
class Bucket:
    """What the server knows of a bucket. ``lifetime`` is in seconds."""

    access_key_id: str
    secret_access_key: str
    session_token: str = "vended-session"
    lifetime: float = 3600.0


class Credentials:
    """Vends for tables by id, and for paths. ``buckets`` is by ``s3://name``."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._dialect: Dialect = state.dialect
        self._numbers = itertools.count(1)
        self.buckets: dict[str, Bucket] = {}

    def routes(self, prefixes: Sequence[str]) -> list[Route]:
        """Return the operations."""
        return [
            Route(
                "POST",
                "/temporary-table-credentials",
                self.for_table,
                prefixes,
                request=published.GenerateTemporaryTableCredential,
            ),
            Route(
                "POST",
                "/temporary-path-credentials",
                self.for_path,
                prefixes,
                request=published.GenerateTemporaryPathCredential,
            ),
        ]

    def for_table(self, request: Request) -> Answer:
        body = request.fields
        wanted = body.get("table_id")
        self._require_operation(body, _TABLE_OPERATIONS)
        if not self._dialect.databricks:
            _require_uuid(wanted)
        for table in self._state.tables():
            if table.id == wanted:
                return self._vend(table.info.get("storage_location"))
        if self._dialect.databricks:
            raise missing(self._dialect, Level.TABLE, str(wanted))
        text = f"Neither table nor staging table found with id: {wanted}"
        raise ApiError(self._dialect.missing[Level.TABLE], text)

    def for_path(self, request: Request) -> Answer:
        body = request.fields
        self._require_operation(body, _PATH_OPERATIONS)
        return self._vend(body.get("url"))

    def _require_operation(self, body: dict[str, Any], allowed: Sequence[str]) -> None:
        operation = body.get("operation")
        if operation is None and not self._dialect.databricks:
            raise ServerFault('Cannot invoke "ordinal()" because the operation is null')
        if operation not in allowed:
            raise ApiError(self._dialect.unparsable, "Privileges cannot be null or empty.")

    def _vend(self, location: object) -> Answer:
        if not isinstance(location, str):
            raise ApiError(self._dialect.invalid, "Storage location is null.")
        content: dict[str, Any] = {}
        if not self._dialect.databricks:
            location = normalized(location, self._dialect)
        if not location.startswith(("file:", "/")):
            content = self._keys(location)
        if self._dialect.credentials_url:
            content["url"] = location
        fields = published.TemporaryCredentials.model_fields
        if not self._dialect.databricks:
            shown = fields.keys() - ({"url"} if not self._dialect.credentials_url else set())
            content = {name: content.get(name) for name in fields if name in shown}
        return Answer.of_json(check_reply(published.TemporaryCredentials, content))

    def _keys(self, location: str) -> dict[str, Any]:
        bucket = self.buckets.get(bucket_of(location))
        if bucket is None:
            kind = ErrorKind(400, "FAILED_PRECONDITION")
            text = "S3 bucket configuration not found."
            if self._dialect.databricks:
                kind = ErrorKind(403, "PERMISSION_DENIED")
                text = f"No external location was found for the path {location}"
            raise ApiError(kind, text)
        # Each answer is another session, so that a test can tell a refresh from a cache.
        return {
            "expiration_time": now() + int(bucket.lifetime * 1000),
            "aws_temp_credentials": {
                "access_key_id": bucket.access_key_id,
                "secret_access_key": bucket.secret_access_key,
                "session_token": f"{bucket.session_token}-{next(self._numbers)}",
            },
        }


def _require_uuid(table_id: object) -> None:
    if table_id is None:
        raise ServerFault('Cannot invoke "String.length()" because "name" is null')
    try:
        uuid.UUID(str(table_id))
    except ValueError:
        raise ValueError(f"Invalid UUID string: {table_id}") from None

"""One implementation-managed table as pylance asks for it, while a dataset of it is open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lance_namespace import (
    CreateTableVersionRequest,
    CreateTableVersionResponse,
    DescribeTableRequest,
    DescribeTableResponse,
    DescribeTableVersionRequest,
    DescribeTableVersionResponse,
    LanceNamespace,
    ListTableVersionsRequest,
    ListTableVersionsResponse,
)
from lance_namespace.errors import LanceNamespaceError, TableVersionNotFoundError

from .. import location as locations
from ..catalog import TableRecord
from ..connection import Connection
from ..errors import display
from ..managed_state import own_state
from ..requests import as_model
from ..storage.manifests import Manifest
from ..storage.staging import Staged
from . import commits
from . import compare_and_set as entry
from .versions import directory_of

AnswerT = TypeVar("AnswerT")


@dataclass
class TableView(LanceNamespace):
    """Answers for one table what `lance.LanceDataset` asks a namespace.

    pylance calls it from threads of its own and turns what it raises into errors of its own.
    ``failure`` is what the last commit raised, or else what was raised first.
    """

    connection: Connection
    record: TableRecord
    write: bool
    failure: LanceNamespaceError | None = field(default=None, init=False)

    def namespace_id(self) -> str:
        """Return what this is a view of."""
        return f"{self.connection.catalog.describe_connection()}#{display(self.record.path)}"

    def describe_table(self, request: DescribeTableRequest) -> DescribeTableResponse:  # noqa: ARG002 - one table
        """Answer with fresh storage options."""
        options = self.connection.storage_options(self.record, vend=None, write=self.write)
        return DescribeTableResponse(
            location=locations.for_lance(self.record.location or ""),
            storage_options=options,
            managed_versioning=True,
        )

    def list_table_versions(
        self,
        request: ListTableVersionsRequest,  # noqa: ARG002 - pylance asks for the latest only
    ) -> ListTableVersionsResponse:
        """Answer with the latest version, as the catalog has it now."""
        latest = self._asked(self._latest)
        return ListTableVersionsResponse(versions=[latest.described()] if latest else [])

    def describe_table_version(
        self, request: DescribeTableVersionRequest | Mapping[str, Any]
    ) -> DescribeTableVersionResponse:
        """Describe a version that is committed. Raises TableVersionNotFound (11)."""
        version = as_model(DescribeTableVersionRequest, request).version
        found = self._asked(lambda: self._find(version))
        return DescribeTableVersionResponse(version=found.described())

    def create_table_version(
        self, request: CreateTableVersionRequest | Mapping[str, Any]
    ) -> CreateTableVersionResponse:
        """Commit a staged manifest through the catalog. Raises ConcurrentModification (14)."""
        staged = Staged.of(as_model(CreateTableVersionRequest, request))

        def commit() -> Manifest:
            record = entry.reload(self.connection, self.record)
            return commits.prepare(self.connection, record, staged).do()

        self.failure = None
        return CreateTableVersionResponse(version=self._asked(commit).described())

    def _latest(self) -> Manifest | None:
        state = own_state(entry.reload(self.connection, self.record))
        return directory_of(self.connection, self.record, state, write=self.write).latest()

    def _find(self, version: int | None) -> Manifest:
        state = own_state(self.record)
        if version is None or version > state.version:
            state = own_state(entry.reload(self.connection, self.record))
        directory = directory_of(self.connection, self.record, state, write=self.write)
        found = directory.find(state.version if version is None else version)
        if found is None:
            raise TableVersionNotFoundError(
                f"Table '{display(self.record.path)}' has no version {version or 'yet'}"
            )
        return found

    def _asked(self, answer: Callable[[], AnswerT]) -> AnswerT:
        try:
            return answer()
        except LanceNamespaceError as error:
            self.failure = self.failure or error
            raise

"""TableView: the namespace that pylance uses for one implementation-managed table."""

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

from ..credentials.sources import describe_credentials
from ..entry import TableEntry
from ..errors import LatestVersionGoneError, releases_as_conflicts
from ..requests import as_model
from ..storage.manifests import Manifest, Staged
from . import commits
from .versions import managed_directory

ResultT = TypeVar("ResultT")


@dataclass
class TableView(LanceNamespace):
    """Implements the operations that `lance.LanceDataset` calls, for one table.

    pylance calls it from its own threads, and replaces its errors with its own. ``failure`` is the
    error of the last commit, or else the first error.
    """

    table: TableEntry
    write: bool
    failure: LanceNamespaceError | None = field(default=None, init=False)

    def namespace_id(self) -> str:
        """Return an identifier of the connection, the table and the right."""
        right = "write" if self.write else "read"  # pylance shares a store by this id
        connection = self.table.connection
        credentials = describe_credentials(connection.catalog, connection.config)
        where = connection.catalog.describe_connection()
        return f"{where}#{credentials}#{self.table.name}#{right}"

    def describe_table(self, request: DescribeTableRequest) -> DescribeTableResponse:  # noqa: ARG002 - one table
        """Return fresh storage options."""
        options = self.table.storage_options(write=self.write)
        return DescribeTableResponse(
            location=self.table.uri,
            storage_options=options,
            managed_versioning=True,
        )

    def list_table_versions(
        self,
        request: ListTableVersionsRequest,  # noqa: ARG002 - pylance needs the latest only
    ) -> ListTableVersionsResponse:
        """Return the latest version that the catalog has now."""
        latest = self._record_failure(
            lambda: managed_directory(self.table.reloaded(), write=self.write).latest()
        )
        return ListTableVersionsResponse(versions=[latest.to_table_version()] if latest else [])

    def describe_table_version(
        self, request: DescribeTableVersionRequest | Mapping[str, Any]
    ) -> DescribeTableVersionResponse:
        """Describe a committed version. Raises TableVersionNotFound (11)."""
        version = as_model(DescribeTableVersionRequest, request).version
        found = self._record_failure(lambda: self._find(version))
        return DescribeTableVersionResponse(version=found.to_table_version())

    def create_table_version(
        self, request: CreateTableVersionRequest | Mapping[str, Any]
    ) -> CreateTableVersionResponse:
        """Commit a staged manifest through the catalog. Raises ConcurrentModification (14)."""
        staged = Staged.from_request(as_model(CreateTableVersionRequest, request))

        def commit() -> Manifest:
            return commits.prepare(self.table.reloaded(), staged).do()

        self.failure = None
        return CreateTableVersionResponse(version=self._record_failure(commit).to_table_version())

    def _find(self, version: int | None) -> Manifest:
        table = self.table
        directory = managed_directory(table, write=self.write)
        if version is None or version > directory.state.version:
            directory = managed_directory(table.reloaded(), write=self.write)
        wanted = directory.state.version if version is None else version
        try:
            found = directory.find(wanted)
        except LatestVersionGoneError:
            # By now it may be an old version, which a clean-up has deleted.
            found = managed_directory(table.reloaded(), write=self.write).find(wanted)
        if found is None:
            raise TableVersionNotFoundError(
                f"Table '{self.table.name}' has no version {version or 'yet'}"
            )
        return found

    def _record_failure(self, call: Callable[[], ResultT]) -> ResultT:
        try:
            with releases_as_conflicts():
                return call()
        except LanceNamespaceError as error:
            self.failure = self.failure or error
            raise

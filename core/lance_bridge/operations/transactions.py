"""Operations on transactions, and commits to several tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lance_namespace as api
from lance_namespace_urllib3_client.models import CommitTableOperation, CommitTableResult

from ..dataset.history import batches, transactions
from ..errors import invalid
from ..storage.staging import Staged
from ..table import Table
from .base import Operations
from .entries import declared, deregistered
from .versions import ranges_of


class TransactionOperations(Operations):
    """Operations on transactions, and commits to several tables."""

    def describe_transaction(
        self, request: api.DescribeTransactionRequest
    ) -> api.DescribeTransactionResponse:
        """Describe a transaction of a table, by its id or version.

        The identifier is that of the table, and after it that of the transaction.

        Raises: NamespaceNotFound, TableNotFound, TransactionNotFound, InvalidInput,
        InvalidTableState.
        """
        table, name = self._transaction(request.id)
        found = transactions.describe(table, name)
        return api.DescribeTransactionResponse(
            status=found.status.value, properties=dict(found.properties)
        )

    def alter_transaction(
        self, request: api.AlterTransactionRequest
    ) -> api.AlterTransactionResponse:
        """Accept what holds already; nothing else can change.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, TransactionNotFound,
        InvalidInput, InvalidTableState.
        """
        table, name = self._transaction(request.id)
        found = transactions.alter(table, name, request.actions)
        return api.AlterTransactionResponse(
            status=found.status.value, properties=dict(found.properties)
        )

    def batch_commit_tables(
        self, request: api.BatchCommitTablesRequest
    ) -> api.BatchCommitTablesResponse:
        """Do operations on several tables, all or none.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, TableAlreadyExists,
        InvalidInput, ConcurrentModification, Internal, InvalidTableState, TableBranchNotFound.
        """
        names = [_operation_name(operation) for operation in request.operations]
        steps = [
            self._step(name, operation)
            for name, operation in zip(names, request.operations, strict=True)
        ]
        results = batches.run(steps)
        return api.BatchCommitTablesResponse(
            results=[
                CommitTableResult(**{name: _response(name, done)})
                for name, done in zip(names, results, strict=True)
            ]
        )

    def _transaction(self, names: Sequence[str] | None) -> tuple[Table, str]:
        if not names:
            raise invalid("A transaction is named by its table's identifier and its own id")
        return self.tables.load_by_id(names[:-1]), names[-1]

    def _step(self, name: str, operation: CommitTableOperation) -> batches.Step:
        request = getattr(operation, name)
        if name == "declare_table":
            return batches.declare(
                self.tables,
                self.tables.path_of(request.id),
                request.location,
                request.properties,
                vend=request.vend_credentials,
            )
        if name == "deregister_table":
            return batches.deregister(self.tables, self.tables.path_of(request.id))
        table = self.tables.load_by_id(request.id)
        if name == "create_table_version":
            return batches.create_version(table, Staged.from_request(request))
        return batches.delete_versions(table, request.branch, ranges_of(request))


def _operation_name(operation: CommitTableOperation) -> str:
    """Return the one field of a batch's operation that is set. Raises InvalidInput."""
    names = [name for name in CommitTableOperation.model_fields if getattr(operation, name)]
    if len(names) != 1:
        raise invalid(f"Each operation must be exactly one request, not {names or 'none'}")
    return names[0]


def _response(name: str, done: Any) -> Any:
    if name == "create_table_version":
        return api.CreateTableVersionResponse(version=done.to_table_version())
    if name == "delete_table_versions":
        return api.BatchDeleteTableVersionsResponse(deleted_count=done)
    if name == "declare_table":
        return declared(*done)
    return deregistered(done)

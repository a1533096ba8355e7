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
        kinds = [_kind_of(operation) for operation in request.operations]
        steps = [
            self._step(kind, operation)
            for kind, operation in zip(kinds, request.operations, strict=True)
        ]
        results = batches.run(steps)
        return api.BatchCommitTablesResponse(
            results=[_result(kind, done) for kind, done in zip(kinds, results, strict=True)]
        )

    def _transaction(self, names: Sequence[str] | None) -> tuple[Table, str]:
        if not names:
            raise invalid("A transaction is named by its table's identifier and its own id")
        return self._lance_table(names[:-1]), names[-1]

    def _step(self, kind: str, operation: CommitTableOperation) -> batches.Step:
        request = getattr(operation, kind)
        if kind == "declare_table":
            return batches.declare(
                self.tables,
                self._table(request.id),
                request.location,
                request.properties,
                vend=request.vend_credentials,
            )
        if kind == "deregister_table":
            return batches.deregister(self.tables, self._table(request.id))
        table = self._lance_table(request.id)
        if kind == "create_table_version":
            return batches.create_version(table, Staged.from_request(request))
        return batches.delete_versions(table, request.branch, ranges_of(request))


def _kind_of(operation: CommitTableOperation) -> str:
    """Return the one field of an operation that is set. Raises InvalidInput."""
    kinds = [name for name in CommitTableOperation.model_fields if getattr(operation, name)]
    if len(kinds) != 1:
        raise invalid(f"Each operation must be of exactly one kind, not {kinds or 'none'}")
    return kinds[0]


def _result(kind: str, done: Any) -> CommitTableResult:
    return CommitTableResult(**{kind: _response(kind, done)})


def _response(kind: str, done: Any) -> Any:
    if kind == "create_table_version":
        return api.CreateTableVersionResponse(version=done.to_table_version())
    if kind == "delete_table_versions":
        return api.BatchDeleteTableVersionsResponse(deleted_count=done)
    if kind == "declare_table":
        return declared(*done)
    return deregistered(done)

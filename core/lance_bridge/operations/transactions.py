"""Operations on transactions, and commits to several tables."""

from __future__ import annotations

from collections.abc import Sequence

import lance_namespace as api
from lance_namespace_urllib3_client.models import CommitTableOperation, CommitTableResult

from ..dataset.history import batches, transactions
from ..errors import invalid, unsupported
from ..storage.staging import Staged
from ..table import Table
from .base import Operations

_CREATION = "create_table_version"
_METHODS = {"delete_table_versions": "batch_delete_table_versions"}
"""The methods of a batch's operations, if their names differ."""


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
        """Create versions of several tables, all or none; or do one operation of any kind.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, TableAlreadyExists,
        InvalidInput, ConcurrentModification, InvalidTableState, TableBranchNotFound.
        """
        operations = request.operations
        names = [_operation_name(operation) for operation in operations]
        if len(names) == 1:
            done = getattr(self, _METHODS.get(names[0], names[0]))(getattr(operations[0], names[0]))
            return api.BatchCommitTablesResponse(results=[CommitTableResult(**{names[0]: done})])
        _require_creations(names)
        made = batches.create_versions(
            [
                (self.tables.load_by_id(each.id), Staged.from_request(each))
                for each in (operation.create_table_version for operation in operations)
                if each is not None
            ]
        )
        answers = [api.CreateTableVersionResponse(version=each.to_table_version()) for each in made]
        return api.BatchCommitTablesResponse(
            results=[CommitTableResult(create_table_version=each) for each in answers]
        )

    def _transaction(self, names: Sequence[str] | None) -> tuple[Table, str]:
        if not names:
            raise invalid("A transaction is named by its table's identifier and its own id")
        return self.tables.load_by_id(names[:-1]), names[-1]


def _operation_name(operation: CommitTableOperation) -> str:
    """Return the one field of a batch's operation that is set. Raises InvalidInput."""
    names = [name for name in CommitTableOperation.model_fields if getattr(operation, name)]
    if len(names) != 1:
        raise invalid(f"Each operation must be exactly one request, not {names or 'none'}")
    return names[0]


def _require_creations(names: Sequence[str]) -> None:
    """Raise UnsupportedOperation for an operation that cannot be done together with others."""
    for name in names:
        if name != _CREATION:
            raise unsupported(
                f"{name} cannot be done together with other operations: others would see it before "
                "the rest is done, or the rest without it. Send it by itself"
            )

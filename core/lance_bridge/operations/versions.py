"""Operations on versions, tags and branches, and on who manages a table's versions."""

from __future__ import annotations

from collections.abc import Sequence

import lance_namespace as api
from lance_namespace_urllib3_client.models import CommitTableOperation, CommitTableResult

from ..dataset import tags_and_branches, transactions, versions
from ..dataset.insert import track_client_commit
from ..dataset.versions import append_uncommitted_rows
from ..errors import invalid, unsupported
from ..managed import conversion, out_of_band
from ..managed.out_of_band import OutOfBand
from ..paging import PageRequest
from ..requests import Ref
from ..storage.manifests import Staged
from ..table import Table
from . import Operations

# -- versions --------------------------------------------------------------------------------------


class VersionOperations(Operations):
    """Operations on versions, tags and branches."""

    # -- versions ----------------------------------------------------------------------------------

    def list_table_versions(
        self, request: api.ListTableVersionsRequest
    ) -> api.ListTableVersionsResponse:
        """List versions, oldest first unless `descending`.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, InvalidTableState,
        TableBranchNotFound.
        """
        descending = bool(request.descending)
        path = self.tables.path_of(request.id)
        scope = f"versions {path} {request.branch or ''} {descending}"
        page = PageRequest.parse(scope, request.limit, request.page_token)
        table = self.tables.load_by_id(request.id)
        if versions.is_for_latest(page, descending=descending):
            table = out_of_band.clear_next_version_if_allowed(table)
        else:
            table = out_of_band.adopt_if_allowed(table)
        directory = versions.directory_of(table, request.branch)
        found, token = versions.list_page(directory, page, descending=descending)
        if not found and page.after is None:
            table.require_not_missing()
        return api.ListTableVersionsResponse(
            versions=[each.to_table_version() for each in found], page_token=token
        )

    def describe_table_version(
        self, request: api.DescribeTableVersionRequest
    ) -> api.DescribeTableVersionResponse:
        """Describe a version, or the latest.

        Raises: NamespaceNotFound, TableNotFound, TableVersionNotFound, InvalidInput,
        InvalidTableState, TableBranchNotFound.
        """
        table = out_of_band.adopt_if_allowed(self.tables.load_by_id(request.id))
        directory = versions.directory_of(table, request.branch)
        found = versions.describe(table, directory, request.version)
        return api.DescribeTableVersionResponse(version=found.to_table_version())

    def create_table_version(
        self, request: api.CreateTableVersionRequest
    ) -> api.CreateTableVersionResponse:
        """Make a staged manifest the next version.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, InvalidInput,
        ConcurrentModification, InvalidTableState, TableBranchNotFound.
        """
        table = self.tables.load_by_id(request.id)
        with track_client_commit(table.uri):
            made = versions.create(table, Staged.from_request(request))
        return api.CreateTableVersionResponse(version=made.to_table_version())

    def batch_create_table_versions(
        self, request: api.BatchCreateTableVersionsRequest
    ) -> api.BatchCreateTableVersionsResponse:
        """Create versions of several tables, all or none.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, InvalidInput,
        ConcurrentModification, InvalidTableState, TableBranchNotFound.
        """
        made = transactions.create_versions(
            [(self.tables.load_by_id(e.id), Staged.from_request(e)) for e in request.entries]
        )
        return api.BatchCreateTableVersionsResponse(
            versions=[each.to_table_version() for each in made]
        )

    def batch_delete_table_versions(
        self, request: api.BatchDeleteTableVersionsRequest
    ) -> api.BatchDeleteTableVersionsResponse:
        """Delete versions that nothing needs.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, ConcurrentModification,
        InvalidTableState, TableBranchNotFound.
        """
        ranges = versions.check_ranges((r.start_version, r.end_version) for r in request.ranges)
        table = self.tables.load_by_id(request.id)
        planned = versions.prepare_deletion(table, request.branch, ranges)
        return api.BatchDeleteTableVersionsResponse(deleted_count=versions.delete(planned))

    def restore_table(self, request: api.RestoreTableRequest) -> api.RestoreTableResponse:
        """Make an old version's state the latest.

        Raises: NamespaceNotFound, TableNotFound, TableVersionNotFound, InvalidInput,
        ConcurrentModification, InvalidTableState, TableBranchNotFound.
        """
        table, ref = self._table_at(request, request.version)
        return api.RestoreTableResponse(transaction_id=versions.restore(table, ref))

    # -- tags --------------------------------------------------------------------------------------

    def list_table_tags(self, request: api.ListTableTagsRequest) -> api.ListTableTagsResponse:
        """List tags, sorted by name.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, InvalidTableState.
        """
        path = self.tables.path_of(request.id)
        page = PageRequest.parse(f"tags {path}", request.limit, request.page_token)
        found = tags_and_branches.list_tags(self.tables.load_by_id(request.id))
        names, token = page.cut_names(list(found))
        return api.ListTableTagsResponse(tags={n: found[n] for n in names}, page_token=token)

    def get_table_tag_version(
        self, request: api.GetTableTagVersionRequest
    ) -> api.GetTableTagVersionResponse:
        """Return what a tag points to.

        Raises: NamespaceNotFound, TableNotFound, TableTagNotFound, InvalidInput, InvalidTableState.
        """
        found = tags_and_branches.get_tag(self.tables.load_by_id(request.id), request.tag)
        return api.GetTableTagVersionResponse(version=found.version, branch=found.branch)

    def create_table_tag(self, request: api.CreateTableTagRequest) -> api.CreateTableTagResponse:
        """Tag a version.

        Raises: NamespaceNotFound, TableNotFound, TableTagAlreadyExists, TableVersionNotFound,
        InvalidInput, InvalidTableState, TableBranchNotFound.
        """
        ref = Ref.of(request.version, branch=request.branch)
        tags_and_branches.create_tag(self.tables.load_by_id(request.id), request.tag, ref)
        return api.CreateTableTagResponse()

    def update_table_tag(self, request: api.UpdateTableTagRequest) -> api.UpdateTableTagResponse:
        """Let a tag point to another version.

        Raises: NamespaceNotFound, TableNotFound, TableTagNotFound, TableVersionNotFound,
        InvalidInput, InvalidTableState, TableBranchNotFound.
        """
        ref = Ref.of(request.version, branch=request.branch)
        tags_and_branches.update_tag(self.tables.load_by_id(request.id), request.tag, ref)
        return api.UpdateTableTagResponse()

    def delete_table_tag(self, request: api.DeleteTableTagRequest) -> api.DeleteTableTagResponse:
        """Delete a tag and keep its version.

        Raises: NamespaceNotFound, TableNotFound, TableTagNotFound, InvalidInput, InvalidTableState.
        """
        tags_and_branches.delete_tag(self.tables.load_by_id(request.id), request.tag)
        return api.DeleteTableTagResponse()

    # -- branches ----------------------------------------------------------------------------------

    def create_table_branch(
        self, request: api.CreateTableBranchRequest
    ) -> api.CreateTableBranchResponse:
        """Make a branch of a version.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, TableVersionNotFound,
        InvalidInput, ConcurrentModification, InvalidTableState, TableBranchNotFound (of the
        source), TableBranchAlreadyExists.
        """
        source = Ref.of(request.from_version, branch=request.from_branch)
        tags_and_branches.create_branch(self.tables.load_by_id(request.id), request.name, source)
        return api.CreateTableBranchResponse()

    def list_table_branches(
        self, request: api.ListTableBranchesRequest
    ) -> api.ListTableBranchesResponse:
        """List branches but main, sorted by name.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, InvalidTableState.
        """
        path = self.tables.path_of(request.id)
        page = PageRequest.parse(f"branches {path}", request.limit, request.page_token)
        found = tags_and_branches.list_branches(self.tables.load_by_id(request.id))
        names, token = page.cut_names(list(found))
        return api.ListTableBranchesResponse(
            branches={n: found[n] for n in names}, page_token=token
        )

    def delete_table_branch(
        self, request: api.DeleteTableBranchRequest
    ) -> api.DeleteTableBranchResponse:
        """Delete a branch that nothing refers to.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, ConcurrentModification,
        InvalidTableState, TableBranchNotFound.
        """
        tags_and_branches.delete_branch(self.tables.load_by_id(request.id), request.name)
        return api.DeleteTableBranchResponse()


class ManagementOperations(Operations):
    """Beyond the trait: whether a table's storage or its catalog manages its versions."""

    def manage_table(self, id: Sequence[str], *, force: bool = False) -> None:
        """Have the catalog hold a table's versions.

        Stop its writers first: a writer that opened the table before continues to write to the
        storage, and its versions are not visible.

        Args:
            force: Whether to take them from another entry that manages them; see `Table.manage`.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, InvalidInput,
        ConcurrentModification, InvalidTableState.
        """
        self.tables.manage(self.tables.load_by_id(id), force=force)

    def release_table(self, id: Sequence[str]) -> None:
        """Leave a table's versions to its storage again.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, ConcurrentModification,
        InvalidTableState.
        """
        conversion.end(self.tables.load_by_id(id))

    def list_out_of_band_versions(self, id: Sequence[str]) -> OutOfBand:
        """List versions that bypassed the catalog, and are not visible.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, InvalidTableState.
        """
        return out_of_band.inspect(self.tables.load_by_id(id))

    def adopt_out_of_band_versions(
        self, id: Sequence[str], *, append: bool = False, versions: Sequence[int] | None = None
    ) -> int:
        """Make such versions the table's own; return its latest.

        Args:
            append: Append the rows that only these versions have to the latest version instead,
                if the versions cannot be adopted.
            versions: With `append`, versions to delete although they have other rows, which
                committed versions have deleted or replaced.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, ConcurrentModification,
        InvalidTableState, TableSchemaValidation.
        """
        if versions and not append:
            raise invalid("versions can be named only with append")
        table = self.tables.load_by_id(id)
        if append:
            return append_uncommitted_rows(table, versions or ())
        return out_of_band.adopt(table)

    def discard_out_of_band_versions(
        self, id: Sequence[str], versions: Sequence[int] | None = None
    ) -> int:
        """Delete such versions' manifests; return their number.

        Args:
            versions: Delete only these, also if nothing else has their rows. Without it, such a
                version is refused (InvalidTableState).

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, ConcurrentModification,
        InvalidTableState.
        """
        return out_of_band.discard(self.tables.load_by_id(id), versions)


# -- transactions ----------------------------------------------------------------------------------


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
        made = transactions.create_versions(
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

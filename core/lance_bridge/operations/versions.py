"""Operations on versions, tags and branches, and on who manages a table's versions."""

from __future__ import annotations

from collections.abc import Sequence

from lance_namespace import (
    BatchCreateTableVersionsRequest,
    BatchCreateTableVersionsResponse,
    BatchDeleteTableVersionsRequest,
    BatchDeleteTableVersionsResponse,
    CreateTableBranchRequest,
    CreateTableBranchResponse,
    CreateTableTagRequest,
    CreateTableTagResponse,
    CreateTableVersionRequest,
    CreateTableVersionResponse,
    DeleteTableBranchRequest,
    DeleteTableBranchResponse,
    DeleteTableTagRequest,
    DeleteTableTagResponse,
    DescribeTableVersionRequest,
    DescribeTableVersionResponse,
    GetTableTagVersionRequest,
    GetTableTagVersionResponse,
    ListTableBranchesRequest,
    ListTableBranchesResponse,
    ListTableTagsRequest,
    ListTableTagsResponse,
    ListTableVersionsRequest,
    ListTableVersionsResponse,
    RestoreTableRequest,
    RestoreTableResponse,
    UpdateTableTagRequest,
    UpdateTableTagResponse,
)

from ..dataset.history import batches, branches, tags, versions
from ..managed import conversion, out_of_band
from ..managed.out_of_band import OutOfBand
from ..paging import PageRequest
from ..ref import Ref
from ..storage.staging import Staged
from .base import Operations


def ranges_of(request: BatchDeleteTableVersionsRequest) -> list[range]:
    """Return the ranges that a request wants to delete. Raises InvalidInput."""
    return versions.check_ranges((r.start_version, r.end_version) for r in request.ranges)


class VersionOperations(Operations):
    """Operations on versions, tags and branches."""

    # -- versions ----------------------------------------------------------------------------------

    def list_table_versions(self, request: ListTableVersionsRequest) -> ListTableVersionsResponse:
        """List versions, oldest first unless `descending`.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, InvalidTableState,
        TableBranchNotFound.
        """
        descending = bool(request.descending)
        path = self._table(request.id)
        scope = f"versions {path} {request.branch or ''} {descending}"
        page = PageRequest.parse(scope, request.limit, request.page_token)
        table = self._lance_table(request.id)
        if versions.is_for_latest(page, descending=descending):
            table = out_of_band.clear_next_version_if_allowed(table)
        directory = versions.directory_of(table, request.branch)
        found, token = versions.list_page(directory, page, descending=descending)
        return ListTableVersionsResponse(
            versions=[each.to_table_version() for each in found], page_token=token
        )

    def describe_table_version(
        self, request: DescribeTableVersionRequest
    ) -> DescribeTableVersionResponse:
        """Describe a version, or the latest.

        Raises: NamespaceNotFound, TableNotFound, TableVersionNotFound, InvalidInput,
        InvalidTableState, TableBranchNotFound.
        """
        table = self._lance_table(request.id)
        directory = versions.directory_of(table, request.branch)
        found = versions.describe(table, directory, request.version)
        return DescribeTableVersionResponse(version=found.to_table_version())

    def create_table_version(
        self, request: CreateTableVersionRequest
    ) -> CreateTableVersionResponse:
        """Make a staged manifest the next version.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, InvalidInput,
        ConcurrentModification, InvalidTableState, TableBranchNotFound.
        """
        table = self._lance_table(request.id)
        made = versions.create(table, Staged.from_request(request))
        return CreateTableVersionResponse(version=made.to_table_version())

    def batch_create_table_versions(
        self, request: BatchCreateTableVersionsRequest
    ) -> BatchCreateTableVersionsResponse:
        """Create versions of several tables, all or none.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, InvalidInput,
        ConcurrentModification, Internal, InvalidTableState, TableBranchNotFound.
        """
        steps = [
            batches.create_version(self._lance_table(entry.id), Staged.from_request(entry))
            for entry in request.entries
        ]
        made = batches.run(steps)
        return BatchCreateTableVersionsResponse(versions=[each.to_table_version() for each in made])

    def batch_delete_table_versions(
        self, request: BatchDeleteTableVersionsRequest
    ) -> BatchDeleteTableVersionsResponse:
        """Delete versions that nothing needs.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, ConcurrentModification,
        InvalidTableState, TableBranchNotFound.
        """
        ranges = ranges_of(request)
        table = self._lance_table(request.id)
        planned = versions.prepare_deletion(table, request.branch, ranges)
        return BatchDeleteTableVersionsResponse(deleted_count=versions.delete(planned))

    def restore_table(self, request: RestoreTableRequest) -> RestoreTableResponse:
        """Make an old version's state the latest.

        Raises: NamespaceNotFound, TableNotFound, TableVersionNotFound, InvalidInput,
        ConcurrentModification, InvalidTableState, TableBranchNotFound.
        """
        ref = Ref.of(request.version, branch=request.branch)
        table = self._lance_table(request.id)
        return RestoreTableResponse(transaction_id=versions.restore(table, ref))

    # -- tags --------------------------------------------------------------------------------------

    def list_table_tags(self, request: ListTableTagsRequest) -> ListTableTagsResponse:
        """List tags, sorted by name.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, InvalidTableState.
        """
        path = self._table(request.id)
        page = PageRequest.parse(f"tags {path}", request.limit, request.page_token)
        found = tags.list_all(self._lance_table(request.id))
        names, token = page.cut_names(list(found))
        return ListTableTagsResponse(tags={n: found[n] for n in names}, page_token=token)

    def get_table_tag_version(
        self, request: GetTableTagVersionRequest
    ) -> GetTableTagVersionResponse:
        """Return what a tag points to.

        Raises: NamespaceNotFound, TableNotFound, TableTagNotFound, InvalidInput, InvalidTableState.
        """
        found = tags.get(self._lance_table(request.id), request.tag)
        return GetTableTagVersionResponse(version=found.version, branch=found.branch)

    def create_table_tag(self, request: CreateTableTagRequest) -> CreateTableTagResponse:
        """Tag a version.

        Raises: NamespaceNotFound, TableNotFound, TableTagAlreadyExists, TableVersionNotFound,
        InvalidInput, InvalidTableState, TableBranchNotFound.
        """
        ref = Ref.of(request.version, branch=request.branch)
        tags.create(self._lance_table(request.id), request.tag, ref)
        return CreateTableTagResponse()

    def update_table_tag(self, request: UpdateTableTagRequest) -> UpdateTableTagResponse:
        """Let a tag point to another version.

        Raises: NamespaceNotFound, TableNotFound, TableTagNotFound, TableVersionNotFound,
        InvalidInput, InvalidTableState, TableBranchNotFound.
        """
        ref = Ref.of(request.version, branch=request.branch)
        tags.update(self._lance_table(request.id), request.tag, ref)
        return UpdateTableTagResponse()

    def delete_table_tag(self, request: DeleteTableTagRequest) -> DeleteTableTagResponse:
        """Delete a tag and keep its version.

        Raises: NamespaceNotFound, TableNotFound, TableTagNotFound, InvalidInput, InvalidTableState.
        """
        tags.delete(self._lance_table(request.id), request.tag)
        return DeleteTableTagResponse()

    # -- branches ----------------------------------------------------------------------------------

    def create_table_branch(self, request: CreateTableBranchRequest) -> CreateTableBranchResponse:
        """Make a branch of a version.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, TableVersionNotFound,
        InvalidInput, ConcurrentModification, InvalidTableState, TableBranchNotFound (of the
        source), TableBranchAlreadyExists.
        """
        source = Ref.of(request.from_version, branch=request.from_branch)
        branches.create(self._lance_table(request.id), request.name, source)
        return CreateTableBranchResponse()

    def list_table_branches(self, request: ListTableBranchesRequest) -> ListTableBranchesResponse:
        """List branches but main, sorted by name.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, InvalidTableState.
        """
        path = self._table(request.id)
        page = PageRequest.parse(f"branches {path}", request.limit, request.page_token)
        found = branches.list_all(self._lance_table(request.id))
        names, token = page.cut_names(list(found))
        return ListTableBranchesResponse(branches={n: found[n] for n in names}, page_token=token)

    def delete_table_branch(self, request: DeleteTableBranchRequest) -> DeleteTableBranchResponse:
        """Delete a branch that nothing refers to.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, InvalidTableState,
        TableBranchNotFound.
        """
        branches.delete(self._lance_table(request.id), request.name)
        return DeleteTableBranchResponse()


class ManagementOperations(Operations):
    """Beyond the trait: whether a table's storage or its catalog manages its versions."""

    def manage_table(self, id: Sequence[str]) -> None:
        """Have the catalog hold a table's versions.

        Stop its writers first: a writer that opened the table before continues to write to the
        storage, and its versions are not visible.

        Raises: UnsupportedOperation, NamespaceNotFound, TableNotFound, InvalidInput,
        ConcurrentModification, InvalidTableState.
        """
        conversion.begin(self._lance_table(id))

    def release_table(self, id: Sequence[str]) -> None:
        """Leave a table's versions to its storage again.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, ConcurrentModification,
        InvalidTableState.
        """
        conversion.end(self._lance_table(id))

    def list_out_of_band_versions(self, id: Sequence[str]) -> OutOfBand:
        """List what was written past the catalog, and is not shown.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, InvalidTableState.
        """
        return out_of_band.inspect(self._lance_table(id))

    def adopt_out_of_band_versions(self, id: Sequence[str]) -> int:
        """Make such versions the table's own; return its latest.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, ConcurrentModification,
        InvalidTableState.
        """
        return out_of_band.adopt(self._lance_table(id))

    def discard_out_of_band_versions(self, id: Sequence[str]) -> int:
        """Delete such versions' manifests; return their number.

        Raises: NamespaceNotFound, TableNotFound, InvalidInput, ConcurrentModification,
        InvalidTableState.
        """
        return out_of_band.discard(self._lance_table(id))

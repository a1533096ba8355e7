"""Namespaces that are broken on purpose, put through the kit by `test_kit`.

Not collected by itself: most of what is here fails, and must.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import lance_namespace as api
import pytest
from lance.namespace import DirectoryNamespace

from lance_bridge.testing import ConformanceSuite, StatefulBounds, Target
from lance_bridge.testing.cases import Storage

from .test_directory import DEVIATIONS, DirectoryTarget

pytestmark = pytest.mark.slow


class BrokenDirectory(DirectoryNamespace):
    """A directory, of which each subclass breaks one thing."""


class MixesUpThreads(BrokenDirectory):
    """Keeps its question on the object, where another thread may replace it."""

    _asked: Any = None
    _turn = threading.Event()

    def describe_table(self, request: api.DescribeTableRequest) -> api.DescribeTableResponse:
        self._asked = request
        self._turn.wait(0.002)
        return super().describe_table(self._asked)


class ForgetsTheToken(BrokenDirectory):
    """Begins at the first page again, without end."""

    def list_tables(self, request: api.ListTablesRequest) -> api.ListTablesResponse:
        return super().list_tables(request.model_copy(update={"page_token": None}))


class RepeatsTheLastName(BrokenDirectory):
    """Begins each page with the last name of the page before."""

    def list_tables(self, request: api.ListTablesRequest) -> api.ListTablesResponse:
        answer = super().list_tables(request)
        if request.page_token:
            answer.tables = [request.page_token, *answer.tables][: request.limit]
        return answer


class HidesTables(BrokenDirectory):
    """Lists five tables at most, and gives no token."""

    def list_tables(self, request: api.ListTablesRequest) -> api.ListTablesResponse:
        answer = super().list_tables(request)
        if len(answer.tables) > 5:
            answer.tables = answer.tables[:5]
            answer.page_token = None
        return answer


class DeletesOnDeregister(BrokenDirectory):
    """Takes the files with the entry."""

    def deregister_table(self, request: api.DeregisterTableRequest) -> api.DeregisterTableResponse:
        answer = super().deregister_table(request)
        Storage({}).remove(answer.location or "")
        return answer


class LeavesFilesOnDrop(BrokenDirectory):
    """Drops the entry only."""

    def drop_table(self, request: api.DropTableRequest) -> api.DropTableResponse:
        answer = super().deregister_table(api.DeregisterTableRequest(id=request.id))
        return api.DropTableResponse(location=answer.location)


class OverwritesOnExistOk(BrokenDirectory):
    """Takes ExistOk for Overwrite."""

    def create_table(
        self, request: api.CreateTableRequest, request_data: bytes
    ) -> api.CreateTableResponse:
        if (request.mode or "").lower().replace("_", "") == "existok":
            request = request.model_copy(update={"mode": "Overwrite"})
        return super().create_table(request, request_data)


class TakesTroubleForAbsence(BrokenDirectory):
    """Says that the namespace is missing when only the table is."""

    def describe_table(self, request: api.DescribeTableRequest) -> api.DescribeTableResponse:
        try:
            return super().describe_table(request)
        except api.TableNotFoundError as error:
            raise api.NamespaceNotFoundError(str(error)) from error


class SaysNothing(BrokenDirectory):
    """Raises the right error with a message that names nothing."""

    def drop_table(self, request: api.DropTableRequest) -> api.DropTableResponse:
        try:
            return super().drop_table(request)
        except api.TableNotFoundError as error:
            raise api.TableNotFoundError("not found") from error


class TakesOneAbsenceForTrouble(BrokenDirectory):
    """Says the right thing of a table that is missing, but for one operation of many."""

    def count_table_rows(self, request: api.CountTableRowsRequest) -> api.CountTableRowsResponse:
        try:
            return super().count_table_rows(request)
        except api.TableNotFoundError as error:
            raise api.InvalidInputError(str(error)) from error


class MiscountsRows(BrokenDirectory):
    """Counts one row too few in tables with more than three."""

    def count_table_rows(self, request: api.CountTableRowsRequest) -> api.CountTableRowsResponse:
        answer = super().count_table_rows(request)
        count = answer.count or 0
        return api.CountTableRowsResponse(count=count - (count > 3))


class AppendsOnOverwrite(BrokenDirectory):
    """Takes no notice of the mode of an insert."""

    def insert_into_table(
        self, request: api.InsertIntoTableRequest, request_data: bytes
    ) -> api.InsertIntoTableResponse:
        return super().insert_into_table(request.model_copy(update={"mode": None}), request_data)


class UpdatesEveryRow(BrokenDirectory):
    """Takes no notice of the predicate of an update."""

    def update_table(self, request: api.UpdateTableRequest) -> api.UpdateTableResponse:
        return super().update_table(request.model_copy(update={"predicate": None}))


class SearchesOtherwise(BrokenDirectory):
    """Measures by another distance than the request says."""

    def query_table(self, request: api.QueryTableRequest) -> api.QueryTableResponse:
        wrong = {"distance_type": "dot"} if request.distance_type == "cosine" else {}
        return super().query_table(request.model_copy(update=wrong))


class WritesBeforeItRefuses(BrokenDirectory):
    """Refuses an unknown type of index after it has tagged the table."""

    def create_table_index(
        self, request: api.CreateTableIndexRequest
    ) -> api.CreateTableIndexResponse:
        if request.index_type == "HASH":
            tag = {"id": request.id, "tag": "left", "version": 1}
            super().create_table_tag(api.CreateTableTagRequest.model_validate(tag))
        return super().create_table_index(request)


class DropsMoreColumns(BrokenDirectory):
    """Drops the column ``n`` with any other."""

    def alter_table_drop_columns(
        self, request: api.AlterTableDropColumnsRequest
    ) -> api.AlterTableDropColumnsResponse:
        columns = sorted({*request.columns, "n"})
        return super().alter_table_drop_columns(request.model_copy(update={"columns": columns}))


class ForgetsTheVersion(BrokenDirectory):
    """Makes tags and branches of the first version, whatever the request says."""

    def create_table_tag(self, request: api.CreateTableTagRequest) -> api.CreateTableTagResponse:
        return super().create_table_tag(request.model_copy(update={"version": 1}))

    def create_table_branch(
        self, request: api.CreateTableBranchRequest
    ) -> api.CreateTableBranchResponse:
        return super().create_table_branch(request.model_copy(update={"from_version": 1}))


class BrokenTarget(DirectoryTarget):
    """A directory behind one of these classes."""

    stateful_bounds = StatefulBounds(shrink=False)
    kind: type[DirectoryNamespace] = DirectoryNamespace

    def connect(self) -> api.LanceNamespace:
        return self.kind(root=self.data_root)


class Broken(ConformanceSuite):
    """A suite whose class says what is broken."""

    __test__ = False
    kind: type[DirectoryNamespace] = DirectoryNamespace
    deviations: Mapping[str, str] = DEVIATIONS

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, tmp_path_factory: pytest.TempPathFactory) -> Target:
        target = BrokenTarget(tmp_path_factory.mktemp("broken"))
        target.kind = cls.kind
        target.deviations = cls.deviations
        return target


KINDS = BrokenDirectory.__subclasses__()


def _suite(kind: type[DirectoryNamespace]) -> type[Broken]:
    return type(f"Test{kind.__name__}", (Broken,), {"kind": kind, "__test__": True})


globals().update({f"Test{each.__name__}": _suite(each) for each in KINDS})


class TestSound(Broken):
    """The same directory, not broken: the control."""

    __test__ = True


class TestStaleDeviation(Broken):
    """Declares as deviant what works, and a case that does not exist."""

    __test__ = True
    deviations: Mapping[str, str] = {
        **DEVIATIONS,
        "test_count_counts_the_rows_of_a_version": "no longer true",
        "test_data_of_a_missing_table_is_table_not_found[query_table]": "nor is this",
        "test_no_such_case": "a slip",
    }

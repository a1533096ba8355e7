"""The conformance kit on doubles of Unity Catalog: open source, old and new, and Databricks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.object_stores import MotoServer
from servers.unity import (
    DATABRICKS,
    OPEN_SOURCE_0_3,
    OPEN_SOURCE_0_4,
    OPEN_SOURCE_0_6,
    Dialect,
    UnityServer,
)

from lance_bridge.testing import EntrySuite, RequestSuite, ServerSuite, Target, without
from lance_bridge.testing.cases import Namespace
from lance_bridge.testing.concurrency import ConcurrencyCases
from lance_bridge.testing.data import PylanceCases, SmokeCases
from lance_bridge.testing.namespaces import NamespaceCases
from lance_bridge.testing.restart import RestartCases
from lance_bridge.testing.stateful import StatefulCases
from lance_bridge.testing.tables import DropCases, RegistrationCases, RenameCases, TableCases

from .test_federated import CombinationSuite
from .unity_target import CATALOG, DatabricksTarget, UnityOnS3Target, UnityTarget

pytestmark = pytest.mark.spec(
    "unity.md#compatibility",
    "unity.md#deregistertable",
    "unity.md#describenamespace",
    "unity.md#interoperability",
    "unity.md#listnamespaces",
    "unity.md#listtables",
    "unity.md#operations-inside-a-table",
)


class OnUnity:
    """Three levels: catalog, schema, table."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
        with UnityServer(OPEN_SOURCE_0_6) as server:
            yield UnityTarget(server, str(tmp_path_factory.mktemp("data")))


@pytest.mark.quick
class TestUnity(OnUnity, EntrySuite):
    """Entries and namespaces."""


@pytest.mark.servers
class TestUnityWithAuthorization(EntrySuite):
    """A server that refuses a table whose location overlaps another's, as with authorization."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
        with UnityServer(OPEN_SOURCE_0_6) as server:
            server.grants.add_user("mia")
            server.grants.refuses_overlaps = True
            target = UnityTarget(server, str(tmp_path_factory.mktemp("data")))
            target.features = without(target.features, "shared_locations")
            yield target


@pytest.mark.servers
class TestUnityRequests(OnUnity, RestartCases, ConcurrencyCases, RequestSuite):
    """What else the server and the kind of catalog decide."""


@pytest.mark.slow
class TestUnityAtRandom(OnUnity, StatefulCases):
    """Random sequences of operations."""


def pinned(dialect: Dialect, root: Path) -> Iterator[Target]:
    with UnityServer(dialect) as server:
        target = UnityTarget(server, str(root), pinned=True)
        # What a server can do is known from its answer only: releases before 0.5 have no
        # call that renames a table.
        target.features = without(target.features, "rename", "rename_across")
        yield target


@pytest.mark.quick
class TestUnityWithPinnedCatalog(NamespaceCases, RenameCases, TableCases):
    """Two levels, schema and table, on a server that cannot rename."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
        yield from pinned(OPEN_SOURCE_0_3, tmp_path_factory.mktemp("data"))


@pytest.mark.slow
class TestOldUnity(CombinationSuite):
    """Servers with fewer calls: what a release could break without a change of ours."""

    @pytest.fixture(scope="class", params=[OPEN_SOURCE_0_3, OPEN_SOURCE_0_4], ids=lambda d: d.name)
    @classmethod
    def target(
        cls, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[Target]:
        yield from pinned(request.param, tmp_path_factory.mktemp("data"))


def databricks(root: Path, *, reserves_table_type: bool) -> Iterator[Target]:
    with UnityServer(DATABRICKS) as server:
        server.databricks.warehouse.reserves_table_type = reserves_table_type
        yield DatabricksTarget(server, f"file://{root}")
        marked = [text for text in server.databricks.statements.submitted if "TABLE_TYPE" in text]
        assert bool(marked) is reserves_table_type


class OnDatabricks:
    """Three levels, tables made and changed through SQL, names folded."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
        yield from databricks(tmp_path_factory.mktemp("data"), reserves_table_type=False)


@pytest.mark.servers
class TestDatabricks(OnDatabricks, ServerSuite, RequestSuite):
    """What the server and the kind of catalog decide."""


@pytest.mark.slow
class TestDatabricksAtRandom(OnDatabricks, StatefulCases):
    """Random sequences of operations."""


@pytest.mark.servers
class TestDatabricksThatReservesTableType(TableCases, RegistrationCases, RenameCases):
    """What writes entries, where SQL refuses the property that marks Lance's in lower case."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
        yield from databricks(tmp_path_factory.mktemp("data"), reserves_table_type=True)


@pytest.mark.servers
class TestUnityOnS3(SmokeCases, DropCases, PylanceCases):
    """Tables on S3, reached with credentials that the catalog vends."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls) -> Iterator[Target]:
        with MotoServer() as moto, UnityServer(OPEN_SOURCE_0_6) as server:
            target = UnityOnS3Target(server, moto, "unity-kit")
            yield target
            assert server.counts["POST /temporary-table-credentials"]


class _ForgetfulTarget(UnityTarget):
    """A server that loses its last change when it is killed, as one that writes later does."""

    def stop_server(self) -> None:
        for table in list(self.server.state.tables()):
            self.server.remove_table(CATALOG, table.info["schema_name"], table.name)
        super().stop_server()


@pytest.mark.quick
def test_a_server_that_loses_what_it_acknowledged_fails_with_the_setting_that_keeps_it(
    tmp_path: Path,
) -> None:
    with UnityServer(OPEN_SOURCE_0_6) as server:
        space = Namespace(_ForgetfulTarget(server, str(tmp_path)))
        with pytest.raises(AssertionError, match=r"acknowledged.*WRITE_DELAY=0"):
            RestartCases().test_the_first_call_of_an_idle_client_after_a_restart_succeeds(space)
        space.close()

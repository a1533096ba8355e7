"""The conformance kit on AWS Glue: moto's, held to AWS's documentation.

What is moto's and what is not is said in `servers.moto_app`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers.glue_server import SECRET_KEY, GlueServer
from servers.http_proxy import HttpProxy

from lance_bridge.testing import EntrySuite, RequestSuite, Target
from lance_bridge.testing.concurrency import ConcurrencyCases
from lance_bridge.testing.data import DataCases, PylanceCases, SmokeCases
from lance_bridge.testing.foreign import ForeignCases
from lance_bridge.testing.requests import IdentifierCases
from lance_bridge.testing.restart import RestartCases
from lance_bridge.testing.stateful import StatefulCases
from lance_bridge.testing.tables import DropCases, RegistrationCases

from .glue_target import GlueOnDiskTarget, GlueOnS3Target

pytestmark = pytest.mark.spec(
    "glue.md#deregistertable",
    "glue.md#describenamespace",
    "glue.md#interoperability",
    "glue.md#listnamespaces",
    "glue.md#listtables",
    "glue.md#operations-inside-a-table",
)


@pytest.fixture(scope="module")
def glue_server() -> Iterator[GlueServer]:
    with GlueServer() as server:
        yield server


@pytest.fixture(scope="module")
def glue_proxy(glue_server: GlueServer) -> Iterator[HttpProxy]:
    with HttpProxy(glue_server.endpoint) as proxy:
        yield proxy


class OnGlue:
    """Two levels: database, table; with two entries on a page, and the data on local disk."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(
        cls,
        glue_server: GlueServer,
        glue_proxy: HttpProxy,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> Iterator[Target]:
        with glue_server.small_pages(2), pytest.MonkeyPatch.context() as environment:
            # Pickles hold no secrets: the reader of a pickle takes them from the environment.
            environment.setenv("LANCE_BRIDGE_GLUE_SECRET_ACCESS_KEY", SECRET_KEY)
            yield GlueOnDiskTarget(glue_server, glue_proxy, tmp_path_factory.mktemp("data"))


@pytest.mark.smoke
class TestGlue(OnGlue, EntrySuite):
    """Entries and namespaces."""


@pytest.mark.servers
class TestGlueRequests(OnGlue, RestartCases, ConcurrencyCases, RequestSuite):
    """What else the server and the kind of catalog decide."""


@pytest.mark.slow
class TestGlueAtRandom(OnGlue, StatefulCases):
    """Random sequences of operations."""


@pytest.mark.servers
class TestGlueOnS3(SmokeCases, PylanceCases, DataCases, DropCases, RegistrationCases):
    """What reads or writes data, with the data in S3."""

    test_the_longest_namespace_name_works = IdentifierCases.test_the_longest_namespace_name_works
    test_entries_by_other_implementations_are_listed_described_and_read = (
        ForeignCases.test_entries_by_other_implementations_are_listed_described_and_read
    )
    test_drop_of_entries_by_other_implementations_deletes_only_their_data = (
        ForeignCases.test_drop_of_entries_by_other_implementations_deletes_only_their_data
    )
    _make_other_entries = ForeignCases._make_other_entries

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, glue_server: GlueServer, glue_proxy: HttpProxy) -> Target:
        return GlueOnS3Target(glue_server, glue_proxy)

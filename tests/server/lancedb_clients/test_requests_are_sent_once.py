"""A caller's error is one request, and a write with an unknown outcome is never sent twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import lance_namespace as api
import lancedb
import pyarrow as pa
import pytest
from lance_namespace import errors
from lancedb.remote import ClientConfig, RetryConfig
from lancedb.remote.errors import HttpError, RetryError
from server.gateways import serve_app
from server.lancedb_clients.trials import rows
from starlette.types import ASGIApp, Receive, Scope, Send

from lance_bridge.errors import OutcomeUnknownError
from lance_bridge_hive import HiveNamespace
from lance_bridge_server.app import create_app
from lance_bridge_server.gateway.gateway import Gateway

pytestmark = [pytest.mark.servers, pytest.mark.spec("server.md#errors-and-repeated-requests")]

Table = Any


class CountedRequests:
    """Counts requests by the last part of their path."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.counts = Counter[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self.counts[scope["path"].rstrip("/").rpartition("/")[2]] += 1
        await self._app(scope, receive, send)


class FailingNamespace:
    """A namespace whose operations are carried out, and then fail as the test sets."""

    def __init__(self, namespace: HiveNamespace) -> None:
        self._namespace = namespace
        self.error: errors.LanceNamespaceError | None = None
        self.operation = ""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._namespace, name)

        def call(*args: Any) -> Any:
            result = found(*args)
            if self.error is not None and name == self.operation:
                raise self.error
            return result

        return call


@pytest.fixture(scope="module")
def failing(hive: HiveNamespace) -> FailingNamespace:
    return FailingNamespace(hive)


@pytest.fixture(scope="module")
def server(failing: FailingNamespace) -> Iterator[tuple[str, CountedRequests]]:
    app = CountedRequests(create_app(Gateway(failing)))  # type: ignore[arg-type]
    with serve_app(app) as address:
        yield address, app


@pytest.fixture
def requests(server: tuple[str, CountedRequests]) -> Counter[str]:
    server[1].counts.clear()
    return server[1].counts


@pytest.fixture
def db(
    server: tuple[str, CountedRequests],
    hive: HiveNamespace,
    failing: FailingNamespace,
    request: pytest.FixtureRequest,
) -> Any:
    failing.error = None
    name = f"once_{abs(hash(request.node.name)):x}"
    hive.create_namespace(api.CreateNamespaceRequest(id=[name]))
    retries = ClientConfig(retry_config=RetryConfig(retries=3, backoff_factor=0.01))
    return lancedb.connect(
        f"db://{name}", api_key="k", host_override=server[0], client_config=retries
    )


@pytest.fixture
def table(db: Any, requests: Counter[str]) -> Table:
    made = db.create_table("t", rows(20))
    assert made.schema is not None
    requests.clear()
    return made


CALLERS_ERRORS: dict[str, tuple[str, Callable[[Table], object], str]] = {
    "a missing column": ("drop_columns", lambda t: t.drop_columns(["x"]), "no column 'x'"),
    "a missing tag": ("version", lambda t: t.tags.get_version("x"), "no tag 'x'"),
    "a tag twice": ("create", lambda t: [t.tags.create("a", 1) for _ in "12"], "already has a tag"),
    "an index twice": (
        "create_index",
        lambda t: [t.create_index("id", config=lancedb.index.BTree(), replace=False) for _ in "12"],
        "already has an index",
    ),
    "a missing index": ("drop", lambda t: t.drop_index("x"), "Index 'x' was not found"),
    "a missing version": ("describe", lambda t: t.checkout(99), "version: 99"),
    "a wrong filter": ("query", lambda t: t.search().where("x = 1").to_list(), "no column x"),
    "a wrong vector": ("query", lambda t: t.search([1.0]).to_list(), "has 1 numbers"),
    "a wrong expression": (
        "update",
        lambda t: t.update(where="x = 1", values={"id": 1}),
        "no column x",
    ),
    "an order by a missing column": (
        "query",
        lambda t: t.search().order_by([{"column_name": "x"}]).to_list(),
        "no column 'x'",
    ),
    "a route that is not served": ("prewarm", lambda t: t.prewarm_index("x"), "not supported"),
}


@pytest.mark.spec("server.md#what-is-refused")
@pytest.mark.parametrize("case", CALLERS_ERRORS)
def test_a_callers_error_is_one_request_and_says_what_is_wrong(
    table: Table, requests: Counter[str], case: str
) -> None:
    name, call, text = CALLERS_ERRORS[case]
    with pytest.raises(Exception, match=text) as raised:
        call(table)
    assert not isinstance(raised.value, RetryError)
    assert requests[name] == (2 if case.endswith("twice") else 1)


WRITES: dict[str, tuple[str, Callable[[Table], object]]] = {
    "insert_into_table": ("insert", lambda t: t.add(rows(1, 100))),
    "update_table": ("update", lambda t: t.update(where="id=1", values_sql={"id": "id+1000"})),
    "delete_from_table": ("delete", lambda t: t.delete("id = 2")),
    "merge_insert_into_table": (
        "merge_insert",
        lambda t: t.merge_insert("id").when_not_matched_insert_all().execute(rows(1, 100)),
    ),
    "alter_table_add_columns": ("add_columns", lambda t: t.add_columns({"twice": "id * 2"})),
    "create_table_tag": ("create", lambda t: t.tags.create("a", 1)),
}
FAILURES = (
    OutcomeUnknownError("the reply was lost"),
    errors.ServiceUnavailableError("it went away after the commit"),
    errors.ThrottlingError("it was throttled after the commit"),
    errors.InternalError("it failed after the commit"),
)


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("operation", WRITES)
def test_a_write_that_fails_after_its_commit_is_not_sent_again(
    table: Table,
    requests: Counter[str],
    failing: FailingNamespace,
    operation: str,
    error: errors.LanceNamespaceError,
) -> None:
    path, write = WRITES[operation]
    failing.operation, failing.error = operation, error
    with pytest.raises(HttpError, match="424"):
        write(table)
    assert requests[path] == 1


def test_a_commit_that_conflicts_is_repeated_by_the_client(
    table: Table, requests: Counter[str], failing: FailingNamespace
) -> None:
    failing.operation, failing.error = (
        "delete_from_table",
        errors.ConcurrentModificationError("conflict"),
    )
    with pytest.raises(RetryError, match="3/3"):
        table.delete("id = 2")
    assert requests["delete"] == 3


def test_a_read_is_repeated_while_the_catalog_is_away(
    table: Table, requests: Counter[str], failing: FailingNamespace
) -> None:
    failing.operation, failing.error = "count_table_rows", errors.ServiceUnavailableError("away")
    with pytest.raises(RetryError, match="3/3"):
        table.count_rows()
    assert requests["count_rows"] == 3


def test_an_index_that_is_missing_is_no_missing_table(
    table: Table, failing: FailingNamespace
) -> None:
    failing.operation = "describe_table_index_stats"
    failing.error = errors.TableIndexNotFoundError("no index")
    table.create_index("id", config=lancedb.index.BTree())
    assert table.index_stats("id_idx") is None


def test_a_table_that_exists_or_not_is_lancedbs_own_error(
    db: Any, table: Table, requests: Counter[str]
) -> None:
    with pytest.raises(ValueError, match="Table 't' already exists"):
        db.create_table("t", rows(1))
    with pytest.raises(ValueError, match="Table 'u' was not found"):
        db.open_table("u")
    assert requests["describe"] == requests["create"] == 1
    assert db.create_table("t", pa.table({"id": [1]}), exist_ok=True).count_rows() == 20
    assert table.name == "t"


@pytest.mark.spec("server.md#freshness")
def test_an_answer_states_its_version_in_a_header(
    server: tuple[str, CountedRequests], table: Table, db: Any
) -> None:
    headers = {"x-lancedb-database": db.db_name, "user-agent": "LanceDB-Test"}
    query = {"vector": [], "k": 1}
    for path, body, version in (
        ("describe", {}, "1"),
        ("delete", {"predicate": "id = 1"}, "2"),
        ("count_rows", {}, "2"),
        ("query", query, "2"),
    ):
        address = f"{server[0]}/v1/table/{table.name}/{path}/"
        answer = httpx.post(address, headers=headers, json=body)
        assert answer.headers["x-lancedb-version"] == version
        assert answer.headers["phalanx-version"] == "0.3.0"


@pytest.mark.spec("server.md#freshness")
@pytest.mark.parametrize("header", ["x-lancedb-min-version", "x-lancedb-min-read-version"])
def test_an_answer_is_of_the_version_that_the_client_asks_for(
    server: tuple[str, CountedRequests], table: Table, db: Any, header: str
) -> None:
    headers = {"x-lancedb-database": db.db_name, "user-agent": "LanceDB-Test"}
    query = {"vector": [], "k": 1}
    for path, body in (("describe", {}), ("count_rows", {}), ("query", query)):
        address = f"{server[0]}/v1/table/{table.name}/{path}/"

        def ask(least: str, **more: Any) -> httpx.Response:
            request = {**body, **more}  # noqa: B023 - called here alone
            return httpx.post(address, headers={**headers, header: least}, json=request)  # noqa: B023

        assert ask("1").status_code == 200
        refusal = ask("7")
        assert (refusal.status_code, refusal.json()["code"]) == (503, 17)
        assert "latest version of the table is 1" in refusal.json()["error"]
        assert ask("7", version=1).status_code == 200  # it is told which version to read
        assert ask("x").json()["code"] == 13

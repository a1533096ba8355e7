"""Equal reads at the same time are one call of the catalog, and never return old results."""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import lance_namespace as api
import pytest
from lance_namespace import LanceNamespace
from lance_namespace.errors import TableNotFoundError
from server.gateways import done, refused, serve_app
from servers.processes import wait_until

from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.access.authentication import TrustedProxy
from lance_bridge_server.app import create_app
from lance_bridge_server.gateway.gateway import Gateway
from lance_bridge_server.gateway.threads import SingleFlight

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#equal-reads")]

MANY = 20


class Key:
    """A key that counts how often it is looked up, which happens within the lock."""

    def __init__(self) -> None:
        self.lookups = 0

    def __hash__(self) -> int:
        self.lookups += 1
        return 1


@pytest.mark.parametrize("fails", [False, True])
def test_calls_that_wait_are_one_call(fails: bool) -> None:
    flights, key, is_open, calls = SingleFlight(), Key(), threading.Event(), list[int]()

    def call() -> int:
        calls.append(len(calls))
        number = calls[-1]
        assert is_open.wait(30)
        if fails:
            raise TableNotFoundError(f"call {number}")
        return number

    def run(_: int) -> str:
        try:
            return f"call {flights.run(key, call)}"
        except TableNotFoundError as error:
            return str(error)

    with ThreadPoolExecutor(MANY) as pool:
        first = pool.submit(run, 0)
        wait_until(lambda: calls)
        others = [pool.submit(run, number) for number in range(1, MANY)]
        wait_until(lambda: key.lookups > MANY)  # the first looked it up, and stored under it
        is_open.set()
        assert first.result() == "call 0"
        assert {each.result() for each in others} == {"call 1"}
    assert calls == [0, 1]
    assert flights.run("another key", lambda: "not kept") == "not kept"
    assert flights.run("another key", lambda: "called again") == "called again"


class Slow(LanceNamespace):
    """A catalog whose table changes while calls that have read it are on their way."""

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.location: str | None = "/old"
        self.described = 0

    def namespace_id(self) -> str:
        return "slow"

    def list_namespaces(self, request: Any) -> Any:  # noqa: ARG002
        return api.ListNamespacesResponse(namespaces=[])

    def describe_table(self, request: Any) -> Any:
        self.described += 1
        location = self.location
        assert self.is_open.wait(30)
        if location is None:
            raise TableNotFoundError(f"Table not found: {'.'.join(request.id)}")
        return api.DescribeTableResponse(location=location)


@pytest.fixture
def slow() -> Iterator[Slow]:
    catalog = Slow()
    yield catalog
    catalog.is_open.set()


@pytest.fixture
def gateway(slow: Slow) -> Gateway:
    trusted = TrustedProxy("x-user", None, [ipaddress.ip_network("127.0.0.0/8")])
    return Gateway(FederatedNamespace({"prod": slow}), trusted, catalogs={"prod": slow})


@pytest.fixture
def client(gateway: Gateway) -> Iterator[httpx.Client]:
    with (
        serve_app(create_app(gateway)) as url,
        httpx.Client(base_url=url, timeout=30, headers={"x-user": "ann"}) as client,
    ):
        yield client


def describe(client: httpx.Client, **headers: str) -> httpx.Response:
    return client.post("/v1/table/prod$t/describe", json={}, headers=headers)


def test_a_request_never_has_a_result_that_is_older_than_itself(
    slow: Slow, gateway: Gateway, client: httpx.Client
) -> None:
    with ThreadPoolExecutor(MANY) as pool:
        before = pool.submit(describe, client)
        wait_until(lambda: slow.described)
        slow.location = "/new"
        after = [pool.submit(describe, client) for _ in range(MANY - 1)]
        wait_until(lambda: gateway.running == MANY)
        slow.is_open.set()
        assert done(before.result())["location"] == "/old"
        assert {done(each.result())["location"] for each in after} == {"/new"}
    assert slow.described < MANY


def test_requests_that_share_a_call_fail_alike(
    slow: Slow, gateway: Gateway, client: httpx.Client
) -> None:
    slow.location = None
    with ThreadPoolExecutor(MANY) as pool:
        found = [pool.submit(describe, client) for _ in range(MANY)]
        wait_until(lambda: gateway.running == MANY)
        slow.is_open.set()
        for each in found:
            assert "prod.t" in refused(each.result(), 404, 4)


def test_principals_do_not_share_a_call(slow: Slow, client: httpx.Client) -> None:
    users = [f"user {number}" for number in range(MANY)]
    with ThreadPoolExecutor(MANY) as pool:
        found = [pool.submit(describe, client, **{"x-user": each}) for each in users]
        wait_until(lambda: slow.described == MANY)
        slow.is_open.set()
        assert {done(each.result())["location"] for each in found} == {"/old"}

"""The threads of operations: places in them that principals, catalogs and queries share."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from itertools import pairwise

import pytest
from lance_namespace.errors import ServiceUnavailableError

from lance_bridge_server.gateway.threads import (
    FairPlaces,
    OperationThreads,
    PacedThread,
    TimeLimit,
    Use,
)
from lance_bridge_server.operations import OPERATIONS

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#time-limits")]


def test_a_principal_does_not_get_all_threads() -> None:
    go_on, begun = threading.Event(), list[str]()

    def hold(name: str) -> None:
        begun.append(name)
        assert go_on.wait(30)

    async def run() -> None:
        threads, operation = OperationThreads(4, 4), OPERATIONS[0]
        limit = TimeLimit(30)

        def start(owner: str) -> asyncio.Future[None]:
            work = threads.run(partial(hold, owner), operation, limit, Use(owner))
            return asyncio.ensure_future(work)

        many = [start("many") for _ in range(7)]
        one = start("one")
        while len(begun) < 4:
            await asyncio.sleep(0)
        assert sorted(begun) == ["many", "many", "many", "one"]
        with pytest.raises(ServiceUnavailableError, match="requests of this principal wait"):
            await start("many")
        many[-1].cancel()  # one that waits leaves its place to another
        await asyncio.sleep(0)
        more = start("many")
        go_on.set()
        await asyncio.gather(*many[:-1], one, more)

    asyncio.run(run())
    assert sorted(begun) == ["many"] * 7 + ["one"]


def test_queries_of_all_principals_leave_places_for_other_calls() -> None:
    async def run() -> None:
        places, waiting = FairPlaces(16, 99), list[asyncio.Future[None]]()

        async def take(owner: str, *, is_query: bool = False) -> None:
            await places.acquire(Use(owner, "prod", is_query=is_query))

        for owner, got in (("ada", 3), ("bob", 1)):  # of four, one is not for the first
            asked = [asyncio.ensure_future(take(owner, is_query=True)) for _ in range(9)]
            await asyncio.sleep(0)
            assert sum(each.done() for each in asked) == got
            waiting += [each for each in asked if not each.done()]
        await take("carl")
        for owner, got in (("ada", 3), ("bob", 0)):  # of the eight of a catalog, ada gets six
            asked = [asyncio.ensure_future(take(owner)) for _ in range(9)]
            await asyncio.sleep(0)
            assert sum(each.done() for each in asked) == got
            waiting += [each for each in asked if not each.done()]
        for each in waiting:
            each.cancel()

    asyncio.run(run())


def test_places_are_given_in_turn() -> None:
    async def run() -> list[str]:
        places, got = FairPlaces(1, 9), list[str]()
        await places.acquire(Use("first"))

        async def take(owner: str) -> None:
            await places.acquire(Use(owner))
            got.append(owner)
            places.release(Use(owner))

        tasks = [asyncio.ensure_future(take(owner)) for owner in "aaab"]
        await asyncio.sleep(0)
        places.release(Use("first"))
        await asyncio.gather(*tasks)
        return got

    assert asyncio.run(run()) == ["a", "b", "a", "a"]


@pytest.mark.parametrize("fails", [False, True])
def test_paced_work_rests_as_long_as_it_took(fails: bool) -> None:
    """Then another principal has its turn."""
    spans: list[tuple[str, float, float]] = []

    def parse(owner: str) -> None:
        begun = time.perf_counter()
        while time.perf_counter() - begun < 0.05:
            pass
        spans.append((owner, begun, time.perf_counter()))
        if fails:
            raise ValueError("not JSON")

    async def run() -> None:
        thread, limit = PacedThread(9), TimeLimit(30)
        work = [thread.run(partial(parse, owner), owner, limit) for owner in "aaab"]
        results = await asyncio.gather(*work, return_exceptions=True)
        assert all(isinstance(each, ValueError) is fails for each in results)
        with pytest.raises(ServiceUnavailableError, match="server is busy; nothing was changed"):
            await thread.run(partial(parse, "c"), "c", TimeLimit(0))

    asyncio.run(run())
    assert [owner for owner, *_ in spans] == ["a", "a", "b", "a"]
    for (_, begun, end), (_, following, _) in pairwise(spans):
        assert following - end >= (end - begun) * 0.9

"""Threads that wait for a connection get one in the order in which they came."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

import pytest
from servers.processes import wait_until

from lance_bridge_hive.transport.pool import FairSlots

pytestmark = pytest.mark.quick


def waiting(slots: FairSlots, count: int) -> bool:
    return len(slots._waiting) == count


def started(count: int, target: Callable[[int], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=target, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_slots_are_given_in_the_order_in_which_threads_came() -> None:
    slots = FairSlots(1)
    assert slots.acquire(1)
    served: list[int] = []

    def wait(number: int) -> None:
        assert slots.acquire(30)
        served.append(number)
        slots.release()

    threads = []
    for number in range(20):
        thread = threading.Thread(target=wait, args=(number,), daemon=True)
        thread.start()
        threads.append(thread)
        wait_until(partial(waiting, slots, number + 1), every=0.001)
    slots.release()
    for thread in threads:
        thread.join(30)
    assert served == list(range(20))


def test_a_thread_that_calls_without_a_pause_passes_none_that_waits() -> None:
    slots = FairSlots(1)
    assert slots.acquire(1)
    served, leave = threading.Event(), threading.Event()

    def wait(_: int) -> None:
        assert slots.acquire(30)
        served.set()
        leave.wait(30)
        slots.release()

    [thread] = started(1, wait)
    wait_until(lambda: slots._waiting, every=0.001)
    slots.release()
    assert not slots.acquire(0.01), "the place is the other's, whether it runs already or not"
    assert served.wait(30)
    leave.set()
    thread.join(30)
    assert slots.acquire(1)


def test_a_thread_that_times_out_leaves_the_queue_and_no_slot_is_lost() -> None:
    slots = FairSlots(2)
    assert slots.acquire(1)
    assert slots.acquire(1)
    begun = time.monotonic()
    assert not slots.acquire(0.1)
    assert time.monotonic() - begun < 20
    assert not slots._waiting
    slots.release()
    slots.release()
    assert slots.acquire(1)
    assert slots.acquire(1)
    assert not slots.acquire(0.01)


def test_an_interrupted_thread_loses_no_slot() -> None:
    slots = FairSlots(1)
    assert slots.acquire(1)

    class InterruptedLock:
        """A turn that comes at the same moment as Ctrl-C."""

        def acquire(self, timeout: float = -1) -> bool:
            if timeout > 0:
                slots.release()
                raise KeyboardInterrupt
            return True

        def release(self) -> None:
            pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lance_bridge_hive.transport.pool.threading.Lock", InterruptedLock)
        with pytest.raises(KeyboardInterrupt):
            slots.acquire(5)
    assert slots.acquire(1)


def test_many_threads_with_short_waits_lose_no_slot() -> None:
    slots = FairSlots(3)
    inside, most = 0, 0
    lock = threading.Lock()

    def call(number: int) -> None:
        nonlocal inside, most
        for turn in range(50):
            if slots.acquire(0.0005 * ((number + turn) % 4) + 0.0001):
                with lock:
                    inside += 1
                    most = max(most, inside)
                with lock:
                    inside -= 1
                slots.release()

    for thread in started(40, call):
        thread.join(120)
    assert most <= 3
    assert [slots.acquire(0.01) for _ in range(4)] == [True, True, True, False]

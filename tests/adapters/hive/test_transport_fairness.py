"""Many more threads than connections, at a real metastore: none waits much longer than others."""

from __future__ import annotations

import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from servers.metastores import Metastores
from servers.pools import read

from lance_bridge.config import load
from lance_bridge_hive import HiveConfig
from lance_bridge_hive.transport import ClientPool

pytestmark = [pytest.mark.server, pytest.mark.slow]

THREADS, CALLS, CONNECTIONS = 200, 20, 8
WARM_UP_CALLS = 2000
LONGEST_IN_MEDIANS = 10


@pytest.mark.timeout(600)
def test_two_hundred_threads_on_eight_connections_wait_about_as_long(
    metastores: Metastores,
) -> None:
    properties = {"uri": metastores.get("2.3").uri, "client.pool-size": str(CONNECTIONS)}
    pool = ClientPool(load(HiveConfig, "hive", {**properties, "client.timeout": "120"}))
    with ThreadPoolExecutor(CONNECTIONS) as few:
        # A metastore that has just been started answers ten times more slowly at first.
        list(few.map(lambda _: read(pool), range(WARM_UP_CALLS)))
    start, waited = threading.Barrier(THREADS), list[float]()

    def call() -> None:
        start.wait()
        for _ in range(CALLS):
            begun = time.monotonic()
            read(pool)
            waited.append(time.monotonic() - begun)

    threads = [threading.Thread(target=call) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pool.close()
    assert len(waited) == THREADS * CALLS
    median, longest = statistics.median(waited), max(waited)
    print(f"{THREADS} threads on {CONNECTIONS}: median {median:.3f} s, longest {longest:.3f} s")
    assert longest <= LONGEST_IN_MEDIANS * median

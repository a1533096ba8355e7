"""Readers that try to end or block a gateway: random SQL, rows, JSON and closed connections.

It takes five minutes, or LANCE_BRIDGE_TEST_SECONDS. LANCE_BRIDGE_TEST_SEED makes other requests.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import lance
import numpy as np
import psutil
import pyarrow as pa
import pytest
from server.gateways import ARROW, GatewayProcess, dial, done

from lance_bridge.testing.calls import ipc
from lance_bridge_server.queries.allowed_sql import FUNCTIONS, GROWING

pytestmark = [pytest.mark.slow, pytest.mark.spec("server.md#queries")]

SECONDS = float(os.environ.get("LANCE_BRIDGE_TEST_SECONDS", "300"))
SEED = int(os.environ.get("LANCE_BRIDGE_TEST_SEED", "41"))

LONGEST = 1.0
"""How long a request of another principal may take."""
SERVER_BYTES = 1 << 30
TABLE = "/v1/table/lake$t"
CONFIGURATION = """
catalogs: {{lake: {{impl: dir, root: '{root}'}}}}
authentication: [{{method: proxy, networks: ['127.0.0.0/8'], header: x-user}}]
queries: {{processes: 4, kept: 2, memory_bytes: 1073741824, cpu_seconds: 20}}
limits: {{operation_seconds: 30}}
"""


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    count = 1000
    rows = pa.table({
        "id": range(count),
        "word": [f"word {i} " * 20 for i in range(count)],
        "vector": pa.FixedSizeListArray.from_arrays(np.zeros(8 * count, np.float32), 8),
        "list": [[i, i + 1] for i in range(count)],
        "part": [{"x": i, "y": str(i)} for i in range(count)],
        "at": pa.array(range(count), pa.timestamp("us")),
    })  # fmt: skip
    lance.write_dataset(rows, str(tmp_path / "lake" / "t.lance"))
    file = tmp_path / "server.yaml"
    file.write_text(CONFIGURATION.format(root=tmp_path / "lake"))
    with GatewayProcess(tmp_path / "log", "--config", str(file)) as process:
        yield process


class Attacker:
    """A principal that sends one random request after the other."""

    def __init__(self, url: str, seed: int, statuses: Counter[int]) -> None:
        self._random = random.Random(seed)
        self._expressions = Expressions(self._random)
        self._http = httpx.Client(base_url=url, headers={"x-user": f"attacker-{seed}"}, timeout=90)
        self._url = url
        self._statuses = statuses

    def act(self) -> None:
        """Send a request, and check that its answer is no fault of the server."""
        kinds = (self._query, self._query, self._query, self._count, self._explain, self._update,
                 self._rows, self._page, self._json, self._leave)  # fmt: skip
        response = self._random.choice(kinds)()
        if response is not None:
            self._statuses[response.status_code] += 1
            assert response.status_code in {200, 400, 404, 413, 415, 429, 500, 503}, response.text

    def _query(self) -> httpx.Response:
        body: dict[str, Any] = {"vector": {}, "k": self._random.choice((1, 10, 1 << 31))}
        if self._random.random() < 0.7:
            body["filter"] = self._expressions.any()
        else:
            body["columns"] = {"column_aliases": {"c": self._expressions.any()}}
        if self._random.random() < 0.2:
            body["vector"] = {"single_vector": [0.5] * self._random.choice((1, 8, 10_000))}
            body |= {"nprobes": 1 << 30, "refine_factor": 1 << 30, "ef": 1 << 30}
        if self._random.random() < 0.1:
            body["full_text_query"] = {"string_query": {"query": self._expressions.any()}}
        return self._http.post(f"{TABLE}/query", json=body)

    def _count(self) -> httpx.Response:
        return self._http.post(f"{TABLE}/count_rows", json={"predicate": self._expressions.any()})

    def _explain(self) -> httpx.Response:
        query = {"vector": {}, "k": 1, "filter": self._expressions.any()}
        return self._http.post(f"{TABLE}/explain_plan", json={"query": query})

    def _update(self) -> httpx.Response:
        body = {"predicate": "id < 0", "updates": [["word", self._expressions.any()]]}
        return self._http.post(f"{TABLE}/update", json=body)

    def _page(self) -> httpx.Response:
        return self._http.get("/ui/rows/lake/t", params={"filter": self._expressions.any()[:5000]})

    def _rows(self) -> httpx.Response:
        size = self._random.choice((1, 8, 1 << 20, (1 << 31) - 1))
        count = self._random.choice((1, 100, 20_000))
        fields = [(f"c{i}", pa.list_(pa.float32(), size)) for i in range(count)]
        content = bytearray(ipc(pa.schema(fields).empty_table()))
        for _ in range(self._random.choice((0, 0, 1, 20))):
            content[self._random.randrange(len(content))] = self._random.randrange(256)
        path = f"/v1/table/lake$new{self._random.randrange(1 << 30)}/create"
        return self._http.post(path, content=bytes(content), headers={"content-type": ARROW})

    def _json(self) -> httpx.Response:
        """Send a large body: numbers, members, containers, or texts that resemble them."""
        count = self._random.choice((1_000, 100_000, 1_900_000))
        part = self._random.choice(("0", "0.5", "[0]", "{}", '"k":1', '",:"', "[" * 50, "null"))
        content = ",".join([part] * min(count, (15 << 20) // (len(part) + 1)))
        body = self._random.choice((
            f'{{"k": 1.0, "vector": {{"single_vector": [{content}]}}}}',
            f'{{"k": 1, "vector": {{"multi_vector": [[{content}]]}}}}',
            f'{{"k": 1, "vector": {{}}, "context": {{{content}}}}}',
            f"[{content}]",
        ))  # fmt: skip
        headers = {"content-type": "application/json"}
        return self._http.post(f"{TABLE}/query", content=body.encode(), headers=headers)

    def _leave(self) -> None:
        """Send a query that takes long, and close the connection."""
        query = " or ".join(["levenshtein(word, word) > 5"] * 100)
        body = f'{{"vector": {{}}, "k": 10, "filter": "{query}"}}'.encode()
        head = (
            f"POST {TABLE}/query HTTP/1.1\r\nhost: localhost\r\nx-user: leaver\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        with dial(self._url) as connection:
            connection.sendall(head.encode() + body)
            time.sleep(self._random.random() / 5)
            connection.shutdown(socket.SHUT_RDWR)


def attack(url: str, seed: int, seconds: float, found: Any) -> None:
    """Send requests for some time, in a process: their texts are large."""
    statuses = Counter[int]()
    attacker = Attacker(url, seed, statuses)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            attacker.act()
    except Exception as error:  # noqa: BLE001 - the test raises it
        found.put(repr(error)[:1000])
    else:
        found.put(statuses)


@pytest.mark.timeout(SECONDS + 600)
def test_no_reader_ends_or_blocks_a_gateway(gateway: GatewayProcess) -> None:
    context = multiprocessing.get_context("spawn")
    found, most, times = context.Queue(), 0, list[float]()
    attackers = [
        context.Process(target=attack, args=(gateway.url, SEED + i, SECONDS, found), daemon=True)
        for i in range(3)
    ]
    for each in attackers:
        each.start()
    server = psutil.Process(gateway.pid)
    with httpx.Client(base_url=gateway.url, headers={"x-user": "other"}, timeout=60) as other:
        while any(each.is_alive() for each in attackers) and found.empty():
            began = time.monotonic()
            done(other.post(f"{TABLE}/describe", json={}))
            times.append(time.monotonic() - began)
            assert times[-1] < LONGEST
            most = max(most, server.memory_info().rss)
            assert most < SERVER_BYTES
            time.sleep(0.05)
        results = [found.get(timeout=120) for _ in attackers]
        print(
            f"answers {results}, memory {most >> 20} MiB, describe: "
            f"median {sorted(times)[len(times) // 2]:.3f} s, longest {max(times):.2f} s"
        )
        assert all(isinstance(each, Counter) for each in results)
        done(other.post(f"{TABLE}/count_rows", json={"predicate": "id < 5"}))


# -- random expressions of SQL, most of them wrong, and some too large for any server --------------


COLUMNS = ("id", "word", "vector", "list", "part.x", "`part`.`y`", "at", "none", "_rowid")
TYPES = (
    "int", "bigint", "float", "double", "varchar", "date", "timestamp", "boolean", "bytea",
    "decimal(38, 10)", "float[3]", "float[2147483647]", "int[100][100]",
)  # fmt: skip
ARROW_TYPES = (
    "Int8", "Utf8", "Timestamp(Nanosecond, None)", "FixedSizeList(2147483647 x Float32)",
    "List(Int64)", "Dictionary(Int8, Utf8)", "Struct(a Int64)", "FixedSizeBinary(2147483647)",
)  # fmt: skip
_OPERATORS = ("+", "-", "*", "/", "%", "||", "=", "<", ">=", "<>", "and", "or", "like", "~", "&")
_EXTRAS = ("'", '"', "`", "--", "/*", "*/", ";", "\0", "$$", "e'\\''", ")")
_NAMES = (*sorted(FUNCTIONS), *sorted(GROWING), "other", "sum", "count", "sleep")


class Expressions:
    """Makes expressions from a source of random numbers."""

    def __init__(self, source: random.Random) -> None:
        self._random = source

    def any(self) -> str:
        """Return an expression, or a text that only resembles one."""
        choice = self._random.random()
        if choice < 0.5:
            return self._tree(self._random.choice((1, 2, 4)))
        if choice < 0.7:
            return self._chain()
        if choice < 0.8:
            return self._nested()
        if choice < 0.9:
            return self._list()
        return self._broken()

    def _tree(self, depth: int) -> str:
        if depth <= 0 or self._random.random() < 0.2:
            return self._leaf()
        inner = [self._tree(depth - 1) for _ in range(self._random.choice((2, 2, 3, 5)))]
        return self._random.choice(
            (
                f"{self._random.choice(_NAMES)}({', '.join(inner)})",
                f"{self._random.choice(_NAMES)}({inner[0]})",
                f"({inner[0]} {self._random.choice(_OPERATORS)} {inner[1]})",
                f"cast({inner[0]} as {self._random.choice(TYPES)})",
                f"case when {inner[0]} then {inner[1]} end",
                f"arrow_cast({inner[0]}, '{self._random.choice(ARROW_TYPES)}')",
                f"not {inner[0]}",
            )
        )

    def _leaf(self) -> str:
        return self._random.choice(
            (
                self._random.choice(COLUMNS),
                str(self._random.randint(-(1 << 63), 1 << 63)),
                "'" + "x" * self._random.choice((0, 1, 100, 10_000)) + "'",
                "null", "true", "1e400", "interval '1' day", "x'ff'", "[1, 2]",
            )
        )  # fmt: skip

    def _chain(self) -> str:
        part, operator = self._tree(1), self._random.choice(_OPERATORS)
        return f" {operator} ".join([part] * self._random.choice((10, 150, 1000, 20_000)))

    def _nested(self) -> str:
        count = self._random.choice((10, 40, 100, 5000))
        opening, closing = self._random.choice(
            (("(", ")"), ("abs(", ")"), ("not ", ""), ("- ", ""), ("coalesce(", ", 1)"), ("[", "]"))
        )
        return opening * count + self._leaf() + closing * count

    def _list(self) -> str:
        count = self._random.choice((10, 1000, 50_000))
        return f"{self._random.choice(COLUMNS)} in ({', '.join([self._leaf()] * count)})"

    def _broken(self) -> str:
        text = self._tree(3)
        cut = self._random.randrange(len(text) + 1)
        extra = self._random.choice(
            ("'", '"', "`", "--", "/*", "*/", ";", "\0", "$$", "e'\\''", ")")
        )
        return text[:cut] + extra + text[cut:]

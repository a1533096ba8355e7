"""Describing tables with vended credentials that are in the cache, compared with none.

On moto, whose STS vends sessions of a role. The same table is described in turns: with credentials,
without because the request declines them, and on a namespace that has no vendor. Processor time is
that of the calling thread.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from servers.glue_server import ACCESS_KEY, REGION, ROLE, SECRET_KEY

from bench.catalogs import Catalog
from bench.raw_clients import NAMESPACE
from bench.runner import Bar, Operation, Timed, Way, make_row, request, take_turns

_TABLES = 10
_TURNS = 5
"""In each round: a call is short, and so easily disturbed."""
_MOST = 1.1
_CACHED, _DECLINED, _NO_VENDOR = "cached", "declined", "no_vendor"


def measure_credentials(catalog: Catalog, rounds: int) -> list[dict[str, Any]]:
    """Return the times of each way, and those with credentials as multiples of the others."""
    assert catalog.aws is not None
    keys = {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY, "region": REGION}
    storage = {f"storage.aws_{key}": value for key, value in keys.items()}
    endpoint = catalog.aws.endpoint
    vendor = {"vendor": "aws", "role_arn": ROLE, "endpoint": endpoint, "sts_endpoint": endpoint}
    properties = {f"credentials.{key}": value for key, value in vendor.items()}
    vending, plain = catalog.connect(**storage, **properties), catalog.connect(**storage)
    ways = {
        _CACHED: _describe(_CACHED, catalog, vending),
        _DECLINED: _describe(_DECLINED, catalog, vending, vend_credentials=False),
        _NO_VENDOR: _describe(_NO_VENDOR, catalog, plain),
    }
    operation = Operation("describe_table", ways, _is_right, repeats=_TURNS)
    # The first ones ask STS for the credentials of each table.
    found = take_turns([operation], rounds, rehearsals=-(-_TABLES // _TURNS))[operation.name]
    plain.close()
    vending.close()
    cpu = {way: statistics.median(found.parts[way]) for way in ways}
    return [
        make_row(
            {
                "described_beside": other,
                "cached_ms": round(found.median(_CACHED) * 1000, 3),
                "other_ms": round(found.median(other) * 1000, 3),
                "ratio": round(found.median(_CACHED) / found.median(other), 3),
                "cached_cpu_ms": round(cpu[_CACHED] * 1000, 3),
                "other_cpu_ms": round(cpu[other] * 1000, 3),
                "cpu_ratio": round(cpu[_CACHED] / cpu[other], 3),
            },
            [Bar("ratio", "<=", _MOST), Bar("cpu_ratio", "<=", _MOST)],
            found.wrong,
        )
        for other in (_DECLINED, _NO_VENDOR)
    ]


def _describe(way: str, catalog: Catalog, namespace: Any, **fields: Any) -> Way:
    names = catalog.contents.lance_names[:_TABLES]

    def describe(turn: int) -> Timed:
        path = [NAMESPACE, names[turn % len(names)]]
        wall, cpu = time.perf_counter(), time.thread_time()
        answer = request(namespace, "describe_table", id=path, **fields)
        used = time.thread_time() - cpu
        return Timed(time.perf_counter() - wall, answer, {way: used})

    return describe


def _is_right(answers: Any, _: int) -> bool:
    """Return whether only the first has the keys of a session, for the same table."""
    sessions = [way for way, each in answers.items() if "aws_session_token" in each.storage_options]
    return sessions == [_CACHED] and len({each.location for each in answers.values()}) == 1

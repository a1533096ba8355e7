"""What the bridge costs on AWS Glue, against boto3 alone.

Starts moto, which stands in for AWS, with 300 tables (150 of them Lance's) and 300 databases, and
measures as ``bench/hive.py`` does. Then 8 threads use one namespace object, in a role, while its
credentials run out: they have to be asked for anew once, and no answer may be wrong. moto is
Python, and takes far more of the time than AWS's servers would of this machine's: compare ratios.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

import time

from bench import benchmark
from bench.glue_fixture import ADVISORY_SECONDS, Glue, glue
from bench.measure import burst
from bench.report import Refresh

_LEFT_SECONDS = 1.0
_EACH = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 where an answer was wrong, else 0."""
    options = benchmark.parser(__doc__, tables=300, rounds=30, each=25)
    return benchmark.main(options, arguments, _start, measure_refresh)


def _start(given: argparse.Namespace) -> AbstractContextManager[Glue]:
    return glue(given.tables, given.databases, given.threads)


def measure_refresh(subject: Glue, threads: int) -> Refresh:
    """Let threads describe tables while the namespace's credentials come to their end.

    The session at first is so short that it has to be renewed a second later, and all after it are
    of the usual length. Requests by anybody unknown, or with ended credentials, are refused.
    """
    with subject.server.known_keys_only(), subject.wire() as wire:
        namespace = subject.connect_in_role(wire.address)
        ask = benchmark.describer(subject, namespace)
        with subject.server.short_sessions(ADVISORY_SECONDS + _LEFT_SECONDS):
            wrong = int(not ask(0, 0))
        asked_before = wire.calls()["AssumeRole"]
        started = time.perf_counter()
        bursts = []
        while time.perf_counter() < started + 2 * _LEFT_SECONDS:
            bursts.append(burst(threads, _EACH, ask))
        seconds = time.perf_counter() - started
        namespace.close()
        done = len(bursts) * threads * _EACH
        return Refresh(
            threads=threads,
            operations=done,
            per_second=done / seconds,
            wrong=wrong + sum(each.wrong for each in bursts),
            refreshes=wire.calls()["AssumeRole"] - asked_before,
        )


if __name__ == "__main__":
    sys.exit(main())

"""Cases: many threads on one client object, each answer checked against its own question."""

from __future__ import annotations

import itertools
import pickle
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any, TypeVar

from lance_namespace import ErrorCode, LanceNamespaceError

from .calls import Calls, described, rows
from .cases import Cases, Namespace, needs, same_location

THREADS = 6
ROUNDS = 5
DEADLINE = 120.0
"""Seconds after which threads that have not finished count as hanging."""
LOCK_SECONDS = 1.0
"""How long to wait for a second change while the first is held: the first may block it."""

_T = TypeVar("_T")


def race(call: Callable[[int], _T], threads: int = THREADS) -> list[_T | LanceNamespaceError]:
    """Run ``call(number)`` in threads that start together; return results or Lance errors."""
    start = threading.Barrier(threads)

    def run(number: int) -> _T | LanceNamespaceError:
        start.wait(DEADLINE)
        try:
            return call(number)
        except LanceNamespaceError as error:
            return error

    with ThreadPoolExecutor(threads) as pool:
        try:
            return list(pool.map(run, range(threads), timeout=DEADLINE))
        finally:
            start.abort()  # after an interrupt, threads would wait for those that never start


def arrives(event: threading.Event, call: Future[Any]) -> bool:
    """Wait until the request is sent, or the call ends without one; return whether it was sent."""
    for _ in range(int(DEADLINE * 20)):
        if event.wait(0.05) or call.done():
            break
    return event.is_set()


def run_in_steps(call: Callable[[], object], stop: Callable[[int], object]) -> None:
    """Run a call in this thread, and call ``stop`` with a number before each of its own calls."""
    steps = itertools.count()
    sys.setprofile(lambda *_: stop(next(steps)))
    try:
        call()
    finally:
        sys.setprofile(None)


def check_winners(answers: list[_T | LanceNamespaceError], code: ErrorCode) -> list[int]:
    """Require at least one success, and this code from the others; return the winners' numbers.

    A loser may also get ConcurrentModification.
    """
    winners = [n for n, a in enumerate(answers) if not isinstance(a, LanceNamespaceError)]
    wrong = [
        described(answer)
        for answer in answers
        if isinstance(answer, LanceNamespaceError)
        and answer.code not in (code, ErrorCode.CONCURRENT_MODIFICATION)
    ]
    assert not wrong
    assert winners, "no caller succeeded"
    return winners


def check_one_winner(answers: list[_T | LanceNamespaceError], code: ErrorCode) -> int:
    """Require one success, and this code from all others; return the winner's number."""
    winners = check_winners(answers, code)
    assert len(winners) == 1, f"{len(winners)} of {len(answers)} callers won"
    return winners[0]


def answers_only(answers: list[_T | LanceNamespaceError]) -> list[_T]:
    """Require that no caller got an error; return the results."""
    wrong = [described(answer) for answer in answers if isinstance(answer, LanceNamespaceError)]
    assert not wrong
    return [answer for answer in answers if not isinstance(answer, LanceNamespaceError)]


class ConcurrencyCases(Cases):
    """Threads that share a client object, and callers that want the same name."""

    def test_each_thread_is_answered_about_its_own_table(self, ns: Namespace) -> None:
        own = [ns.declare_table(ns.table(f"t{n}")).location for n in range(THREADS)]

        def describe(number: int) -> list[str | None]:
            table_id = ns.table(f"t{number}")
            return [ns.describe_table(table_id).location for _ in range(ROUNDS)]

        for number, locations in enumerate(answers_only(race(describe))):
            assert all(same_location(found, own[number]) for found in locations)

    def test_each_thread_sees_its_own_changes(self, ns: Namespace) -> None:
        def work(number: int) -> int:
            wrong = 0
            for turn in range(3):
                table_id = ns.table(f"t{number}_{turn}")
                location = ns.declare_table(table_id).location or ""
                wrong += not same_location(ns.location(table_id), location)
                wrong += table_id[-1] not in ns.names()
                if turn % 2:
                    ns.deregister_table(table_id)
                    wrong += table_id[-1] in ns.names()
            return wrong

        assert answers_only(race(work)) == [0] * THREADS
        kept = [f"t{n}_{turn}" for n in range(THREADS) for turn in range(0, 3, 2)]
        assert ns.names() == sorted(kept)

    def test_each_thread_counts_its_own_rows(self, ns: Namespace) -> None:
        def work(number: int) -> list[int]:
            table_id = ns.table(f"t{number}")
            ns.create_table(table_id, rows(range(number + 1)))
            return [ns.count(table_id) for _ in range(3)]

        assert answers_only(race(work)) == [[n + 1] * 3 for n in range(THREADS)]

    # -- one name, many callers ------------------------------------------------------------------

    def test_one_of_many_creators_of_a_table_wins(self, ns: Namespace) -> None:
        answers = race(lambda n: ns.create_table(ns.table(), rows([n])))
        winner = check_one_winner(answers, ErrorCode.TABLE_ALREADY_EXISTS)
        assert ns.ids(ns.table()) == [winner]
        assert ns.names() == ["t"]

    def test_all_creators_of_a_table_with_exist_ok_get_the_same_one(self, ns: Namespace) -> None:
        answers = answers_only(
            race(lambda n: ns.create_table(ns.table(), rows([n]), mode="ExistOk"))
        )
        location = ns.location(ns.table())
        assert all(same_location(answer.location or location, location) for answer in answers)
        assert len(ns.ids(ns.table())) == 1

    def test_many_declarers_of_a_table_agree_on_its_location(self, ns: Namespace) -> None:
        answers = race(lambda _: ns.declare_table(ns.table()).location)
        location = ns.location(ns.table())
        winners = check_winners(answers, ErrorCode.TABLE_ALREADY_EXISTS)
        assert all(same_location(str(answers[number]), location) for number in winners)
        assert ns.features.declare_again or len(winners) == 1
        assert ns.names() == ["t"]

    @needs("namespace_changes")
    def test_one_of_many_creators_of_a_namespace_wins(self, ns: Namespace) -> None:
        wanted = ns.track(ns.missing_namespace())
        answers = race(lambda _: ns.create_namespace(wanted))
        check_one_winner(answers, ErrorCode.NAMESPACE_ALREADY_EXISTS)
        ns.namespace_exists(wanted)

    @needs("namespace_changes")
    def test_all_creators_of_a_namespace_with_exist_ok_succeed(self, ns: Namespace) -> None:
        wanted = ns.track(ns.missing_namespace())
        answers_only(race(lambda _: ns.create_namespace(wanted, mode="ExistOk")))
        ns.namespace_exists(wanted)

    def test_one_of_many_droppers_of_a_table_wins(self, ns: Namespace) -> None:
        table_id = ns.with_rows()
        location = ns.location(table_id)
        answers = race(lambda _: ns.drop_table(table_id))
        winners = check_winners(answers, ErrorCode.TABLE_NOT_FOUND)
        assert ns.names() == []
        assert ns.storage.files(location) == frozenset()
        assert len(winners) == 1 or not ns.features.exclusive_changes

    @needs("rename")
    def test_one_of_many_renamers_of_a_table_wins(self, ns: Namespace) -> None:
        table_id = ns.with_rows()
        answers = race(lambda n: ns.rename_table(table_id, f"new{n}"))
        winners = check_winners(answers, ErrorCode.TABLE_NOT_FOUND)
        names = ns.names()
        assert len(names) == 1, "one table has become several, or none"
        assert names[0] in [f"new{number}" for number in winners]
        assert ns.ids(ns.table(names[0])) == [0, 1, 2]
        assert len(winners) == 1 or not ns.features.exclusive_changes

    @needs("rename")
    def test_one_of_many_renamers_to_a_name_wins(self, ns: Namespace) -> None:
        own = [ns.declare_table(ns.table(f"t{n}")).location or "" for n in range(THREADS)]
        answers = race(lambda n: ns.rename_table(ns.table(f"t{n}"), "new"))
        winner = check_one_winner(answers, ErrorCode.TABLE_ALREADY_EXISTS)
        names = [f"t{n}" if n != winner else "new" for n in range(THREADS)]
        assert ns.names() == sorted(names)
        for name, location in zip(names, own, strict=True):
            assert same_location(ns.location(ns.table(name)), location)

    def test_many_appenders_lose_no_rows(self, ns: Namespace) -> None:
        ns.with_rows(ids=range(1))

        def append(number: int) -> None:
            for turn in range(3):
                ns.write(rows([100 * number + turn + 1]))

        answers_only(race(append, threads=4))
        wanted = [100 * number + turn + 1 for number in range(4) for turn in range(3)]
        assert ns.ids(ns.table()) == sorted([0, *wanted])

    @needs("pickles")
    def test_a_pickled_client_answers_the_same(self, ns: Namespace) -> None:
        table_id = ns.with_rows()
        # The bytes are our own, made on this line.
        with closing(Calls(pickle.loads(pickle.dumps(ns.client)))) as copy:
            location = copy.describe_table(table_id).location or ""
        assert same_location(location, ns.location(table_id))

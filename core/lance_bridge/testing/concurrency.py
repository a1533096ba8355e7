"""Cases: many threads on one client object, each answer checked against its own question."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import lance
from lance_namespace import ErrorCode, LanceNamespaceError

from .build import rows
from .calls import Calls
from .cases import Cases, needs
from .expect import described
from .space import Space
from .storage import same_place

THREADS = 8
ROUNDS = 25
DEADLINE = 120.0
"""Seconds after which threads that have not answered count as hanging."""

_T = TypeVar("_T")


def race(call: Callable[[int], _T], threads: int = THREADS) -> list[_T | LanceNamespaceError]:
    """Run ``call(number)`` in threads that start together; return answers or Lance errors."""
    start = threading.Barrier(threads)

    def run(number: int) -> _T | LanceNamespaceError:
        start.wait(DEADLINE)
        try:
            return call(number)
        except LanceNamespaceError as error:
            return error

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, range(threads), timeout=DEADLINE))


def check_winners(answers: list[_T | LanceNamespaceError], code: ErrorCode) -> list[int]:
    """Require at least one answer, and this code from the others; return the winners' numbers.

    A loser may also be told ConcurrentModification.
    """
    winners = [n for n, a in enumerate(answers) if not isinstance(a, LanceNamespaceError)]
    wrong = [
        described(answer)
        for answer in answers
        if isinstance(answer, LanceNamespaceError)
        and answer.code not in (code, ErrorCode.CONCURRENT_MODIFICATION)
    ]
    assert not wrong
    assert winners, "nobody won"
    return winners


def check_one_winner(answers: list[_T | LanceNamespaceError], code: ErrorCode) -> int:
    """Require one answer, and this code from all others; return the winner's number."""
    winners = check_winners(answers, code)
    assert len(winners) == 1, f"{len(winners)} of {len(answers)} callers won"
    return winners[0]


def answers_only(answers: list[_T | LanceNamespaceError]) -> list[_T]:
    """Require that no caller got an error; return the answers."""
    wrong = [described(answer) for answer in answers if isinstance(answer, LanceNamespaceError)]
    assert not wrong
    return [answer for answer in answers if not isinstance(answer, LanceNamespaceError)]


class ConcurrencyCases(Cases):
    """Threads that share a client object, and callers that want the same name."""

    # -- each answer belongs to its own question -------------------------------------------------

    def test_each_thread_is_answered_about_its_own_table(self, space: Space) -> None:
        own = [space.api.declare_table(space.table(f"t{n}")).location for n in range(THREADS)]

        def describe(number: int) -> list[str | None]:
            table_id = space.table(f"t{number}")
            return [space.api.describe_table(table_id).location for _ in range(ROUNDS)]

        for number, locations in enumerate(answers_only(race(describe))):
            assert all(same_place(found or "", own[number] or "") for found in locations)

    def test_each_thread_sees_its_own_changes(self, space: Space) -> None:
        def work(number: int) -> int:
            wrong = 0
            for turn in range(5):
                table_id = space.table(f"t{number}_{turn}")
                location = space.api.declare_table(table_id).location or ""
                wrong += not same_place(space.location(table_id), location)
                wrong += table_id[-1] not in space.names()
                if turn % 2:
                    space.api.deregister_table(table_id)
                    wrong += table_id[-1] in space.names()
            return wrong

        assert answers_only(race(work)) == [0] * THREADS
        kept = [f"t{n}_{turn}" for n in range(THREADS) for turn in range(0, 5, 2)]
        assert space.names() == sorted(kept)

    def test_each_thread_counts_its_own_rows(self, space: Space) -> None:
        def work(number: int) -> list[int]:
            table_id = space.table(f"t{number}")
            space.api.create_table(table_id, rows(range(number + 1)))
            return [space.api.count(table_id) for _ in range(5)]

        assert answers_only(race(work)) == [[n + 1] * 5 for n in range(THREADS)]

    # -- one name, many callers ------------------------------------------------------------------

    def test_one_of_many_creators_of_a_table_wins(self, space: Space) -> None:
        answers = race(lambda n: space.api.create_table(space.table(), rows([n])))
        winner = check_one_winner(answers, ErrorCode.TABLE_ALREADY_EXISTS)
        assert space.ids(space.table()) == [winner]
        assert space.names() == ["t"]

    def test_all_creators_of_a_table_with_exist_ok_get_the_same_one(self, space: Space) -> None:
        answers = answers_only(
            race(lambda n: space.api.create_table(space.table(), rows([n]), mode="ExistOk"))
        )
        location = space.location(space.table())
        assert all(same_place(answer.location or location, location) for answer in answers)
        assert len(space.ids(space.table())) == 1

    def test_many_declarers_of_a_table_agree_on_its_location(self, space: Space) -> None:
        answers = race(lambda _: space.api.declare_table(space.table()).location)
        location = space.location(space.table())
        winners = check_winners(answers, ErrorCode.TABLE_ALREADY_EXISTS)
        assert all(same_place(str(answers[number]), location) for number in winners)
        assert space.features.declare_again or len(winners) == 1
        assert space.names() == ["t"]

    @needs("namespace_changes")
    def test_one_of_many_creators_of_a_namespace_wins(self, space: Space) -> None:
        wanted = space.adopt(space.missing_namespace())
        answers = race(lambda _: space.api.create_namespace(wanted))
        check_one_winner(answers, ErrorCode.NAMESPACE_ALREADY_EXISTS)
        space.api.namespace_exists(wanted)

    @needs("namespace_changes")
    def test_all_creators_of_a_namespace_with_exist_ok_succeed(self, space: Space) -> None:
        wanted = space.adopt(space.missing_namespace())
        answers_only(race(lambda _: space.api.create_namespace(wanted, mode="ExistOk")))
        space.api.namespace_exists(wanted)

    def test_one_of_many_droppers_of_a_table_wins(self, space: Space) -> None:
        table_id = space.with_rows()
        location = space.location(table_id)
        answers = race(lambda _: space.api.drop_table(table_id))
        winners = check_winners(answers, ErrorCode.TABLE_NOT_FOUND)
        assert space.names() == []
        assert space.storage.files(location) == frozenset()
        assert len(winners) == 1 or not space.features.exclusive_changes

    @needs("rename")
    def test_one_of_many_renamers_of_a_table_wins(self, space: Space) -> None:
        table_id = space.with_rows()
        answers = race(lambda n: space.api.rename_table(table_id, f"new{n}"))
        winners = check_winners(answers, ErrorCode.TABLE_NOT_FOUND)
        names = space.names()
        assert len(names) == 1, "one table has become several, or none"
        assert names[0] in [f"new{number}" for number in winners]
        assert space.ids(space.table(names[0])) == [0, 1, 2]
        assert len(winners) == 1 or not space.features.exclusive_changes

    @needs("rename")
    def test_one_of_many_renamers_to_a_name_wins(self, space: Space) -> None:
        for number in range(THREADS):
            space.with_rows(f"t{number}", range(number + 1))
        answers = race(lambda n: space.api.rename_table(space.table(f"t{n}"), "new"))
        winner = check_one_winner(answers, ErrorCode.TABLE_ALREADY_EXISTS)
        assert space.ids(space.table("new")) == list(range(winner + 1))
        losers = [n for n in range(THREADS) if n != winner]
        assert space.names() == sorted(["new", *(f"t{n}" for n in losers)])
        for number in losers:
            assert space.ids(space.table(f"t{number}")) == list(range(number + 1))

    # -- pylance ---------------------------------------------------------------------------------

    def test_many_appenders_lose_no_rows(self, space: Space) -> None:
        space.with_rows(ids=range(1))

        def append(number: int) -> None:
            for turn in range(3):
                lance.write_dataset(
                    rows([100 * number + turn + 1]),
                    namespace_client=space.api.namespace,
                    table_id=space.table(),
                    mode="append",
                )

        answers_only(race(append, threads=4))
        wanted = [100 * number + turn + 1 for number in range(4) for turn in range(3)]
        assert space.ids(space.table()) == sorted([0, *wanted])

    # -- processes -------------------------------------------------------------------------------

    @needs("pickles")
    def test_a_pickled_client_answers_the_same(self, space: Space) -> None:
        table_id = space.with_rows()
        # Our own bytes, made on the line itself.
        copy = Calls(pickle.loads(pickle.dumps(space.api.namespace)))
        assert same_place(copy.describe_table(table_id).location or "", space.location(table_id))
        copy.close()

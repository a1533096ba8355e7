"""Many callers at one name: what a metastore does then, and what the namespace makes of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    LanceNamespaceError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from servers.hive_entries import race
from servers.metastores import Metastores

from lance_bridge.testing.build import ipc
from lance_bridge.testing.calls import Calls
from lance_bridge_metastore import Metastore

from .conftest import open_calls

pytestmark = pytest.mark.server

THREADS = 8
ROUNDS = 4
COMPARE_AND_SET = ["2.3", "4.0", "4.1", "4.2"]
"""Releases that honour the condition of an alter; 3.1 takes no notice of it."""


def test_racing_creators_lose_no_data(calls: Calls, database: str) -> None:
    """A metastore deletes the directory that a losing creator made, with what is in it by then."""
    for turn in range(ROUNDS):
        table_id = [database, f"t{turn}"]

        def create(number: int, table_id: list[str] = table_id) -> int:
            data = ipc(pa.table({"by": [number] * (number + 1)}))
            calls.create_table(table_id, data)
            return number

        answers = race(THREADS, create)
        winners = [answer for answer in answers if isinstance(answer, int)]
        losers = [answer for answer in answers if not isinstance(answer, int)]
        assert len(winners) == 1
        assert all(isinstance(error, TableAlreadyExistsError) for error in losers)
        found = lance.dataset(namespace_client=calls.client, table_id=table_id)
        assert found.to_table()["by"].to_pylist() == [winners[0]] * (winners[0] + 1)


def test_losing_creators_leave_nothing_behind(calls: Calls, database: str) -> None:
    table_id = [database, "t"]
    data = ipc(pa.table({"i": [1]}))
    race(THREADS, lambda _: calls.create_table(table_id, data))
    place = Path(calls.describe_table(table_id).location or "")
    assert [path.name for path in place.parent.iterdir()] == [place.name]


@pytest.mark.parametrize("version", COMPARE_AND_SET)
def test_one_of_many_concurrent_renames_succeeds(
    metastores: Metastores, version: str, tmp_path: Path
) -> None:
    with open_calls(uri=metastores.get(version).uri, root=str(tmp_path)) as calls:
        for turn in range(ROUNDS):
            table_id = ["default", f"race_{turn}"]
            lance.write_dataset(
                pa.table({"i": [1]}), namespace_client=calls.client, table_id=table_id
            )

            def rename(number: int, table_id: list[str] = table_id) -> int:
                name = f"{table_id[1]}_{number}"
                calls.rename_table(table_id, name)
                return number

            answers = race(THREADS, rename)
            winners = [answer for answer in answers if isinstance(answer, int)]
            losers = [answer for answer in answers if not isinstance(answer, int)]
            assert len(winners) == 1
            allowed = (TableNotFoundError, ConcurrentModificationError)
            assert all(isinstance(error, allowed) for error in losers), losers
            moved = ["default", f"{table_id[1]}_{winners[0]}"]
            assert lance.dataset(namespace_client=calls.client, table_id=moved).count_rows() == 1


@pytest.fixture
def rooted(metastore: Metastore, tmp_path: Path) -> Iterator[Calls]:
    """A client whose tables go where nothing is yet."""
    with open_calls(uri=metastore.uri, root=str(tmp_path / "lake")) as calls:
        yield calls


@pytest.mark.parametrize("mode", ["Create", "Overwrite"])
def test_an_empty_directory_of_the_users_own_stays(
    rooted: Calls, database: str, tmp_path: Path, mode: str
) -> None:
    """A metastore deletes the directory of an entry that it could not make."""
    table_id, own = [database, "t"], tmp_path / "own"
    lance.write_dataset(pa.table({"i": [1]}), str(tmp_path / "taken.lance"))
    rooted.register_table(table_id, str(tmp_path / "taken.lance"))
    own.mkdir()
    with pytest.raises(TableAlreadyExistsError):
        rooted.register_table(table_id, str(own))
    if mode == "Overwrite":
        rooted.register_table(table_id, str(own), mode=mode)
    assert list(own.iterdir()) == []


def test_creating_and_dropping_one_table_at_once_gives_no_wrong_error(
    rooted: Calls, database: str
) -> None:
    """A creator that finds the name taken, and then gone, tries again: never "not found"."""
    wrong: list[str] = []
    data = ipc(pa.table({"i": [1]}))
    allowed = {
        "create": (TableAlreadyExistsError, ConcurrentModificationError),
        "drop": (TableNotFoundError, ConcurrentModificationError),
    }

    def work(what: str) -> None:
        for _ in range(3):
            try:
                if what == "create":
                    rooted.create_table([database, "t"], data)
                else:
                    rooted.drop_table([database, "t"])
            except allowed[what]:
                continue
            except LanceNamespaceError as error:
                wrong.append(f"{what}: {error!r}")

    threads = [
        threading.Thread(target=work, args=(what,)) for what in ("create", "drop", "create", "drop")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []

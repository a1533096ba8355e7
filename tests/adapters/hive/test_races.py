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
from servers.hive_entries import only_winner, race

from lance_bridge.testing.build import ipc
from lance_bridge.testing.calls import Calls
from lance_bridge_metastore import Metastore

from .conftest import open_calls

pytestmark = [pytest.mark.servers, pytest.mark.spec("hive.md#concurrency-and-crash-safety")]

THREADS = 8
ROUNDS = 4


def test_racing_creators_lose_no_data_and_leave_nothing_behind(calls: Calls, database: str) -> None:
    """A metastore deletes the directory that a losing creator made, with what is in it by then."""
    for turn in range(ROUNDS):
        table_id = [database, f"t{turn}"]

        def create(number: int, table_id: list[str] = table_id) -> int:
            data = ipc(pa.table({"by": [number] * (number + 1)}))
            calls.create_table(table_id, data)
            return number

        winner = only_winner(race(THREADS, create), TableAlreadyExistsError)
        found = lance.dataset(namespace_client=calls.client, table_id=table_id)
        assert found.to_table()["by"].to_pylist() == [winner] * (winner + 1)
        made = [[database, f"t{number}"] for number in range(turn + 1)]
        places = [Path(calls.describe_table(each).location or "") for each in made]
        assert sorted(places[0].parent.iterdir()) == sorted(places)


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

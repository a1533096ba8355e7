"""What is refused leaves the metastore and the storage as they were."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance_namespace import (
    CreateTableRequest,
    DeclareTableRequest,
    DropTableRequest,
    ListTablesRequest,
    RegisterTableRequest,
)
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from lance_bridge.testing.build import ipc
from lance_bridge_hive import HiveNamespace
from lance_bridge_metastore import Metastore

pytestmark = pytest.mark.server

NOT_NULL = pa.schema([pa.field("i", pa.int64(), nullable=False)])


@pytest.fixture
def rooted(metastore: Metastore, tmp_path: Path) -> HiveNamespace:
    """A namespace whose tables go where nothing is yet."""
    return HiveNamespace(uri=metastore.uri, root=str(tmp_path / "lake"))


REFUSED: dict[str, Callable[[HiveNamespace, str, str], object]] = {
    "null where there must be none": lambda ns, db, _: ns.create_table(
        CreateTableRequest(id=[db, "t"]), ipc(pa.table({"i": [1, None]}, schema=NOT_NULL))
    ),
    "half a character in a property": lambda ns, db, _: ns.declare_table(
        DeclareTableRequest(id=[db, "t"], properties={"k": "\ud800"})
    ),
    "half a character in a location": lambda ns, db, place: ns.declare_table(
        DeclareTableRequest(id=[db, "t"], location=place + "\ud800")
    ),
    "a name that the metastore refuses": lambda ns, db, _: ns.declare_table(
        DeclareTableRequest(id=[db, "a-b"])
    ),
    "a namespace that is not there": lambda ns, _, place: ns.register_table(
        RegisterTableRequest(id=["missing", "t"], location=place + "/deep/t.lance")
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_refused_request_makes_neither_entry_nor_file(
    rooted: HiveNamespace, database: str, tmp_path: Path, reason: str
) -> None:
    with pytest.raises((InvalidInputError, NamespaceNotFoundError)):
        REFUSED[reason](rooted, database, str(tmp_path / "place"))
    assert rooted.list_tables(ListTablesRequest(id=[database])).tables == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert not (tmp_path / "place").exists()


@pytest.mark.parametrize("mode", ["Create", "Overwrite"])
def test_an_empty_directory_of_the_users_own_stays(
    rooted: HiveNamespace, database: str, tmp_path: Path, mode: str
) -> None:
    taken = tmp_path / "taken.lance"
    lance.write_dataset(pa.table({"i": [1]}), str(taken))
    rooted.register_table(RegisterTableRequest(id=[database, "t"], location=str(taken)))
    own = tmp_path / "own"
    own.mkdir()
    request = RegisterTableRequest(id=[database, "t"], location=str(own))
    with pytest.raises(TableAlreadyExistsError):
        rooted.register_table(request)
    assert own.is_dir()
    assert list(own.iterdir()) == []
    if mode == "Overwrite":
        request.mode = mode
        rooted.register_table(request)
        assert own.is_dir()


def test_creating_and_dropping_one_table_at_once_tells_nobody_what_is_not_so(
    rooted: HiveNamespace, database: str
) -> None:
    """A creator that finds the name taken, and then gone, tries again: never "not found"."""
    wrong: list[str] = []
    data = ipc(pa.table({"i": [1]}))
    allowed = {
        "create": (TableAlreadyExistsError, ConcurrentModificationError),
        "drop": (TableNotFoundError, ConcurrentModificationError),
    }

    def work(what: str) -> None:
        for _ in range(6):
            try:
                if what == "create":
                    rooted.create_table(CreateTableRequest(id=[database, "t"]), data)
                else:
                    rooted.drop_table(DropTableRequest(id=[database, "t"]))
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

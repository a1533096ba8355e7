"""Clients of batches that stop at a step of the protocol, while the next one goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    UnsupportedOperationError,
)

from lance_bridge.storage.lance_files import divide
from lance_bridge.storage.table_files import TableFiles

from .building import at
from .interleaving import Client, MemoryFiles
from .test_batch_interleavings import Batches
from .test_batches_beside_changes import ChangedTables

pytestmark = [pytest.mark.quick, pytest.mark.spec("managed.md#failure-cases-of-batches")]

MOST = 80
"""More steps than a client takes."""
ALL = ["a", "b", "c"]


@pytest.fixture
def model() -> Iterator[ChangedTables]:
    """Three tables, and the clients that a test lets take turns."""
    model = ChangedTables()
    model.begin()
    yield model
    model.patch.undo()


def leave(model: Batches, *, committed: bool) -> None:
    """Leave a batch over all tables, as a client does that dies before or after its outcome."""
    writer = model.start(ALL)
    while not writer.next_file.endswith(".outcome.batch.json"):
        model.go_on(writer, 1)
    model.go_on(writer, int(committed))
    model.die(writer)


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("name", ["a", "b"])
def test_a_client_that_dies_while_it_ends_the_batch_of_another_leaves_the_rest_to_the_next(
    name: str, *, committed: bool
) -> None:
    """It dies at each of its steps; ``a`` has the record of the batch."""
    for steps in range(MOST):
        model = Batches()
        model.begin()
        leave(model, committed=committed)
        second = model.start([name])
        model.go_on(second, steps)
        ended = second.is_done
        model.die(second)
        model.teardown()  # writes to every table, and checks that no entry refers to a batch
        if ended:
            break
    assert ended
    assert steps > len(ALL)


def test_a_slow_client_cannot_commit_after_the_table_with_its_record_was_dropped(
    model: ChangedTables,
) -> None:
    """The batch was aborted first, and its outcome deleted with the files of that table."""
    writer = model.start(ALL)
    while len(prepared_of(model)) < 2:
        model.go_on(writer, 1)
    model.go_on_to_its_end(model.begin_drop("a"))
    assert "a" not in prepared_of(model)
    assert files_of(model.files) == []
    model.go_on_to_its_end(writer)
    assert isinstance(model.writers[0].client.error, ConcurrentModificationError)
    assert prepared_of(model) == []
    model.teardown()


@pytest.mark.spec("managed.md#the-steps-of-a-batch")
@pytest.mark.parametrize("steps", range(12))
def test_an_entry_that_is_removed_takes_no_part_in_a_batch(
    steps: int, model: ChangedTables
) -> None:
    writer = model.start(ALL)
    while not writer.next_file.endswith(".record.batch.json"):
        model.go_on(writer, 1)
    drop = model.begin_deregister("b")
    model.go_on(drop, steps)
    model.go_on_to_its_end(writer)
    model.go_on_to_its_end(drop)
    model.teardown()


def prepared_of(model: ChangedTables) -> list[str]:
    """Return the tables that are part of a batch."""
    loaded = {path[-1]: model.tables.load(path) for path in model.server.tables}
    return sorted(name for name, each in loaded.items() if each.managed_state().prepared)


def files_of(files: MemoryFiles) -> list[str]:
    """Return the files of all batches."""
    return [path for _, path in files.content if path.endswith(".batch.json")]


def test_a_table_that_is_dropped_while_its_batch_is_finished_does_not_stop_the_rest(
    model: ChangedTables,
) -> None:
    leave(model, committed=True)
    second = model.start(["a"])
    while "c" in prepared_of(model) and not is_about_to_finish_c(model, second):
        model.go_on(second, 1)
    del model.server.tables[at("c")]
    model.drops.add("c")
    model.go_on_to_its_end(second)
    assert model.writers[-1].client.error is None
    model.teardown()


def is_about_to_finish_c(model: ChangedTables, client: Client) -> bool:
    """Return whether a client has read the entry of ``c``, and sets it next."""
    return prepared_of(model) == ["a", "c"] and client.is_changing


@pytest.mark.spec("managed.md#why-the-steps-are-in-this-order")
def test_the_record_of_a_batch_is_deleted_before_all_other_files() -> None:
    name = f"_transactions/{'0' * 8}-{'-'.join(['0' * 4] * 3)}-{'0' * 12}"
    record, outcome = f"{name}.record.batch.json", f"{name}.outcome.batch.json"
    found = divide("/lake/a", [outcome, record], lambda _: b"", [])
    assert found.own[0] == (record,)
    assert any(outcome in group for group in found.own[1:])


@pytest.mark.spec("managed.md#commits-to-several-tables")
def test_a_store_that_replaces_files_takes_no_batch(model: ChangedTables) -> None:
    def put_new(files: TableFiles, path: str, data: bytes) -> bool:
        model.files.put_over(files.location, path, data)
        return True

    writer = model.start(ALL)
    model.patch.setattr(TableFiles, "put_new", put_new)
    model.go_on_to_its_end(writer)
    error = model.writers[0].client.error
    assert isinstance(error, UnsupportedOperationError)
    assert "/lake/a ignores conditional writes" in str(error)
    assert prepared_of(model) == files_of(model.files) == []


def test_an_outcome_that_was_neither_written_nor_found_is_written_again(
    model: ChangedTables,
) -> None:
    """A store may refuse one of two writes at once, before it has either."""
    put = TableFiles.put_new
    refused: list[str] = []

    def put_new(files: TableFiles, path: str, data: bytes) -> bool:
        if path.endswith(".outcome.batch.json") and not refused:
            refused.append(path)
            return False
        return put(files, path, data)

    model.patch.setattr(TableFiles, "put_new", put_new)
    model.go_on_to_its_end(model.start(ALL))
    assert refused
    assert model.writers[0].client.error is None
    model.teardown()

"""Batches, single commits, readers, deaths and changes of managers, in any order of their steps."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from lance_namespace import errors

from lance_bridge import managed_state
from lance_bridge.dataset import versions
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.managed import conversion, out_of_band
from lance_bridge.managed.batches import latest_state
from lance_bridge.storage.lance_format import divide
from lance_bridge.storage.manifests import Scheme, Staged, name_of
from lance_bridge.storage.store import TableFiles

from .interleaving import Batches, ChangedTables, Client, MemoryFiles, manifest, state_of
from .memory_catalog import at

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec(
        "managed.md#failure-cases-of-batches",
        "managed.md#invariants-of-batches",
        "managed.md#states-of-a-batch",
        "managed.md#the-record-of-a-batch",
        "managed.md#the-steps-of-a-commit",
    ),
]

MANY = int(os.environ.get("LANCE_BRIDGE_TEST_EXAMPLES", "300"))
"""How many sequences of turns the slow tests try."""

# -- any order ------------------------------------------------------------------------------------


def settings_of(examples: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=40,
        derandomize=examples != MANY,  # the few of each run are the same, the many are new ones
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
    )


ORDERS = [
    pytest.param(30, marks=pytest.mark.servers, id="some_orders"),
    pytest.param(
        MANY, marks=[pytest.mark.slow, pytest.mark.timeout(3 * MANY)], id="many_more_orders"
    ),
]


@pytest.mark.parametrize("examples", ORDERS)
@pytest.mark.parametrize("model", [Batches, ChangedTables])
def test_batches_are_whole_in_every_order_of_steps(model: type[Batches], examples: int) -> None:
    run_state_machine_as_test(model, settings=settings_of(examples))


@pytest.mark.parametrize("steps_after", range(6))
def test_a_reader_that_is_overtaken_sees_what_was_committed_meanwhile(steps_after: int) -> None:
    """It has read that an entry depends on a batch, and the batch is finished and removed then."""
    clients = Batches()
    clients.begin()
    writer = clients.begin_batch(["a", "b"])
    while state_of(clients.server, "b").prepared is None:
        clients.go_on(writer, 1)
    clients.go_on_to_an_outcome(writer)
    reader = clients.begin_reading(["b", "a"])
    clients.go_on(writer, 1)
    clients.go_on(reader, steps_after)
    clients.go_on_to_its_end(writer)
    assert not [path for _, path in clients.files.content if path.endswith(".json")]
    clients.go_on_to_its_end(reader)
    assert clients.readers[0].seen == {"b": ["0-a-b"], "a": ["0-a-b"]}
    clients.teardown()


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ("begin_release", type(None)),
        ("begin_rename", OutcomeUnknownError),
        ("begin_deregister", type(None)),
        ("begin_drop", OutcomeUnknownError),
    ],
)
def test_a_commit_is_not_refused_because_its_table_changed_before_its_reply_was_lost(
    change: str, outcome: Any
) -> None:
    clients = ChangedTables()
    clients.begin()
    writer = clients.start(["a"])
    writer.loses = "after"
    while not state_of(clients.server, "a").version:
        clients.go_on(writer, 1)
    clients.go_on_to_its_end(getattr(clients, change)("a"))
    clients.go_on_to_its_end(writer)
    assert isinstance(writer.error, outcome)
    clients.require_all_or_nothing()
    clients.teardown()


# -- clients that stop at a step, while the next one goes on --------------------------------------

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
    assert isinstance(model.writers[0].client.error, errors.ConcurrentModificationError)
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
    assert isinstance(error, errors.UnsupportedOperationError)
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


# -- writes that overlap a change of the manager ---------------------------------------------------


def manage_commit_and_release(model: ChangedTables, steps: int) -> None:
    """Do the first of three things to table ``a``, or two of them, or all."""
    conversion.begin(model.tables.load(at("a")))
    if steps > 1:
        version = latest_state(model.tables.load(at("a"))).version + 1
        path = f"_versions/{name_of(version, Scheme.V2)}-{uuid.uuid4()}"
        model.files.put_new("/lake/a", path, manifest(version, "through-the-catalog"))
        table = model.tables.load(at("a"))
        staged = f"{versions.directory_of(table).path}/{path.rpartition('/')[2]}"
        versions.create(table, Staged(version, staged))
    if steps > 2:
        conversion.end(model.tables.load(at("a")))


@pytest.mark.servers  # more than two CPU seconds each
@pytest.mark.spec("managed.md#writes-that-overlap-the-conversion")
@pytest.mark.parametrize("is_adopted", [True, False])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_version_whose_writer_succeeds_is_kept_whenever_the_manager_changes(
    steps: int, monkeypatch: pytest.MonkeyPatch, *, is_adopted: bool
) -> None:
    """The writer stops at each of its steps, and the other client at each of its own then."""
    monkeypatch.setattr(conversion, "_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(out_of_band, "_find_objection", lambda *_: "" if is_adopted else "no")
    outcomes = set()
    turns, others, is_done = 0, 0, False
    while not is_done:
        model = ChangedTables()
        model.begin()
        model.go_on_to_its_end(model.begin_release("a"))
        writer = model.start(["a"])
        other = Client(partial(manage_commit_and_release, model, steps))
        for _ in range(turns):
            writer.go()
        for _ in range(others):
            other.go()
        is_done, ended = writer.is_done, other.is_done
        writer.finish()
        other.finish()
        outcomes.add(require_kept_or_refused(model, writer))
        model.patch.undo()
        turns, others = (turns + 1, 0) if ended else (turns, others + 1)
    assert type(None) in outcomes


def require_kept_or_refused(model: ChangedTables, writer: Client) -> type[BaseException] | type:
    """Require that what its writer was answered is true, now and after one more commit."""
    mark, error = model.writers[0].mark, writer.error
    assert isinstance(error, errors.LanceNamespaceError | None), error
    for _ in range(2):
        if not isinstance(error, OutcomeUnknownError):
            assert (mark in model._history("a")) == (error is None), repr(error)
        model.patch.setattr(managed_state, "BRIEF_SECONDS", 0.0)
        more = model.start(["a"])
        more.finish()
        assert more.error is None
    return type(error)

"""A write that began in the storage, and a change of its table's manager, in any order of steps."""

from __future__ import annotations

import uuid
from functools import partial

import pytest
from lance_namespace import errors

from lance_bridge import managed_state
from lance_bridge.dataset import versions
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.managed import conversion, out_of_band
from lance_bridge.managed.batches import latest_state
from lance_bridge.storage.manifests import Scheme, Staged, name_of

from .interleaving import Client, manifest
from .memory_catalog import at
from .test_batch_interleavings import ChangedTables

pytestmark = pytest.mark.servers  # more than two CPU seconds each


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

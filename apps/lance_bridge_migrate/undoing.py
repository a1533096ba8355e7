"""Taking a migration back: only what it did, and only what is still its own."""

from __future__ import annotations

from collections.abc import Sequence

from lance_namespace.errors import InvalidTableStateError

from lance_bridge.errors import LanceNamespaceError

from .journal import Event
from .kind import AnyKind, Watcher
from .plan import Item
from .record import ItemState, Record
from .run import AnyEnds, AnyStep, Session
from .state import Migration

_SHOWN = 5


def undo(
    kind: AnyKind,
    ends: AnyEnds,
    migration: Migration,
    *,
    skip_changed: bool = False,
    at_once: int = 8,
    watcher: Watcher | None = None,
) -> Record:
    """Take back what a migration did, the last steps first; go on where an earlier undo ended.

    Whatever its runs did not begin is not looked at. The source is not changed.

    Args:
        skip_changed: Leave alone what others changed since, and take back the rest.

    Raises:
        InvalidTableStateError: (19) others changed a target since; then nothing is taken back.
        ConcurrentModificationError: (14) another process runs the migration.
        ServiceUnavailableError: (17) the journal cannot be written.
    """
    with migration.journal() as journal:
        record = migration.record()
        session = Session(kind, ends, record, journal, watcher)
        items = [each.item for each in record.items.values() if _is_to_undo(each)]
        refused = _refused(session, items, at_once)
        if refused and not skip_changed:
            raise _refusal(record, refused)
        session.note(Event(event="undo"))
        for item, error in refused.values():
            session.fail(item, error, undoing=True)
        _take_back(session, [item for item in items if item.key not in refused], at_once)
        return record


def _is_to_undo(state: ItemState) -> bool:
    return state.has_begun and not state.is_undone


def _steps_to_undo(session: Session, item: Item) -> list[AnyStep]:
    """Return the steps that were begun and not taken back yet, the last one first."""
    states = session.record.items[item.key].steps
    begun = [step for step in session.kind.steps(item) if step.name in states]
    return [step for step in reversed(begun) if states[step.name].undone is None]


_Refused = dict[str, tuple[Item, LanceNamespaceError]]


def _refused(session: Session, items: Sequence[Item], at_once: int) -> _Refused:
    found: _Refused = {}

    def check(item: Item) -> None:
        try:
            for step in _steps_to_undo(session, item):
                if step.check_undo is not None:
                    step.check_undo(session.work(item, step.name))
        except LanceNamespaceError as error:
            found[item.key] = (item, error)

    session.each(items, check, at_once)
    return found


def _refusal(record: Record, refused: _Refused) -> InvalidTableStateError:
    errors = [str(error) for _, error in refused.values()]
    more = f"; and {len(errors) - _SHOWN} more" if len(errors) > _SHOWN else ""
    return InvalidTableStateError(
        f"Migration {record.plan.id} is not undone: {'; '.join(errors[:_SHOWN])}{more}. "
        "Nothing was taken back; choose to leave those alone, and the rest can be"
    )


def _take_back(session: Session, items: Sequence[Item], at_once: int) -> None:
    wanted = {item.key for item in items}
    phases = [[i for i in phase if i.key in wanted] for phase in session.record.plan.phases()]
    session.watcher.begin(len(items))
    try:
        for phase in reversed(phases):
            session.each(phase, lambda item: _undo_item(session, item), at_once)
    except KeyboardInterrupt:
        session.note(Event(event="stopped"))
        raise
    session.note(Event(event="ended"))


def _undo_item(session: Session, item: Item) -> None:
    if session.stopping.is_set():
        return
    session.note(Event(event="undo_begun", item=item.key))
    try:
        for step in _steps_to_undo(session, item):
            session.watcher.step(item, f"undo {step.name}")
            if step.undo is not None:
                step.undo(session.work(item, step.name))
            session.note(Event(event="undo_done", item=item.key, step=step.name))
    except LanceNamespaceError as error:
        session.fail(item, error, undoing=True)
        return
    session.note(Event(event="undo_done", item=item.key))
    session.watcher.end(item, None)

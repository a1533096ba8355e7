"""What a kind of migration is: a class that plans, names its steps, verifies, and can undo them.

A kind makes no threads, writes no journal and prints nothing: `run`, `undo` and the command line do
that for all kinds alike.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from lance_bridge.errors import LanceNamespaceError, invalid

from .journal import Check
from .levels import Level
from .plan import Address, Facts, Item, Plan

SourceT = TypeVar("SourceT")
TargetT = TypeVar("TargetT")
OptionsT = TypeVar("OptionsT", bound="Options")


class Options(BaseModel):
    """Base of a kind's options: a model that JSON holds, without secrets."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Ends(Generic[SourceT, TargetT]):
    """Both ends, connected, and how a later run finds them again."""

    source: SourceT
    target: TargetT
    source_address: Address
    target_address: Address


@dataclass(frozen=True)
class Survey:
    """What a kind found when it planned."""

    items: Sequence[Item]
    notes: Sequence[str] = ()


class Watcher(Protocol):
    """Is told how a run goes on, from many threads. The command line makes bars of it."""

    def announce(self, text: str) -> None:
        """A part of the work begins that may take long."""

    def begin(self, total: int) -> None:
        """A run begins, with so many items to do."""

    def step(self, item: Item, name: str) -> None:
        """An item's step begins."""

    def advance(self, item: Item, rows: int, size: int) -> None:
        """So many more rows and bytes of an item are done."""

    def end(self, item: Item, error: LanceNamespaceError | None) -> None:
        """An item is done, or failed."""


class Nobody:
    """A watcher that takes no notice."""

    def announce(self, text: str) -> None:
        """See `Watcher`."""

    def begin(self, total: int) -> None:
        """See `Watcher`."""

    def step(self, item: Item, name: str) -> None:
        """See `Watcher`."""

    def advance(self, item: Item, rows: int, size: int) -> None:
        """See `Watcher`."""

    def end(self, item: Item, error: LanceNamespaceError | None) -> None:
        """See `Watcher`."""


@dataclass(frozen=True)
class Work(Generic[SourceT, TargetT, OptionsT]):
    """What a step works with.

    Attributes:
        plan: The plan that the item is of.
        mark: What the kind writes where it can (`targets.MARK`), and recognises its own work by.
        facts: The item's, and what earlier steps and runs noted.
        seen: What `Kind.look` returned for the item, when it is verified.
        is_repeated: Whether a run before this one, or undone by now, has begun the step.
        stopping: Set once the run is to stop; a long step looks at it between two parts of its
            work, notes where it is, and raises `Stopped`.
    """

    ends: Ends[SourceT, TargetT]
    plan: Plan
    options: OptionsT
    item: Item
    mark: str
    facts: Facts
    keep: Callable[[Facts], None]
    watcher: Watcher = field(default_factory=Nobody)
    stopping: threading.Event = field(default_factory=threading.Event)
    is_repeated: bool = False
    seen: Any = None

    def note(self, **facts: Any) -> None:
        """Keep facts for the steps to come, for later runs and for undoing; they are on disk then.

        Note before a change what is needed to recognise it or to take it back.
        """
        self.facts.update(facts)
        self.keep(facts)

    def advance(self, rows: int = 0, size: int = 0) -> None:
        """Tell how many more rows and bytes are done."""
        self.watcher.advance(self.item, rows, size)


class Stopped(Exception):
    """A step ends early because the run is to stop. The next run begins the step again."""


StepFunction = Callable[[Work[SourceT, TargetT, OptionsT]], Facts | None]
"""Returns facts to keep with the news that the step is done, or None."""
UndoFunction = Callable[[Work[SourceT, TargetT, OptionsT]], None]


@dataclass(frozen=True)
class Step(Generic[SourceT, TargetT, OptionsT]):
    """One change of the target. It may be begun any number of times, and is done once.

    Attributes:
        do: Makes the change, or finds by the mark or by the noted facts that an earlier run made
            it, and then makes what is missing. Raises an error of the library where it cannot.
        undo: Takes the change back, as far as it was made; safe to repeat. None for a step that
            leaves nothing to take back.
        check_undo: Raises an error of the library where `undo` would take back what is not this
            run's any more; reads only. Called for all items before the first is undone.
    """

    name: str
    do: StepFunction[SourceT, TargetT, OptionsT]
    undo: UndoFunction[SourceT, TargetT, OptionsT] | None = None
    check_undo: UndoFunction[SourceT, TargetT, OptionsT] | None = None


class Kind(ABC, Generic[SourceT, TargetT, OptionsT]):
    """One kind of migration. Has no state of its own: all that lasts is in facts and options."""

    name: ClassVar[str]
    """Names it in plans and on the command line."""
    summary: ClassVar[str]
    """What it does, in one line."""
    options_type: type[OptionsT]
    reading_step: ClassVar[str | None] = None
    """The step that reads the source's data. Until it is done, later runs compare the source with
    the plan again, too; without one that ends with the first step that is begun."""

    @abstractmethod
    def connect_source(
        self, address: Address, secrets: Mapping[str, str]
    ) -> AbstractContextManager[SourceT]:
        """Connect to the source again, for a run of a plan that is kept. Changes nothing there.

        Args:
            address: As the plan has it.
            secrets: Properties that the caller gives anew, for what the address leaves out.

        Raises:
            InvalidInputError: (13) it is something else by now than when the plan was made.
        """

    @abstractmethod
    def connect_target(
        self, address: Address, secrets: Mapping[str, str]
    ) -> AbstractContextManager[TargetT]:
        """Connect to the target again; the same errors."""

    @abstractmethod
    def survey(self, ends: Ends[SourceT, TargetT], options: OptionsT) -> Survey:
        """Find out what is to be done, by reading only.

        A table that cannot be migrated is an item with a blocker, and not an error.
        """

    def fingerprint(
        self,
        ends: Ends[SourceT, TargetT],  # noqa: ARG002 - for kinds that override it
        options: OptionsT,  # noqa: ARG002 - the same
        item: Item,
    ) -> str:
        """Return what the source of an item is now, to be compared with the plan's fingerprint.

        Whatever would make the plan wrong belongs in it, and nothing else. Raises TableNotFound (4)
        or NamespaceNotFound (1) where the source is gone.
        """
        return item.fingerprint

    @abstractmethod
    def steps(self, item: Item) -> Sequence[Step[SourceT, TargetT, OptionsT]]:
        """Return the steps of an item, in order. The same for the same item, always."""

    def look(
        self,
        ends: Ends[SourceT, TargetT],  # noqa: ARG002 - for kinds that override it
        items: Sequence[Item],  # noqa: ARG002 - the same
    ) -> Mapping[str, Any]:
        """Read what verifying these items needs and one call can tell of many; by item key.

        `verify` finds it in `Work.seen`. The items are done.
        """
        return {}

    def verify(
        self,
        work: Work[SourceT, TargetT, OptionsT],  # noqa: ARG002 - for kinds that override it
        level: Level,  # noqa: ARG002 - the same
    ) -> Sequence[Check]:
        """Compare an item that is done with its source, by reading only."""
        return []

    def checked_options(self, given: Mapping[str, Any]) -> OptionsT:
        """Return options from JSON. Raises InvalidInput (13), naming what is wrong."""
        try:
            return self.options_type.model_validate(dict(given))
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}"
                for each in error.errors(include_url=False, include_input=False)
            )
            raise invalid(f"The options of a migration '{self.name}': {problems}") from error


AnyKind = Kind[Any, Any, Any]

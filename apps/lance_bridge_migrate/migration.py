"""The base class of migration types, which plan, declare their steps, verify, and undo.

A type starts no threads, writes no journal and prints nothing: `run` and the command line do that
for all types.
"""

from __future__ import annotations

import importlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from lance_namespace.errors import LanceNamespaceError
from pydantic import AfterValidator, ValidationError

from lance_bridge.errors import invalid
from lance_bridge.redaction import IN_URL
from lance_bridge.tables import Tables

from . import Level
from .endpoints import Endpoints, catalog_at
from .plan import Address, Facts, Item, Model, Options, Plan
from .record import Check

if TYPE_CHECKING:
    from typing_extensions import Self

MIGRATION_TYPES = {
    "register": "register.Register",
    "entries": "register.Entries",
    "properties": "in_place.Properties",
    "management": "in_place.Management",
    "copy": "copy.Copy",
    "convert": "convert.Convert",
    "catch-up": "catchup.CatchUp",
    "export": "export.Export",
}
"""Module and class of each type; a module is imported when its type is requested."""


def migration_type(name: str) -> MigrationType:
    """Return the type of migration with a name.

    Raises:
        InvalidInputError: (13) the name is unknown.
        UnsupportedOperationError: (0) an extra is missing; the message says how to install it.
    """
    if name not in MIGRATION_TYPES:
        known = ", ".join(sorted(MIGRATION_TYPES))
        raise invalid(f"There is no migration '{name}'; known migrations: {known}")
    module, _, attribute = MIGRATION_TYPES[name].partition(".")
    found: type[MigrationType] = getattr(
        importlib.import_module(f".migrations.{module}", __package__), attribute
    )
    return found()


def _without_password(text: str) -> str:
    if IN_URL.search(text):
        raise ValueError("no plan keeps a password: give it to the session or the catalog")
    return text


PlainLocation = Annotated[str, AfterValidator(_without_password)]
"""An option that is a path or URI without a user and password."""


class ItemFacts(Model):
    """Base of the facts that a migration stores in `Item.facts` when it plans."""

    @classmethod
    def of(cls, item: Item) -> Self:
        """Return the facts of an item."""
        return cls.model_validate(item.facts)

    def to_json(self) -> Facts:
        """Return the facts in the form of `Item.facts`."""
        return self.model_dump(mode="json")


@dataclass(frozen=True)
class Survey:
    """What a migration found when it planned."""

    items: Sequence[Item]
    notes: Sequence[str] = ()


class NullProgress:
    """Ignores the progress of a run. Subclasses that show it are called from many threads."""

    def announce(self, text: str) -> None:
        """Announce a part of the work that may take long."""

    def start(self, total: int) -> None:
        """Start a run of `total` items."""

    def step(self, item: Item, name: str) -> None:
        """Start a step of an item."""

    def advance(self, item: Item, rows: int, size: int) -> None:
        """Add to the rows and bytes that are done of an item."""

    def end(self, item: Item, error: LanceNamespaceError | None) -> None:
        """End an item, which is done or failed with an error."""


@dataclass(frozen=True)
class StepContext:
    """The context of one step of one item in one run.

    Attributes:
        plan: The plan that contains the item.
        options: The migration's options, of type `MigrationType.options_type`.
        mark: Written by the migration where possible (`targets.MARK`) to recognise its own work.
        facts: The item's facts and those that earlier steps and runs noted.
        keep: Writes facts to the journal.
        stopping: Set when the run should stop. A long step checks it between two parts of its
            work, notes its progress, and raises `Stopped`.
        is_repeated: Whether an earlier run started the step, even if it was undone since.
        prefetched: During verification, what `MigrationType.prefetch` returned for the item.
    """

    endpoints: Endpoints
    plan: Plan
    options: Any
    item: Item
    mark: str
    facts: Facts
    keep: Callable[[Facts], None]
    progress: NullProgress = field(default_factory=NullProgress)
    stopping: threading.Event = field(default_factory=threading.Event)
    is_repeated: bool = False
    prefetched: Any = None

    @property
    def source_tables(self) -> Tables:
        """The tables of the source, which must be a catalog."""
        return self.endpoints.source_tables

    @property
    def target_tables(self) -> Tables:
        """The tables of the target, which must be a catalog."""
        return self.endpoints.target_tables

    def note(self, **facts: Any) -> None:
        """Write facts to disk for later steps, later runs and undo.

        Before a change, note what is needed to recognise it or to undo it.
        """
        self.facts.update(facts)
        self.keep(facts)

    def advance(self, rows: int = 0, size: int = 0) -> None:
        """Report additional rows and bytes that are done."""
        self.progress.advance(self.item, rows, size)


class Stopped(Exception):
    """A step ended early because the run should stop. The next run starts the step again.

    Also raised if a job of Spark was cancelled. Unless the run is stopping, the item then fails.
    """


@dataclass(frozen=True)
class Step:
    """One change to the target. It may be started any number of times, and takes effect once.

    Attributes:
        do: Makes the change. If the mark or the noted facts show that an earlier run made it, only
            completes it. Returns facts to keep, or None. Raises a `LanceNamespaceError` if it
            fails.
        undo: Undoes the change as far as it was made; safe to repeat. None if the step leaves
            nothing to undo.
        check_undo: Raises a `LanceNamespaceError` if `undo` would revert changes of other writers.
            Only reads. Called for all items before the first is undone.
    """

    name: str
    do: Callable[[StepContext], Facts | None]
    undo: Callable[[StepContext], None] | None = None
    check_undo: Callable[[StepContext], object] | None = None


class MigrationType(ABC):
    """A type of migration, between two catalogs by default.

    It is stateless: everything persistent is in facts and options.
    """

    name: ClassVar[str]
    """The name in plans and on the command line."""
    options_type: ClassVar[type[Options]]
    reading_step: ClassVar[str | None] = None
    """The step that reads the source's data. Later runs compare the source with the plan until this
    step is done, or, if it is None, until any step is started."""

    def connect_source(
        self, address: Address, secrets: Mapping[str, str]
    ) -> AbstractContextManager[Any]:
        """Connect to the source of a saved plan. Does not change it.

        Args:
            address: The source's address in the plan.
            secrets: Properties that the address omits.

        Raises:
            InvalidInputError: (13) it is no longer the source that the plan was made for.
        """
        return catalog_at(address, secrets)

    def connect_target(
        self, address: Address, secrets: Mapping[str, str]
    ) -> AbstractContextManager[Any]:
        """Connect to the target of a saved plan. Raises the same errors."""
        return catalog_at(address, secrets)

    @abstractmethod
    def survey(self, endpoints: Endpoints, options: Any) -> Survey:
        """Determine what has to be done, by reading only.

        A table that cannot be migrated is an item with a blocker, not an error.
        """

    def fingerprint(self, endpoints: Endpoints, item: Item) -> str:  # noqa: ARG002 - for subclasses
        """Return the current fingerprint of an item's source, to compare it with the plan's.

        It covers everything that would make the plan invalid, and nothing else.

        Raises:
            TableNotFoundError: (4) the source no longer exists. Every error counts as a change, but
                for ServiceUnavailable (17), Unauthenticated (16) and Throttling (21).
        """
        return item.fingerprint

    @abstractmethod
    def steps(self, item: Item) -> Sequence[Step]:
        """Return the steps of a table, in order. Must be deterministic."""

    def prefetch(
        self,
        endpoints: Endpoints,  # noqa: ARG002 - for subclasses
        items: Sequence[Item],  # noqa: ARG002 - for subclasses
    ) -> Mapping[str, Any]:
        """Read in bulk what `verify` needs for these items, and return it by item key.

        `verify` gets it as `StepContext.prefetched`. The items are done.
        """
        return {}

    @abstractmethod
    def verify(self, work: StepContext, level: Level) -> Iterable[Check]:
        """Compare a completed table with its source, by reading only."""

    def parse_options(self, given: Mapping[str, Any]) -> Any:
        """Return the options parsed from JSON. Raises InvalidInput (13), listing the problems."""
        try:
            return self.options_type.model_validate(dict(given))
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}"
                for each in error.errors(include_url=False, include_input=False)
            )
            raise invalid(f"The options of a migration '{self.name}': {problems}") from error

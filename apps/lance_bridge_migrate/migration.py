"""A type of migration: a class that plans, names its steps, verifies, and can undo them.

It makes no threads, writes no journal and prints nothing: `run` and the command line do that for
all types alike.
"""

from __future__ import annotations

import importlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from lance_bridge.errors import LanceNamespaceError, invalid
from lance_bridge.redaction import IN_URL
from lance_bridge.tables import Tables

from .endpoints import Endpoints, catalog_at
from .journal import Check
from .levels import Level
from .plan import Address, Facts, Item, Plan

if TYPE_CHECKING:
    from typing_extensions import Self

MIGRATION_TYPES = {
    "register": "register.Register",
    "entries": "entries.Entries",
    "properties": "properties.Properties",
    "management": "management.Management",
    "copy": "copy.Copy",
    "convert": "convert.Convert",
    "catch-up": "catchup.CatchUp",
    "export": "export.Export",
}
"""Name to module and class; a module is imported when its type is asked for."""


def migration_type(name: str) -> MigrationType:
    """Return the type of migration with a name.

    Raises:
        InvalidInputError: (13) there is none of that name.
        UnsupportedOperationError: (0) an extra is missing; with the command that installs it.
    """
    if name not in MIGRATION_TYPES:
        known = ", ".join(sorted(MIGRATION_TYPES))
        raise invalid(f"There is no migration '{name}'; known migrations: {known}")
    module, _, attribute = MIGRATION_TYPES[name].partition(".")
    found: type[MigrationType] = getattr(
        importlib.import_module(f".migrations.{module}", __package__), attribute
    )
    return found()


class Options(BaseModel):
    """Base of a migration's options: a model that JSON holds, without secrets."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _without_password(text: str) -> str:
    if IN_URL.search(text):
        raise ValueError("no plan keeps a password: give it to the session or the catalog")
    return text


PlainLocation = Annotated[str, AfterValidator(_without_password)]
"""A path or URI among the options: one without a user and password."""


class ItemFacts(BaseModel):
    """Base of what a migration notes about an item when it plans, as `Item.facts` holds it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def of(cls, item: Item) -> Self:
        """Return the facts of an item."""
        return cls.model_validate(item.facts)

    def to_json(self) -> Facts:
        """Return the facts as an item holds them."""
        return self.model_dump(mode="json")


@dataclass(frozen=True)
class Survey:
    """What a migration found when it planned."""

    items: Sequence[Item]
    notes: Sequence[str] = ()


class NullProgress:
    """Ignores the progress of a run, which comes from many threads; the command line shows it."""

    def announce(self, text: str) -> None:
        """A part of the work starts that may take long."""

    def start(self, total: int) -> None:
        """A run starts, with so many items to do."""

    def step(self, item: Item, name: str) -> None:
        """An item's step starts."""

    def advance(self, item: Item, rows: int, size: int) -> None:
        """So many more rows and bytes of an item are done."""

    def end(self, item: Item, error: LanceNamespaceError | None) -> None:
        """An item is done, or failed."""


@dataclass(frozen=True)
class Work:
    """What a step of one item works with, in one run.

    Attributes:
        plan: The plan that the item is in.
        options: Those of the migration: its `MigrationType.options_type`.
        mark: What the migration writes where it can (`targets.MARK`), to recognise its own work.
        facts: The item's, and what earlier steps and runs noted.
        keep: Writes facts to the journal.
        stopping: Set once the run is to stop; a long step checks it between two parts of its work,
            notes where it is, and raises `Stopped`.
        is_repeated: Whether an earlier run started the step, even if it was undone since.
        prefetched: What `MigrationType.prefetch` returned for the item, when it is verified.
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
        """The tables of the source, where that is a catalog."""
        return self.endpoints.source_tables

    @property
    def target_tables(self) -> Tables:
        """The tables of the target, where that is a catalog."""
        return self.endpoints.target_tables

    def note(self, **facts: Any) -> None:
        """Keep facts for the steps to come, for later runs and for undoing; they are on disk then.

        Note before a change what is needed to recognise it or to undo it.
        """
        self.facts.update(facts)
        self.keep(facts)

    def advance(self, rows: int = 0, size: int = 0) -> None:
        """Report how many more rows and bytes are done."""
        self.progress.advance(self.item, rows, size)


class Stopped(Exception):
    """A step ends early because the run is to stop. The next run starts the step again."""


@dataclass(frozen=True)
class Step:
    """One change of the target. It may be started any number of times, and is done once.

    Attributes:
        do: Makes the change, or finds by the mark or by the noted facts that an earlier run made
            it, and then makes what is missing. Returns facts to keep, or None. Raises an error of
            the library where it cannot.
        undo: Undoes the change, as far as it was made; safe to repeat. None for a step that leaves
            nothing to undo.
        check_undo: Raises an error of the library where `undo` would undo what others did; reads
            only. Called for all items before the first is undone.
    """

    name: str
    do: Callable[[Work], Facts | None]
    undo: Callable[[Work], None] | None = None
    check_undo: Callable[[Work], None] | None = None


class MigrationType(ABC):
    """A type of migration, between two catalogs unless it says otherwise.

    It has no state of its own: all that lasts is in facts and options.
    """

    name: ClassVar[str]
    """Names it in plans and on the command line."""
    options_type: ClassVar[type[Options]]
    reading_step: ClassVar[str | None] = None
    """The step that reads the source's data. Until it is done, later runs compare the source with
    the plan again, too; without one that ends with the first step that is started."""

    def connect_source(
        self, address: Address, secrets: Mapping[str, str]
    ) -> AbstractContextManager[Any]:
        """Connect to the source again, for a run of a plan that is kept. Changes nothing there.

        Args:
            address: As the plan has it.
            secrets: Properties that the caller gives again, for what the address leaves out.

        Raises:
            InvalidInputError: (13) it is no longer what it was when the plan was made.
        """
        return catalog_at(address, secrets)

    def connect_target(
        self, address: Address, secrets: Mapping[str, str]
    ) -> AbstractContextManager[Any]:
        """Connect to the target again; the same errors."""
        return catalog_at(address, secrets)

    @abstractmethod
    def survey(self, endpoints: Endpoints, options: Any) -> Survey:
        """Find out what is to be done, by reading only.

        A table that cannot be migrated is an item with a blocker, and not an error.
        """

    def fingerprint(self, endpoints: Endpoints, item: Item) -> str:  # noqa: ARG002 - for subclasses
        """Return what the source of an item is now, to be compared with the plan's fingerprint.

        Whatever would make the plan wrong belongs in it, and nothing else.

        Raises:
            TableNotFoundError: (4) the source is gone.
            NamespaceNotFoundError: (1) the same.
        """
        return item.fingerprint

    @abstractmethod
    def steps(self, item: Item) -> Sequence[Step]:
        """Return the steps of an item, in order. The same for the same item, always."""

    def prefetch(
        self,
        endpoints: Endpoints,  # noqa: ARG002 - for subclasses
        items: Sequence[Item],  # noqa: ARG002 - for subclasses
    ) -> Mapping[str, Any]:
        """Read what verifying these items needs and one call returns for many; by item key.

        `verify` finds it in `Work.prefetched`. The items are done.
        """
        return {}

    @abstractmethod
    def verify(self, work: Work, level: Level) -> Sequence[Check]:
        """Compare an item that is done with its source, by reading only."""

    def parse_options(self, given: Mapping[str, Any]) -> Any:
        """Return options from JSON. Raises InvalidInput (13), naming what is wrong."""
        try:
            return self.options_type.model_validate(dict(given))
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}"
                for each in error.errors(include_url=False, include_input=False)
            )
            raise invalid(f"The options of a migration '{self.name}': {problems}") from error

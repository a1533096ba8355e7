"""A plan: what a migration will do, computed by reading only, shown first, and kept as JSON."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from enum import Enum
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lance_bridge.errors import display, invalid
from lance_bridge.names import first_names

FORMAT: Final = 1
"""Of the JSON; a plan of another one is refused."""

Facts = dict[str, Any]
"""What a migration notes about one table: anything that JSON holds."""

_BLOCKED_ITEMS = 5
"""How many blocked items a message names."""


class Model(BaseModel):
    """What is kept as JSON: unchangeable, and without unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Severity(str, Enum):
    """Whether a table can be migrated in spite of a problem."""

    BLOCKER = "blocker"
    WARNING = "warning"


class ItemType(str, Enum):
    """What an item is. Namespaces come before the tables in them, and are undone after them."""

    NAMESPACE = "namespace"
    TABLE = "table"


class Address(Model):
    """How a source or target is found again, without secrets.

    Attributes:
        name: What `lance_bridge.connect` takes, ``dir`` for a directory, ``spark`` for a session.
        properties: Those that are no secrets. Secrets come from the environment, the
            configuration file or the caller, each time.
        connection: What it was connected to. A run that would connect to something else is refused.
    """

    name: str
    properties: dict[str, str] = Field(default_factory=dict)
    connection: str = ""

    def __str__(self) -> str:
        return self.connection or self.name


class Problem(Model):
    """What keeps a table from being migrated, or what may be unexpected about the result.

    Attributes:
        column: The path of the column with the problem, or "".
    """

    severity: Severity
    text: str
    column: str = ""


def blocker(text: str, column: str = "") -> Problem:
    """Return a problem that keeps a table from being migrated."""
    return Problem(severity=Severity.BLOCKER, text=text, column=column)


def warning(text: str, column: str = "") -> Problem:
    """Return a problem that does not keep a table from being migrated."""
    return Problem(severity=Severity.WARNING, text=text, column=column)


def blockers_in(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems that keep a table from being migrated."""
    return [each for each in problems if each.severity is Severity.BLOCKER]


class Item(Model):
    """One table of a plan, or one namespace that has to be created.

    Attributes:
        source: Its names where it is; one location for a table that has no name.
        target: Its names where it is to be, or one location.
        facts: What the migration noted for its steps; see `ItemFacts`.
        fingerprint: What the source was when the plan was made. A plan whose source has another
            one now is not carried out.
        rows: Rows of the source, where they are known.
        bytes: Bytes of the source's data, where they are known.
        nothing_to_do: Why nothing is to be done, or "".
    """

    type: ItemType = ItemType.TABLE
    source: tuple[str, ...]
    target: tuple[str, ...]
    facts: Facts = Field(default_factory=dict)
    fingerprint: str = ""
    rows: int | None = None
    bytes: int | None = None
    nothing_to_do: str = ""
    problems: tuple[Problem, ...] = ()

    @property
    def key(self) -> str:
        """The item's name in its plan and in the journal."""
        if self.type is ItemType.NAMESPACE:
            return f"namespace {'/'.join(self.target)}"
        return "/".join(self.source)

    @property
    def name(self) -> str:
        """The name that people read."""
        return display(self.target)

    @property
    def blockers(self) -> list[Problem]:
        return blockers_in(self.problems)

    @property
    def is_to_do(self) -> bool:
        """True where something is to be done, and nothing keeps it from being done."""
        return not self.nothing_to_do and not self.blockers

    def with_problems(self, *problems: Problem) -> Item:
        """Return the same item with more problems."""
        return self.model_copy(update={"problems": (*self.problems, *problems)})


class Plan(Model):
    """A migration before it is carried out.

    Attributes:
        id: Names the migration; also its directory's name.
        type: Name of the `MigrationType` that made it and carries it out.
        created: When, in ISO 8601 and UTC.
        options: Those of the migration, checked.
        notes: For people; such as what was left out.
        follows: The migration that this one continues: catching up with a table that changes.
    """

    format: Literal[1] = FORMAT
    id: str
    type: str
    created: str
    source: Address
    target: Address
    options: dict[str, Any] = Field(default_factory=dict)
    items: tuple[Item, ...] = ()
    notes: tuple[str, ...] = ()
    follows: str | None = None

    @property
    def to_do(self) -> list[Item]:
        """The items that are carried out, those that are blocked left out."""
        return [item for item in self.items if item.is_to_do]

    @property
    def blocked(self) -> list[Item]:
        return [item for item in self.items if item.blockers and not item.nothing_to_do]

    def phases(self) -> Iterator[list[Item]]:
        """Yield what can be done in parallel: namespaces, the outermost first, and then tables."""
        namespaces = [item for item in self.to_do if item.type is ItemType.NAMESPACE]
        for depth in sorted({len(item.target) for item in namespaces}):
            yield [item for item in namespaces if len(item.target) == depth]
        yield [item for item in self.to_do if item.type is ItemType.TABLE]

    def mark(self, item: Item) -> str:
        """Return what the work on an item is recognised by, also by later runs."""
        digest = hashlib.sha256(item.key.encode()).hexdigest()[:16]
        return f"{self.id}/{digest}"

    def require_startable(self, *, skip_blocked: bool) -> None:
        """Raise InvalidInput (13) where tables are blocked and are not to be left out."""
        blocked = self.blocked
        if not blocked or skip_blocked:
            return
        shown = [f"{item.name}: {item.blockers[0].text}" for item in blocked]
        raise invalid(
            f"{len(blocked)} of {len(self.items)} items of migration {self.id} are blocked: "
            f"{first_names(shown, _BLOCKED_ITEMS, '; ')}. Fix them and plan again, or leave them "
            "out with --skip-blocked"
        )

    def to_json(self) -> str:
        """Return the plan as JSON; `from_json` reads it."""
        return self.model_dump_json(indent=1, exclude_defaults=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Plan:
        """Raises InvalidInput (13) for what is no plan, or one of another format."""
        try:
            found = json.loads(text)
            if isinstance(found, dict) and found.get("format") not in (None, FORMAT):
                raise invalid(
                    f"The plan has format {found['format']!r}, and this release reads {FORMAT}: "
                    "use the release that made it"
                )
            return cls.model_validate(found)
        except (ValueError, ValidationError) as error:
            raise invalid(f"This is no plan of a migration: {error}") from error


def new_id(type: str) -> str:
    """Return a unique identifier that sorts by time and names the type of migration."""
    moment = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    return f"{moment}-{type}-{secrets.token_hex(3)}"


def now() -> str:
    """Return the time in ISO 8601 and UTC, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def without_clashes(items: Iterable[Item]) -> tuple[Item, ...]:
    """Return the items; those with the same target as another are blocked.

    Raises:
        InvalidInputError: (13) the plan has a source twice.
    """
    found = tuple(items)
    for key, count in Counter(item.key for item in found).items():
        if count > 1:
            raise invalid(f"'{key}' is in the plan {count} times: name each source once")
    counts = Counter((item.type, item.target) for item in found)
    clash = blocker("Another table of this plan has the same target: use two plans")
    return tuple(
        item.with_problems(clash) if counts[item.type, item.target] > 1 else item for item in found
    )

"""A plan: what a migration will do, computed by reading only and stored as JSON."""

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

from lance_bridge.dotted_names import first_names
from lance_bridge.errors import display, invalid

FORMAT: Final = 1
"""The version of the JSON format; plans in other formats are refused."""

Facts = dict[str, Any]
"""What a migration notes about one table; any JSON values."""


class Model(BaseModel):
    """Base of models stored as JSON: immutable, without unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Options(Model):
    """Base of a migration's options: a JSON model without secrets."""


class Severity(str, Enum):
    """Whether a problem prevents the migration of a table."""

    BLOCKER = "blocker"
    WARNING = "warning"


class ItemType(str, Enum):
    """The type of an item. Namespaces are created before their tables, and undone after them."""

    NAMESPACE = "namespace"
    TABLE = "table"


class Address(Model):
    """The information to reconnect to a source or target, without secrets.

    Attributes:
        name: The name for `lance_bridge.connect`, ``dir`` for a directory, ``spark`` for a session.
        properties: Those that are not secret. Each run reads the secrets from the environment,
            the configuration file or the caller.
        connection: What it was connected to. A run that would connect to something else is refused.
    """

    name: str
    properties: dict[str, str] = Field(default_factory=dict)
    connection: str = ""

    def __str__(self) -> str:
        return self.connection or self.name


class Problem(Model):
    """A reason why a table cannot be migrated, or why the result may be unexpected.

    Attributes:
        column: The path of the affected column, or "".
    """

    severity: Severity
    text: str
    column: str = ""


def blocker(text: str, column: str = "") -> Problem:
    """Return a problem that prevents the migration of a table."""
    return Problem(severity=Severity.BLOCKER, text=text, column=column)


def warning(text: str, column: str = "") -> Problem:
    """Return a problem that does not prevent the migration of a table."""
    return Problem(severity=Severity.WARNING, text=text, column=column)


def blockers_in(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems that prevent the migration of a table."""
    return [each for each in problems if each.severity is Severity.BLOCKER]


class Item(Model):
    """One table of a plan, or one namespace that has to be created.

    Attributes:
        source: The identifier of the source; one location for a table without a name.
        target: The identifier of the target, or one location.
        facts: What the migration noted for its steps; see `ItemFacts`.
        fingerprint: The fingerprint of the source when the plan was made. A plan is not executed
            if the fingerprint has changed.
        rows: Rows of the source, if known.
        bytes: Bytes of the source's data, if known.
        nothing_to_do: Why nothing has to be done, or "".
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
        """The key of the item in its plan and in the journal."""
        if self.type is ItemType.NAMESPACE:
            return f"namespace {'/'.join(self.target)}"
        return "/".join(self.source)

    @property
    def name(self) -> str:
        """The display name."""
        return display(self.target)

    @property
    def blockers(self) -> list[Problem]:
        return blockers_in(self.problems)

    @property
    def is_to_do(self) -> bool:
        """True if something has to be done, and no blocker prevents it."""
        return not self.nothing_to_do and not self.blockers

    def with_problems(self, *problems: Problem) -> Item:
        """Return a copy of the item with more problems."""
        return self.model_copy(update={"problems": (*self.problems, *problems)})


class Plan(Model):
    """A migration before it is executed.

    Attributes:
        id: The identifier of the migration, and the name of its directory.
        type: Name of the `MigrationType` that made it and executes it.
        created: The time of creation, in ISO 8601 and UTC.
        options: The validated options of the migration.
        notes: Notes for users, such as which tables were left out.
        follows: The migration that this one continues, for increments of catch-up.
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
        """The items to execute, without blocked ones."""
        return [item for item in self.items if item.is_to_do]

    @property
    def blocked(self) -> list[Item]:
        return [item for item in self.items if item.blockers and not item.nothing_to_do]

    def phases(self) -> Iterator[list[Item]]:
        """Yield the items that can run in parallel: namespaces, outermost first, then tables."""
        namespaces = [item for item in self.to_do if item.type is ItemType.NAMESPACE]
        for depth in sorted({len(item.target) for item in namespaces}):
            yield [item for item in namespaces if len(item.target) == depth]
        yield [item for item in self.to_do if item.type is ItemType.TABLE]

    def mark(self, item: Item) -> str:
        """Return the mark by which this and later runs recognise the work on an item."""
        digest = hashlib.sha256(item.key.encode()).hexdigest()[:16]
        return f"{self.id}/{digest}"

    def require_startable(self, *, skip_blocked: bool) -> None:
        """Raise InvalidInput (13) if items are blocked, unless `skip_blocked` leaves them out."""
        blocked = self.blocked
        if not blocked or skip_blocked:
            return
        shown = [f"{item.name}: {item.blockers[0].text}" for item in blocked]
        raise invalid(
            f"{len(blocked)} of {len(self.items)} items of migration {self.id} are blocked: "
            f"{first_names(shown, 5, '; ')}. Fix them and plan again, or leave them "
            "out with --skip-blocked"
        )

    def to_json(self) -> str:
        """Return the plan as JSON; `from_json` reads it."""
        return self.model_dump_json(indent=1, exclude_defaults=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Plan:
        """Return the parsed plan. Raises InvalidInput (13): not a plan, or another format."""
        try:
            found = json.loads(text)
            if isinstance(found, dict) and found.get("format") not in (None, FORMAT):
                raise invalid(
                    f"The plan has format {found['format']!r}, and this release reads {FORMAT}: "
                    "use the release that made it"
                )
            return cls.model_validate(found)
        except (ValueError, ValidationError) as error:
            raise invalid(f"This is not a plan of a migration: {error}") from error


def new_id(type: str) -> str:
    """Return a unique identifier that sorts by time and names the type of migration."""
    moment = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    return f"{moment}-{type}-{secrets.token_hex(3)}"


def digest(value: object) -> str:
    """Return a short digest of a value in JSON."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def now() -> str:
    """Return the current time in ISO 8601 and UTC, with milliseconds."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def without_clashes(items: Iterable[Item]) -> tuple[Item, ...]:
    """Return the items, with a blocker on those that share a target.

    Raises:
        InvalidInputError: (13) the plan contains a source twice.
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

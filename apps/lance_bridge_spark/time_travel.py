"""VERSION AS OF and TIMESTAMP AS OF: which version of a table a query reads."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import lance
from lance_namespace.errors import (
    TableBranchNotFoundError,
    TableTagNotFoundError,
    TableVersionNotFoundError,
)

from lance_bridge.errors import invalid, translate_lance_errors
from lance_bridge.requests import LATEST, Ref

if TYPE_CHECKING:
    from .spark_tables import SparkTable

TIME_ZONE = "spark.sql.session.timeZone"
"""The setting with the time zone of a session."""
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?(?:([+-])(\d{1,2})(?::?(\d\d))?(?::?(\d\d))?)?|Z")
_MICROSECONDS = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class TimeTravel:
    """What a query reads: a version, tag or branch, or a branch at a point in time."""

    ref: Ref = LATEST
    timestamp_us: int | None = None
    """In microseconds since 1970 (UTC)."""
    is_name: bool = False
    """Whether the tag in ``ref`` may also be the name of a branch."""

    @classmethod
    def of(cls, version: str | None, timestamp_us: int | None) -> TimeTravel:
        """Return the time travel of a VERSION AS OF or TIMESTAMP AS OF clause.

        Args:
            version: A number, or the name of a tag or branch; None for the latest.
            timestamp_us: In microseconds since 1970 (UTC).

        Raises:
            InvalidInputError: (13) the version is 0.
        """
        if version is None:
            return cls(timestamp_us=timestamp_us)
        is_number = version.isascii() and version.isdigit()
        if is_number:
            return cls(Ref.of(version=int(version)))
        return cls(Ref.of(tag=version), is_name=True)

    @property
    def is_chosen(self) -> bool:
        """Whether it is a fixed version, and not the latest of a branch."""
        chosen = (self.ref.version, self.ref.tag, self.timestamp_us)
        return any(each is not None for each in chosen)

    def open(self, table: SparkTable) -> tuple[TimeTravel, lance.LanceDataset]:
        """Return the dataset, and this time travel with a name resolved to a tag or a branch.

        Raises:
            TableVersionNotFoundError: (11)
            TableTagNotFoundError: (8)
            TableBranchNotFoundError: (22)
            InvalidTableStateError: (19) it is declared, and has no data yet.
            ServiceUnavailableError: (17)
        """
        if self.is_name:
            return self._open_name(table)
        dataset = table.open(self.ref)
        if self.timestamp_us is None:
            return self, dataset
        found = version_at(dataset, self.timestamp_us, table.address.name)
        if found == dataset.version:
            return self, dataset
        return self, table.open(Ref(version=found, branch=self.ref.branch))

    def _open_name(self, table: SparkTable) -> tuple[TimeTravel, lance.LanceDataset]:
        """Open the tag of this name, or the branch if there is no such tag."""
        name = self.ref.tag
        try:
            return self, table.open(self.ref)
        except TableTagNotFoundError as error:
            branch = replace(self, ref=Ref.of(branch=name), is_name=False)
            try:
                return branch, table.open(branch.ref)
            except TableBranchNotFoundError:
                raise TableTagNotFoundError(
                    f"Table '{table.name}' has no tag and no branch '{name}'"
                ) from error


def version_at(dataset: lance.LanceDataset, timestamp_us: int, name: str) -> int:
    """Return the last version that was committed at or before a point in time.

    Args:
        dataset: The table at its latest version.
        timestamp_us: In microseconds since 1970 (UTC).
        name: The table's name in messages.

    Raises:
        TableVersionNotFoundError: (11) the oldest existing version is later.
        ServiceUnavailableError: (17)
    """
    with translate_lance_errors(f"The versions of table '{name}' could not be read"):
        versions: Any = dataset.versions()
        known = {int(each["version"]): to_micros(each["timestamp"]) for each in versions}
    # For a managed table, the storage may contain versions after the latest one.
    made = {number: at for number, at in known.items() if number <= dataset.version}
    found = [number for number, at in made.items() if at <= timestamp_us]
    if not found:
        first = min(made, default=int(dataset.version))
        since = f": its version {first} is of {_format_time(made[first])}" if made else ""
        raise TableVersionNotFoundError(
            f"Table '{name}' has no version at or before {_format_time(timestamp_us)}{since}"
        )
    return max(found)


def with_zone(moment: datetime, zone: str) -> datetime:
    """Return a time in the zone of a session, unless it has one.

    Args:
        zone: As in `TIME_ZONE`: a region, or an offset such as ``+01:00``.

    Raises:
        InvalidInputError: (13) Python does not know the zone.
    """
    return moment if moment.tzinfo else moment.replace(tzinfo=_parse_zone(zone))


def _parse_zone(text: str) -> tzinfo:
    offset = _OFFSET.fullmatch(text)
    try:
        if offset is None:
            return ZoneInfo(text)
        hours, minutes, seconds = (int(each or 0) for each in offset.groups()[1:])
        size = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-size if offset[1] == "-" else size)
    except (KeyError, ValueError, OSError) as error:
        raise invalid(
            f"Python does not know the time zone {text[:60]!r} of this session ({TIME_ZONE}): give "
            "times with a zone, such as 2026-01-31T12:00:00+00:00"
        ) from error


def to_micros(moment: datetime) -> int:
    """Return a time in microseconds since 1970 (UTC); a time without a zone is local."""
    return (moment.astimezone(timezone.utc) - _EPOCH) // timedelta(microseconds=1)


def _format_time(micros: int) -> str:
    seconds, rest = divmod(micros, _MICROSECONDS)
    try:
        moment = datetime.fromtimestamp(seconds, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return f"{micros} µs after 1970"
    return moment.replace(microsecond=rest).isoformat()

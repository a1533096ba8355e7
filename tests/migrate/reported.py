"""Records of migrations that no test has the time to run: made of events, as journals are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

from lance_bridge_migrate import Address, Item, Plan, Record
from lance_bridge_migrate.journal import Check, Event
from lance_bridge_migrate.plan import Facts

_BEGIN = datetime(2026, 1, 31, 12, 0, 0, tzinfo=timezone.utc)


def at(seconds: float) -> str:
    """Return a time, so many seconds after the first run began."""
    return (_BEGIN + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def planned(*items: Item, **more: Any) -> Plan:
    """Return a plan of a conversion."""
    given: dict[str, Any] = {
        "id": "20260131-115900-convert-0a1b2c",
        "type": "convert",
        "created": at(-60),
        "source": Address(name="spark", properties={"spark.sql.x": "of-the-source"}),
        "target": Address(name="hive", connection="hive(thrift://h:1)"),
        "items": items,
        **more,
    }
    return Plan.model_validate(given)


def table(name: str = "a", **more: Any) -> Item:
    return Item(source=("db", name), target=("main", name), **more)


def tables(count: int) -> list[Item]:
    """Return tables of other sizes each, the last one the largest."""
    return [table(f"t{n:04}", rows=n * 1000, bytes=n * 10**6) for n in range(count)]


def started(options: Facts | None = None, seconds: float = 0) -> Event:
    return Event(event="run", facts=options or {"at_once": 2, "verify": "counts"}, at=at(seconds))


def ended(seconds: float, name: Any = "ended") -> Event:
    return Event(event=name, at=at(seconds))


def written(item: Item, seconds: float = 2.0, **facts: Any) -> Iterator[Event]:
    """Yield the events of a table that is written: an entry, and then its rows."""
    noted = {
        "bytes_before": item.bytes,
        "rows_written": item.rows,
        "bytes_written": (item.bytes or 0) // 2,
        "bytes_after": (item.bytes or 0) // 2,
        **facts,
    }
    for step, took in (("entry", seconds / 4), ("load", seconds * 3 / 4)):
        last = step == "load"
        yield Event(event="started", item=item.key, step=step, at=at(1))
        yield Event(
            event="done", item=item.key, step=step, seconds=took, is_last=last, at=at(1 + took),
            facts=noted if last else {"location": f"/lake/{item.source[-1]}.lance"},
        )  # fmt: skip


def verified(item: Item, *checks: Check, level: str = "counts") -> Event:
    return Event(event="verified", item=item.key, checks=checks, level=level)


def same_rows(item: Item) -> Check:
    return Check(name="rows", ok=True, expected=item.rows, found=item.rows)


def done(items: Iterable[Item]) -> Record:
    """Return the record of a run that wrote and verified all of these in ten seconds."""
    kept = list(items)
    events = [started()]
    for number, item in enumerate(kept):
        events += [*written(item, seconds=1 + number), verified(item, same_rows(item))]
    return Record.of(planned(*kept), [*events, ended(10)])

"""Killed at every moment and run again, a migration ends as if it had never been killed.

Each run is a process, which ends by SIGKILL before one event of the journal or one
change of the catalog, and so after the one before. The next run continues, in this process. Undoing
is killed alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from migrate.building import (
    Run,
    between,
    from_directory,
    make_theirs,
    register_rows,
    within,
    write,
)
from migrate.places import Entries, Place, files
from migrate.running import Runner, job_of, secrets_of

from lance_bridge_migrate import Endpoints, Migrations, State

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.spec("migration.md#parts", "migration.md#running", "migration.md#undoing"),
]


@dataclass
class Case:
    """One migration to be killed.

    Attributes:
        source: The place whose entries must not change, where that is another one than the target.
        prefix: Of the namespaces that appear in the target.
        exact: Whether the target's entries are just as before once it is undone.
    """

    type: str
    target: Place
    options: dict[str, Any]
    lake: Path
    source: Place | None = None
    prefix: str = ""
    directory: Path | None = None
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)

    @contextmanager
    def endpoints(self) -> Iterator[Endpoints]:
        if self.directory is not None:
            with from_directory(self.directory, self.target) as found:
                yield found
        elif self.source is not None:
            with between(self.source, self.target) as found:
                yield found
        else:
            with within(self.target) as found:
                yield found

    def state(self) -> Entries:
        """Return what the target holds, without values that are others each time."""
        place = Place(self.target.impl, {}, (), self.prefix or self.target.prefix, self.target.raw)
        found = place.state()
        for entry in found.values():
            entry["parameters"].pop("lance_bridge.revision", None)
            entry["parameters"].pop("transient_lastDdlTime", None)
        return found


@pytest.fixture(
    params=[
        "register in hive", "entries to glue", "register in unity", "marks in hive",
        "to the catalog in hive", "to the storage in glue",
    ]
)  # fmt: skip
def case(request: pytest.FixtureRequest, lake: Path) -> Case:
    what: str = request.param
    if what.startswith("register"):
        target = request.getfixturevalue(what.rsplit(" ", 1)[1])
        write(lake, "a", "b")
        return Case("register", target, {"namespace": target.namespace()}, lake, directory=lake)
    if what == "entries to glue":
        hive, glue = request.getfixturevalue("hive"), request.getfixturevalue("glue")
        hive.make_namespace()
        register_rows(hive, "a", lake / "a.lance")
        pattern = {"include": [f"{hive.prefix}*"]}
        secrets = {"target": secrets_of(glue)}
        return Case("entries", glue, pattern, lake, hive, hive.prefix, secrets=secrets)
    place = request.getfixturevalue(what.rsplit(" ", 1)[1])
    place.make_namespace()
    select = {"include": [f"{place.prefix}*"]}
    if what == "marks in hive":
        make_theirs(place, lake, "upper_case_type", "stored_as_managed_table")
        return Case("properties", place, select, lake)
    table = register_rows(place, "a", lake / "a.lance")
    if what.startswith("to the storage"):
        with place.connect() as namespace:
            namespace.manage_table(table)
    options: dict[str, Any] = {**select, "to": what.split(" ")[2]}
    both = {"source": secrets_of(place), "target": secrets_of(place)}
    return Case("management", place, options, lake, secrets=both)


def test_killed_at_any_moment_and_run_again_it_ends_as_if_it_had_not_been(
    case: Case, migrations: Migrations, runner: Runner
) -> None:
    source = case.source.entries() if case.source else None
    before, data = case.state(), files(case.lake)
    given: dict[str, Any] = dict(case.secrets)
    with case.endpoints() as endpoints:
        run = Run(case.type, endpoints, migrations)
        run.plan(**case.options)
        moments = runner.moments_of(job_of(run.migration, **given))
        done = case.state()
        assert done != before
        assert run.undo().state is State.UNDONE
        assert case.state() == before
        for moment in range(moments):
            run.plan(**case.options)
            runner.kill(job_of(run.migration, dies_at=moment, **given))
            record = run.execute()
            assert record.state is State.DONE, moment
            assert case.state() == done, moment
            assert run.undo().state is State.UNDONE, moment
            assert case.state() == before, moment
    if case.source:
        assert case.source.entries() == source
    assert files(case.lake) == data


def test_undoing_that_is_killed_at_any_moment_is_resumed(
    case: Case, migrations: Migrations, runner: Runner
) -> None:
    before, data = case.state(), files(case.lake)
    given: dict[str, Any] = dict(case.secrets)
    with case.endpoints() as endpoints:
        run = Run(case.type, endpoints, migrations)
        run.plan(**case.options)
        run.execute()
        moments = runner.moments_of(job_of(run.migration, "undo", **given))
        assert case.state() == before
        for moment in range(moments):
            run.plan(**case.options)
            run.execute()
            runner.kill(job_of(run.migration, "undo", dies_at=moment, **given))
            assert run.undo().state is State.UNDONE, moment
            assert case.state() == before, moment
    assert files(case.lake) == data

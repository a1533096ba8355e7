"""Runs of maintenance: one worker per table, by a lease in the entry."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace.errors import ConcurrentModificationError, UnsupportedOperationError

from lance_bridge import maintenance_policy
from lance_bridge.dataset import (
    Action,
    Maintained,
    Result,
    compact,
    maintenance,
    maintenance_run,
    plan_maintenance,
    run_maintenance,
)
from lance_bridge.managed import lease as leases
from lance_bridge.managed.lease import leased
from lance_bridge.records import LEASE
from lance_bridge.table import Table

from .memory_catalog import (
    CAPABILITIES,
    DATASET,
    MemoryCatalog,
    MemoryNamespace,
    count_rows,
    create,
    start_server,
    stream,
)

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#running-maintenance")]

PATH = (*DATASET, "t")


@pytest.fixture
def namespace(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryNamespace:
    """A namespace of a catalog whose entries can change."""
    start_server(request.node.nodeid, replace(CAPABILITIES, no_alter=""))
    return MemoryNamespace(uri=request.node.nodeid, root=str(tmp_path / "lake"))


def make(ns: MemoryNamespace, name: str = "t", **properties: str) -> str:
    """Create a table of four fragments of three rows, and return where it is."""
    given = {"maintenance.min_fragments": "3", **properties}
    place = create(ns, [*DATASET, name], properties=given).location
    assert place is not None
    for _ in range(3):
        append(ns, name)
    return place


def append(ns: MemoryNamespace, name: str = "t") -> None:
    lance.write_dataset(
        pa.table({"a": [1, 2, 3]}), namespace_client=ns, table_id=[*DATASET, name], mode="append"
    )


def run(ns: MemoryNamespace, budget: timedelta | None = None) -> dict[str, Maintained]:
    done = run_maintenance(ns.tables, plan_maintenance(ns.tables), budget)
    return {each.path[-1]: each for each in done}


def table(ns: MemoryNamespace) -> Table:
    return ns.tables.load(PATH)


def hold(ns: MemoryNamespace, seconds_ago: float) -> None:
    """Leave the lease of another worker in the entry, which does not renew it."""
    entry = ns.server.tables[PATH]
    text = json.dumps({"holder": "other", "since": int((time.time() - seconds_ago) * 1000)})
    changed = {**entry.properties, LEASE: text}
    ns.server.tables[PATH] = replace(entry, properties=changed, revision=ns.server.stamp())


# -- runs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("manager", ["storage", "impl"])
def test_a_run_does_what_is_due_and_leaves_the_entry_as_it_was(
    namespace: MemoryNamespace, manager: str
) -> None:
    place = make(namespace, managed_by=manager)
    before = {*namespace.server.tables[PATH].properties}
    done = run(namespace)["t"]
    assert (done.result, done.actions, done.reason) == (Result.DONE, (Action.COMPACT,), "")
    assert done.after is not None
    assert (done.before.small_fragments, done.after.small_fragments) == (4, 0)
    assert {*namespace.server.tables[PATH].properties} == before
    assert count_rows(namespace, list(PATH)) == 12
    assert len(lance.dataset(place).get_fragments()) == 1
    assert run(namespace) == {}


def test_a_run_extends_indices_and_deletes_the_versions_that_are_not_kept(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (maintenance, maintenance_policy):
        monkeypatch.setattr(module, "LEAST_AGE", timedelta())
    kept = {"maintenance.keep_versions": "1", "maintenance.unindexed_rows": "1"}
    place = make(namespace, **kept)
    lance.dataset(place).create_scalar_index("a", "BTREE")
    append(namespace)
    done = run(namespace)["t"]
    assert (done.result, done.actions, done.reason) == (Result.DONE, tuple(Action), "")
    assert done.after is not None
    assert (done.before.unindexed_rows, done.after.unindexed_rows) == (3, 0)
    assert (done.before.old_versions, done.after.old_versions) == (5, 0)
    assert len(lance.dataset(place).versions()) == 1
    assert count_rows(namespace, list(PATH)) == 15


def test_no_action_begins_after_the_budget(namespace: MemoryNamespace) -> None:
    make(namespace)
    done = run(namespace, timedelta())["t"]
    assert (done.result, done.actions) == (Result.LEFT, ())
    assert LEASE not in namespace.server.tables[PATH].properties


def test_a_table_that_fails_does_not_end_the_run(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(namespace)
    make(namespace, "u")

    def fail(found: Table, **options: object) -> object:
        if found.path == PATH:
            raise UnsupportedOperationError("not this one")
        return compact(found, **options)  # type: ignore[arg-type]  # as given

    monkeypatch.setattr(maintenance_run, "compact", fail)
    done = run(namespace)
    assert (done["t"].result, done["t"].reason) == (Result.FAILED, "not this one")
    assert done["u"].result is Result.DONE


def test_without_compare_and_set_no_table_is_maintained(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: MemoryCatalog, record: object) -> str:
        raise UnsupportedOperationError(f"no compare-and-set: {record is not None}")

    place = make(namespace)
    monkeypatch.setattr(MemoryCatalog, "commit_guard", refuse)
    done = run(namespace)["t"]
    assert (done.result, done.actions) == (Result.FAILED, ())
    assert "compare-and-set" in done.reason
    assert len(lance.dataset(place).get_fragments()) == 4


# -- leases ----------------------------------------------------------------------------------------


def test_a_table_of_another_worker_is_left_for_later(namespace: MemoryNamespace) -> None:
    make(namespace)
    hold(namespace, 10)
    done = run(namespace)["t"]
    assert (done.result, done.actions) == (Result.LATER, ())
    assert "another worker" in done.reason


@pytest.mark.parametrize("seconds_ago", [leases.LEASE_SECONDS + 1, -leases.LEASE_SECONDS - 60])
def test_the_lease_of_a_dead_worker_ends(namespace: MemoryNamespace, seconds_ago: float) -> None:
    make(namespace)
    hold(namespace, seconds_ago)
    assert run(namespace)["t"].result is Result.DONE
    assert LEASE not in namespace.server.tables[PATH].properties


@pytest.mark.parametrize("manager", ["storage", "impl"])
def test_a_lost_lease_is_noticed_before_the_commit(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch, manager: str
) -> None:
    place = make(namespace, managed_by=manager)

    def lose(found: Table, *, on_progress: Callable[[int, int], None], **options: object) -> object:
        def progress(done: int, total: int) -> None:
            if done == total:
                hold(namespace, 0)
            on_progress(done, total)

        return compact(found, on_progress=progress, **options)  # type: ignore[arg-type]  # as given

    monkeypatch.setattr(maintenance_run, "compact", lose)
    done = run(namespace)["t"]
    assert (done.result, done.actions) == (Result.LATER, ())
    assert "lease" in done.reason
    assert len(lance.dataset(place).get_fragments()) == 4
    assert '"other"' in namespace.server.tables[PATH].properties[LEASE]


def test_a_lease_is_renewed_while_its_holder_works(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(namespace)
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.01)
    with leased(table(namespace)):
        first = namespace.server.tables[PATH].properties[LEASE]
        deadline = time.monotonic() + 30
        while namespace.server.tables[PATH].properties[LEASE] == first:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert LEASE not in namespace.server.tables[PATH].properties


def test_a_lease_survives_other_changes_of_the_entry(namespace: MemoryNamespace) -> None:
    make(namespace)
    with leased(table(namespace)) as held:
        table(namespace).change_properties({"owner": "ops"}, ())
        held.check()
        with pytest.raises(ConcurrentModificationError), leased(table(namespace)):
            pass
    assert namespace.server.tables[PATH].properties["owner"] == "ops"
    assert LEASE not in namespace.server.tables[PATH].properties


def test_a_lease_that_another_worker_takes_at_the_same_time_is_not_overwritten(
    namespace: MemoryNamespace,
) -> None:
    make(namespace)

    def be_overtaken(name: str, moment: str) -> None:
        if (name, moment) == ("alter_table", "before"):
            namespace.server.fault = None
            hold(namespace, 0)

    namespace.server.fault = be_overtaken
    assert run(namespace)["t"].result is Result.LATER
    assert '"other"' in namespace.server.tables[PATH].properties[LEASE]


def test_of_many_workers_one_at_a_time_has_a_table(namespace: MemoryNamespace) -> None:
    make(namespace)
    inside, most, taken = Counter[str](), [0], [0]
    lock = threading.Lock()

    def work() -> None:
        for _ in range(10):
            with suppress(ConcurrentModificationError), leased(table(namespace)):
                with lock:
                    inside["t"] += 1
                    most[0], taken[0] = max(most[0], inside["t"]), taken[0] + 1
                with lock:
                    inside["t"] -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert most == [1]
    assert taken[0] > 0


def test_two_runs_at_once_maintain_each_table_once(namespace: MemoryNamespace) -> None:
    places = [make(namespace, f"t{number}") for number in range(4)]
    plan = plan_maintenance(namespace.tables)
    found: list[Maintained] = []

    def work() -> None:
        found.extend(run_maintenance(namespace.tables, plan))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert Counter(each.path for each in found if each.actions) == {
        (*DATASET, f"t{number}"): 1 for number in range(4)
    }
    assert {each.result for each in found} <= {Result.DONE, Result.LATER}
    assert [len(lance.dataset(place).versions()) for place in places] == [5 + 1] * 4


# -- workers that die ------------------------------------------------------------------------------

SQLITE_CATALOG = Path(__file__).parents[2] / "examples" / "sqlite-catalog" / "src"
WORKER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from lance_catalog_sqlite import SqliteNamespace
from lance_bridge.dataset import maintenance_run, plan_maintenance, run_maintenance

compact = maintenance_run.compact

def stop_before_the_commit(table, **options):
    def progress(done, total):
        if done == total:
            Path(sys.argv[4]).touch()
            time.sleep(600)
    return compact(table, **{**options, "on_progress": progress})

maintenance_run.compact = stop_before_the_commit
namespace = SqliteNamespace(file=sys.argv[2], root=sys.argv[3])
list(run_maintenance(namespace.tables, plan_maintenance(namespace.tables)))
"""


@pytest.mark.servers  # another process imports Lance: about two CPU seconds
def test_a_killed_worker_leaves_a_table_that_reads_right_and_a_lease_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(SQLITE_CATALOG)
    from lance_catalog_sqlite import SqliteNamespace  # noqa: PLC0415 - it is found from here on

    file, root, reached = (str(tmp_path / name) for name in ("catalog.db", "lake", "reached"))
    with SqliteNamespace(file=file, root=root) as namespace:
        namespace.create_namespace(api.CreateNamespaceRequest(id=["sales"]))
        request = api.CreateTableRequest(
            id=["sales", "t"], properties={"maintenance.min_fragments": "3"}
        )
        place = namespace.create_table(request, stream(3)).location
        assert place is not None
        for _ in range(3):
            lance.write_dataset(pa.table({"a": [1, 2, 3]}), place, mode="append")
        arguments = (str(SQLITE_CATALOG), file, root, reached)
        worker = subprocess.Popen([sys.executable, "-c", WORKER, *arguments])
        try:
            deadline = time.monotonic() + 60
            while not Path(reached).exists():
                assert worker.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.01)
        finally:
            worker.kill()
            worker.wait()
        assert lance.dataset(place).count_rows() == 12
        plan = plan_maintenance(namespace.tables)
        [later] = run_maintenance(namespace.tables, plan)
        assert later.result is Result.LATER
        monkeypatch.setattr(leases, "LEASE_SECONDS", 0.0)
        [done] = run_maintenance(namespace.tables, plan)
        assert done.actions == (Action.COMPACT,)
        assert lance.dataset(place).count_rows() == 12
        assert LEASE not in namespace.tables.load(("sales", "t")).record.properties

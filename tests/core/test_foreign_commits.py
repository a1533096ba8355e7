"""The property `managed.foreign_commits`: what is done with versions past the catalog."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pytest
from lance_namespace import errors
from lance_namespace_urllib3_client.models import TableVersion

from lance_bridge.catalog import NamespaceRecord
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.managed import commits, compare_and_set
from lance_bridge.managed.out_of_band import OutOfBand, quarantine
from lance_bridge.managed.version_directory import ManagedDirectory
from lance_bridge.managed_state import as_unmanaged
from lance_bridge.records import FOREIGN_COMMITS
from lance_bridge.storage.manifests import Manifest, Scheme, name_of
from lance_bridge.storage.store import TableFiles
from lance_bridge.testing.calls import Calls
from lance_bridge.testing.concurrency import answers_only, race

from . import managed_tables
from .managed_tables import KEY, MANAGED, Death, DyingClient, die, table
from .memory_catalog import DATASET, TABLE, MemoryNamespace, Moment, create, raiser, stage, stream

pytestmark = [
    pytest.mark.quick,
    pytest.mark.usefixtures("able"),
    pytest.mark.spec("managed.md#commits-that-bypass-the-catalog"),
]

NOTHING = OutOfBand((), ())


@dataclass
class ManagedTable:
    """The table of a test in its namespace."""

    ns: MemoryNamespace

    def create(self, policy: str) -> ManagedTable:
        """Create it with the rows 0, 1 and 2, and with what is done with foreign commits."""
        create(self.ns, TABLE, properties={**MANAGED, FOREIGN_COMMITS: policy})
        return self

    def another(self) -> ManagedTable:
        """Return the same as another client has it."""
        return ManagedTable(managed_tables.another(self.ns))

    @property
    def directory(self) -> Path:
        return managed_tables.directory(self.ns)

    @property
    def version(self) -> int:
        """The latest version that the entry names."""
        return managed_tables.state(self.ns).version

    def open(self) -> lance.LanceDataset:
        return lance.dataset(namespace_client=self.ns, table_id=TABLE)

    def rows(self) -> list[int]:
        return managed_tables.rows(self.ns)

    def versions(self) -> list[int]:
        return managed_tables.versions(self.ns)

    def out_of_band(self) -> OutOfBand:
        return self.ns.list_out_of_band_versions(TABLE)

    def insert(self) -> None:
        managed_tables.insert(self.ns)

    def append(self, value: int) -> lance.LanceDataset:
        return managed_tables.append(self.ns, value)

    def append_past_the_catalog(self, *values: int) -> None:
        """Append rows past the catalog, each in a version of its own."""
        for value in values:
            managed_tables.append_past_the_catalog(self.ns, value)

    def stage(self) -> Callable[[], TableVersion]:
        """Stage the next version, with a row of 100; return what commits it, as pylance does."""
        version, staged = stage(self.ns)

        def commit() -> TableVersion:
            created = managed_tables.commit(self.ns, version, str(staged)).version
            assert created is not None
            return created

        return commit

    def meanwhile(self, moment: Moment, act: Callable[[], object]) -> None:
        managed_tables.meanwhile(self.ns, moment, act)

    def set_policy(self, policy: str) -> None:
        """Have the entry say what is done with foreign commits."""
        record = self.ns.server.tables[KEY]
        properties = {**record.properties, FOREIGN_COMMITS: policy}
        self.ns.server.tables[KEY] = record.with_properties(properties)


@pytest.fixture
def hiding(namespace: MemoryNamespace) -> ManagedTable:
    return ManagedTable(namespace).create("hide")


@pytest.fixture
def adopting(namespace: MemoryNamespace) -> ManagedTable:
    return ManagedTable(namespace).create("adopt")


@pytest.fixture
def refusing(namespace: MemoryNamespace) -> ManagedTable:
    return ManagedTable(namespace).create("refuse")


def commit_append(managed: ManagedTable, **more: Any) -> None:
    """Append a row of 8 as distributed writers do: its fragments first, then one commit."""
    dataset = managed.open()
    fragments = lance.fragment.write_fragments(table(8), dataset)
    lance.LanceDataset.commit(
        dataset.uri,
        lance.LanceOperation.Append(fragments),
        read_version=dataset.version,
        namespace_client=managed.ns,
        table_id=TABLE,
        **more,
    )


# -- the property ----------------------------------------------------------------------------------


@pytest.mark.spec("docs/how-to/govern-commits.md#which-clients-commit-through-the-catalog")
@pytest.mark.parametrize("value", ["hide", "ADOPT", "refuse"])
def test_a_table_shows_what_it_does_with_foreign_commits(
    namespace: MemoryNamespace, value: str
) -> None:
    ManagedTable(namespace).create(value)
    found = namespace.describe_table(api.DescribeTableRequest(id=TABLE)).properties
    assert found == {FOREIGN_COMMITS: value.lower()}


@pytest.mark.spec("common.md#createnamespace")
def test_an_unknown_value_is_invalid_input(namespace: MemoryNamespace) -> None:
    unknown = {**MANAGED, FOREIGN_COMMITS: "ignore"}
    other = api.CreateNamespaceRequest(id=[*DATASET[:-1], "other"], properties=unknown)
    with pytest.raises(errors.InvalidInputError, match="one of hide, adopt, refuse, not 'ignore'"):
        create(namespace, TABLE, properties=unknown)
    with pytest.raises(errors.InvalidInputError, match="one of hide, adopt, refuse"):
        namespace.declare_table(api.DeclareTableRequest(id=TABLE, properties=unknown))
    with pytest.raises(errors.InvalidInputError, match="one of hide, adopt, refuse"):
        namespace.create_namespace(other)


def test_an_update_changes_it(hiding: ManagedTable) -> None:
    adopt = {FOREIGN_COMMITS: "adopt"}
    Calls(hiding.ns).call("update_table", TABLE, updates=[["a", "a"]], properties=adopt)
    hiding.append_past_the_catalog(8)
    assert hiding.rows() == [0, 1, 2, 8]


def test_a_table_that_is_replaced_keeps_it(refusing: ManagedTable) -> None:
    refusing.ns.create_table(
        api.CreateTableRequest(id=TABLE, mode="Overwrite", properties={"owner": "me"}), stream(1)
    )
    found = refusing.ns.describe_table(api.DescribeTableRequest(id=TABLE)).properties
    assert found == {FOREIGN_COMMITS: "refuse", "owner": "me"}


def test_new_managed_tables_take_it_from_their_namespace(namespace: MemoryNamespace) -> None:
    path, namespaces = tuple(DATASET), namespace.server.namespaces
    namespaces[path] = NamespaceRecord(path, {**MANAGED, FOREIGN_COMMITS: "adopt"})
    found = []
    for name, properties in (("a", None), ("b", {FOREIGN_COMMITS: "hide"})):
        create(namespace, [*DATASET, name], properties=properties)
        request = api.DescribeTableRequest(id=[*DATASET, name])
        found.append((namespace.describe_table(request).properties or {})[FOREIGN_COMMITS])
    assert found == ["adopt", "hide"]
    namespaces[path] = NamespaceRecord(path, {FOREIGN_COMMITS: "ignore"})
    create(namespace, TABLE)
    with pytest.raises(errors.InvalidInputError, match=r"Namespace 'eu\.shop\.sales': "):
        namespace.manage_table(TABLE)


def test_an_unknown_value_in_an_entry_stops_writers_and_no_reader(hiding: ManagedTable) -> None:
    hiding.set_policy("ignore")
    hiding.append_past_the_catalog(8)
    assert hiding.rows() == [0, 1, 2]
    with pytest.raises(errors.InvalidTableStateError, match="one of hide, adopt, refuse"):
        hiding.insert()


# -- writers past the catalog ----------------------------------------------------------------------

PAST: dict[str, Callable[[ManagedTable], object]] = {
    "a location": lambda t: lance.dataset(t.open().uri).insert(table(8)),
    "a pickled dataset": lambda t: pickle.loads(pickle.dumps(t.open())).insert(table(8)),
    "a commit without the flag": commit_append,
}


@pytest.mark.spec(
    "clients.md#pylance",
    "clients.md#which-writers-commit-through-the-catalog",
    "operations.md#list_out_of_band_versions",
)
@pytest.mark.parametrize("writer", PAST)
def test_pylance_s_writers_past_the_catalog_are_named(hiding: ManagedTable, writer: str) -> None:
    PAST[writer](hiding)
    found = hiding.out_of_band()
    assert [each.version for each in found.versions] == [2]
    assert found.writers == (f"lance {lance.__version__}",)
    assert hiding.rows() == [0, 1, 2]
    assert hiding.out_of_band().writers == found.writers


@pytest.mark.spec("clients.md#pylance", "clients.md#which-writers-commit-through-the-catalog")
def test_a_commit_of_fragments_with_the_flag_goes_through_the_catalog(hiding: ManagedTable) -> None:
    commit_append(hiding, namespace_client_managed_versioning=True)
    assert hiding.rows() == [0, 1, 2, 8]
    assert hiding.out_of_band() == NOTHING


@pytest.mark.spec("managed.md#out-of-band-versions")
def test_a_dataset_that_was_open_before_an_overwrite_past_the_catalog_is_opened_again(
    hiding: ManagedTable,
) -> None:
    opened = hiding.open()
    lance.write_dataset(table(8), str(hiding.directory), mode="overwrite")
    with pytest.raises(OSError, match="Incompatible transaction"):
        opened.insert(table(9))
    hiding.open().insert(table(9))
    assert hiding.rows() == [0, 1, 2, 9]


# -- adopt -----------------------------------------------------------------------------------------

READS: dict[str, Callable[[ManagedTable], object]] = {
    "count": lambda t: t.ns.count_table_rows(api.CountTableRowsRequest(id=TABLE)).count == 4,
    "versions": lambda t: t.versions() == [1, 2],
    "latest": lambda t: Calls(t.ns).call("describe_table_version", TABLE).version.version == 2,
    "one": lambda t: Calls(t.ns).call("describe_table_version", TABLE, version=2),
}


@pytest.mark.parametrize("read", READS)
def test_every_read_of_the_latest_version_adopts(adopting: ManagedTable, read: str) -> None:
    adopting.append_past_the_catalog(8)
    assert READS[read](adopting)
    assert adopting.version == 2


def test_a_foreign_version_is_adopted_by_the_next_write(adopting: ManagedTable) -> None:
    adopting.append_past_the_catalog(8)
    adopting.insert()
    adopting.append_past_the_catalog(9)
    assert adopting.append(10).version == 5
    assert adopting.rows() == [0, 0, 1, 2, 8, 9, 10]
    assert adopting.versions() == [1, 2, 3, 4, 5]


def test_a_dataset_that_was_open_before_writes_on_top_of_what_it_adopts(
    adopting: ManagedTable,
) -> None:
    opened = adopting.open()
    adopting.append_past_the_catalog(8, 9)
    opened.insert(table(10))
    assert adopting.rows() == [0, 1, 2, 8, 9, 10]
    assert adopting.version == 4


def restore_first(dataset: lance.LanceDataset) -> None:
    dataset.checkout_version(1).restore()  # type: ignore[no-untyped-call]  # pylance gives it no types


FOREIGN: dict[str, tuple[Callable[[lance.LanceDataset], object], list[int]]] = {
    "append": (lambda ds: ds.insert(table(8)), [0, 1, 2, 7, 8]),
    "overwrite": (lambda ds: lance.write_dataset(table(8), ds.uri, mode="overwrite"), [8]),
    "delete": (lambda ds: ds.delete("a = 0"), [1, 2, 7]),
    "update": (lambda ds: ds.update({"a": "50"}, where="a = 0"), [1, 2, 7, 50]),
    "compaction": (lambda ds: ds.optimize.compact_files(), [0, 1, 2, 7]),
    "restore": (restore_first, [0, 1, 2]),
    "column": (lambda ds: ds.add_columns({"b": "a + 1"}), [0, 1, 2, 7]),
    "index": (lambda ds: ds.create_scalar_index("a", "BTREE"), [0, 1, 2, 7]),
}


@pytest.mark.parametrize("change", FOREIGN)
def test_every_change_by_uri_is_adopted(adopting: ManagedTable, change: str) -> None:
    adopting.append(7)
    make, expected = FOREIGN[change]
    make(lance.dataset(str(adopting.directory)))
    assert adopting.rows() == expected
    assert adopting.version > 2
    assert adopting.out_of_band() == NOTHING


def test_a_declared_table_adopts_its_first_version(namespace: MemoryNamespace) -> None:
    properties = {**MANAGED, FOREIGN_COMMITS: "adopt"}
    namespace.declare_table(api.DeclareTableRequest(id=TABLE, properties=properties))
    declared = ManagedTable(namespace)
    lance.write_dataset(table(8), str(declared.directory))
    assert declared.rows() == [8]
    assert declared.version == 1


def test_a_version_on_top_of_one_that_is_quarantined_is_not_adopted(hiding: ManagedTable) -> None:
    commit = hiding.stage()
    hiding.meanwhile("after", lambda: hiding.append_past_the_catalog(666, 667))
    commit()
    hiding.set_policy("adopt")
    assert hiding.rows() == [0, 1, 2, 100]
    assert hiding.append(9).version == 3
    assert hiding.rows() == [0, 1, 2, 9, 100]
    assert hiding.out_of_band().quarantined_versions == (3, 2)


def test_a_version_on_top_of_one_that_was_discarded_is_not_adopted(hiding: ManagedTable) -> None:
    hiding.append_past_the_catalog(8)
    foreign = lance.dataset(str(hiding.directory))
    assert hiding.append(9).version == 2
    hiding.ns.discard_out_of_band_versions(TABLE, [2])
    hiding.set_policy("adopt")
    foreign.insert(table(10))
    assert hiding.rows() == [0, 1, 2, 9]
    assert hiding.version == 2
    assert hiding.out_of_band().quarantined_versions == (3,)


@pytest.mark.parametrize("broken", ["manifest", "transaction"])
def test_what_cannot_be_read_is_not_adopted(adopting: ManagedTable, broken: str) -> None:
    adopting.append_past_the_catalog(8)
    place = adopting.directory
    if broken == "manifest":
        (place / "_versions" / name_of(2, Scheme.V2)).write_bytes(b"not a manifest")
    else:
        for each in (place / "_transactions").glob("1-*.txn"):
            each.unlink()
    assert adopting.rows() == [0, 1, 2]
    adopting.insert()
    assert adopting.rows() == [0, 0, 1, 2]


def test_a_reader_that_may_not_write_reads_what_is_committed(
    adopting: ManagedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    adopting.append_past_the_catalog(8)
    read_only = raiser(errors.PermissionDeniedError("read only"))
    monkeypatch.setattr(TableFiles, "put_own", read_only)
    assert adopting.rows() == [0, 1, 2]
    monkeypatch.undo()
    assert adopting.rows() == [0, 1, 2, 8]


# -- refuse ----------------------------------------------------------------------------------------


def test_a_foreign_version_stops_commits_and_no_reader(refusing: ManagedTable) -> None:
    refusing.insert()
    refusing.append_past_the_catalog(8, 9)
    assert refusing.rows() == [0, 0, 1, 2]
    assert refusing.versions() == [1, 2]
    with pytest.raises(errors.InvalidTableStateError, match=r"=refuse\): 3, 4\. Use.*discard"):
        refusing.insert()
    assert refusing.version == 2
    assert [each.version for each in refusing.out_of_band().versions] == [3, 4]


@pytest.mark.parametrize(
    ("solve", "given", "expected"),
    [("adopt", [], [0, 0, 1, 2, 8]), ("discard", [[2]], [0, 0, 1, 2])],
)
def test_commits_go_on_after_adopting_or_discarding(
    refusing: ManagedTable, solve: str, given: list[list[int]], expected: list[int]
) -> None:
    refusing.append_past_the_catalog(8)
    with pytest.raises(errors.InvalidTableStateError):
        refusing.insert()
    getattr(refusing.ns, f"{solve}_out_of_band_versions")(TABLE, *given)
    refusing.insert()
    assert refusing.rows() == expected


def test_pylance_s_own_commit_is_refused_and_lance_prints_the_reason(
    refusing: ManagedTable, capfd: pytest.CaptureFixture[str]
) -> None:
    refusing.append_past_the_catalog(8)
    with pytest.raises(OSError, match="is unknown"):
        refusing.append(9)
    assert "accepts no commit" in capfd.readouterr().err
    assert refusing.version == 1


def test_a_staged_commit_of_the_next_version_is_refused(refusing: ManagedTable) -> None:
    commit = refusing.stage()
    refusing.append_past_the_catalog(8)
    with pytest.raises(errors.InvalidTableStateError, match=r": 2\. Use"):
        commit()
    assert refusing.rows() == [0, 1, 2]


def test_a_version_that_lost_to_a_commit_stops_the_next_one(refusing: ManagedTable) -> None:
    refusing.meanwhile("after", lambda: refusing.append_past_the_catalog(666))
    refusing.insert()
    with pytest.raises(errors.InvalidTableStateError, match=r": 2\. Use"):
        refusing.insert()
    refusing.ns.discard_out_of_band_versions(TABLE, [2])
    refusing.insert()
    assert refusing.rows() == [0, 0, 0, 1, 2]


def test_a_repeated_request_of_a_committed_version_is_answered(refusing: ManagedTable) -> None:
    commit = refusing.stage()
    first = commit()
    refusing.append_past_the_catalog(8)
    assert commit() == first


# -- crashes, lost replies and races ---------------------------------------------------------------

COMMIT, INSERT, ADOPT = "a commit", "a commit on top of a foreign version", "an adoption"


def prepare(other: ManagedTable, case: str) -> Callable[[], object]:
    """Return what is interrupted."""
    if case == COMMIT:
        return other.stage()
    other.append_past_the_catalog(8)
    return other.insert if case == INSERT else other.rows


@pytest.mark.parametrize("case", [COMMIT, INSERT, ADOPT])
def test_a_client_that_dies_at_any_step_leaves_a_table_that_others_read_and_write(
    adopting: ManagedTable, case: str
) -> None:
    outcomes = []
    for steps in count():
        act = prepare(adopting.another(), case)
        with pytest.MonkeyPatch.context() as patch:
            client = DyingClient(adopting.ns.server, patch, steps)
            # Lance reports a death inside of its calls as an error of its own.
            with suppress(Death, errors.LanceNamespaceError, OSError, ValueError):
                act()
        adopting.ns.server.fault = None
        outcomes.append(adopting.another().rows())
        adopting.insert()
        assert adopting.rows() == sorted([0, *outcomes[-1]]), steps
        adopting.ns.drop_table(api.DropTableRequest(id=TABLE))
        if client.left >= 0:
            break
        adopting.create("adopt")
    foreign = [] if case == COMMIT else [8]
    own = {COMMIT: [100], INSERT: [0], ADOPT: []}[case]
    without, complete = sorted([0, 1, 2, *foreign]), sorted([0, 1, 2, *foreign, *own])
    began = outcomes.index(complete)
    assert outcomes == [without] * began + [complete] * (len(outcomes) - began)
    assert len(outcomes) > 4  # each commit changes the storage before and after the entry


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_adoption_whose_reply_was_lost_is_made_once(
    adopting: ManagedTable, moment: Moment
) -> None:
    adopting.append_past_the_catalog(8)
    adopting.meanwhile(moment, raiser(OutcomeUnknownError("lost")))
    assert adopting.rows() == [0, 1, 2, 8]
    assert adopting.version == 2


def test_a_late_deletion_does_not_take_an_adopted_version_away(adopting: ManagedTable) -> None:
    adopting.append_past_the_catalog(8)
    final = adopting.directory / "_versions" / name_of(2, Scheme.V2)
    # A client that hides such versions has copied this one, and was held up before the deletion.
    final.with_name(final.name + "-foreign").write_bytes(final.read_bytes())
    assert adopting.rows() == [0, 1, 2, 8]
    final.unlink()
    assert adopting.rows() == [0, 1, 2, 8]


def test_a_commit_that_comes_first_is_not_lost_to_an_adoption(
    adopting: ManagedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = adopting.stage()
    adopting.append_past_the_catalog(8)
    swap = compare_and_set.swap

    def commit_first(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        adopting.set_policy("hide")  # as it is for a client that looked before the append
        commit()
        return swap(*args, **kwargs)

    monkeypatch.setattr(compare_and_set, "swap", commit_first)
    assert adopting.rows() == [0, 1, 2, 100]
    assert adopting.version == 2
    assert adopting.out_of_band().quarantined_versions == (2,)


# -- adopt: commits of others meanwhile ------------------------------------------------------------


@pytest.mark.parametrize("moment", ["before", "after"])
def test_no_version_is_lost_that_is_written_past_the_catalog_during_a_commit(
    adopting: ManagedTable, moment: Moment
) -> None:
    commit = adopting.stage()
    adopting.meanwhile(moment, lambda: adopting.append_past_the_catalog(8))
    commit()
    assert adopting.rows() == [0, 1, 2, 8, 100]
    assert adopting.out_of_band() == NOTHING


def before_a_commit(patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Have something happen right before the next commit."""
    do = commits.CatalogCommit.do

    def do_after_another(self: commits.CatalogCommit) -> Manifest:
        patch.undo()
        act()
        return do(self)

    patch.setattr(commits.CatalogCommit, "do", do_after_another)


def test_a_commit_whose_version_was_just_written_past_the_catalog_is_rebased(
    adopting: ManagedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_a_commit(monkeypatch, lambda: adopting.append_past_the_catalog(8))
    assert adopting.append(9).version == 3
    assert adopting.rows() == [0, 1, 2, 8, 9]


def test_a_commit_whose_rival_past_the_catalog_cannot_be_adopted_succeeds(
    adopting: ManagedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = adopting.stage()
    final = adopting.directory / "_versions" / name_of(2, Scheme.V2)
    before_a_commit(monkeypatch, lambda: final.write_bytes(b"not a manifest"))
    commit()
    assert adopting.rows() == [0, 1, 2, 100]
    assert adopting.out_of_band().quarantined_versions == (2,)


@pytest.mark.parametrize("is_read_first", [True, False])
def test_a_version_whose_writer_died_before_the_commit_is_adopted_and_its_request_answered(
    adopting: ManagedTable, is_read_first: bool
) -> None:
    commit = adopting.stage()
    adopting.meanwhile("before", die)
    with pytest.raises(Death):
        commit()
    if is_read_first:
        assert adopting.rows() == [0, 1, 2, 100]
    assert commit().version == 2
    assert adopting.rows() == [0, 1, 2, 100]


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_commit_that_another_client_adopts_is_acknowledged(
    adopting: ManagedTable, is_refused: bool
) -> None:
    def adopt() -> None:
        adopting.another().rows()
        if is_refused:
            raise errors.PermissionDeniedError("no")

    commit = adopting.stage()
    adopting.meanwhile("before", adopt)
    assert commit().version == adopting.version == 2
    assert adopting.rows() == [0, 1, 2, 100]


@pytest.mark.parametrize(
    "error", [errors.PermissionDeniedError, errors.ConcurrentModificationError]
)
def test_a_commit_that_the_catalog_refuses_is_not_adopted(
    adopting: ManagedTable, error: type[Exception]
) -> None:
    commit = adopting.stage()
    adopting.ns.server.fault = raiser(error("no"))
    with pytest.raises(error):
        commit()
    adopting.ns.server.fault = None
    assert adopting.rows() == [0, 1, 2]
    assert adopting.out_of_band().quarantined_versions == (2,)


def test_a_commit_waits_for_a_client_that_quarantines_manifests(adopting: ManagedTable) -> None:
    commit = adopting.stage()
    adopting.meanwhile("before", lambda: quarantine(adopting.ns.tables.load_by_id(TABLE)))
    commit()
    assert adopting.rows() == [0, 1, 2, 100]
    assert adopting.version == 2


def test_a_commit_waits_until_a_new_hold_has_ended(
    adopting: ManagedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = adopting.stage()

    def hold() -> None:
        table = adopting.ns.tables.load_by_id(TABLE)
        held = compare_and_set.swap(table, table.managed_state().hold(brief=True))
        monkeypatch.setattr(time, "sleep", lambda _: compare_and_set.release(held))

    adopting.meanwhile("before", hold)
    commit()
    assert adopting.rows() == [0, 1, 2, 100]


def test_a_commit_to_a_table_that_is_released_meanwhile_is_one_of_its_storage(
    adopting: ManagedTable,
) -> None:
    def release() -> None:
        entries = adopting.ns.server.tables
        entries[KEY] = replace(as_unmanaged(entries[KEY]), revision="released")

    commit = adopting.stage()
    adopting.meanwhile("before", release)
    commit()
    assert adopting.rows() == [0, 1, 2, 100]


def test_many_writers_on_both_ways_lose_no_row(adopting: ManagedTable) -> None:
    def write(number: int) -> None:
        for turn in range(5):
            value = 100 * number + turn
            if number:
                adopting.another().append(value)
            else:
                adopting.append_past_the_catalog(value)

    answers_only(race(write, 4))
    expected = [0, 1, 2, *(100 * number + turn for number in range(4) for turn in range(5))]
    assert adopting.rows() == sorted(expected)
    assert adopting.version == 21
    assert adopting.out_of_band() == NOTHING


# -- adopt: commits that are refused ---------------------------------------------------------------


def test_a_refused_commit_that_is_adopted_while_it_is_withdrawn_keeps_its_version(
    adopting: ManagedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = adopting.stage()
    withdraw = ManagedDirectory.withdraw

    def withdraw_late(self: ManagedDirectory, name: str) -> None:
        monkeypatch.undo()
        assert adopting.another().rows() == [0, 1, 2, 100]
        withdraw(self, name)

    monkeypatch.setattr(ManagedDirectory, "withdraw", withdraw_late)
    adopting.meanwhile("before", raiser(errors.PermissionDeniedError("no")))
    with pytest.raises(errors.PermissionDeniedError):
        commit()
    assert adopting.rows() == [0, 1, 2, 100]
    assert adopting.versions() == [1, 2]


def test_a_refused_commit_that_cannot_be_withdrawn_has_an_unknown_outcome(
    adopting: ManagedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = adopting.stage()

    def refuse_and_lose_storage() -> None:
        lost = raiser(errors.ServiceUnavailableError("no answer"))
        monkeypatch.setattr(TableFiles, "remove", lost)
        raise errors.PermissionDeniedError("no")

    adopting.meanwhile("before", refuse_and_lose_storage)
    with pytest.raises(OutcomeUnknownError, match="may be adopted later"):
        commit()
    monkeypatch.undo()
    assert adopting.rows() == [0, 1, 2, 100]

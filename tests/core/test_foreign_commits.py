"""The property `managed.foreign_commits`: what becomes of versions written past the catalog."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lance
import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge.catalog import NamespaceRecord
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.managed import compare_and_set
from lance_bridge.managed.out_of_band import OutOfBand
from lance_bridge.records import FOREIGN_COMMITS
from lance_bridge.storage.manifests import Scheme, TableFiles, name_of

from .building import DATASET, TABLE, create, stream
from .managing import (
    KEY,
    MANAGED,
    able,  # noqa: F401 - a fixture
    append,
    append_past_the_catalog,
    commit,
    directory,
    fail_once,
    rows,
    state,
    table,
    versions,
)
from .memory_catalog import MemoryNamespace, MemoryServer
from .staging import stage

pytestmark = pytest.mark.usefixtures("able")

NOTHING = OutOfBand((), ())


def create_with(ns: MemoryNamespace, value: str) -> None:
    create(ns, TABLE, 3, properties={**MANAGED, FOREIGN_COMMITS: value})


def set_policy(server: MemoryServer, value: str) -> None:
    record = server.tables[KEY]
    server.tables[KEY] = record.with_properties({**record.properties, FOREIGN_COMMITS: value})


def insert(ns: MemoryNamespace) -> None:
    """Add a row of 0."""
    ns.insert_into_table(api.InsertIntoTableRequest(id=TABLE), stream(1))


def open_dataset(ns: MemoryNamespace) -> lance.LanceDataset:
    return lance.dataset(namespace_client=ns, table_id=TABLE)


# -- the property ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["hide", "ADOPT", "refuse"])
def test_a_table_shows_what_it_does_with_foreign_commits(
    namespace: MemoryNamespace, value: str
) -> None:
    create_with(namespace, value)
    found = namespace.describe_table(api.DescribeTableRequest(id=TABLE)).properties
    assert found == {FOREIGN_COMMITS: value.lower()}


def test_an_unknown_value_is_invalid_input(namespace: MemoryNamespace) -> None:
    unknown = {**MANAGED, FOREIGN_COMMITS: "ignore"}
    with pytest.raises(errors.InvalidInputError, match="one of hide, adopt, refuse, not 'ignore'"):
        create(namespace, TABLE, properties=unknown)
    with pytest.raises(errors.InvalidInputError, match="one of hide, adopt, refuse"):
        namespace.declare_table(api.DeclareTableRequest(id=TABLE, properties=unknown))
    with pytest.raises(errors.InvalidInputError, match="one of hide, adopt, refuse"):
        namespace.create_namespace(
            api.CreateNamespaceRequest(id=[*DATASET[:-1], "other"], properties=unknown)
        )


def test_an_update_changes_it(namespace: MemoryNamespace, server: MemoryServer) -> None:
    create_with(namespace, "hide")
    namespace.update_table(
        api.UpdateTableRequest(
            id=TABLE, updates=[["a", "a"]], predicate="a = 0", properties={FOREIGN_COMMITS: "adopt"}
        )
    )
    append_past_the_catalog(server, 8)
    assert rows(namespace) == [0, 1, 2, 8]


def test_a_table_that_is_replaced_keeps_it(namespace: MemoryNamespace) -> None:
    create_with(namespace, "refuse")
    namespace.create_table(
        api.CreateTableRequest(id=TABLE, mode="Overwrite", properties={"owner": "me"}), stream(1)
    )
    found = namespace.describe_table(api.DescribeTableRequest(id=TABLE)).properties
    assert found == {FOREIGN_COMMITS: "refuse", "owner": "me"}


def test_new_managed_tables_take_it_from_their_namespace(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    path = tuple(DATASET)
    server.namespaces[path] = NamespaceRecord(path, {**MANAGED, FOREIGN_COMMITS: "adopt"})
    found = []
    for name, properties in (("a", None), ("b", {FOREIGN_COMMITS: "hide"})):
        create(namespace, [*DATASET, name], properties=properties)
        request = api.DescribeTableRequest(id=[*DATASET, name])
        found.append((namespace.describe_table(request).properties or {})[FOREIGN_COMMITS])
    assert found == ["adopt", "hide"]


def test_an_unknown_value_in_an_entry_stops_writers_and_no_reader(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_with(namespace, "hide")
    set_policy(server, "ignore")
    append_past_the_catalog(server, 8)
    assert rows(namespace) == [0, 1, 2]
    with pytest.raises(errors.InvalidTableStateError, match="one of hide, adopt, refuse"):
        insert(namespace)


# -- adopt -----------------------------------------------------------------------------------------


def test_a_foreign_version_is_adopted_by_the_next_read(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_with(namespace, "adopt")
    append_past_the_catalog(server, 8)
    append_past_the_catalog(server, 9)
    assert rows(namespace) == [0, 1, 2, 8, 9]
    assert state(server).version == 3
    assert namespace.list_out_of_band_versions(TABLE) == NOTHING


READS: dict[str, Callable[[MemoryNamespace], object]] = {
    "count": lambda ns: ns.count_table_rows(api.CountTableRowsRequest(id=TABLE)).count == 4,
    "versions": lambda ns: versions(ns) == [1, 2],
    "latest": lambda ns: (
        ns.describe_table_version(api.DescribeTableVersionRequest(id=TABLE)).version.version == 2
    ),
    "one": lambda ns: ns.describe_table_version(
        api.DescribeTableVersionRequest(id=TABLE, version=2)
    ),
}


@pytest.mark.parametrize("read", READS)
def test_every_read_of_the_latest_version_adopts(
    namespace: MemoryNamespace, server: MemoryServer, read: str
) -> None:
    create_with(namespace, "adopt")
    append_past_the_catalog(server, 8)
    assert READS[read](namespace)
    assert state(server).version == 2


def test_a_foreign_version_is_adopted_by_the_next_write(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_with(namespace, "adopt")
    append_past_the_catalog(server, 8)
    insert(namespace)
    append_past_the_catalog(server, 9)
    assert append(namespace, 10).version == 5
    assert rows(namespace) == [0, 0, 1, 2, 8, 9, 10]
    assert versions(namespace) == [1, 2, 3, 4, 5]


def test_a_dataset_that_was_open_before_writes_on_top_of_what_it_adopts(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_with(namespace, "adopt")
    opened = open_dataset(namespace)
    append_past_the_catalog(server, 8)
    append_past_the_catalog(server, 9)
    opened.insert(table(10))
    assert rows(namespace) == [0, 1, 2, 8, 9, 10]
    assert state(server).version == 4


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
def test_every_change_by_uri_is_adopted(
    namespace: MemoryNamespace, server: MemoryServer, change: str
) -> None:
    create_with(namespace, "adopt")
    append(namespace, 7)
    make, expected = FOREIGN[change]
    make(lance.dataset(str(directory(server))))
    assert rows(namespace) == expected
    assert state(server).version > 2
    assert namespace.list_out_of_band_versions(TABLE) == NOTHING


def test_a_declared_table_adopts_its_first_version(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    properties = {**MANAGED, FOREIGN_COMMITS: "adopt"}
    namespace.declare_table(api.DeclareTableRequest(id=TABLE, properties=properties))
    lance.write_dataset(table(8), str(directory(server)))
    assert rows(namespace) == [8]
    assert state(server).version == 1


def test_a_version_that_a_commit_has_overtaken_is_quarantined(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_with(namespace, "adopt")
    version, staged = stage(namespace)

    def fault(change: str, moment: str) -> None:
        if (change, moment) == ("alter_table", "after"):
            server.fault = None
            append_past_the_catalog(server, 666)
            append_past_the_catalog(server, 667)

    server.fault = fault
    commit(namespace, version, str(staged))
    # Version 3 is based on the version 2 that lost.
    assert rows(namespace) == [0, 1, 2, 100]
    assert append(namespace, 9).version == 3
    assert rows(namespace) == [0, 1, 2, 9, 100]
    found = namespace.list_out_of_band_versions(TABLE)
    assert sorted(map(str, found.quarantined_versions)) == ["2", "3"]


def test_a_version_on_top_of_one_that_was_discarded_is_not_adopted(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_with(namespace, "hide")
    append_past_the_catalog(server, 8)
    foreign = lance.dataset(str(directory(server)))
    assert append(namespace, 9).version == 2
    namespace.discard_out_of_band_versions(TABLE)
    set_policy(server, "adopt")
    foreign.insert(table(10))
    assert rows(namespace) == [0, 1, 2, 9]
    assert state(server).version == 2
    assert namespace.list_out_of_band_versions(TABLE).quarantined_versions == (3,)


@pytest.mark.parametrize("broken", ["manifest", "transaction"])
def test_what_cannot_be_read_is_not_adopted(
    namespace: MemoryNamespace, server: MemoryServer, broken: str
) -> None:
    create_with(namespace, "adopt")
    append_past_the_catalog(server, 8)
    place = directory(server)
    if broken == "manifest":
        (place / "_versions" / name_of(2, Scheme.V2)).write_bytes(b"not a manifest")
    else:
        for each in (place / "_transactions").glob("1-*.txn"):
            each.unlink()
    assert rows(namespace) == [0, 1, 2]
    insert(namespace)
    assert rows(namespace) == [0, 0, 1, 2]


def test_a_reader_that_may_not_write_reads_what_is_committed(
    namespace: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_with(namespace, "adopt")
    append_past_the_catalog(server, 8)

    def refuse(*_: Any) -> None:
        raise errors.PermissionDeniedError("read only")

    monkeypatch.setattr(TableFiles, "put_own", refuse)
    assert rows(namespace) == [0, 1, 2]
    monkeypatch.undo()
    assert rows(namespace) == [0, 1, 2, 8]


# -- adoption: crashes, lost replies and races -----------------------------------------------------


class Death(BaseException):
    """Ends a client at one of its steps."""


STEPS = {
    "a copy is staged": (TableFiles, "put_own"),
    "the entry is set": (compare_and_set, "swap"),
}


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_client_that_dies_while_it_adopts_leaves_the_version_to_the_next(
    namespace: MemoryNamespace, server: MemoryServer, step: str, is_after: bool
) -> None:
    create_with(namespace, "adopt")
    append_past_the_catalog(server, 8)
    owner, name = STEPS[step]
    own = getattr(owner, name)

    def die(*args: Any, **kwargs: Any) -> Any:
        if is_after:
            own(*args, **kwargs)
        raise Death

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, die)
        with pytest.raises(Death):
            namespace.count_table_rows(api.CountTableRowsRequest(id=TABLE))
    insert(namespace)
    assert rows(namespace) == [0, 0, 1, 2, 8]
    assert state(server).version == 3


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_adoption_whose_reply_was_lost_is_made_once(
    namespace: MemoryNamespace, server: MemoryServer, moment: str
) -> None:
    create_with(namespace, "adopt")
    append_past_the_catalog(server, 8)
    server.fault = fail_once("alter_table", moment, OutcomeUnknownError("lost"))
    assert rows(namespace) == [0, 1, 2, 8]
    assert state(server).version == 2


def test_a_late_deletion_does_not_take_an_adopted_version_away(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_with(namespace, "adopt")
    append_past_the_catalog(server, 8)
    final = directory(server) / "_versions" / name_of(2, Scheme.V2)
    # A client that hides such versions has copied this one, and was held up before the deletion.
    final.with_name(final.name + "-foreign").write_bytes(final.read_bytes())
    assert rows(namespace) == [0, 1, 2, 8]
    final.unlink()
    assert rows(namespace) == [0, 1, 2, 8]


def test_a_commit_that_comes_first_is_not_lost_to_an_adoption(
    namespace: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_with(namespace, "adopt")
    version, staged = stage(namespace)
    append_past_the_catalog(server, 8)
    swap = compare_and_set.swap

    def commit_first(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        set_policy(server, "hide")  # as it is for a client that looked before the append
        commit(namespace, version, str(staged))
        return swap(*args, **kwargs)

    monkeypatch.setattr(compare_and_set, "swap", commit_first)
    assert rows(namespace) == [0, 1, 2, 100]
    assert state(server).version == 2
    assert namespace.list_out_of_band_versions(TABLE).quarantined_versions == (2,)


# -- refuse ----------------------------------------------------------------------------------------


def test_a_foreign_version_stops_commits_and_no_reader(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_with(namespace, "refuse")
    insert(namespace)
    append_past_the_catalog(server, 8)
    append_past_the_catalog(server, 9)
    assert rows(namespace) == [0, 0, 1, 2]
    assert versions(namespace) == [1, 2]
    with pytest.raises(errors.InvalidTableStateError, match=r"=refuse\): 3, 4\. Use.*discard"):
        insert(namespace)
    assert state(server).version == 2
    assert [each.version for each in namespace.list_out_of_band_versions(TABLE).versions] == [3, 4]


@pytest.mark.parametrize(
    ("solve", "expected"),
    [
        (MemoryNamespace.adopt_out_of_band_versions, [0, 0, 1, 2, 8]),
        (MemoryNamespace.discard_out_of_band_versions, [0, 0, 1, 2]),
    ],
    ids=["adopt", "discard"],
)
def test_commits_go_on_after_adopting_or_discarding(
    namespace: MemoryNamespace,
    server: MemoryServer,
    solve: Callable[[MemoryNamespace, list[str]], object],
    expected: list[int],
) -> None:
    create_with(namespace, "refuse")
    append_past_the_catalog(server, 8)
    with pytest.raises(errors.InvalidTableStateError):
        insert(namespace)
    solve(namespace, TABLE)
    insert(namespace)
    assert rows(namespace) == expected


def test_pylance_s_own_commit_is_refused_and_lance_prints_the_reason(
    namespace: MemoryNamespace, server: MemoryServer, capfd: pytest.CaptureFixture[str]
) -> None:
    create_with(namespace, "refuse")
    append_past_the_catalog(server, 8)
    with pytest.raises(OSError, match="is unknown"):
        append(namespace, 9)
    assert "takes no commit" in capfd.readouterr().err
    assert state(server).version == 1


def test_a_staged_commit_of_the_next_version_is_refused(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_with(namespace, "refuse")
    version, staged = stage(namespace)
    append_past_the_catalog(server, 8)
    with pytest.raises(errors.InvalidTableStateError, match=r": 2\. Use"):
        commit(namespace, version, str(staged))
    assert rows(namespace) == [0, 1, 2]


def test_a_version_that_lost_to_a_commit_stops_the_next_one(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_with(namespace, "refuse")

    def fault(change: str, moment: str) -> None:
        if (change, moment) == ("alter_table", "after"):
            server.fault = None
            append_past_the_catalog(server, 666)

    server.fault = fault
    insert(namespace)
    with pytest.raises(errors.InvalidTableStateError, match=r": 2\. Use"):
        insert(namespace)
    namespace.discard_out_of_band_versions(TABLE)
    insert(namespace)
    assert rows(namespace) == [0, 0, 0, 1, 2]


def test_what_was_quarantined_before_stops_commits_too(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_with(namespace, "hide")
    append_past_the_catalog(server, 8)
    assert rows(namespace) == [0, 1, 2]
    set_policy(server, "refuse")
    with pytest.raises(errors.InvalidTableStateError, match=r": 2\. Use"):
        insert(namespace)


def test_a_repeated_request_of_a_committed_version_is_answered(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_with(namespace, "refuse")
    version, staged = stage(namespace)
    first = commit(namespace, version, str(staged))
    append_past_the_catalog(server, 8)
    assert commit(namespace, version, str(staged)) == first

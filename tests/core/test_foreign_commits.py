"""The property `managed.foreign_commits`: what becomes of versions written past the catalog."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import lance
import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge.catalog import NamespaceRecord
from lance_bridge.managed.out_of_band import OutOfBand
from lance_bridge.records import FOREIGN_COMMITS
from lance_bridge.storage.manifests import Scheme, name_of
from lance_bridge.storage.table_files import TableFiles

from .building import DATASET, TABLE, create, raising, stream
from .managing import (
    MANAGED,
    able,  # noqa: F401 - a fixture
    append,
    append_past_the_catalog,
    commit,
    create_with,
    directory,
    insert,
    meanwhile,
    rows,
    set_policy,
    state,
    table,
    versions,
)
from .memory_catalog import MemoryNamespace, MemoryServer
from .staging import stage

pytestmark = [
    pytest.mark.quick,
    pytest.mark.usefixtures("able"),
    pytest.mark.spec("managed.md#commits-that-bypass-the-catalog"),
]

NOTHING = OutOfBand((), ())


def open_dataset(ns: MemoryNamespace) -> lance.LanceDataset:
    return lance.dataset(namespace_client=ns, table_id=TABLE)


def commit_append(ns: MemoryNamespace, **more: Any) -> None:
    """Append a row of 8 as distributed writers do: its fragments first, then one commit."""
    dataset = open_dataset(ns)
    fragments = lance.fragment.write_fragments(table(8), dataset)
    lance.LanceDataset.commit(
        dataset.uri,
        lance.LanceOperation.Append(fragments),
        read_version=dataset.version,
        namespace_client=ns,
        table_id=TABLE,
        **more,
    )


# -- the property ----------------------------------------------------------------------------------


@pytest.mark.spec("docs/how-to/govern-commits.md#which-clients-commit-through-the-catalog")
@pytest.mark.parametrize("value", ["hide", "ADOPT", "refuse"])
def test_a_table_shows_what_it_does_with_foreign_commits(
    namespace: MemoryNamespace, value: str
) -> None:
    create_with(namespace, value)
    found = namespace.describe_table(api.DescribeTableRequest(id=TABLE)).properties
    assert found == {FOREIGN_COMMITS: value.lower()}


@pytest.mark.spec("common.md#createnamespace")
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
    server.namespaces[path] = NamespaceRecord(path, {FOREIGN_COMMITS: "ignore"})
    create(namespace, TABLE)
    with pytest.raises(errors.InvalidInputError, match=r"Namespace 'eu\.shop\.sales': "):
        namespace.manage_table(TABLE)


def test_an_unknown_value_in_an_entry_stops_writers_and_no_reader(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_with(namespace, "hide")
    set_policy(server, "ignore")
    append_past_the_catalog(server, 8)
    assert rows(namespace) == [0, 1, 2]
    with pytest.raises(errors.InvalidTableStateError, match="one of hide, adopt, refuse"):
        insert(namespace)


# -- writers past the catalog ----------------------------------------------------------------------

PAST: dict[str, Callable[[MemoryNamespace], object]] = {
    "a location": lambda ns: lance.dataset(open_dataset(ns).uri).insert(table(8)),
    "a pickled dataset": lambda ns: pickle.loads(pickle.dumps(open_dataset(ns))).insert(table(8)),
    "a commit without the flag": commit_append,
}


@pytest.mark.spec(
    "clients.md#pylance",
    "clients.md#which-writers-commit-through-the-catalog",
    "operations.md#list_out_of_band_versions",
)
@pytest.mark.parametrize("writer", PAST)
def test_pylance_s_writers_past_the_catalog_are_named(
    namespace: MemoryNamespace, writer: str
) -> None:
    create_with(namespace, "hide")
    PAST[writer](namespace)
    found = namespace.list_out_of_band_versions(TABLE)
    assert [each.version for each in found.versions] == [2]
    assert found.writers == (f"lance {lance.__version__}",)
    assert rows(namespace) == [0, 1, 2]
    assert namespace.list_out_of_band_versions(TABLE).writers == found.writers


@pytest.mark.spec("clients.md#pylance", "clients.md#which-writers-commit-through-the-catalog")
def test_a_commit_of_fragments_with_the_flag_goes_through_the_catalog(
    namespace: MemoryNamespace,
) -> None:
    create_with(namespace, "hide")
    commit_append(namespace, namespace_client_managed_versioning=True)
    assert rows(namespace) == [0, 1, 2, 8]
    assert namespace.list_out_of_band_versions(TABLE) == NOTHING


@pytest.mark.spec("managed.md#out-of-band-versions")
def test_a_dataset_that_was_open_before_an_overwrite_past_the_catalog_is_opened_again(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_with(namespace, "hide")
    opened = open_dataset(namespace)
    lance.write_dataset(table(8), str(directory(server)), mode="overwrite")
    with pytest.raises(OSError, match="Incompatible transaction"):
        opened.insert(table(9))
    open_dataset(namespace).insert(table(9))
    assert rows(namespace) == [0, 1, 2, 9]


# -- adopt -----------------------------------------------------------------------------------------


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


def append_both(server: MemoryServer) -> None:
    append_past_the_catalog(server, 666)
    append_past_the_catalog(server, 667)


def test_a_version_on_top_of_one_that_is_quarantined_is_not_adopted(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_with(namespace, "hide")
    version, staged = stage(namespace)
    meanwhile(server, "after", lambda: append_both(server))
    commit(namespace, version, str(staged))
    set_policy(server, "adopt")
    assert rows(namespace) == [0, 1, 2, 100]
    assert append(namespace, 9).version == 3
    assert rows(namespace) == [0, 1, 2, 9, 100]
    found = namespace.list_out_of_band_versions(TABLE)
    assert found.quarantined_versions == (3, 2)


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
    read_only = raising(errors.PermissionDeniedError("read only"))
    monkeypatch.setattr(TableFiles, "put_own", read_only)
    assert rows(namespace) == [0, 1, 2]
    monkeypatch.undo()
    assert rows(namespace) == [0, 1, 2, 8]


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
    assert "accepts no commit" in capfd.readouterr().err
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
    meanwhile(server, "after", lambda: append_past_the_catalog(server, 666))
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

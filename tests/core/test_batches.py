"""Several operations as one: all of them, or none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance_namespace as api
import pytest
from lance_namespace import errors
from lance_namespace_urllib3_client.models import CreateTableVersionEntry

from lance_bridge.dataset.history import batches
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.storage.staging import Staged
from lance_bridge.table import Table

from .building import DATASET, TABLE, at, count_rows
from .memory_catalog import MemoryNamespace, MemoryServer, Moment
from .staging import append, build, directory, numbers, stage

OTHER = [*DATASET, "other"]
NEW = [*DATASET, "new"]


def entry(table: list[str], version: int, staged: Path, **more: Any) -> CreateTableVersionEntry:
    path = str(staged).lstrip("/")
    return CreateTableVersionEntry(id=table, version=version, manifest_path=path, **more)


def create_all(ns: MemoryNamespace, *entries: CreateTableVersionEntry) -> list[int]:
    request = api.BatchCreateTableVersionsRequest(entries=list(entries))
    return [each.version for each in ns.batch_create_table_versions(request).versions]


def commit(ns: MemoryNamespace, *operations: dict[str, Any]) -> list[dict[str, Any]]:
    request: Any = {"operations": list(operations)}
    results = ns.batch_commit_tables(request).results
    return [each.model_dump(exclude_none=True) for each in results]


def creation(table: list[str], version: int, staged: Path) -> dict[str, Any]:
    path = str(staged).lstrip("/")
    return {"create_table_version": {"id": table, "version": version, "manifest_path": path}}


def deletion(table: list[str], start: int, end: int) -> dict[str, Any]:
    ranges = [{"start_version": start, "end_version": end}]
    return {"delete_table_versions": {"id": table, "ranges": ranges}}


# -- versions of several tables ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"version": 9}, errors.ConcurrentModificationError),
        ({"manifest_size": 1}, errors.InvalidInputError),
        ({"metadata": {"a": "b"}}, errors.UnsupportedOperationError),
        ({"branch": "nope"}, errors.TableBranchNotFoundError),
        ({"id": NEW}, errors.TableNotFoundError),
    ],
)
def test_nothing_is_created_where_one_entry_is_bad(
    namespace: MemoryNamespace, wrong: dict[str, Any], code: type[Exception]
) -> None:
    build(namespace, 1)
    build(namespace, 1, OTHER)
    good, bad = entry(TABLE, *stage(namespace)), entry(OTHER, *stage(namespace, OTHER))
    with pytest.raises(code):
        create_all(namespace, good, bad.model_copy(update=wrong))
    assert numbers(namespace) == numbers(namespace, OTHER) == [1]
    assert create_all(namespace, good, bad) == [2, 2]


def test_two_entries_for_one_table_are_refused_by_name(namespace: MemoryNamespace) -> None:
    build(namespace, 1)
    one, two = stage(namespace), stage(namespace)
    with pytest.raises(errors.UnsupportedOperationError, match=r"two for .*Orders"):
        create_all(namespace, entry(TABLE, *one), entry(TABLE, *two))
    assert numbers(namespace) == [1]


def steps(ns: MemoryNamespace, server: MemoryServer, *tables: list[str]) -> list[batches.Step]:
    made = []
    for table in tables:
        version, staged = stage(ns, table)
        made.append(
            batches.create_version(
                Table(ns.connection, server.tables[tuple(table)]), Staged(version, str(staged))
            )
        )
    return made


def test_what_was_created_before_a_conflict_is_taken_back(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    build(namespace, 1)
    build(namespace, 1, OTHER)
    planned = steps(namespace, server, TABLE, OTHER)
    append(namespace, OTHER, 55)
    with pytest.raises(errors.ConcurrentModificationError, match="Version 2 of table"):
        batches.run(planned)
    assert numbers(namespace) == [1]
    assert count_rows(namespace, TABLE) == 3
    assert count_rows(namespace, OTHER) == 4
    assert numbers(namespace, OTHER) == [1, 2]
    staged = [p for p in (directory(namespace) / "_versions").iterdir() if "manifest-" in p.name]
    assert len(staged) == 1


def test_a_version_that_others_built_on_stays_and_is_named(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    build(namespace, 1)

    def fail() -> None:
        append(namespace, TABLE, 77)
        raise errors.ServiceUnavailableError("no more")

    failing = batches.Step((at("x"), ""), fail, lambda: None)
    with pytest.raises(errors.InternalError, match=r"Version 2 of .*Orders' stays") as caught:
        batches.run([*steps(namespace, server, TABLE), failing])
    assert isinstance(caught.value.__cause__, errors.ServiceUnavailableError)
    assert numbers(namespace) == [1, 2, 3]
    assert count_rows(namespace, TABLE) == 5


# -- operations of several kinds -----------------------------------------------------------------


def test_operations_of_all_kinds_are_done_in_one_batch(namespace: MemoryNamespace) -> None:
    build(namespace, 1)
    build(namespace, 2, OTHER)
    version, staged = stage(namespace)
    results = commit(
        namespace,
        deletion(OTHER, 0, 2),
        {"declare_table": {"id": NEW, "properties": {"a": "b"}}},
        creation(TABLE, version, staged),
    )
    assert results[0] == {"delete_table_versions": {"deleted_count": 1}}
    assert results[1]["declare_table"]["properties"] == {"a": "b"}
    assert results[2]["create_table_version"]["version"]["version"] == 2
    assert numbers(namespace, OTHER) == [2]
    assert numbers(namespace, NEW) == []
    assert count_rows(namespace, TABLE) == 4
    assert commit(namespace) == []


def test_a_table_is_deregistered_in_a_batch(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    build(namespace, 1)
    place = directory(namespace)
    results = commit(namespace, {"deregister_table": {"id": TABLE}}, {"declare_table": {"id": NEW}})
    assert results[0]["deregister_table"]["id"] == TABLE
    assert results[0]["deregister_table"]["location"] == str(place)
    assert list(server.tables) == [tuple(NEW)]
    assert (place / "_versions").is_dir()


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ({"deregister_table": {"id": [*DATASET, "absent"]}}, errors.TableNotFoundError),
        (deletion(OTHER, 0, -1), errors.InvalidInputError),
        ({"declare_table": {"id": OTHER}}, errors.TableAlreadyExistsError),
        ({"declare_table": {"id": ["eu", "shop", "no", "t"]}}, errors.NamespaceNotFoundError),
        ({"declare_table": {"id": [*DATASET, "x"], "location": "relative"}},
         errors.InvalidInputError),
        ({"deregister_table": {"id": NEW}}, errors.TableNotFoundError),
        ({}, errors.InvalidInputError),
        ({"declare_table": {"id": [*DATASET, "x"]}, "deregister_table": {"id": OTHER}},
         errors.InvalidInputError),
    ],
)  # fmt: skip
def test_nothing_is_done_where_one_operation_is_bad(
    namespace: MemoryNamespace, server: MemoryServer, bad: dict[str, Any], code: type[Exception]
) -> None:
    build(namespace, 1, OTHER)
    before = dict(server.tables)
    with pytest.raises(code):
        commit(namespace, {"declare_table": {"id": NEW}}, bad)
    assert server.tables == before
    assert numbers(namespace, OTHER) == [1]


@pytest.mark.parametrize(
    "pair",
    [
        [{"deregister_table": {"id": TABLE}}, {"deregister_table": {"id": OTHER}}],
        [deletion(TABLE, 0, 2), {"deregister_table": {"id": OTHER}}],
        [deletion(TABLE, 0, 2), deletion(OTHER, 0, 2)],
    ],
)
def test_two_operations_that_cannot_be_undone_are_refused_by_name(
    namespace: MemoryNamespace, server: MemoryServer, pair: list[dict[str, Any]]
) -> None:
    build(namespace, 2)
    build(namespace, 2, OTHER)
    with pytest.raises(errors.UnsupportedOperationError, match="neither can be undone"):
        commit(namespace, *pair)
    assert len(server.tables) == 2
    assert numbers(namespace) == numbers(namespace, OTHER) == [1, 2]


def losing(name: str, moment: Moment, error: Exception) -> Callable[[str, Moment], None]:
    def fault(change: str, when: Moment) -> None:
        if (change, when) == (name, moment):
            raise error

    return fault


def test_what_came_first_is_undone_where_the_last_fails(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    build(namespace, 1)
    build(namespace, 1, OTHER)
    version, staged = stage(namespace)
    failure = errors.PermissionDeniedError("not you")
    operations = [{"deregister_table": {"id": OTHER}}, creation(TABLE, version, staged)]
    server.fault = losing("drop_table", "before", failure)
    with pytest.raises(errors.PermissionDeniedError, match="not you"):
        commit(namespace, *operations)
    server.fault = None
    assert numbers(namespace) == [1]
    assert len(server.tables) == 2
    commit(namespace, *operations)
    assert numbers(namespace) == [1, 2]
    assert list(server.tables) == [tuple(TABLE)]


def test_what_cannot_be_undone_is_not_begun_before_all_else_is_done(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    build(namespace, 1)
    build(namespace, 1, OTHER)
    planned = steps(namespace, server, TABLE)
    append(namespace)
    with pytest.raises(errors.ConcurrentModificationError):
        batches.run([batches.deregister(namespace.tables, at("other")), *planned])
    assert set(server.tables) == {tuple(TABLE), tuple(OTHER)}


def test_a_declaration_is_undone_where_the_last_fails(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    build(namespace, 1)

    def fault(change: str, when: Moment) -> None:
        if change == "drop_table" and "drop_table" not in failed:
            failed.append(change)
            raise errors.PermissionDeniedError(f"{change} {when}")

    failed: list[str] = []
    server.fault = fault
    with pytest.raises(errors.PermissionDeniedError):
        commit(namespace, {"declare_table": {"id": NEW}}, {"deregister_table": {"id": TABLE}})
    assert list(server.tables) == [tuple(TABLE)]


def test_what_cannot_be_undone_is_named(namespace: MemoryNamespace, server: MemoryServer) -> None:
    build(namespace, 1)
    server.fault = losing("drop_table", "before", errors.PermissionDeniedError("not you"))
    with pytest.raises(errors.InternalError, match=r"not you.*The cause: not you"):
        commit(namespace, {"declare_table": {"id": NEW}}, {"deregister_table": {"id": TABLE}})
    assert set(server.tables) == {tuple(TABLE), tuple(NEW)}


def test_a_lost_reply_does_not_undo_what_happened(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    build(namespace, 1)
    server.fault = losing("drop_table", "after", OutcomeUnknownError("lost"))
    commit(namespace, {"declare_table": {"id": NEW}}, {"deregister_table": {"id": TABLE}})
    assert list(server.tables) == [tuple(NEW)]

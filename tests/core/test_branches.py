"""Branches: lines of versions beside main."""

from __future__ import annotations

import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import Any

import lance_namespace as api
import pytest
from lance_namespace import errors
from lance_namespace_urllib3_client.models import BranchContents

from lance_bridge.dataset.history import branches as implementation
from lance_bridge.storage.manifests import Scheme, name_of
from lance_bridge.storage.table_files import TableFiles
from lance_bridge.testing.calls import Calls
from lance_bridge.testing.concurrency import race

from .building import TABLE, stream, winner_of
from .managing import another
from .memory_catalog import MemoryNamespace
from .staging import build, dataset, directory, numbers, oracle

pytestmark = [pytest.mark.quick, pytest.mark.spec("operations.md#branches")]

BAD_NAMES = [
    "", ".", "..", "a..b", "a b", "a.lock", "a@b", "a//b", "/a", "a/", "a/./b", "a\\b", "é",
    "a/_versions", "data", "tree/a", "main", "x" * 201,
]  # fmt: skip


@pytest.fixture
def ns(namespace: MemoryNamespace) -> MemoryNamespace:
    """A namespace with a table of one version, of three rows."""
    build(namespace, 1)
    return namespace


def create_branch(
    ns: MemoryNamespace, name: str, branch: str | None = None, version: int | None = None
) -> None:
    ns.create_table_branch(
        api.CreateTableBranchRequest(id=TABLE, name=name, from_branch=branch, from_version=version)
    )


def delete_branch(ns: MemoryNamespace, name: str) -> None:
    ns.delete_table_branch(api.DeleteTableBranchRequest(id=TABLE, name=name))


def branches(ns: MemoryNamespace) -> dict[str, BranchContents]:
    return ns.list_table_branches(api.ListTableBranchesRequest(id=TABLE)).branches


def rows(ns: MemoryNamespace, branch: str | None) -> int | None:
    return ns.count_table_rows(api.CountTableRowsRequest(id=TABLE, branch=branch)).count


def test_branches_are_listed_as_pylance_lists_them(namespace: MemoryNamespace) -> None:
    build(namespace, 2)
    create_branch(namespace, "b")
    create_branch(namespace, "a/b", "b")
    theirs = oracle(namespace).list_table_branches(api.ListTableBranchesRequest(id=TABLE[-1:]))
    assert len(theirs.branches) == 2
    assert branches(namespace) == theirs.branches


def test_branches_are_listed_page_by_page(ns: MemoryNamespace) -> None:
    for name in "abc":
        create_branch(ns, name)
    first = ns.list_table_branches(api.ListTableBranchesRequest(id=TABLE, limit=2))
    rest = api.ListTableBranchesRequest(id=TABLE, limit=2, page_token=first.page_token)
    second = ns.list_table_branches(rest)
    assert (sorted(first.branches), sorted(second.branches)) == (["a", "b"], ["c"])
    assert second.page_token is None


def test_a_branch_starts_at_the_version_that_is_asked_for_or_at_the_latest(
    namespace: MemoryNamespace,
) -> None:
    build(namespace, 2)
    create_branch(namespace, "old", version=1)
    create_branch(namespace, "new")
    assert [rows(namespace, name) for name in ("old", "new")] == [3, 4]
    assert branches(namespace)["old"].parent_version == 1
    dataset(namespace).checkout_version(("old", None)).delete("a = 0")
    create_branch(namespace, "twig", "old")
    assert rows(namespace, "twig") == 2
    assert branches(namespace)["twig"].parent_branch == "old"


WRITES: dict[str, dict[str, Any]] = {
    "alter_table_add_columns": {"new_columns": [{"name": "new", "expression": "a"}]},
    "alter_table_alter_columns": {"alterations": [{"path": "made", "rename": "new"}]},
    "alter_table_backfill_columns": {"column": "made"},
    "alter_table_drop_columns": {"columns": ["made"]},
    "delete_from_table": {"predicate": "a = 0"},
    "insert_into_table": {"mode": "Overwrite"},
    "update_field_metadata": {"updates": [{"path": "a", "metadata": {"unit": "m"}}]},
    "update_table": {"updates": [["a", "a + 1"]]},
}
"""The other operations that change a branch have a test of it among their own."""


@pytest.mark.parametrize("operation", WRITES)
def test_an_operation_on_a_branch_leaves_main_alone(
    namespace: MemoryNamespace, operation: str
) -> None:
    build(namespace, 2)
    dataset(namespace).create_branch("dev", 1)
    api_of = Calls(namespace)
    made = [{"name": "made", "computed": "a"}]
    api_of.call("alter_table_add_columns", TABLE, new_columns=made, branch="dev")
    before = numbers(namespace, branch="dev")
    data = stream() if operation.startswith("insert") else None
    api_of.call(operation, TABLE, data, branch="dev", **WRITES[operation])
    assert numbers(namespace, branch="dev") == [*before, before[-1] + 1]
    assert numbers(namespace) == [1, 2]
    assert rows(namespace, None) == 4


@pytest.mark.spec("operations.md#createtablebranch", "operations.md#deletetablebranch")
@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_no_branch_can_have_is_refused(ns: MemoryNamespace, name: str) -> None:
    with pytest.raises(errors.InvalidInputError):
        create_branch(ns, name)
    with pytest.raises(errors.InvalidInputError):
        delete_branch(ns, name)
    assert branches(ns) == {}
    assert not (directory(ns) / "tree").exists()


def test_the_longest_names_are_taken(ns: MemoryNamespace) -> None:
    for name in ("x" * 200, "/".join("abc" * 11)):
        create_branch(ns, name)
        assert rows(ns, name) == 3
    assert len(branches(ns)) == 2


@pytest.mark.spec("operations.md#deletetablebranch")
def test_a_deleted_branch_is_gone_with_its_versions(ns: MemoryNamespace) -> None:
    create_branch(ns, "dev")
    delete_branch(ns, "dev")
    assert branches(ns) == {}
    with pytest.raises(errors.TableBranchNotFoundError):
        numbers(ns, branch="dev")
    with pytest.raises(errors.TableBranchNotFoundError, match="'dev'"):
        delete_branch(ns, "dev")
    assert rows(ns, None) == 3
    create_branch(ns, "dev")
    assert rows(ns, "dev") == 3


@pytest.mark.parametrize("name", ["é", "data", ".a"])
def test_a_branch_with_a_name_that_only_others_give_can_be_used_and_deleted(
    namespace: MemoryNamespace, name: str
) -> None:
    build(namespace, 2)
    dataset(namespace).create_branch(name, 1)
    assert list(branches(namespace)) == [name]
    assert numbers(namespace, branch=name) == [1]
    delete_branch(namespace, name)
    assert branches(namespace) == {}


@pytest.mark.spec("operations.md#deletetablebranch")
def test_a_branch_that_something_refers_to_is_not_deleted(ns: MemoryNamespace) -> None:
    create_branch(ns, "dev")
    create_branch(ns, "child", "dev")
    ns.create_table_tag(api.CreateTableTagRequest(id=TABLE, tag="t", version=1, branch="child"))
    with pytest.raises(errors.InvalidInputError, match="before branch 'child'"):
        delete_branch(ns, "dev")
    with pytest.raises(errors.InvalidInputError, match="before tag 't'"):
        delete_branch(ns, "child")
    assert sorted(branches(ns)) == ["child", "dev"]
    assert rows(ns, "child") == 3


@pytest.mark.spec("operations.md#createtablebranch")
@pytest.mark.parametrize("name", ["dev", "team/dev", "x"])
def test_of_several_creators_of_one_branch_one_wins(namespace: MemoryNamespace, name: str) -> None:
    build(namespace, 4)
    answers = race(lambda n: create_branch(another(namespace), name, version=n + 1), 4)
    version = winner_of(answers, errors.TableBranchAlreadyExistsError) + 1
    assert branches(namespace)[name].parent_version == version
    assert numbers(namespace, branch=name) == [version]
    assert rows(namespace, name) == 2 + version
    assert not list((directory(namespace) / "_refs/branches").glob("*.lock"))


@pytest.mark.spec("operations.md#createtablebranch", "operations.md#deletetablebranch")
@pytest.mark.parametrize(("change", "left"), [(create_branch, []), (delete_branch, ["a/b"])])
def test_a_branch_whose_lock_is_held_is_neither_created_nor_deleted(
    ns: MemoryNamespace, monkeypatch: pytest.MonkeyPatch, change: Any, left: list[str]
) -> None:
    monkeypatch.setattr(implementation, "LOCK_WAIT", 0.1)
    for name in left:
        create_branch(ns, name)
    lock = directory(ns) / "_refs/branches/a%2Fb.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_bytes(b"another's")
    with pytest.raises(errors.ConcurrentModificationError, match="lock"):
        change(ns, "a/b")
    assert list(branches(ns)) == left
    assert lock.read_bytes() == b"another's"


@pytest.mark.spec("operations.md#limits")
def test_a_stale_lock_is_broken(ns: MemoryNamespace) -> None:
    lock = directory(ns) / "_refs/branches/dev.lock"
    lock.parent.mkdir(parents=True)
    lock.write_bytes(b"another's")
    old = time.time() - implementation.LOCK_STALE - 1
    os.utime(lock, (old, old))
    create_branch(ns, "dev")
    assert list(branches(ns)) == ["dev"]
    assert not lock.exists()


def interrupt_creation(ns: MemoryNamespace) -> None:
    """Leave what a creator leaves that was killed before its last step."""
    create_branch(ns, "dev", version=1)
    (directory(ns) / "_refs/branches/dev.json").unlink()


def test_what_an_interrupted_creation_left_is_replaced_after_the_time_of_grace(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(implementation, "_UNFINISHED_WAIT", 0.1)
    build(namespace, 2)
    interrupt_creation(namespace)
    with pytest.raises(errors.ConcurrentModificationError, match="tree/dev/_versions"):
        create_branch(namespace, "dev")
    old = time.time() - namespace.connection.config.declare_grace - 1
    for manifest in (directory(namespace) / "tree/dev/_versions").iterdir():
        os.utime(manifest, (old, old))
    create_branch(namespace, "dev")
    assert rows(namespace, "dev") == 4
    assert numbers(namespace, branch="dev") == [2]


@pytest.mark.spec("operations.md#createtablebranch")
def test_an_unfinished_branch_with_later_versions_is_left_alone(
    ns: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(implementation, "_UNFINISHED_WAIT", 0.1)
    interrupt_creation(ns)
    dataset(ns).checkout_version(("dev", None)).delete("a = 1")
    inside = directory(ns) / "tree/dev/_versions"
    before = sorted(inside.glob("*.manifest"))
    for manifest in before:
        os.utime(manifest, (0, 0))
    with pytest.raises(errors.ConcurrentModificationError):
        create_branch(ns, "dev")
    assert sorted(inside.glob("*.manifest")) == before


def test_a_branch_of_a_version_that_was_deleted_meanwhile_does_not_stay(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(namespace, 2)
    source = directory(namespace) / "_versions" / name_of(1, Scheme.V2)
    original = implementation._create

    def create_and_lose_the_source(*arguments: Any) -> None:
        original(*arguments)
        source.unlink()

    monkeypatch.setattr(implementation, "_create", create_and_lose_the_source)
    with pytest.raises(errors.TableVersionNotFoundError, match="deleted concurrently"):
        create_branch(namespace, "dev", version=1)
    assert branches(namespace) == {}


def test_a_deleted_branch_can_be_made_again_around_another(ns: MemoryNamespace) -> None:
    create_branch(ns, "dev")
    dataset(ns).checkout_version(("dev", None)).delete("a = 1")
    create_branch(ns, "dev/x", version=1)
    delete_branch(ns, "dev")
    create_branch(ns, "dev")
    assert (rows(ns, "dev"), rows(ns, "dev/x")) == (3, 3)


@pytest.mark.spec("operations.md#limits")
def test_a_branch_that_is_created_while_it_is_deleted_keeps_its_version(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The creator begins when Lance has deleted the branch, and before what is left is removed."""
    build(namespace, 2)
    create_branch(namespace, "dev", version=1)
    create_branch(namespace, "dev/x", version=1)  # so that Lance leaves the manifests of "dev"
    meets = Event()
    put_own, delete = TableFiles.put_own, type(dataset(namespace).branches).delete
    created: list[Future[None]] = []

    def put_and_note(files: TableFiles, path: str, data: bytes) -> bool:
        done = put_own(files, path, data)
        if not done and path.endswith(".lock"):
            meets.set()
        return done

    def create_again() -> None:
        try:
            create_branch(namespace, "dev", version=2)
        finally:
            meets.set()

    def delete_and_be_overtaken(branches: Any, name: str) -> None:
        delete(branches, name)
        created.append(pool.submit(create_again))
        assert meets.wait(30)

    monkeypatch.setattr(implementation, "_UNFINISHED_WAIT", 0.1)
    monkeypatch.setattr(TableFiles, "put_own", put_and_note)
    monkeypatch.setattr(type(dataset(namespace).branches), "delete", delete_and_be_overtaken)
    with ThreadPoolExecutor(1) as pool:
        delete_branch(namespace, "dev")
        created[0].result(30)
    assert numbers(namespace, branch="dev") == [2]
    assert rows(namespace, "dev") == 4


@pytest.mark.spec("operations.md#deletetablebranch")
def test_of_several_that_delete_one_branch_one_succeeds(ns: MemoryNamespace) -> None:
    create_branch(ns, "dev")
    answers = race(lambda _: delete_branch(another(ns), "dev"), 3)
    winner_of(answers, errors.TableBranchNotFoundError)
    assert not list((directory(ns) / "_refs/branches").glob("*.lock"))


@pytest.mark.spec("operations.md#limits")
def test_the_source_of_a_branch_is_checked_while_others_cannot_replace_the_branch(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a creator whose source is gone could delete the branch of another creator."""
    build(namespace, 2)
    source = directory(namespace) / "_versions" / name_of(1, Scheme.V2)
    check = implementation._require_source
    codes: list[Any] = []

    def be_overtaken_and_check(*arguments: Any) -> None:
        source.unlink()
        with monkeypatch.context() as patch:
            patch.setattr(implementation, "LOCK_WAIT", 0.1)
            try:
                delete_branch(namespace, "dev")
            except errors.ConcurrentModificationError as error:
                codes.append(error)
        check(*arguments)

    monkeypatch.setattr(implementation, "_require_source", be_overtaken_and_check)
    with pytest.raises(errors.TableVersionNotFoundError, match="deleted concurrently"):
        create_branch(namespace, "dev", version=1)
    assert len(codes) == 1
    assert branches(namespace) == {}

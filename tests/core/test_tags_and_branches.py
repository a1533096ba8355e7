"""Tags, which keep versions from being deleted, and branches: lines of versions beside main."""

from __future__ import annotations

import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import Any

import lance_namespace as api
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace import errors
from lance_namespace_urllib3_client.models import BranchContents, TagContents

from lance_bridge.dataset import tags_and_branches
from lance_bridge.dataset.versions import check_tag_name
from lance_bridge.storage.manifests import Scheme, name_of
from lance_bridge.storage.store import TableFiles
from lance_bridge.testing.calls import Calls
from lance_bridge.testing.concurrency import race

from .managed_tables import another
from .memory_catalog import (
    TABLE,
    MemoryNamespace,
    build,
    dataset,
    directory,
    numbers,
    oracle,
    stream,
    winner_of,
)

pytestmark = [pytest.mark.quick, pytest.mark.spec("operations.md#branches")]

BAD_TAGS = [
    "", ".", "..", ".a", "a.", "a..b", "a/b", "a b", "a.lock", "a@b", "a\\b", "é", "../x",
    "x" * 201,
]  # fmt: skip
BAD_BRANCHES = [
    "", ".", "..", "a..b", "a b", "a.lock", "a@b", "a//b", "/a", "a/", "a/./b", "a\\b", "é",
    "a/_versions", "data", "tree/a", "main", "x" * 201,
]  # fmt: skip


def create_tag(ns: MemoryNamespace, tag: str, version: int, branch: str | None = None) -> None:
    Calls(ns).call("create_table_tag", TABLE, tag=tag, version=version, branch=branch)


def update_tag(ns: MemoryNamespace, tag: str, version: int, branch: str | None = None) -> None:
    Calls(ns).call("update_table_tag", TABLE, tag=tag, version=version, branch=branch)


def delete_tag(ns: MemoryNamespace, tag: str) -> None:
    ns.delete_table_tag(api.DeleteTableTagRequest(id=TABLE, tag=tag))


def tagged(ns: MemoryNamespace, tag: str) -> tuple[int, str | None]:
    found = ns.get_table_tag_version(api.GetTableTagVersionRequest(id=TABLE, tag=tag))
    return found.version, found.branch


def tags(ns: MemoryNamespace) -> dict[str, TagContents]:
    return ns.list_table_tags(api.ListTableTagsRequest(id=TABLE)).tags


def test_tags_are_listed_as_pylance_lists_them(two_versions: MemoryNamespace) -> None:
    for name, version in (("b", 1), ("a", 2), ("Z", 1), ("x" * 200, 1)):
        create_tag(two_versions, name, version)
    expected = oracle(two_versions).list_table_tags(api.ListTableTagsRequest(id=TABLE[-1:])).tags
    assert len(expected) == 4
    assert tags(two_versions) == expected


def test_a_tag_of_a_branch_keeps_the_branch(with_table: MemoryNamespace) -> None:
    dataset(with_table).create_branch("dev", 1).delete("a = 0")
    create_tag(with_table, "mark", 2, "dev")
    assert tagged(with_table, "mark") == (2, "dev")
    assert tags(with_table)["mark"].branch == "dev"
    for tag, branch in (("mark", None), (None, "dev")):
        asked = {"tag": tag, "branch": branch, "load_detailed_metadata": True}
        assert Calls(with_table).describe_table(TABLE, **asked).version == 2


def test_tags_are_listed_page_by_page(with_table: MemoryNamespace) -> None:
    for name in "abc":
        create_tag(with_table, name, 1)
    first = with_table.list_table_tags(api.ListTableTagsRequest(id=TABLE, limit=2))
    rest = api.ListTableTagsRequest(id=TABLE, limit=2, page_token=first.page_token)
    second = with_table.list_table_tags(rest)
    assert (sorted(first.tags), sorted(second.tags)) == (["a", "b"], ["c"])
    assert second.page_token is None


@pytest.mark.spec(
    "operations.md#deletetabletag",
    "operations.md#gettabletagversion",
    "operations.md#updatetabletag",
)
def test_a_missing_tag_is_not_found(with_table: MemoryNamespace) -> None:
    for attempt in (
        lambda: tagged(with_table, "absent"),
        lambda: update_tag(with_table, "absent", 1),
        lambda: delete_tag(with_table, "absent"),
    ):
        with pytest.raises(errors.TableTagNotFoundError, match="'absent'"):
            attempt()
    assert tags(with_table) == {}


@pytest.mark.spec("operations.md#createtabletag", "operations.md#updatetabletag")
def test_a_missing_version_or_branch_gets_no_tag(with_table: MemoryNamespace) -> None:
    dataset(with_table).create_branch("dev", 1)
    create_tag(with_table, "old", 1)
    for branch in (None, "dev"):
        with pytest.raises(errors.TableVersionNotFoundError, match="version 2"):
            create_tag(with_table, "t", 2, branch)
        with pytest.raises(errors.TableVersionNotFoundError, match="version 2"):
            update_tag(with_table, "old", 2, branch)
    with pytest.raises(errors.TableBranchNotFoundError, match="'nope'"):
        create_tag(with_table, "t", 1, "nope")
    with pytest.raises(errors.TableBranchNotFoundError, match="'nope'"):
        update_tag(with_table, "old", 1, "nope")
    assert list(tags(with_table)) == ["old"]
    assert tagged(with_table, "old") == (1, None)


@pytest.mark.spec("common.md#describetable")
def test_an_empty_tag_is_not_the_latest_version(two_versions: MemoryNamespace) -> None:
    for more in ({}, {"load_detailed_metadata": True}):
        with pytest.raises(errors.TableTagNotFoundError, match="no tag ''"):
            Calls(two_versions).describe_table(TABLE, tag="", **more)


@pytest.mark.spec(
    "operations.md#createtabletag",
    "operations.md#deletetabletag",
    "operations.md#gettabletagversion",
    "operations.md#updatetabletag",
)
@pytest.mark.parametrize("name", BAD_TAGS)
def test_a_name_that_no_tag_can_have_is_refused(with_table: MemoryNamespace, name: str) -> None:
    for attempt in (
        lambda: create_tag(with_table, name, 1),
        lambda: update_tag(with_table, name, 1),
        lambda: tagged(with_table, name),
        lambda: delete_tag(with_table, name),
    ):
        with pytest.raises(errors.InvalidInputError, match="Tag name"):
            attempt()
    assert tags(with_table) == {}


@given(st.text(st.sampled_from("aZ09.-_/ é"), max_size=6))
def test_a_name_that_is_taken_is_one_that_lance_takes(name: str) -> None:
    try:
        check_tag_name(name)
    except errors.InvalidInputError:
        return
    assert name
    assert not any(c in name for c in "/ é")
    assert not name.startswith(".")
    assert not name.endswith((".", ".lock"))
    assert ".." not in name


def test_of_several_creators_of_one_tag_one_wins(namespace: MemoryNamespace) -> None:
    build(namespace, 4)
    answers = race(lambda n: create_tag(another(namespace), "t", n + 1), 4)
    won = winner_of(answers, errors.TableTagAlreadyExistsError)
    assert tagged(namespace, "t") == (won + 1, None)


def test_a_version_cannot_be_lost_between_its_tag_and_its_deletion(
    namespace: MemoryNamespace,
) -> None:
    rounds = 12
    build(namespace, rounds + 1)
    for version in range(1, rounds + 1):
        deletion = api.BatchDeleteTableVersionsRequest.model_validate(
            {"id": TABLE, "ranges": [{"start_version": version, "end_version": version + 1}]}
        )
        acts = (
            partial(create_tag, another(namespace), f"t{version}", version),
            partial(namespace.batch_delete_table_versions, deletion),
        )
        tagging, deleting = race(lambda n, acts=acts: acts[n](), 2)  # type: ignore[misc]  # of two kinds
        assert isinstance(tagging, errors.TableVersionNotFoundError | None)
        if isinstance(deleting, errors.LanceNamespaceError):
            assert isinstance(
                deleting, errors.InvalidInputError | errors.ConcurrentModificationError
            )
    for name, tag in tags(namespace).items():
        assert dataset(namespace, version=name).version == tag.version


@pytest.mark.spec("operations.md#createtabletag")
def test_a_tag_of_a_version_that_was_deleted_meanwhile_does_not_stay(
    three_versions: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_tag(three_versions, "old", 1)
    # Lance checks the version and writes the tag in one call: a deletion in between is simulated.
    monkeypatch.setattr(tags_and_branches, "_version_exists", lambda *_: False)
    with pytest.raises(errors.TableVersionNotFoundError, match="no longer has"):
        create_tag(three_versions, "new", 2)
    with pytest.raises(errors.TableVersionNotFoundError, match="no longer has"):
        update_tag(three_versions, "old", 2)
    assert list(tags(three_versions)) == ["old"]
    assert tagged(three_versions, "old") == (1, None)


def test_tags_are_listed_while_others_come_and_go(with_table: MemoryNamespace) -> None:
    create_tag(with_table, "stays", 1)
    done = Event()

    def come_and_go() -> None:
        other = dataset(with_table)
        while not done.is_set():
            other.tags.create("goes", 1)
            other.tags.delete("goes")

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(come_and_go)
        try:
            for _ in range(100):
                assert "stays" in tags(with_table)
        finally:
            done.set()
        running.result()


def test_a_tag_whose_file_is_broken_is_not_taken_for_absent(with_table: MemoryNamespace) -> None:
    create_tag(with_table, "t", 1)
    for content in (b"{", b"[]", b"{}", b'{"version": "x"}', b'{"version": Infinity}'):
        (directory(with_table) / "_refs/tags/t.json").write_bytes(content)
        with pytest.raises(errors.ServiceUnavailableError, match="'t'"):
            tagged(with_table, "t")


# -- branches --------------------------------------------------------------------------------------


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
    expected = oracle(namespace).list_table_branches(api.ListTableBranchesRequest(id=TABLE[-1:]))
    assert len(expected.branches) == 2
    assert branches(namespace) == expected.branches


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
@pytest.mark.parametrize("name", BAD_BRANCHES)
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
    monkeypatch.setattr(tags_and_branches, "LOCK_WAIT", 0.1)
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
    old = time.time() - tags_and_branches.LOCK_STALE - 1
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
    monkeypatch.setattr(tags_and_branches, "_UNFINISHED_WAIT", 0.1)
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
    monkeypatch.setattr(tags_and_branches, "_UNFINISHED_WAIT", 0.1)
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
    original = tags_and_branches._create_branch

    def create_and_lose_the_source(*arguments: Any) -> None:
        original(*arguments)
        source.unlink()

    monkeypatch.setattr(tags_and_branches, "_create_branch", create_and_lose_the_source)
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

    monkeypatch.setattr(tags_and_branches, "_UNFINISHED_WAIT", 0.1)
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
    check = tags_and_branches._require_source
    codes: list[Any] = []

    def be_overtaken_and_check(*arguments: Any) -> None:
        source.unlink()
        with monkeypatch.context() as patch:
            patch.setattr(tags_and_branches, "LOCK_WAIT", 0.1)
            try:
                delete_branch(namespace, "dev")
            except errors.ConcurrentModificationError as error:
                codes.append(error)
        check(*arguments)

    monkeypatch.setattr(tags_and_branches, "_require_source", be_overtaken_and_check)
    with pytest.raises(errors.TableVersionNotFoundError, match="deleted concurrently"):
        create_branch(namespace, "dev", version=1)
    assert len(codes) == 1
    assert branches(namespace) == {}

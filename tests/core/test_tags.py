"""Tags: names for versions, which keep them from being deleted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event

import lance_namespace as api
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace import errors
from lance_namespace_urllib3_client.models import TagContents

from lance_bridge.dataset.history import tags as implementation
from lance_bridge.dataset.history.references import check_tag_name
from lance_bridge.testing.calls import Calls
from lance_bridge.testing.concurrency import race

from .building import TABLE, winner_of
from .managing import another
from .memory_catalog import MemoryNamespace
from .staging import build, dataset, directory, oracle

pytestmark = pytest.mark.quick

BAD_NAMES = [
    "", ".", "..", ".a", "a.", "a..b", "a/b", "a b", "a.lock", "a@b", "a\\b", "é", "../x",
    "x" * 201,
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
    theirs = oracle(two_versions).list_table_tags(api.ListTableTagsRequest(id=TABLE[-1:])).tags
    assert len(theirs) == 4
    assert tags(two_versions) == theirs


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
@pytest.mark.parametrize("name", BAD_NAMES)
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
    monkeypatch.setattr(implementation, "_exists", lambda *_: False)
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

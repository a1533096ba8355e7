"""Transactions: how they are described, and that they never change."""

from __future__ import annotations

import uuid
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors
from lance_namespace_urllib3_client.models import AlterTransactionAction

from lance_bridge.dataset import list_transactions
from lance_bridge.storage.manifests import Scheme, name_of
from lance_bridge.transaction_versions import find_commit

from .memory_catalog import TABLE, MemoryNamespace, build, dataset, directory, raiser

pytestmark = pytest.mark.quick


def describe(ns: MemoryNamespace, name: str) -> api.DescribeTransactionResponse:
    return ns.describe_transaction(api.DescribeTransactionRequest(id=[*TABLE, name]))


def alter(ns: MemoryNamespace, name: str, *actions: Any) -> api.AlterTransactionResponse:
    parsed = [AlterTransactionAction.model_validate(each) for each in actions]
    return ns.alter_transaction(
        api.AlterTransactionRequest.model_construct(id=[*TABLE, name], actions=parsed)
    )


def set_status(status: str) -> dict[str, Any]:
    return {"setStatusAction": {"status": status}}


def set_property(key: str, value: str, mode: str | None = None) -> dict[str, Any]:
    return {"setPropertyAction": {"key": key, "value": value, "mode": mode}}


def unset_property(key: str, mode: str | None = None) -> dict[str, Any]:
    return {"unsetPropertyAction": {"key": key, "mode": mode}}


def uuid_of(ns: MemoryNamespace, version: int) -> str:
    read = dataset(ns).read_transaction(version)
    assert read is not None
    return str(read.uuid)


@pytest.mark.spec("common.md#lost-replies")
def test_a_change_whose_transaction_cannot_be_read_is_made(
    with_table: MemoryNamespace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lance.LanceDataset, "read_transaction", raiser(OSError("broken")))
    answer = with_table.update_table(api.UpdateTableRequest(id=TABLE, updates=[["a", "a + 1"]]))
    assert (answer.version, answer.updated_rows, answer.transaction_id) == (2, 3, None)
    assert "The transaction of version 2 of table" in caplog.text
    restored = with_table.restore_table(api.RestoreTableRequest(id=TABLE, version=1))
    assert restored.transaction_id is None
    assert dataset(with_table).version == 3


# -- describe ------------------------------------------------------------------------------------


def test_a_transaction_is_found_by_the_name_of_its_file_or_without_it(
    three_versions: MemoryNamespace,
) -> None:
    for file in sorted((directory(three_versions) / "_transactions").iterdir()):
        found = describe(three_versions, file.name).properties or {}
        assert file.name == f"{found['read_version']}-{found['uuid']}.txn"
        assert describe(three_versions, file.stem).properties == found
        file.unlink()
    wanted = uuid_of(three_versions, 2)
    assert (describe(three_versions, wanted.upper()).properties or {})["version"] == "2"


def test_properties_of_a_commit_are_described(with_table: MemoryNamespace) -> None:
    lance.write_dataset(
        pa.table({"a": [1]}),
        str(directory(with_table)),
        mode="append",
        transaction_properties={"job": "nightly", "version": "mine"},
    )
    properties = describe(with_table, "2").properties or {}
    assert properties["job"] == "nightly"
    assert properties["version"] == "2"


def test_a_transaction_of_a_branch_is_found(two_versions: MemoryNamespace) -> None:
    branch = dataset(two_versions).create_branch("dev/x", 1)
    first = branch.read_transaction(1)
    branch.delete("a = 1")
    second = branch.read_transaction(2)
    for version, read in (("1", first), ("2", second)):
        assert read is not None
        properties = describe(two_versions, read.uuid).properties or {}
        assert (properties["branch"], properties["version"]) == ("dev/x", version)
    assert (describe(two_versions, "2").properties or {})["operation"] == "Append"


def test_a_compaction_whose_record_pylance_cannot_read_is_described_by_its_version(
    three_versions: MemoryNamespace,
) -> None:
    opened = dataset(three_versions)
    opened.create_scalar_index("a", "BTREE")
    opened.optimize.compact_files()
    made = dataset(three_versions)
    last = made.version
    with pytest.raises(TypeError, match="RewrittenIndex"):
        made.read_transaction(last)

    found = describe(three_versions, str(last))
    assert found.status == "Succeeded"
    properties = found.properties or {}
    assert properties["operation"] == "Rewrite"
    assert "uuid" not in properties
    names = {each.name for each in (directory(three_versions) / "_transactions").iterdir()}
    known = {f"{v - 1}-{uuid_of(three_versions, v)}.txn" for v in range(1, last)}
    (file,) = names - known
    with pytest.raises(errors.TransactionNotFoundError, match=f"may be .* version {last}"):
        describe(three_versions, file)


def test_a_transaction_that_was_rebased_is_found(two_versions: MemoryNamespace) -> None:
    old = dataset(two_versions, version=1)
    made = lance.write_dataset(pa.table({"a": [5]}), old, mode="append")
    assert made.version == 3
    found = describe(two_versions, uuid_of(two_versions, 3)).properties or {}
    assert found["version"] == "3"


@pytest.mark.spec("operations.md#altertransaction", "operations.md#describetransaction")
def test_a_missing_transaction_is_not_found(two_versions: MemoryNamespace) -> None:
    for name in ("3", "0", str(2**70), "1" * 5000, str(uuid.uuid4()), f"1-{uuid.uuid4()}"):
        with pytest.raises(errors.TransactionNotFoundError, match=name[:60]):
            describe(two_versions, name)
    with pytest.raises(errors.TransactionNotFoundError):
        alter(two_versions, "7", set_status("Succeeded"))


NO_TRANSACTION = [[*TABLE, name] for name in ("", "x", "../1", "-1", "²", "1-x", "1.5")]


@pytest.mark.spec("operations.md#describetransaction")
@pytest.mark.parametrize("names", [None, [], ["1"], TABLE, *NO_TRANSACTION])
def test_an_identifier_of_no_transaction_is_refused(
    with_table: MemoryNamespace, names: list[str] | None
) -> None:
    why = "not a transaction id" if names in NO_TRANSACTION else ""
    with pytest.raises(errors.InvalidInputError, match=why):
        with_table.describe_transaction(api.DescribeTransactionRequest(id=names))


def test_one_that_no_version_has_yet_is_running(two_versions: MemoryNamespace) -> None:
    pending = str(uuid.uuid4())
    (directory(two_versions) / "_transactions" / f"1-{pending}.txn").write_bytes(b"")
    found = describe(two_versions, pending)
    assert found.status == "Running"
    assert found.properties == {"uuid": pending, "read_version": "1"}


@pytest.mark.spec("operations.md#describetransaction")
def test_one_whose_version_may_be_deleted_is_not_called_running(
    namespace: MemoryNamespace,
) -> None:
    build(namespace, 4)
    lost = uuid_of(namespace, 3)
    inside = directory(namespace) / "_versions"
    (inside / f"{2**64 - 1 - 3:020d}.manifest").unlink()
    with pytest.raises(errors.TransactionNotFoundError, match="deleted"):
        describe(namespace, lost)


# -- alter ---------------------------------------------------------------------------------------


def test_what_holds_already_is_accepted(with_table: MemoryNamespace) -> None:
    answer = alter(
        with_table,
        "1",
        set_status("SUCCEEDED"),
        set_property("version", "1"),
        set_property("version", "9", "Skip"),
        unset_property("absent"),
    )
    assert answer.status == "Succeeded"
    assert answer.properties == describe(with_table, "1").properties


@pytest.mark.spec("operations.md#altertransaction")
@pytest.mark.parametrize(
    "action",
    [
        set_status("Canceled"),
        set_status("failed"),
        set_property("version", "9"),
        set_property("new", "x", "fail"),
        set_property("new", "x", "SKIP"),
        unset_property("version"),
    ],
)
def test_what_would_change_a_transaction_is_unsupported(
    with_table: MemoryNamespace, action: dict[str, Any]
) -> None:
    with pytest.raises(errors.UnsupportedOperationError, match="only its writer"):
        alter(with_table, "1", set_status("succeeded"), action)


@pytest.mark.spec("operations.md#altertransaction")
@pytest.mark.parametrize(
    ("action", "why"),
    [
        (None, "must not be empty"),
        (set_status("done"), "'done'"),
        ({"setStatusAction": {}}, "Status"),
        ({}, "exactly one"),
        ({**set_status("Failed"), **unset_property("a")}, "exactly one"),
        (set_property("", "x"), "key"),
        (set_property("version", "1", "fail"), "has a property"),
        (set_property("version", "1", "merge"), "Mode 'merge'"),
        (unset_property("absent", "Fail"), "no property"),
        (unset_property("absent", "overwrite"), "Mode"),
    ],
)
def test_a_bad_action_is_refused(
    with_table: MemoryNamespace, action: dict[str, Any] | None, why: str
) -> None:
    with pytest.raises(errors.InvalidInputError, match=why):
        alter(with_table, "1", *([] if action is None else [action]))


# -- the version that a transaction made -----------------------------------------------------------


def test_the_version_of_a_transaction_is_found_after_the_one_it_read(
    three_versions: MemoryNamespace,
) -> None:
    latest, wanted = dataset(three_versions), uuid_of(three_versions, 2)
    assert find_commit(latest, lambda each: each.uuid == wanted, 1) == 2
    assert find_commit(latest, lambda each: each.uuid == wanted, 2) is None
    assert find_commit(latest.checkout_version(1), lambda each: each.uuid == wanted, 0) == 2


def test_a_version_that_cannot_be_read_may_be_the_one(three_versions: MemoryNamespace) -> None:
    latest, wanted = dataset(three_versions), uuid_of(three_versions, 3)
    # The latest is the first.
    manifests = sorted((directory(three_versions) / "_versions").glob("*.manifest"))
    manifests[1].unlink()
    with pytest.raises(errors.ServiceUnavailableError, match="could not be read"):
        find_commit(latest, lambda each: each.uuid == wanted, 1)


# -- the transactions of all versions --------------------------------------------------------------


@pytest.mark.spec("spark.md#metadata-tables")
def test_transactions_of_versions_that_are_deleted_meanwhile_are_left_out(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(namespace, 5)
    table = namespace.tables.load(tuple(TABLE))
    assert [each.version for each in list_transactions(table)] == [1, 2, 3, 4, 5]
    read = lance.LanceDataset.read_transaction
    manifests = directory(namespace) / "_versions"

    def delete_first(found: lance.LanceDataset, version: int) -> Any:
        for number in (2, 3):
            (manifests / name_of(number, Scheme.V2)).unlink(missing_ok=True)
        return read(found, version)

    monkeypatch.setattr(lance.LanceDataset, "read_transaction", delete_first)
    assert [each.version for each in list_transactions(table)] == [1, 4, 5]


@pytest.mark.spec("spark.md#metadata-tables")
def test_a_version_that_exists_and_cannot_be_read_is_an_error(
    with_table: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lance.LanceDataset, "read_transaction", raiser(OSError("broken")))
    with pytest.raises(errors.ServiceUnavailableError, match=r"transactions of table .*: broken"):
        list_transactions(with_table.tables.load(tuple(TABLE)))

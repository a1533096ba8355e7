"""Every operation of the trait is answered, or says by name why no catalog can do it."""

from __future__ import annotations

import inspect

import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge import LanceBridgeNamespace, engine
from lance_bridge.operations.compute import UNSUPPORTED
from lance_bridge.testing.calls import request_model

from .building import TABLE, create
from .memory_catalog import MemoryNamespace, MemoryServer

OPERATIONS = sorted(
    name
    for name, member in inspect.getmembers(api.LanceNamespace, inspect.isfunction)
    if not name.startswith("_")
)


def test_the_list_of_operations_is_that_of_the_interface() -> None:
    assert len(OPERATIONS) > 50
    assert set(UNSUPPORTED) < set(OPERATIONS)


def test_no_operation_is_left_to_the_interface() -> None:
    ours = {name: getattr(LanceBridgeNamespace, name) for name in OPERATIONS}
    assert [name for name in ours if ours[name] is getattr(api.LanceNamespace, name)] == []


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_an_operation_that_no_catalog_can_do_is_unsupported_by_name(
    namespace: MemoryNamespace, server: MemoryServer, name: str
) -> None:
    request = request_model(name).model_construct(id=TABLE)
    with pytest.raises(errors.UnsupportedOperationError, match=name) as caught:
        getattr(namespace, name)(request)
    assert engine.HOW in str(caught.value)
    assert caught.value.code == errors.ErrorCode.UNSUPPORTED
    assert not server.effects


def test_a_missing_tag_or_branch_is_not_found(namespace: MemoryNamespace) -> None:
    create(namespace, TABLE)
    with pytest.raises(errors.TableTagNotFoundError, match="no tag 'x'"):
        namespace.describe_table(api.DescribeTableRequest(id=TABLE, tag="x"))
    with pytest.raises(errors.TableBranchNotFoundError, match="no branch 'x'"):
        namespace.describe_table(api.DescribeTableRequest(id=TABLE, branch="x"))


@pytest.mark.parametrize("version", [2, 2**63, 2**64, 2**70])
def test_a_version_that_cannot_be_is_not_found(namespace: MemoryNamespace, version: int) -> None:
    create(namespace, TABLE)
    with pytest.raises(errors.TableVersionNotFoundError, match=str(version)):
        namespace.describe_table(api.DescribeTableRequest(id=TABLE, version=version))
    with pytest.raises(errors.TableVersionNotFoundError, match=str(version)):
        namespace.count_table_rows(api.CountTableRowsRequest(id=TABLE, version=version))

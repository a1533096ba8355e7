"""What the spec of each catalog says of its tables, and core does alike for all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors

from .building import DATASET, TABLE, count_rows, create
from .memory_catalog import MemoryNamespace


def declare(ns: MemoryNamespace, **fields: Any) -> str:
    return ns.declare_table(api.DeclareTableRequest(id=TABLE, **fields)).location or ""


def test_a_declared_table_is_not_declared_again_elsewhere(
    namespace: MemoryNamespace, tmp_path: Path
) -> None:
    first = declare(namespace)
    with pytest.raises(errors.TableAlreadyExistsError, match="declared at"):
        declare(namespace, location=str(tmp_path / "lake" / "elsewhere.lance"))
    assert declare(namespace, location=first) == first


def test_all_tables_are_not_those_of_one_namespace(namespace: MemoryNamespace) -> None:
    with pytest.raises(errors.InvalidInputError, match="ListTables"):
        namespace.list_all_tables(api.ListTablesRequest(id=DATASET))


@pytest.mark.parametrize("other", [{"version": 1}, {"branch": "b"}])
def test_a_tag_together_with_a_version_or_branch_is_invalid_input(
    namespace: MemoryNamespace, other: dict[str, Any]
) -> None:
    create(namespace, TABLE)
    with pytest.raises(errors.InvalidInputError, match="together"):
        namespace.describe_table(api.DescribeTableRequest(id=TABLE, tag="v1", **other))


def test_data_that_cannot_be_written_leaves_a_table_that_can_be_completed(
    namespace: MemoryNamespace,
) -> None:
    location = Path(declare(namespace))
    location.mkdir(parents=True)
    (location / "data").write_text("a file where Lance wants a directory")
    with pytest.raises(errors.ServiceUnavailableError, match="create the table again"):
        create(namespace, TABLE)
    request = api.DescribeTableRequest(id=TABLE, check_declared=True)
    assert namespace.describe_table(request).is_only_declared
    (location / "data").unlink()
    create(namespace, TABLE)
    assert count_rows(namespace, TABLE) == 3


def test_an_overwrite_that_loses_a_race_is_a_concurrent_modification(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = create(namespace, TABLE, rows=1).location
    write = lance.write_dataset

    def lose(data: Any, where: Any, **options: Any) -> object:
        if getattr(where, "uri", where) != location:  # in memory, only the schema is tried
            return write(data, where, **options)
        write(pa.table({"a": [2]}), location, mode="append")
        raise OSError("Retryable commit conflict")

    monkeypatch.setattr(lance, "write_dataset", lose)
    with pytest.raises(errors.ConcurrentModificationError, match=TABLE[-1]):
        create(namespace, TABLE, mode="Overwrite")
    assert lance.dataset(location).to_table()["a"].to_pylist() == [0, 2]

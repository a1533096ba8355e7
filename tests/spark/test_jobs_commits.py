"""The commit of a job, by what the table has afterwards: once, wherever its reply went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pytest
from lance.fragment import write_fragments
from lance_namespace.errors import ServiceUnavailableError

from lance_bridge.requests import Ref
from lance_bridge_spark.addresses import TableAddress
from lance_bridge_spark.jobs.commits import send_once
from lance_bridge_spark.lookup import find_table

from .job_tables import make, numbered

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("branch", [None, "side"])
def test_a_commit_whose_reply_is_lost_is_found_on_its_branch(
    tmp_path: Path, branch: str | None
) -> None:
    place = make(tmp_path / "t", fragments=1, rows=5)
    lance.dataset(place).create_branch("side")
    table = find_table(TableAddress(location=place))
    dataset = table.open(Ref(branch=branch), write=True)
    files = write_fragments(numbered(5, 100), dataset)
    append = lance.LanceOperation.Append(files)
    transaction = lance.Transaction(read_version=dataset.version, operation=append)
    sent: list[Any] = []

    def send() -> int:
        sent.append(lance.LanceDataset.commit(dataset, transaction).version)
        raise ServiceUnavailableError("the reply is lost")

    version = send_once(
        table, dataset, send, lambda other: other.uuid == transaction.uuid, "nothing was done"
    )
    assert [version] == sent
    assert table.open(Ref(branch=branch)).count_rows() == 10

"""Clean-up takes old versions and what failed jobs left; how jobs commit, and show what they do."""

from __future__ import annotations

import io
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pytest
from lance.fragment import write_fragments
from lance_namespace import errors
from lance_namespace.errors import ServiceUnavailableError

from lance_bridge.dataset import maintenance
from lance_bridge.requests import Ref
from lance_bridge_spark.addresses import TableAddress
from lance_bridge_spark.jobs import clean_up
from lance_bridge_spark.jobs.commits import send_once
from lance_bridge_spark.jobs.tasks import phases
from lance_bridge_spark.lookup import find_table

from .job_tables import ids, make, numbered

pytestmark = [pytest.mark.quick, pytest.mark.spec("spark.md#clean_up")]

EIGHT_DAYS = 8 * 24 * 3600


def left_behind(place: str, name: str, age: float) -> Path:
    """Return a data file that no version names, as a job that failed leaves it."""
    path = Path(place) / "data" / name
    path.write_bytes(b"rows that no version has")
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def test_versions_that_are_young_stay(tmp_path: Path) -> None:
    place = make(tmp_path / "t", fragments=3)
    assert clean_up(None, place).versions == 0
    assert len(lance.dataset(place).versions()) == 3


def test_old_versions_go_and_the_latest_and_tagged_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "LEAST_AGE", timedelta())
    place = make(tmp_path / "t", fragments=4)
    lance.dataset(place).tags.create("kept", 2)
    now = timedelta(microseconds=1)
    planned = clean_up(None, place, older_than=now, dry_run=True)
    assert len(lance.dataset(place).versions()) == 4
    done = clean_up(None, place, older_than=now)
    assert (planned.versions, done.versions) == (2, 2)
    assert [each["version"] for each in lance.dataset(place).versions()] == [2, 4]
    assert len(ids(place)) == 200


def test_an_old_version_stays_that_was_the_latest_until_just_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "LEAST_AGE", timedelta())
    place = make(tmp_path / "t", fragments=2)
    listed: Any = lance.dataset(place).versions()
    made = listed[-1]["timestamp"].timestamp()
    age = timedelta(seconds=2)
    while time.time() - made < age.total_seconds():
        time.sleep(0.05)
    lance.dataset(place).delete("id < 10")
    assert clean_up(None, place, older_than=age).versions == 1
    assert [each["version"] for each in lance.dataset(place).versions()] == [2, 3]


def test_files_of_failed_jobs_go_when_no_running_job_can_have_them(tmp_path: Path) -> None:
    place = make(tmp_path / "t", fragments=2)
    old = left_behind(place, "old.lance", EIGHT_DAYS)
    young = left_behind(place, "young.lance", 3600)
    done = clean_up(None, place)
    assert (done.data_files, old.exists(), young.exists()) == (1, False, True)
    assert len(ids(place)) == 100


def test_an_age_that_is_not_safe_is_refused(tmp_path: Path) -> None:
    place = make(tmp_path / "t", fragments=1)
    with pytest.raises(errors.InvalidInputError, match="older_than must be 1:00:00 or more"):
        clean_up(None, place, older_than=timedelta(0))
    with pytest.raises(errors.InvalidInputError, match="keep_versions must be 1 or more"):
        clean_up(None, place, keep_versions=0)


class Terminal(io.StringIO):
    """A terminal that keeps what was shown."""

    def isatty(self) -> bool:
        return True


@pytest.mark.spec("spark.md#jobs")
def test_phases_are_shown_on_a_terminal_only() -> None:
    pytest.importorskip("rich")
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        with phases("compact prod.db.t", 2, stream=stream) as shown:
            shown.begin("plan")
            shown.begin("commit")
    assert "compact prod.db.t" in terminal.getvalue()
    assert "2/2" in terminal.getvalue()
    assert file.getvalue() == ""


# -- commits ---------------------------------------------------------------------------------------


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

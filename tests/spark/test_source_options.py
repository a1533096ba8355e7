"""Options of Delta, Iceberg and Spark's own formats: those that have a meaning, and all others."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import lance
import pytest
from lance_namespace.errors import InvalidInputError
from pyspark.sql.datasource import CaseInsensitiveDict

from lance_bridge_spark.source import with_catalogs
from lance_bridge_spark.source.foreign_options import OTHER_NAMES, REFUSED
from lance_bridge_spark.source.options import KNOWN, Options
from lance_bridge_spark.source.worker_calls import LanceValueError

from .source_helpers import ids_in, numbers, read, source, write

pytestmark = [pytest.mark.quick, pytest.mark.spec("spark.md#options-of-other-formats")]


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A table of four rows in two versions."""
    path = str(tmp_path / "t.lance")
    lance.write_dataset(numbers(1, 2), path)
    lance.write_dataset(numbers(3, 4), path, mode="append")
    return path


def test_every_other_name_is_of_an_option_and_no_option_is_refused() -> None:
    assert set(OTHER_NAMES.values()) <= set(KNOWN)
    names = {each.lower() for each in (*OTHER_NAMES, *REFUSED)}
    assert not names & set(KNOWN)
    assert len(names) == len(OTHER_NAMES) + len(REFUSED)


@pytest.mark.parametrize("name", ["versionAsOf", "versionasof", "VERSIONASOF"])
def test_a_version_is_chosen_by_its_other_names(place: str, name: str) -> None:
    assert ids_in(read({"path": place, name: "1"})) == [1, 2]


def test_a_time_is_chosen_by_its_other_names(place: str) -> None:
    made: Any = lance.dataset(place).versions()[0]["timestamp"]
    moment = made.astimezone(timezone.utc).isoformat()
    assert ids_in(read({"path": place, "timestampAsOf": moment})) == [1, 2]
    assert ids_in(read({"path": place, "timestampAsOf": "2199-01-31T00:00Z"})) == [1, 2, 3, 4]
    millis = Options({"as-of-timestamp": "1500"}).reading().timestamp
    assert millis == datetime(1970, 1, 1, 0, 0, 1, 500_000, timezone.utc)


@pytest.mark.spec("spark.md#time-travel")
@pytest.mark.parametrize(
    ("zone", "offset"),
    [
        ("UTC", "+00:00"),
        ("Z", "+00:00"),
        ("America/New_York", "-05:00"),
        ("+01:00", "+01:00"),
        ("-5", "-05:00"),
        ("GMT+5:30", "+05:30"),
    ],
)
def test_a_time_without_a_zone_is_in_that_of_the_session(zone: str, offset: str) -> None:
    kind = with_catalogs({}, zone=zone)
    for text in ("2026-01-31", "2026-01-31 12:30:00", "2026-01-31T12:30:00"):
        for name in ("timestamp", "timestampAsOf"):
            options = CaseInsensitiveDict({"path": "/t", name: text})
            found = kind(options)._options().reading().timestamp
            assert found is not None
            clock = text[11:] or "00:00:00"
            assert found == datetime.fromisoformat(f"2026-01-31T{clock}{offset}")
    with_own = CaseInsensitiveDict({"path": "/t", "timestamp": "2026-01-31T12:00:00+02:00"})
    found = kind(with_own)._options().reading().timestamp
    assert found == datetime(2026, 1, 31, 10, tzinfo=timezone.utc)


@pytest.mark.spec("spark.md#time-travel")
@pytest.mark.parametrize(
    ("zone", "message"),
    [
        (None, "'timestampAsOf' needs a zone, as in 2026-01-31T00:00:00.00:00: .*register"),
        ("Mars/Olympus", "does not know the time zone 'Mars/Olympus'"),
        ("../etc", "does not know the time zone"),
        ("+99:00", "does not know the time zone"),
    ],
)
def test_a_time_without_a_known_zone_is_refused(zone: str | None, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Options({"timestampAsOf": "2026-01-31"}, zone=zone).reading()


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_an_option_without_a_meaning_is_refused_with_what_to_use(place: str, name: str) -> None:
    for each in (name, name.lower(), name.upper()):
        with pytest.raises(LanceValueError) as refused:
            source({"path": place, each: "x"}).schema()
        assert f"no option '{name}': {REFUSED[name]}" in str(refused.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"versionAsOf": "soon"}, "'versionAsOf' must be a whole number"),
        ({"timestampAsOf": "soon"}, "'timestampAsOf' must be a time such as"),
        ({"as-of-timestamp": "soon"}, "milliseconds since 1970"),
        ({"as-of-timestamp": "9" * 30}, "milliseconds since 1970"),
        ({"versionAsOf": "1", "version": "1"}, "version and versionAsOf have the same meaning"),
        ({"versionAsOf": "1", "tag": "x"}, "version and tag each choose a version"),
        ({"mergeSchema": "perhaps"}, "'mergeschema' must be true or false"),
    ],
)
def test_wrong_values_are_named_as_they_were_given(options: dict[str, str], message: str) -> None:
    def check() -> None:
        made = Options(options)
        made.reading()
        made.writing()

    with pytest.raises(InvalidInputError, match=message):
        check()


def test_files_are_as_large_as_the_other_names_say(place: str) -> None:
    write({"path": place, "maxRecordsPerFile": 1}, numbers(5, 6), overwrite=True)
    assert [each.count_rows() for each in lance.dataset(place).get_fragments()] == [1, 1]
    for unlimited in (0, -1):
        write({"path": place, "maxRecordsPerFile": unlimited}, numbers(5, 6), overwrite=True)
        assert [each.count_rows() for each in lance.dataset(place).get_fragments()] == [2]
    assert Options({"target-file-size-bytes": "1000"}).writing().max_bytes_per_file == 1000
    assert Options({"split-size": "1000"}).reading().bytes_per_task == 1000
    assert Options({"startingVersion": "latest"}).text("start_version") == "latest"


def test_an_overwrite_replaces_the_columns_by_the_other_name(place: str) -> None:
    rows = numbers(7).drop_columns(["word"])
    with pytest.raises(LanceValueError, match="word"):
        write({"path": place}, rows, overwrite=True)
    write({"path": place, "overwriteSchema": True}, rows, overwrite=True)
    assert lance.dataset(place).schema.names == ["id"]


def test_a_merge_of_schemas_is_read_and_not_written(place: str) -> None:
    assert len(ids_in(read({"path": place, "mergeSchema": True}))) == 4
    write({"path": place, "mergeSchema": False}, numbers(5))
    with pytest.raises(LanceValueError, match="WITH SCHEMA EVOLUTION"):
        write({"path": place, "mergeSchema": True}, numbers(6))
    assert ids_in(lance.dataset(place).to_table()) == [1, 2, 3, 4, 5]


def test_the_specification_names_every_option() -> None:
    text = (Path(__file__).parents[2] / "specs" / "spark.md").read_text(encoding="utf-8")
    section = text.split("### Options of Other Formats\n")[1].split("\n### ")[0]
    assert [each for each in (*OTHER_NAMES, *REFUSED) if f"`{each}`" not in section] == []

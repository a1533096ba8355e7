"""Where the data of other tools' entries may be."""

from __future__ import annotations

import pytest

from lance_bridge.data_locations import other_locations

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#droptable")]

DELTA = {"spark.sql.sources.provider": "delta"}
UNKNOWN = {"spark.sql.sources.provider": "com.example.format"}


@pytest.mark.parametrize(
    ("parameters", "options", "expected"),
    [
        pytest.param(DELTA, {"path": "s3://b/t"}, ["s3://b/t"], id="spark"),
        pytest.param(DELTA, {"PATH": "file:/data/t"}, ["file:/data/t"], id="any-case"),
        pytest.param({}, {"path": "/data/t"}, ["/data/t"], id="plain-path"),
        pytest.param(
            DELTA, {"paths": '["s3://b/a", "s3://b/c,d"]'}, ["s3://b/a", "s3://b/c,d"], id="json"
        ),
        pytest.param(
            {}, {"path": "s3://b/a,s3://b/c, /d/e"}, ["s3://b/a", "s3://b/c", "/d/e"], id="commas"
        ),
        pytest.param({}, {"path": "s3://b/t/dt=*/x"}, ["s3://b/t"], id="pattern"),
        pytest.param({}, {"path": "s3://b/t[0-9]"}, ["s3://b"], id="pattern-in-the-last-name"),
        pytest.param(
            {"storage.location.template": "s3://b/t/${day}/${hour}"}, {}, ["s3://b/t"], id="athena"
        ),
        pytest.param(
            {"table_type": "ICEBERG", "metadata_location": "s3://b/t/metadata/1.json"},
            {},
            ["s3://b/t"],
            id="iceberg",
        ),
        pytest.param(
            {"metadata_location": "s3://b/elsewhere/1.json"}, {}, ["s3://b/elsewhere"], id="moved"
        ),
        pytest.param(
            {"table_type": "ICEBERG", "write.data.path": "s3://b/data"},
            {},
            ["s3://b/data"],
            id="iceberg-data",
        ),
        pytest.param(UNKNOWN, {"store": "abfss://c@a/t"}, ["abfss://c@a/t"], id="unknown-format"),
        pytest.param({**UNKNOWN, "store": "/data/t"}, {}, ["/data/t"], id="unknown-property"),
        pytest.param(DELTA, {"store": "s3://b/t"}, [], id="known-format"),
        pytest.param(UNKNOWN, {"docs": "https://b/t", "n": "1"}, [], id="no-location"),
        pytest.param(UNKNOWN, {"bucket": "s3://b", "root": "/", "home": "/data"}, [], id="roots"),
        pytest.param(
            {"table_type": "Lance", "source": "s3://b/t", "path": "/d/t"}, {}, [], id="lance"
        ),
        pytest.param({"table_type": "lance"}, {"path": "/d/t"}, ["/d/t"], id="lance-of-spark"),
    ],
)
def test_other_locations_are_found(
    parameters: dict[str, str], options: dict[str, str], expected: list[str]
) -> None:
    assert list(other_locations("s3://own/t", parameters, [options, None])) == expected


def test_the_entry_s_own_location_is_no_other_one() -> None:
    assert other_locations("s3://b/t", DELTA, [{"path": "s3://b/t"}]) == ()


def test_a_table_of_symlinks_has_its_files_above() -> None:
    location = "s3://b/delta/_symlink_format_manifest/day=1"
    assert other_locations(location, {}) == ("s3://b/delta",)


def test_an_input_format_makes_an_entry_known() -> None:
    parquet = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat"
    assert other_locations(None, {"from": "s3://b/t"}, input_format=parquet) == ()
    assert other_locations(None, {"from": "s3://b/t"}, input_format="com.example.Format") == (
        "s3://b/t",
    )

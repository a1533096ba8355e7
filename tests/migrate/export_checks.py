"""What `test_export` checks in the process of a Spark session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lance
import lance_namespace as api
import numpy as np
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidTableStateError
from migrate.building import Run
from migrate.sparking import Died, Scene, failed, moments, run_checks

from lance_bridge.migrate import Ends, State, address_of
from lance_bridge.migrate.spark.session import address_of_session


def _rows() -> pa.Table:
    vectors = pa.array([[float(i), 0.5] for i in range(20)], pa.list_(pa.float32(), 2))
    return pa.table(
        {
            "id": range(20),
            "part": [i % 2 for i in range(20)],
            "vector": vectors,
            "half": pa.array(np.arange(20, dtype=np.float16)),
        }
    )


def _made(scene: Scene) -> None:
    with scene.place.connect() as namespace:
        namespace.create_namespace(api.CreateNamespaceRequest(id=[scene.target]))
        place = str(scene.directory / "lance" / "t.lance")
        lance.write_dataset(_rows(), place)
        request = api.RegisterTableRequest(id=[scene.target, "t"], location=place)
        namespace.register_table(request)


@contextmanager
def _exporting(scene: Scene) -> Iterator[Run]:
    with scene.place.connect() as namespace:
        source, target = address_of(namespace), address_of_session(scene.spark)
        yield Run("export", Ends(namespace, scene.spark, source, target), scene.migrations)


def check_tables_are_exported_verified_and_taken_back(scene: Scene) -> None:
    _made(scene)
    database = scene.database("out")
    out = scene.directory / "parquet"
    with _exporting(scene) as run:
        plan = run.plan(
            include=[f"{scene.target}.*"],
            directory=str(out),
            database=database,
            partition_by=["part"],
        )
        [item] = plan.to_do
        assert item.rows == 20
        assert {p.column for p in item.problems} == {"vector", "half"}
        record = run.execute(verify="checksums")
        assert failed(record) == []
        found = scene.spark.table(f"{database}.t")
        assert found.count() == 20
        assert found.where("id = 3").collect()[0]["vector"] == [3.0, 0.5]
        assert (out / scene.target / "t" / "part=1").is_dir()
        # Versions that come after the plan are not exported.
        assert record.items[item.key].facts["rows_written"] == 20
        assert run.undo().state is State.UNDONE
        assert not (out / scene.target / "t").exists()
        assert not scene.spark.catalog.tableExists(f"{database}.t")
    assert scene.dataset("t").count_rows() == 20


def check_files_of_others_are_neither_overwritten_nor_deleted(scene: Scene) -> None:
    _made(scene)
    out = scene.directory / "parquet"
    with _exporting(scene) as run:
        run.plan(include=[f"{scene.target}.*"], directory=str(out))
        place = out / scene.target / "t"
        place.mkdir(parents=True)
        (place / "theirs").write_text("x")
        record = run.execute()
        assert "somebody else" in failed(record)[0]
        assert (place / "theirs").exists()
        plan = run.plan(include=[f"{scene.target}.*"], directory=str(out))
        assert "there already" in plan.blocked[0].blockers[0].text
        (place / "theirs").unlink()
        place.rmdir()
        run.plan(include=[f"{scene.target}.*"], directory=str(out))
        assert failed(run.execute()) == []
        (place / "theirs").write_text("x")
        with pytest.raises(InvalidTableStateError, match="somebody else has changed"):
            run.undo()
        assert (place / "theirs").exists()


def check_killed_at_every_moment(scene: Scene) -> None:
    _made(scene)
    database = scene.database("out")
    out = scene.directory / "parquet"
    options = {
        "include": [f"{scene.target}.*"],
        "directory": str(out),
        "database": database,
    }
    with _exporting(scene) as run:
        run.plan(**options)
        with moments() as passed:
            assert failed(run.execute(at_once=1)) == []
        run.undo()
        for moment in range(passed()):
            run.plan(**options)
            with pytest.raises(Died), moments(moment):
                run.execute(at_once=1)
            if moment % 2:
                assert failed(run.execute(at_once=1, verify="checksums")) == [], moment
                assert scene.spark.table(f"{database}.t").count() == 20, moment
            assert run.undo().state is State.UNDONE, moment
            assert not (out / scene.target / "t").exists(), moment
            assert not scene.spark.catalog.tableExists(f"{database}.t"), moment


CHECKS = {name: each for name, each in globals().items() if name.startswith("check_")}


def run(spark: Any, uri: str, directory: str, names: list[str]) -> dict[str, str]:
    """Do checks, and return what failed of each."""
    return run_checks(CHECKS, spark, uri, directory, names)

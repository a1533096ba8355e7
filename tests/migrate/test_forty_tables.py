"""Forty tables, converted by the wheel in a clean environment: killed, cut off, and incomplete.

Tables of Delta and Iceberg, whose packages Spark fetches, are in `test_lakes`.
"""

from __future__ import annotations

import json
import random
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from install.environments import Environment, build_wheel
from migrate.forty_tables import entries
from migrate.interrupted import events, failures, kill_at_random, started
from migrate.places import drop_in_hive, files
from migrate.sessions import beside
from servers.metastores import Metastores
from servers.proxy import ThriftProxy

pytestmark = [pytest.mark.slow, pytest.mark.spec("migration.md#convert")]

SEED = 20261123
KILLS = 20
OUTAGE_SECONDS = 6.0
DAMAGED = {"gone", "emptied", "less", "part_gone", "part_less"}
DAMAGED_LATER = {"less_later", "part_gone_later"}
_OF_JAVA = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For sessions that are over before the second compiler has been of use."""


@pytest.fixture(scope="session")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel with the extras of a migration, and nothing else."""
    wheel = build_wheel(tmp_path_factory.mktemp("wheel"))
    return Environment(tmp_path_factory.mktemp("clean"), wheel, "hive,spark,cli")


class Scene:
    """A metastore behind a proxy, forty tables and some damaged ones, and where Lance's go."""

    def __init__(self, port: int, directory: Path, clean: Environment) -> None:
        self.port, self.directory, self.clean = port, directory, clean
        self.prefix = f"m_{uuid.uuid4().hex[:10]}"
        self.database, self.target = f"{self.prefix}_raw", f"{self.prefix}_lance"
        self.raw, self.root = directory / "raw", directory / "lance"
        self.root.mkdir()
        self.proxy = ThriftProxy("127.0.0.1", port).start()
        self.chance = random.Random(SEED)
        self.id = ""
        self._outputs = 0

    @property
    def properties(self) -> dict[str, str]:
        return {"uri": f"thrift://127.0.0.1:{self.port}", "root": str(self.root)}

    @property
    def journal(self) -> Path:
        return self.directory / "state" / "migrations" / self.id / "journal.jsonl"

    def spark(self, function: str, **arguments: Any) -> Any:
        """Call a function of `forty_tables` with a session of this project's environment."""
        session = beside(f"thrift://127.0.0.1:{self.port}")
        return session.run(
            f"migrate.forty_tables:{function}",
            self.directory / "spark",
            seconds=600,
            database=self.database,
            **arguments,
        )

    def planning(self) -> list[str]:
        """Return the arguments of the command that plans."""
        where = ["-p", f"uri={self.proxy.uri}", "-p", f"root={self.root}"]
        what = ["--include", f"{self.database}.*", "--namespace", self.target]
        settings = ["spark.master=local[2]", "spark.ui.enabled=false", _OF_JAVA]
        how = [word for each in settings for word in ("--spark-conf", each)]
        return ["migrate", "convert", "hive", *what, *where, *how, *self._common()]

    def resuming(self) -> list[str]:
        """Return the arguments of the command that resumes."""
        how = ["--skip-blocked", "--verify", "counts", "--at-once", "4"]
        how += ["--source-property", _OF_JAVA]
        return ["migrate", "resume", self.id, *how, *self._common()]

    def undoing(self) -> list[str]:
        how = ["--source-property", _OF_JAVA]
        return ["migrate", "undo", self.id, *how, *self._common()]

    def _common(self) -> list[str]:
        return ["--state", str(self.directory / "state"), "--output", "json"]

    def output(self) -> Path:
        """Return a file for what the next command prints."""
        self._outputs += 1
        return self.directory / f"output-{self._outputs:02}.json"

    def run(self, arguments: list[str]) -> tuple[int, dict[str, Any]]:
        """Run a command to its end; return the exit code and its answer."""
        output = self.output()
        with started(self.clean, arguments, output) as command:
            code = command.wait()
            assert output.read_text(), command.shown[-3000:]
            return code, json.loads(output.read_text())


@pytest.fixture
def scene(metastores: Metastores, clean: Environment, tmp_path: Path) -> Iterator[Scene]:
    port = metastores.get("3.1").port
    made = Scene(port, tmp_path, clean)
    yield made
    made.proxy.close()
    drop_in_hive(port, made.prefix)


def remove_files(raw: Path) -> None:
    """Remove files and a partition, before there is a plan."""
    shutil.rmtree(raw / "gone")
    for file in (raw / "emptied").glob("part-*"):
        file.unlink()
    next((raw / "less").glob("part-*")).unlink()
    shutil.rmtree(raw / "part_gone" / "part=1")
    next((raw / "part_less" / "part=0").glob("part-*")).unlink()


def remove_files_later(raw: Path) -> None:
    """Remove files and a partition that the plan has counted."""
    next((raw / "less_later").glob("part-*")).unlink()
    shutil.rmtree(raw / "part_gone_later" / "part=2")


def plan(scene: Scene) -> None:
    """Plan, and kill that once; no plan that is not whole may be kept."""
    with started(scene.clean, scene.planning(), scene.output()) as command:
        command.wait_until(lambda: command.seconds >= scene.chance.uniform(5.0, 15.0))
        assert command.kill()
    code, planned = scene.run(scene.planning())
    assert code == 3
    blocked = {
        item["source"][-1]
        for item in planned["items"]
        if any(each["severity"] == "blocker" for each in item["problems"])
    }
    assert blocked == DAMAGED
    scene.id = planned["id"]


def cut_off_metastore(scene: Scene) -> Callable[[], None]:
    """Have no metastore answer; return what ends that."""
    port = scene.proxy.port
    scene.proxy.close()

    def connect() -> None:
        scene.proxy = ThriftProxy("127.0.0.1", scene.port, port=port).start()

    return connect


def take_away_storage(scene: Scene) -> Callable[[], None]:
    """Have the sources' storage be away; return what ends that."""
    away = scene.raw.with_name("away")
    scene.raw.rename(away)

    def bring_back() -> None:
        away.rename(scene.raw)

    return bring_back


def have_outage(scene: Scene, begin: Callable[[Scene], Callable[[], None]]) -> None:
    """Have something be away for a while as tables are converted, and kill the run after that."""
    with started(scene.clean, scene.resuming(), scene.output()) as command:
        before = events(scene.journal)
        assert command.wait_until(lambda: events(scene.journal) > before), command.shown
        end = begin(scene)
        until = command.seconds + OUTAGE_SECONDS
        command.wait_until(lambda: command.seconds >= until)
        end()
        later = command.seconds + scene.chance.uniform(0.0, 2.0)
        command.wait_until(lambda: command.seconds >= later)
        assert "Traceback" not in command.messages


def test_forty_tables_are_exact_or_named_whatever_happens(scene: Scene) -> None:
    names = scene.spark("make", directory=str(scene.raw))
    assert len(names) == 40
    remove_files(scene.raw)
    plan(scene)
    remove_files_later(scene.raw)
    before, entries_before = files(scene.raw), entries(scene.port, scene.database)
    kills = 1
    outages = {KILLS // 4: cut_off_metastore, KILLS // 2: take_away_storage}
    while kills < KILLS:
        if kills in outages:
            have_outage(scene, outages.pop(kills))
        with started(scene.clean, scene.resuming(), scene.output()) as command:
            assert kill_at_random(command, scene.journal, scene.chance), command.shown[-3000:]
        kills += 1
    code, record = scene.run(scene.resuming())
    print(f"{kills} kills, {events(scene.journal)} events", failures(scene.journal))

    states = {key.split("/")[-1]: each for key, each in record["items"].items()}
    assert code == 1
    failed = {name: each for name, each in states.items() if each["state"] == "failed"}
    assert set(failed) == DAMAGED_LATER
    assert all(name in each["error"]["message"] for name, each in failed.items())
    assert {name for name, each in states.items() if each["state"] == "blocked"} == DAMAGED
    assert {n for n, each in states.items() if each["state"] == "done"} >= set(names)
    found = scene.spark("differences", target=scene.target, properties=scene.properties,
                        names=names)  # fmt: skip
    assert found == {}
    assert files(scene.raw) == before
    assert entries(scene.port, scene.database) == entries_before
    assert scene.spark("left", target=scene.target, properties=scene.properties) == []

    code, undone = scene.run(scene.undoing())
    assert (code, undone["state"]) == (0, "undone")
    assert files(scene.root) == {}
    assert files(scene.raw) == before

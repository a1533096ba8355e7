"""The whole demo: `make demo`.

First the main job on a real Hive Metastore with Spark, then a gateway that serves it to other
clients, then the same calls on Hive, Glue and Unity Catalog. Each step says what it does, shows the
call, and checks its result. All files are in a temporary directory, which is removed at the end,
also if the demo is interrupted.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from lance_namespace.errors import ServiceUnavailableError
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from servers.processes import end_children_with_this_process

from demo import catalogs, data_operations, gateway, spark_side, steps
from demo.story import Story
from lance_bridge_metastore import Metastore
from lance_bridge_spark import set_java_home

PARTS = ("spark", "gateway", "catalogs")
_IN_SPARK = {"spark", "gateway"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all steps, or those of one part."""
    parts = _parts(arguments)
    # SIGTERM cleans up as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if _IN_SPARK & {*parts}:
        try:
            set_java_home()
        except ServiceUnavailableError as error:
            sys.exit(str(error))
    print("lance-bridge: Lance tables in the catalogs you have, next to your other tables")
    story = Story()
    with tempfile.TemporaryDirectory(prefix="lance-bridge-demo-") as name:
        directory = Path(name)
        story.step(
            "Start a Hive Metastore",
            "A real one, in its own Java process, with an empty database. You would use the one "
            "that you have.",
        )
        story.call('metastore = Metastore("2.3").start()')
        with Metastore("2.3", directory / "hms", warehouse=directory / "warehouse") as metastore:
            story.result(f"Hive Metastore {metastore.release.full_version} at {metastore.uri}")
            if _IN_SPARK & {*parts}:
                with_spark(story, metastore.uri, directory, parts)
            if "catalogs" in parts:
                catalogs.on_all_three(story, metastore.uri, directory)
    print(
        f"\nDone: {story.steps} steps, {story.checks} checks, all as expected, in "
        f"{story.seconds:.0f} s. All servers are stopped, and all files are removed."
    )


def _parts(arguments: Sequence[str] | None) -> Sequence[str]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 2)[1])
    parser.add_argument("--part", choices=PARTS, help="only this one")
    chosen = parser.parse_args(arguments).part
    return (chosen,) if chosen else PARTS


def with_spark(story: Story, uri: str, directory: Path, parts: Sequence[str]) -> None:
    """Run the parts that use Spark, in one session."""
    story.step("Start Spark on that metastore", "Two executor threads in one Java process.")
    story.call(f'SparkSession.builder.config("spark.hadoop.hive.metastore.uris", "{uri}") …')
    with spark_side.session(uri, directory / "spark") as spark:
        story.result(f"Spark {spark.version}")
        if "spark" in parts:
            copy_and_use(story, spark, uri)
        if "gateway" in parts:
            gateway.through_gateway(story, spark, uri, directory)


def copy_and_use(story: Story, spark: SparkSession, uri: str) -> None:
    """Copy a Parquet table of Spark into a Lance table, and use that one."""
    steps.make_parquet_table(story, spark)
    demo = steps.Demo(story, spark, steps.connect(story, uri), uri)
    steps.create(demo)
    steps.fill_from_parquet(demo)
    steps.list_both_ways(demo)
    location = steps.describe(demo)
    steps.search(demo)
    steps.append_and_travel(demo)
    steps.read_in_spark(demo)
    steps.read_without_lance(demo)
    data_operations.merge_and_search(demo)
    data_operations.tag_and_branch(demo)
    steps.deregister_and_register(demo, location)
    steps.rename(demo, location)
    steps.drop(demo, location)


def _is_interrupt(error: BaseException | None) -> bool:
    """Return whether Ctrl-C caused an error: Py4J may raise its own while it handles one."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


if __name__ == "__main__":
    end_children_with_this_process()
    try:
        main()
    except (KeyboardInterrupt, Py4JError) as error:
        if not _is_interrupt(error):
            raise
        print("\nInterrupted. All servers are stopped, and all files are removed.")
        sys.exit(128 + signal.SIGINT)

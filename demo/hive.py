"""The main job, step by step, on a real Hive Metastore: `make demo`.

A Parquet table that Spark made becomes a Lance table through ``impl=hive``; it is listed,
described, searched, changed, read back in Spark, renamed and dropped. Each step says what it does,
shows the call, and checks what came of it. Everything lives in a temporary directory and is gone
afterwards, also when the demo is interrupted.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from demo import spark_side, steps
from demo.telling import Story
from lance_bridge_hive.embedded import Metastore


def main() -> None:
    """Run all steps."""
    # A terminated demo cleans up as an interrupted one does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    spark_side.require_java()
    print("lance-bridge: a Lance table in a Hive Metastore, beside the tables that are there")
    story = Story()
    with tempfile.TemporaryDirectory(prefix="lance-bridge-demo-") as name:
        directory = Path(name)
        story.step(
            "Start a Hive Metastore",
            "A real one, in a Java process of its own, with an empty database behind it. You "
            "would use the one that you have.",
        )
        story.call('metastore = Metastore("2.3").start()')
        with Metastore("2.3", directory / "hms", warehouse=directory / "warehouse") as metastore:
            story.result(f"Hive Metastore {metastore.release.full_version} at {metastore.uri}")
            run(story, metastore.uri, directory)
    print(
        f"\nDone: {story.steps} steps, {story.checks} checks, all as expected, in "
        f"{story.seconds:.0f} s. Metastore and Spark are stopped, and all files are removed."
    )


def run(story: Story, uri: str, directory: Path) -> None:
    """Run the steps that need a metastore."""
    story.step("Start Spark on that metastore", "Two executor threads in one Java process.")
    story.call(f'SparkSession.builder.config("spark.hadoop.hive.metastore.uris", "{uri}") …')
    with spark_side.session(uri, directory / "spark") as spark:
        story.result(f"Spark {spark.version}")
        steps.make_parquet_table(story, spark)
        demo = steps.Demo(story, spark, steps.connect(story, uri), uri)
        steps.create(demo)
        steps.fill_from_parquet(demo)
        steps.list_both_ways(demo)
        location = steps.describe(demo)
        steps.search(demo)
        steps.append_and_travel(demo)
        steps.read_in_spark(demo)
        steps.be_a_good_neighbour(demo)
        steps.deregister_and_register(demo, location)
        steps.rename(demo, location)
        steps.drop(demo, location)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("\nInterrupted. Metastore and Spark are stopped, and all files are removed.")
        sys.exit(128 + signal.SIGINT)

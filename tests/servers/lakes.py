"""Spark with Avro, the tables of Delta in its own catalog, and a catalog of Iceberg's."""

from __future__ import annotations

from servers.sparks import ROOT

RELEASE = "4.1"
"""The latest release of Spark that both Delta and Iceberg are made for."""
ICE = "ice"
"""The session's catalog of Iceberg's tables."""
_PACKAGES = (
    "io.delta:delta-spark_4.1_2.13:4.4.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.apache.spark:spark-avro_2.13:4.1.1",
)
_EXTENSIONS = (
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
)


def conf_of(uri: str) -> dict[str, str]:
    """Return the settings with which a session has tables of Delta, and a catalog of Iceberg's."""
    ice = f"spark.sql.catalog.{ICE}"
    return {
        "spark.jars.packages": ",".join(_PACKAGES),
        "spark.jars.ivy": str(ROOT / ".cache" / "ivy"),
        "spark.sql.extensions": ",".join(_EXTENSIONS),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        ice: "org.apache.iceberg.spark.SparkCatalog",
        f"{ice}.type": "hive",
        f"{ice}.uri": uri,
        # This metastore has no tables for locks, and there is one writer.
        "spark.hadoop.iceberg.engine.hive.lock-enabled": "false",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.databricks.delta.snapshotPartitions": "1",
        # As many tasks list the files for a VACUUM; by default 10,000.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    }

"""Makes a session know its catalogs: in SQL, and for the data source wherever that runs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lance_namespace.errors import UnsupportedOperationError

from lance_bridge import engine
from lance_bridge.errors import invalid

from .jobs import SparkEngine
from .jvm import jar
from .names import CATALOG_CLASS, CATALOG_SETTINGS, catalogs_of
from .redaction import set_patterns, warn_of_secrets, with_patterns
from .source import with_catalogs
from .workers import check_python

logger = logging.getLogger(__name__)

_JARS = "spark.jars"

Catalogs = Mapping[str, Mapping[str, str]]


def register(spark: Any, catalogs: Catalogs | None = None) -> None:
    """Make a session know its Lance catalogs; one of Spark Connect as well.

    Those are the catalogs that the session's settings declare, ``spark.sql.catalog.<name>.impl``
    and properties beside it, and those given here. Call it again for more catalogs; in SQL, a
    catalog that is registered keeps the properties that it has.

    Args:
        spark: A session of Spark 4.1, 4.2 or 4.3. All threads that use it know the catalogs.
        catalogs: Properties by catalog, ``impl`` among them; none for a catalog of that name in
            the configuration file.

    Without the jar of the SQL catalog (see `lance_bridge_spark.jvm.jar`) a warning is logged, and
    everything else works: the data source, the functions and the jobs. Operations of the namespace
    that need a compute engine (backfills, materialized views) use this session from here on.

    Raises:
        InvalidInputError: (13) a name given here is that of another connector's catalog; nothing
            is set.
        UnsupportedOperationError: (0) the Python of Spark's workers (``PYSPARK_PYTHON``) is not
            there, of another minor version than this one, or without this package; nothing is set.

    Secrets among the settings are a warning: see ``secrets.file``. Spark hides them in its event
    log, its plans and its web pages from here on, for which its redaction patterns are extended.
    """
    if not _is_remote(spark):
        check_python(spark)
    _refuse_others(spark, catalogs or {})
    set_patterns(spark)
    for name, properties in (catalogs or {}).items():
        for key, value in properties.items():
            spark.conf.set(f"{CATALOG_SETTINGS}{name}.{key}", value)
    known = catalogs_of(spark)
    warn_of_secrets(CATALOG_SETTINGS, {name: each.properties for name, each in known.items()})
    names = {*known, *(catalogs or {})}
    if _add_jar(spark):
        for name in sorted(names):
            if spark.conf.get(CATALOG_SETTINGS + name, None) is None:
                spark.conf.set(CATALOG_SETTINGS + name, CATALOG_CLASS)
        _load(spark, catalogs_of(spark))
    spark.dataSource.register(with_catalogs(catalogs_of(spark)))
    engine.use(SparkEngine(spark))


def _refuse_others(spark: Any, names: Iterable[str]) -> None:
    """Keep the properties of a catalog of ours from those of another connector."""
    for name in names:
        kind = spark.conf.get(CATALOG_SETTINGS + name, None)
        if kind not in (None, CATALOG_CLASS):
            raise invalid(f"Catalog '{name}' of this session is a {kind}: give another name")


def settings(
    catalogs: Catalogs | None = None, base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return settings that start a session with the SQL catalog, for `SparkSession.builder.config`.

    Args:
        catalogs: Properties by catalog, as for `register`.
        base: Settings to add to; jars named there stay.

    Raises:
        UnsupportedOperationError: (0) there is no jar, and none could be compiled.
    """
    merged = with_patterns(base or {})
    warn_of_secrets(CATALOG_SETTINGS, catalogs or {})
    jars = [part for part in merged.get(_JARS, "").split(",") if part]
    ours = str(jar.path())
    merged[_JARS] = ",".join(jars if ours in jars else [*jars, ours])
    for name, properties in (catalogs or {}).items():
        merged[CATALOG_SETTINGS + name] = CATALOG_CLASS
        for key, value in properties.items():
            merged[f"{CATALOG_SETTINGS}{name}.{key}"] = value
    return merged


def _add_jar(spark: Any) -> bool:
    """Give the jar to the session, which may have it from its start."""
    try:
        found = jar.path()
    except UnsupportedOperationError as error:
        logger.warning("No SQL catalog in this session. %s", error)
        return False
    if found.name not in [Path(part).name for part in _started_with(spark).split(",")]:
        if _is_remote(spark):
            spark.addArtifacts(str(found))
        else:
            escaped = str(found).replace("\\", "\\\\").replace("'", "\\'")
            spark.sql(f"ADD JAR '{escaped}'")
    return True


def _load(spark: Any, names: Iterable[str]) -> None:
    """Load the catalogs, since Spark finds an added jar only in the thread that has added it.

    A server of Spark Connect finds it in every thread.
    """
    if not _is_remote(spark):
        manager = spark._jsparkSession.sessionState().catalogManager()
        for name in names:
            manager.catalog(name)


def _is_remote(spark: Any) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def _started_with(spark: Any) -> str:
    jars: str = spark.conf.get(_JARS, "")
    return jars

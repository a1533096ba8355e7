"""Registers Lance catalogs with a Spark session, for SQL and for the data source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lance_bridge import engine
from lance_bridge.config import named_catalogs
from lance_bridge.errors import invalid

from . import jar
from .addresses import (
    CATALOG_CLASS,
    CATALOG_SETTINGS,
    HIDDEN,
    LEFT_OUT,
    SESSION_CATALOG,
    SESSION_CATALOG_CLASS,
    catalogs_in,
    catalogs_of,
    is_remote,
    setting,
    settings_of,
)
from .environment import check_executors, check_python
from .jar import JAR_NAME
from .jobs.engine import SparkEngine
from .redaction import set_patterns, warn_of_secrets, with_patterns
from .sessions import (
    CATALOGS_EXTENSION,
    EXTENSIONS,
    FUNCTIONS_EXTENSION,
    JARS,
    add_to_class_path,
    add_to_running_jvm,
    append_name,
    registered_elsewhere,
    share,
)
from .source import with_catalogs
from .source.memory import scan_memory
from .time_travel import TIME_ZONE

Catalogs = Mapping[str, Mapping[str, str]]


def register(spark: Any, catalogs: Catalogs | None = None, *, sql: bool = True) -> None:
    """Register Lance catalogs with a Spark session, including a Spark Connect session.

    These are the catalogs that the session's settings declare (``spark.sql.catalog.<name>.impl``
    and its properties), those given here, and those that this program has registered before, with
    any session but that of a Spark Connect server. Call it again to add catalogs; in SQL, a
    registered catalog keeps the properties that it was registered with.

    Sessions that begin later know the catalogs, too: those of ``newSession``, and those after
    ``stop``.

    Args:
        spark: A session of Spark 4.1, 4.2 or 4.3. All its threads can use the catalogs.
        catalogs: Properties by catalog, including ``impl``; none for a catalog of that name in
            the configuration file. They replace all properties that the session has for that
            catalog, except for those of the session catalog, to which they are added.
        sql: Whether to register the catalogs for SQL, which needs the jar of the SQL catalog. The
            data source, the functions and the jobs need no jar.

    Namespace operations that need a compute engine (backfills, materialized views) use this
    session from now on.

    Raises:
        InvalidInputError: (13) another connector's catalog has a name given here, or a catalog of
            the session would lose its ``impl``. Nothing is set.
        UnsupportedOperationError: (0) the Python of Spark's workers (``PYSPARK_PYTHON``) does not
            exist, is of another minor version than this one, or lacks this package, here or on an
            executor; or there is no jar, and none can be compiled. Nothing is set.

    Secrets in the settings are logged as a warning: see ``secrets.file``. Spark's redaction
    patterns are extended, so that it hides them in its event log, plans and web pages from now on.
    """
    given = dict(catalogs or {})
    _refuse_partial(spark, given)
    if not is_remote(spark):
        check_python(spark)
        check_executors(spark)
        given = {**_registered_before(spark), **given}
    _refuse_others(spark, given)
    sql = sql and bool(given or catalogs_of(spark))
    missing = jar.path() if sql and not _has_jar(spark) else None
    set_patterns(spark)
    _unset_others(spark, catalogs or {})
    for name, properties in given.items():
        spark.conf.unset(setting(name, LEFT_OUT))
        _set_all(spark, {setting(name, key): value for key, value in properties.items()})
    known = catalogs_of(spark)
    warn_of_secrets(CATALOG_SETTINGS, {name: each.properties for name, each in known.items()})
    if missing is not None:
        _add_jar(spark, missing)
    if sql:
        for name in sorted({*known, *given}):
            if settings_of(spark).get(CATALOG_SETTINGS + name) is None:
                _set_all(spark, {CATALOG_SETTINGS + name: _class_of(name)})
        known = catalogs_of(spark)  # a class makes a catalog of the configuration file known
        _load(spark, known)
    memory = scan_memory(dict(spark.conf.getAll))
    spark.dataSource.register(with_catalogs(known, memory, spark.conf.get(TIME_ZONE)))
    if not is_remote(spark):
        share(spark, known, missing)
    engine.use(SparkEngine(spark))


def _registered_before(spark: Any) -> dict[str, Mapping[str, str]]:
    """Return what the session lacks of the catalogs that earlier calls have registered.

    A catalog that the session has of another connector stays that one.
    """
    found = registered_elsewhere(catalogs_of(spark))
    return {
        name: properties
        for name, properties in found.items()
        if spark.conf.get(CATALOG_SETTINGS + name, None) in (None, CATALOG_CLASS)
    }


def _unset_others(spark: Any, catalogs: Catalogs) -> None:
    """Unset the properties of catalogs that are registered with other properties now."""
    prefixes = tuple(setting(name, "") for name in catalogs if name != SESSION_CATALOG)
    kept = {setting(name, key) for name, properties in catalogs.items() for key in properties}
    for key in settings_of(spark):
        if key.startswith(prefixes) and key not in kept:
            spark.conf.unset(key)
            if is_remote(spark):
                HIDDEN.get(spark.session_id, {}).pop(key, None)


def _set_all(spark: Any, settings: Mapping[str, str]) -> None:
    """Set settings of a session, and remember those that a server of Spark Connect hides."""
    for key, value in settings.items():
        spark.conf.set(key, value)
    if is_remote(spark):
        shown = dict(spark.conf.getAll)
        hidden = {key: value for key, value in settings.items() if key not in shown}
        HIDDEN.setdefault(spark.session_id, {}).update(hidden)


def _refuse_partial(spark: Any, catalogs: Catalogs) -> None:
    """Raise InvalidInput (13) if what is given would leave a catalog of the session no catalog."""
    for name, properties in catalogs.items():
        is_partial = "impl" not in properties and name != SESSION_CATALOG
        if not is_partial or name in named_catalogs():
            continue
        settings = settings_of(spark)
        if setting(name, "impl") in settings:
            had = catalogs_in(settings)[name].properties
            raise invalid(
                f"The properties given for catalog '{name}' replace all that it has in this "
                f"session ({', '.join(sorted(had))}), and have no 'impl': give all of them"
            )


def _refuse_others(spark: Any, names: Iterable[str]) -> None:
    """Raise InvalidInput (13) if a name is that of another connector's catalog."""
    for name in names:
        catalog_class = spark.conf.get(CATALOG_SETTINGS + name, None)
        if catalog_class not in (None, _class_of(name)):
            raise invalid(
                f"Catalog '{name}' is configured as {catalog_class} in this session: "
                "choose another name"
            )


def settings(
    catalogs: Catalogs | None = None,
    base: Mapping[str, str] | None = None,
    *,
    session_catalog: bool = False,
) -> dict[str, str]:
    """Return settings for `SparkSession.builder.config` that enable the SQL catalog.

    Args:
        catalogs: Properties by catalog, as for `register`.
        base: Settings to add to; their jars and extensions are kept.
        session_catalog: Whether Spark's own catalog has the Lance tables of its metastore, too. A
            session catalog of another class in ``base`` keeps its tables.

    Raises:
        UnsupportedOperationError: (0) the jar is missing and could not be compiled.
    """
    merged = with_patterns(base or {})
    warn_of_secrets(CATALOG_SETTINGS, catalogs or {})
    path = jar.path()
    add_to_running_jvm(path)
    merged[JARS] = append_name(merged.get(JARS, ""), str(path))
    extension = CATALOGS_EXTENSION if session_catalog else FUNCTIONS_EXTENSION
    merged[EXTENSIONS] = append_name(merged.get(EXTENSIONS, ""), extension)
    if session_catalog:
        key = CATALOG_SETTINGS + SESSION_CATALOG
        delegate = merged.get(key, SESSION_CATALOG_CLASS)
        if delegate != SESSION_CATALOG_CLASS:
            merged[setting(SESSION_CATALOG, "delegate")] = delegate
        merged[key] = SESSION_CATALOG_CLASS
    for name, properties in (catalogs or {}).items():
        merged[CATALOG_SETTINGS + name] = _class_of(name)
        for key, value in properties.items():
            merged[setting(name, key)] = value
    return merged


def _class_of(name: str) -> str:
    return SESSION_CATALOG_CLASS if name == SESSION_CATALOG else CATALOG_CLASS


def _has_jar(spark: Any) -> bool:
    """Return whether a session was started with the jar, whose path only the cluster may read."""
    names = [part.rpartition("/")[2] for part in spark.conf.get(JARS, "").split(",")]
    return any(name.startswith(Path(JAR_NAME).stem) for name in names)


def _add_jar(spark: Any, path: Path) -> None:
    if is_remote(spark):
        spark.addArtifacts(str(path))
    else:
        add_to_class_path(spark._jvm, path)
        escaped = str(path).replace("\\", "\\\\").replace("'", "\\'")
        spark.sql(f"ADD JAR '{escaped}'")


def _load(spark: Any, names: Iterable[str]) -> None:
    """Load the catalogs: with some class loaders, only this thread finds a jar that was added.

    A Spark Connect server finds it in every thread.
    """
    if not is_remote(spark):
        manager = spark._jsparkSession.sessionState().catalogManager()
        with _activate(spark):
            for name in names:
                manager.catalog(name)


@contextmanager
def _activate(spark: Any) -> Iterator[None]:
    """Make a session this thread's active one: Spark passes its settings to catalogs it loads."""
    sessions = getattr(spark._jvm, "org.apache.spark.sql.classic.SparkSession")
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()

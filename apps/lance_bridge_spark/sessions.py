"""Registered catalogs in sessions that begin later: of the same application, and of the next one.

Spark gives a new session the settings of its application, and a new application the settings among
the JVM's system properties. Extensions of the jar make a new session's data source know its
catalogs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .addresses import (
    CATALOG_SETTINGS,
    LEFT_OUT,
    REGISTERED,
    SESSION_CATALOG,
    CatalogAddress,
    missing_secrets,
    setting,
)
from .redaction import secret_properties

JARS = "spark.jars"
EXTENSIONS = "spark.sql.extensions"
FUNCTIONS_EXTENSION = "org.lancebridge.spark.LanceFunctions"
"""The extension that registers the SQL functions in every session, with or without a catalog."""
CATALOGS_EXTENSION = "org.lancebridge.spark.LanceExtensions"
"""The extension with which the data source also finds the session's catalogs without `register`."""


def registered_elsewhere(known: Mapping[str, CatalogAddress]) -> dict[str, Mapping[str, str]]:
    """Return what this session lacks of the catalogs that others of this process have registered.

    Args:
        known: The catalogs of this session. It keeps their properties, and gets only the secrets
            that were not passed on to it.

    Returns:
        Properties by catalog: all those of a catalog that the session does not have.
    """
    found: dict[str, Mapping[str, str]] = {}
    for name, address in REGISTERED.items():
        if name not in known:
            found[name] = address.properties
        elif missing := missing_secrets(known[name].properties):
            remembered = address.properties
            found[name] = {key: remembered[key] for key in missing if key in remembered}
    return found


def share(spark: Any, catalogs: Mapping[str, CatalogAddress], jar: Path | None) -> None:
    """Give catalogs of a classic session to the sessions that begin later.

    Properties of earlier registrations of the same names are removed.

    The next application does not get secrets, because it could write its settings to a file: its
    sessions refuse a catalog that lacks some, and say to call `register`.

    Args:
        jar: The jar of the SQL catalog, if the session did not begin with it.
    """
    conf, system = spark._jsc.sc().conf(), spark._jvm.java.lang.System
    for name, address in catalogs.items():
        if name == SESSION_CATALOG:
            continue  # Its settings are those of the application.
        REGISTERED[name] = address
        hidden = secret_properties(address.properties)
        own = _settings_of(spark, address)
        _remove_others(conf, system, name, own)
        for key, value in own.items():
            conf.set(key, value)
            if key not in {setting(name, each) for each in hidden}:
                system.setProperty(key, value)
        if hidden:
            system.setProperty(setting(name, LEFT_OUT), ", ".join(hidden))
    if jar is not None:
        _share_jar(system, jar)


def _remove_others(conf: Any, system: Any, name: str, own: Mapping[str, str]) -> None:
    """Remove what earlier registrations of a catalog have set, and this one does not."""
    prefix = setting(name, "")
    for pair in conf.getAllWithPrefix(prefix):
        key = prefix + pair._1()  # noqa: SLF001 - a pair of Scala
        if key not in own:
            conf.remove(key)
    for key in list(system.getProperties().stringPropertyNames()):
        # An old value of a secret would pass for the secret itself.
        if key.startswith(prefix) and system.getProperty(key) != own.get(key):
            system.clearProperty(key)


def _share_jar(system: Any, jar: Path) -> None:
    system.setProperty(JARS, append_name(system.getProperty(JARS) or "", str(jar)))
    extensions = (system.getProperty(EXTENSIONS) or "").split(",")
    others = ",".join(each for each in extensions if each != FUNCTIONS_EXTENSION)
    system.setProperty(EXTENSIONS, append_name(others, CATALOGS_EXTENSION))


def _settings_of(spark: Any, address: CatalogAddress) -> dict[str, str]:
    """Return the settings of a catalog, with its class if it is registered for SQL."""
    own = {setting(address.name, key): value for key, value in address.properties.items()}
    catalog_class = spark.conf.get(CATALOG_SETTINGS + address.name, None)
    return own | ({} if catalog_class is None else {CATALOG_SETTINGS + address.name: catalog_class})


def append_name(names: str, name: str) -> str:
    """Return a comma-separated list with a name appended, unless the list contains it."""
    there = [part for part in names.split(",") if part]
    return ",".join(there if name in there else [*there, name])


# -- the class path --------------------------------------------------------------------------------


def add_to_class_path(jvm: Any, path: Path) -> None:
    """Add a jar to the class path of a JVM that runs, for all threads and all later sessions.

    What Spark's ADD JAR adds is found by the thread that added it, until its application ends.
    """
    extensible = jvm.java.lang.Class.forName("org.apache.spark.util.MutableURLClassLoader")
    loader, outermost = jvm.java.lang.Thread.currentThread().getContextClassLoader(), None
    while loader is not None:
        if extensible.isInstance(loader):
            outermost = loader
        loader = loader.getParent()
    if outermost is not None:
        outermost.addURL(jvm.java.io.File(str(path)).toURI().toURL())


def add_to_running_jvm(path: Path) -> None:
    """Add a jar to the class path of this process's JVM, if it has one.

    Spark adds ``spark.jars`` to the driver's class path only when it starts the JVM.
    """
    module: Any = sys.modules.get("pyspark.core.context")
    if module is not None and module.SparkContext._jvm is not None:
        add_to_class_path(module.SparkContext._jvm, path)

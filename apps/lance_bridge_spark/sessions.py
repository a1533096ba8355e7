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
    setting,
)
from .redaction import find_secret_check

JARS = "spark.jars"
EXTENSIONS = "spark.sql.extensions"
FUNCTIONS_EXTENSION = "org.lancebridge.spark.LanceFunctions"
"""The extension that registers the SQL functions in every session, with or without a catalog."""
CATALOGS_EXTENSION = "org.lancebridge.spark.LanceExtensions"
"""The extension with which the data source also finds the session's catalogs without `register`."""


def registered_elsewhere(known: Mapping[str, CatalogAddress]) -> dict[str, Mapping[str, str]]:
    """Return the properties of catalogs that other sessions of this process have registered.

    Args:
        known: The catalogs of this session.
    """
    return {
        name: address.properties
        for name, address in REGISTERED.items()
        if name not in known or LEFT_OUT in known[name].properties
    }


def share(spark: Any, catalogs: Mapping[str, CatalogAddress], jar: Path | None) -> None:
    """Give catalogs of a classic session to the sessions that begin later.

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
        is_secret = find_secret_check(address.properties.get("impl", ""))
        hidden = sorted(key for key in address.properties if is_secret(key))
        for key, value in _settings_of(spark, address).items():
            conf.set(key, value)
            if key not in {setting(name, each) for each in hidden}:
                system.setProperty(key, value)
        conf.remove(setting(name, LEFT_OUT))
        if hidden:
            system.setProperty(setting(name, LEFT_OUT), ", ".join(hidden))
        else:
            system.clearProperty(setting(name, LEFT_OUT))
    if jar is not None:
        _share_jar(system, jar)


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

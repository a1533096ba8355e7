"""Fixtures of the tests of migrations: catalogs of three kinds, tables, a state directory."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from migrate.runner import Runner
from migrate.sessions import Checker, beside, checker
from servers.glue_server import GlueServer
from servers.metastores import Metastores
from servers.sparks import RELEASE, conf_of
from servers.unity import UnityServer

from lance_bridge_migrate import Migrations

from .places import Place, drop_in_hive, glue_reader, hive_reader, unity_reader

CATALOG = "main"


@pytest.fixture
def migrations(tmp_path: Path) -> Migrations:
    """The migrations of a state directory of the test's own."""
    return Migrations(tmp_path / "state")


@pytest.fixture(scope="package")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """A process whose children run migrations, and die at a given moment."""
    with Runner(tmp_path_factory.mktemp("runner") / "errors.log") as running:
        yield running


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A directory for tables."""
    place = tmp_path / "lake"
    place.mkdir(exist_ok=True)
    return place


def _prefix() -> str:
    return f"m_{uuid.uuid4().hex[:10]}"


@pytest.fixture
def hive(metastores: Metastores, tmp_path: Path) -> Iterator[Place]:
    """The metastore 2.3 that tests share."""
    metastore, prefix = metastores.get("2.3"), _prefix()
    reader = hive_reader(metastore.port)
    yield Place("hive", {"uri": metastore.uri}, (), prefix, reader, tmp_path)
    drop_in_hive(metastore.port, prefix)


@pytest.fixture(scope="package")
def beside_hive(
    metastores: Metastores, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Checker]:
    """A session of Spark whose tables are those of the metastore 2.3; does checks."""
    uri = metastores.get("2.3").uri
    with checker(beside(uri), uri, tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture(scope="package")
def beside_lakes(
    metastores: Metastores, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Checker]:
    """A session of Spark 4.1 with tables of Delta, and with a catalog of those of Iceberg."""
    uri = metastores.get("2.3").uri
    spark = replace(beside(uri, conf_of(uri)), release=RELEASE)
    with checker(spark, uri, tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture
def scene(beside_hive: Checker) -> Checker:
    """A `Scene` for the test, which `pytest_pyfunc_call` has the session's process call."""
    return beside_hive


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Call a test of a `Scene`, with its parameters, in the process of its Spark session."""
    session = pyfuncitem.funcargs.get("scene")
    if not isinstance(session, Checker):
        return None
    case = getattr(pyfuncitem, "callspec", None)
    session(pyfuncitem.obj, **(case.params if case else {}))
    return True


@pytest.fixture(scope="package")
def glue_server() -> Iterator[GlueServer]:
    """Glue, held to AWS's documentation."""
    with GlueServer() as running:
        yield running


@pytest.fixture
def glue(glue_server: GlueServer, tmp_path: Path) -> Place:
    """The Glue that tests share; each has its own databases."""
    reader = glue_reader(glue_server)
    return Place("glue", glue_server.properties, (), _prefix(), reader, tmp_path)


@pytest.fixture
def unity(tmp_path: Path) -> Iterator[Place]:
    """An open-source Unity Catalog with a catalog ``main``."""
    with UnityServer() as server:
        server.add_catalog(CATALOG)
        properties = {"host": server.url, "retry_timeout": "5"}
        reader = unity_reader(server.url, CATALOG)
        yield Place("unity", properties, (CATALOG,), _prefix(), reader, tmp_path)

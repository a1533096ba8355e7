"""One catalog of each kind, with an empty namespace for each test."""

from __future__ import annotations

import importlib
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import lance_namespace as api
import pytest
from clients.catalogs import Backend, Database
from conftest import external_metastores
from servers.glue_server import GlueServer
from servers.metastores import Metastores
from servers.unity import UnityServer
from tiers import selected

RELEASE = "2.3"
RAY_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0"}
HERE = Path(__file__).parent
TIERS = {HERE / "installed": "clients", HERE / "engines": "engines"}
"""Of tests of clients that `make test-clients` and `make test-engines` install."""
UNITY_CATALOG = "lake"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out tests that import what is not installed, unless their tier is run."""
    tier = TIERS.get(collection_path)
    return None if tier is None or tier in selected(config) else True


@pytest.fixture(scope="package")
def hive(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    uri = external_metastores().get(RELEASE) or metastores.get(RELEASE).uri
    root = str(tmp_path_factory.mktemp("hive"))
    return Backend("hive", "lance_bridge_hive.HiveNamespace", {"uri": uri, "root": root})


@pytest.fixture(scope="package")
def glue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with GlueServer() as server:
        properties = {**server.properties, "root": str(tmp_path_factory.mktemp("glue"))}
        yield Backend("glue", "lance_bridge_glue.GlueNamespace", properties)


@pytest.fixture(scope="package")
def unity(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with UnityServer() as server:
        server.add_catalog(UNITY_CATALOG)
        properties = {"host": server.url, "root": str(tmp_path_factory.mktemp("unity"))}
        path = "lance_bridge_unity.UnityNamespace"
        yield Backend("unity", path, properties, parent=[UNITY_CATALOG])


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    """A cluster of one machine, whose workers are processes of their own."""
    ray = importlib.import_module("ray")  # it is not installed everywhere
    os.environ |= RAY_ENVIRONMENT
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
        object_store_memory=200 * 2**20,
    )
    yield
    ray.shutdown()


NewDatabase = Callable[..., Database]
"""Creates an empty namespace in a catalog, with properties of its own."""


@pytest.fixture
def new_database() -> Iterator[NewDatabase]:
    """Creates namespaces, which are dropped afterwards with what is in them."""
    made: list[Database] = []

    def create(backend: Backend, **properties: str) -> Database:
        database = Database(backend, [*backend.parent, f"db_{uuid.uuid4().hex[:12]}"])
        with backend.connect() as namespace:
            request = api.CreateNamespaceRequest(id=database.path, properties=properties or None)
            namespace.create_namespace(request)
        made.append(database)
        return database

    yield create
    for database in made:
        _drop(database)


def _drop(database: Database) -> None:
    with database.backend.connect() as namespace:
        if database.path[-1] not in _names_beside(namespace, database):
            return
        for name in namespace.list_tables(api.ListTablesRequest(id=database.path)).tables:
            namespace.deregister_table(api.DeregisterTableRequest(id=database.id(name)))
        namespace.drop_namespace(api.DropNamespaceRequest(id=database.path))


def _names_beside(namespace: api.LanceNamespace, database: Database) -> list[str]:
    request = api.ListNamespacesRequest(id=database.path[:-1])
    return list(namespace.list_namespaces(request).namespaces)


@pytest.fixture
def on_hive(hive: Backend, new_database: NewDatabase) -> Database:
    """An empty database of Hive."""
    return new_database(hive)


@pytest.fixture(params=["hive", "glue"])
def managed(request: pytest.FixtureRequest, new_database: NewDatabase) -> Database:
    """A namespace whose tables the catalog manages. Unity cannot."""
    return new_database(request.getfixturevalue(request.param), managed_by="impl")


@pytest.fixture(params=["hive", "glue", "unity"])
def database(request: pytest.FixtureRequest, new_database: NewDatabase) -> Database:
    """An empty namespace of each catalog in turn."""
    return new_database(request.getfixturevalue(request.param))

"""The properties of a federation, and the configuration file."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path
from typing import Any

import lance.namespace
import lance_namespace as api
import pytest
from core.memory_catalog import MemoryNamespace
from lance_namespace.errors import InvalidInputError, LanceNamespaceError

import lance_bridge
from lance_bridge.config import property_texts
from lance_bridge_federated import FederatedNamespace
from lance_bridge_hive import HiveNamespace

from .conftest import add_tables

pytestmark = [pytest.mark.quick, pytest.mark.spec("federated.md#connecting")]

SECRET = "hush-hush"
MEMORY = f"{MemoryNamespace.__module__}.MemoryNamespace"
HIVE = {"catalog.prod.impl": "hive", "catalog.prod.uri": "thrift://127.0.0.1:9"}


def connect(**more: str) -> FederatedNamespace:
    namespace = lance_bridge.connect("federated", {**HIVE, **more})
    assert isinstance(namespace, FederatedNamespace)
    return namespace


def memory_of(namespace: FederatedNamespace, catalog: str) -> Any:
    child = namespace.child(catalog)
    assert isinstance(child, MemoryNamespace)
    return child.connection.config


@pytest.fixture
def yaml_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "catalogs.yaml"
    path.write_text(
        "catalogs:\n"
        f"  prod: {{impl: {MEMORY}, uri: in-file}}\n"
        f"  files: {{impl: dir, root: {tmp_path / 'files'}}}\n"
        "  all: {impl: federated}\n"
        "  both: {impl: federated, catalogs: [prod, files]}\n"
        "  one: {impl: federated, catalogs: prod}\n"
        "  cycle: {impl: federated, catalogs: [cycle]}\n"
    )
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(path))
    return path


# -- properties ------------------------------------------------------------------------------------


def test_it_is_found_by_its_name_and_by_its_class_path() -> None:
    for connect in (lance_bridge.connect, api.connect):
        for name in ("federated", "lance_bridge_federated.FederatedNamespace"):
            namespace = connect(name, HIVE)
            assert isinstance(namespace, FederatedNamespace)
            assert isinstance(namespace.child("prod"), HiveNamespace)


def test_no_catalog_is_called_and_one_of_pylance_s_is_not_even_made() -> None:
    """A directory is read when it is made; this one cannot be."""
    s3 = {
        "catalog.lake.impl": "dir",
        "catalog.lake.root": "s3://lake/x",
        "catalog.lake.storage.aws_endpoint": "http://127.0.0.1:9",
        "catalog.lake.storage.allow_http": "true",
        "catalog.lake.storage.client_max_retries": "0",
        "catalog.lake.storage.aws_secret_access_key": SECRET,
        "catalog.lake.storage.aws_access_key_id": "id",
    }
    namespace = connect(**s3)
    assert namespace.catalogs == ["lake", "prod"]
    with pytest.raises(LanceNamespaceError, match="in lake") as caught:
        namespace.child("lake")
    assert caught.value.code == api.ErrorCode.SERVICE_UNAVAILABLE
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"catalogues": "x"}, "no property 'catalogues': did you mean 'catalogs'"),
        ({"uri": "x"}, "no property 'uri': known properties: catalogs, catalog.<name>.<property>"),
        ({"catalog.prod": "x"}, "no property 'catalog.prod'"),
        ({"catalog.aws.region": "x"}, "property 'catalog.aws.impl' is required"),
        ({"catalog.a b.impl": "dir"}, "Catalog name 'a b'"),
        ({"catalog.aws.impl": "gleu"}, "catalog 'aws': There is no catalog 'gleu'"),
        ({"catalog.prod.urii": SECRET}, "catalog 'prod': impl=hive has no property 'urii'"),
        ({"catalog.x.impl": "federated"}, "cannot be a catalog of another one"),
        ({"catalogs": "prod"}, "'prod', which the configuration file does not have"),
        ({"catalogs": ""}, "names '', which"),
    ],
)
def test_bad_properties_are_invalid_input(properties: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        connect(**properties)
    assert problem in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(InvalidInputError, match="it has no catalogs: set `catalogs`"):
        lance_bridge.connect("federated", {})


def test_booleans_and_numbers_are_properties_too() -> None:
    namespace = FederatedNamespace(**property_texts("federated", {
        **HIVE, "catalog.prod.pickle.secrets": True, "catalog.prod.client.retry-timeout": 3,
    }))  # fmt: skip
    child = namespace.child("prod")
    assert isinstance(child, HiveNamespace)
    assert child.connection.config.pickle_secrets is True


def test_a_catalog_takes_properties_of_its_name_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_MAIN_TOKEN", SECRET)
    monkeypatch.setenv("LANCE_BRIDGE_MAIN_URI", "in-environment")
    given = {"catalog.main.impl": MEMORY, "catalog.main.uri": "given"}
    found = memory_of(FederatedNamespace(**given), "main")
    assert (found.uri, found.token.get_secret_value()) == ("given", SECRET)


# -- the configuration file ------------------------------------------------------------------------


@pytest.mark.usefixtures("yaml_file")
@pytest.mark.parametrize(
    ("name", "catalogs"),
    [
        ("all", ["files", "prod"]),
        ("both", ["files", "prod"]),
        ("one", ["prod"]),
        ("federated", ["files", "prod"]),
    ],
)
def test_catalogs_of_the_file_are_named_or_all(name: str, catalogs: list[str]) -> None:
    namespace = lance_bridge.connect(name)
    assert isinstance(namespace, FederatedNamespace)
    assert namespace.catalogs == catalogs
    assert memory_of(namespace, "prod").uri == "in-file"


@pytest.mark.usefixtures("yaml_file")
def test_a_listed_catalog_takes_its_environment_and_others_may_be_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_PROD_URI", "in-environment")
    more = {"catalog.aws.impl": "dir", "catalog.aws.root": "/x"}
    namespace = lance_bridge.connect("federated", {"catalogs": "prod", **more})
    assert isinstance(namespace, FederatedNamespace)
    assert namespace.catalogs == ["aws", "prod"]
    assert memory_of(namespace, "prod").uri == "in-environment"


@pytest.mark.usefixtures("yaml_file")
@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"catalogs": "prod, other"}, "'other', which the configuration file does not have"),
        ({"catalogs": "prod,prod"}, "'prod' twice"),
        ({"catalogs": "prod", **HIVE}, "'prod' is in `catalogs` and has `catalog.prod.impl`"),
        ({"catalogs": "both"}, "cannot be a catalog of another one"),
    ],
)
def test_a_wrong_list_is_invalid_input(given: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        lance_bridge.connect("federated", given)
    assert problem in str(caught.value)
    with pytest.raises(InvalidInputError, match="cannot be a catalog of another one"):
        lance_bridge.connect("cycle")


def test_an_invalid_entry_of_the_file_harms_only_those_that_have_it(yaml_file: Path) -> None:
    yaml_file.write_text(f"{yaml_file.read_text()}  bad: {{impl: 3}}\n")
    assert lance_bridge.connect("both")
    with pytest.raises(InvalidInputError, match="'bad' must be a mapping"):
        lance_bridge.connect("all")


# -- secrets ---------------------------------------------------------------------------------------


def secretive(**more: str) -> FederatedNamespace:
    return FederatedNamespace(**{
        "catalog.main.impl": MEMORY,
        "catalog.main.uri": "x",
        "catalog.main.token": SECRET,
        "catalog.main.storage.aws_secret_access_key": SECRET,
        "catalog.remote.impl": "rest",
        "catalog.remote.uri": f"http://user:{SECRET}@127.0.0.1:9",
        "catalog.remote.header.authorization": SECRET,
        "catalog.remote.headers.X-Own": SECRET,
        "catalog.lake.impl": "dir",
        "catalog.lake.root": "/x",
        "catalog.lake.storage.aws_secret_access_key": SECRET,
        **more,
    })  # fmt: skip


@pytest.mark.spec("federated.md#threads-processes-and-secrets")
def test_no_text_of_a_federation_has_a_secret() -> None:
    namespace = secretive()
    shown = [repr(namespace), str(namespace), namespace.namespace_id()]
    shown += [repr(each) for each in vars(namespace)["_children"].values()]
    shown += [repr(vars(each)) for each in vars(namespace)["_children"].values()]
    assert SECRET not in "".join(shown)
    assert "lake=dir(root=/x)" in namespace.namespace_id()


@pytest.mark.spec("federated.md#threads-processes-and-secrets")
def test_a_pickle_has_secrets_only_where_a_catalog_says_so() -> None:
    plain = secretive()
    assert SECRET.encode() not in pickle.dumps(plain)
    loaded = pickle.loads(pickle.dumps(plain))
    assert loaded.namespace_id() == plain.namespace_id()
    with pytest.raises(
        InvalidInputError, match=r"header\.authorization, headers\.X-Own, uri"
    ) as error:
        loaded.child("remote")
    assert "pickle.secrets=true" in str(error.value)
    again = pickle.loads(pickle.dumps(loaded))
    with pytest.raises(InvalidInputError, match=r"header\.authorization"):
        again.child("remote")
    for catalog in ("remote", "lake"):
        open_handed = secretive(**{f"catalog.{catalog}.pickle.secrets": "true"})
        assert SECRET.encode() in pickle.dumps(open_handed)


@pytest.mark.spec("federated.md#threads-processes-and-secrets")
def test_a_directory_in_a_pickle_is_made_again(directory: Any, tmp_path: Path) -> None:
    add_tables(directory, "db.t")
    files = {"catalog.files.impl": "dir", "catalog.files.root": str(tmp_path / "directory")}
    loaded = pickle.loads(pickle.dumps(connect(**files)))
    assert type(loaded.child("files")) is lance.namespace.DirectoryNamespace
    loaded.table_exists(api.TableExistsRequest(id=["files", "db", "t"]))

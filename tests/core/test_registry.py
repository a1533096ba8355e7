"""Finding a catalog: by ``impl``, by its name or by class path; and what its class must have."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import lance.namespace
import lance_namespace
import lance_namespace as api
import pytest
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    ServiceUnavailableError,
    UnsupportedOperationError,
)

import lance_bridge
from _lance_bridge_names import NAMESPACES_GROUP
from lance_bridge import Capabilities, Catalog, TableRecord, registry
from lance_bridge import errors as public_errors
from lance_bridge import namespace as namespace_module
from lance_bridge.catalog import PORT_VERSION
from lance_bridge_hive import HiveNamespace
from lance_bridge_spark.spark_tables import LocationCatalog

from .memory_catalog import (
    CAPABILITIES,
    DATASET,
    MemoryCatalog,
    MemoryConfig,
    MemoryNamespace,
    MemoryServer,
)

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#connecting")]

HIVE = {"uri": "thrift://127.0.0.1:9"}
CLASS_PATH = f"{MemoryNamespace.__module__}.MemoryNamespace"


@pytest.fixture
def yaml_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "catalogs.yaml"
    path.write_text(
        "catalogs:\n"
        f"  prod: {{impl: {CLASS_PATH}, uri: in-file, client.retries: 4}}\n"
        "  files: {impl: dir, root: /data}\n"
        "  broken: {impl: no-such-impl}\n"
    )
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(path))
    return path


def memory(namespace: lance_namespace.LanceNamespace) -> MemoryNamespace:
    assert isinstance(namespace, MemoryNamespace)
    return namespace


def config(namespace: lance_namespace.LanceNamespace) -> MemoryConfig:
    found = memory(namespace).connection.config
    assert isinstance(found, MemoryConfig)
    return found


# -- by impl ---------------------------------------------------------------------------------------


def test_an_installed_catalog_is_found_by_its_impl_without_a_call() -> None:
    assert lance_bridge.catalogs()["hive"] == "lance_bridge_hive.HiveNamespace"
    namespace = lance_bridge.connect("hive", HIVE)
    assert isinstance(namespace, HiveNamespace)


def test_properties_may_be_keywords_and_go_before_the_mapping() -> None:
    namespace = lance_bridge.connect(CLASS_PATH, {"uri": "one", "root": "/a"}, uri="two")
    assert memory(namespace).namespace_id() == "memory(uri=two, root=/a)"


@pytest.mark.parametrize(
    ("group", "catalogs"), [(registry.GROUP, {"fourth": CLASS_PATH}), (NAMESPACES_GROUP, {})]
)
def test_a_fourth_catalog_is_an_entry_point_and_so_is_a_namespace_made_of_several(
    monkeypatch: pytest.MonkeyPatch, group: str, catalogs: dict[str, str]
) -> None:
    module, _, name = CLASS_PATH.rpartition(".")
    points = {group: [metadata.EntryPoint("fourth", f"{module}:{name}", group)]}
    monkeypatch.setattr(metadata, "entry_points", lambda group: points.get(group, []))
    assert lance_bridge.catalogs() == catalogs
    assert registry.is_implementation("fourth")
    assert memory(lance_bridge.connect("fourth", uri="x"))
    assert memory(lance_namespace.connect("fourth", {"uri": "x"}))


def test_directories_and_rest_are_handed_to_pylance(tmp_path: Path) -> None:
    directory = lance_bridge.connect("dir", {"root": str(tmp_path)})
    assert type(directory) is lance.namespace.DirectoryNamespace
    assert directory.list_tables(lance_namespace.ListTablesRequest(id=[])).tables == []
    rest = lance_bridge.connect("rest", {"uri": "http://127.0.0.1:9"})
    assert type(rest) is lance.namespace.RestNamespace


def test_what_pylance_refuses_is_an_error_with_a_code() -> None:
    with pytest.raises(LanceNamespaceError, match="impl=dir"):
        lance_bridge.connect("dir", {})


def test_storage_that_does_not_answer_is_no_bad_property() -> None:
    options = {
        "aws_endpoint": "http://127.0.0.1:9", "allow_http": "true", "client_max_retries": "0",
        "aws_access_key_id": "id", "aws_secret_access_key": "hush", "aws_region": "us-east-1",
    }  # fmt: skip
    stored = {f"storage.{key}": value for key, value in options.items()}
    with pytest.raises(ServiceUnavailableError, match="impl=dir") as caught:
        lance_bridge.connect("dir", {"root": "s3://lake/x", **stored})
    assert "hush" not in str(caught.value)


# -- by name ---------------------------------------------------------------------------------------


def test_a_named_catalog_takes_arguments_before_environment_before_file(
    yaml_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert yaml_file.exists()
    prod = config(lance_bridge.connect("prod"))
    assert (prod.uri, prod.retries) == ("in-file", 4)
    monkeypatch.setenv("LANCE_BRIDGE_PROD_URI", "in-environment")
    monkeypatch.setenv("LANCE_BRIDGE_PROD_CLIENT_RETRIES", "5")
    prod = config(lance_bridge.connect("prod"))
    assert (prod.uri, prod.retries) == ("in-environment", 5)
    prod = config(lance_bridge.connect("prod", uri="given"))
    assert (prod.uri, prod.retries) == ("given", 5)


def test_a_named_catalog_may_be_one_of_pylance_s(yaml_file: Path) -> None:
    assert yaml_file.exists()
    assert type(lance_bridge.connect("files")) is lance.namespace.DirectoryNamespace


@pytest.mark.parametrize("impl", ["hive", "dir", "rest"])
def test_an_entry_with_the_name_of_an_impl_is_logged_and_harms_no_other(
    yaml_file: Path, impl: str, caplog: pytest.LogCaptureFixture
) -> None:
    namespace_module.warn_once.cache_clear()
    yaml_file.write_text(f"{yaml_file.read_text()}  {impl}: {{impl: dir, root: /data}}\n")
    assert config(lance_bridge.connect("prod")).uri == "in-file"
    assert f"'{impl}' is the name of an implementation" in caplog.text


def test_an_impl_is_found_without_a_look_at_the_file(yaml_file: Path) -> None:
    yaml_file.write_text("not: [a, configuration")
    assert isinstance(lance_bridge.connect("hive", HIVE), HiveNamespace)


def test_the_properties_of_a_named_catalog_are_checked(yaml_file: Path) -> None:
    assert yaml_file.exists()
    with pytest.raises(InvalidInputError, match="did you mean 'uri'"):
        lance_bridge.connect("prod", url="x")
    with pytest.raises(InvalidInputError, match="no catalog 'no-such-impl'"):
        lance_bridge.connect("broken")


def test_the_pickle_of_a_named_catalog_reads_the_variables_of_that_name(
    yaml_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_PROD_TOKEN", "here")
    monkeypatch.setenv("LANCE_BRIDGE_PROD_STORAGE_AWS_SECRET_ACCESS_KEY", "s3-here")
    content = pickle.dumps(lance_bridge.connect("prod"))
    assert b"here" not in content
    yaml_file.unlink()
    monkeypatch.setenv("LANCE_BRIDGE_PROD_TOKEN", "there")
    monkeypatch.setenv("LANCE_BRIDGE_PROD_STORAGE_AWS_SECRET_ACCESS_KEY", "s3-there")
    monkeypatch.setenv("LANCE_BRIDGE_PROD_URI", "elsewhere")
    once = pickle.loads(content)
    twice = pickle.loads(pickle.dumps(once))
    for found in (config(once), config(twice)):
        assert found.token is not None
        assert found.token.get_secret_value() == "there"
        assert found.storage == {"aws_secret_access_key": "s3-there"}
        assert (found.uri, found.retries) == ("in-file", 4)


# -- what does not exist ---------------------------------------------------------------------------


def test_an_unknown_name_is_invalid_and_the_known_ones_are_listed(yaml_file: Path) -> None:
    assert yaml_file.exists()
    with pytest.raises(InvalidInputError, match="no catalog ''"):
        lance_bridge.connect("")
    with pytest.raises(InvalidInputError, match=r"no catalog 'hvie'") as caught:
        lance_bridge.connect("hvie")
    for known in ("hive", "dir", "rest", "prod", "files"):
        assert known in str(caught.value)


@pytest.mark.parametrize("name", [None, 7, b"hive", ["hive"]])
def test_a_name_that_is_no_text_is_invalid(name: Any) -> None:
    with pytest.raises(InvalidInputError, match="must be a string"):
        lance_bridge.connect(name)


@pytest.mark.parametrize("properties", [["uri"], "uri=x", 7, {7: "x"}])
def test_properties_that_are_no_mapping_of_texts_are_invalid(properties: Any) -> None:
    with pytest.raises(InvalidInputError, match="must be a mapping of strings"):
        lance_bridge.connect("hive", properties)


@pytest.mark.parametrize(
    "path", ["no.such.module.Class", ".", "..", ".x", "..x.Y", "a.", "lance_bridge.NoSuchClass"]
)
def test_a_class_path_that_leads_nowhere_is_an_error_with_a_code(path: str) -> None:
    with pytest.raises((InvalidInputError, UnsupportedOperationError)) as caught:
        lance_bridge.connect(path)
    assert repr(path)[1:-1] in str(caught.value)


@pytest.mark.parametrize("path", ["os.path.join", "builtins.dict", "lance_bridge.connect"])
def test_a_class_path_of_something_else_is_invalid(path: str) -> None:
    with pytest.raises(InvalidInputError, match="not a LanceNamespace"):
        lance_bridge.connect(path)


@pytest.mark.parametrize("package", ["hmsclient", "thrift"])
def test_a_missing_extra_is_named_with_the_command_that_installs_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == package else name)
    with pytest.raises(UnsupportedOperationError, match=r"pip install 'lance-bridge\[hive\]'"):
        lance_bridge.connect("hive", HIVE)


def test_a_catalog_whose_module_cannot_be_imported_is_unsupported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_installed.py").write_text("from os import no_such_name\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UnsupportedOperationError, match="no_such_name"):
        lance_bridge.connect("half_installed.Namespace")
    sys.modules.pop("half_installed", None)


def test_importing_the_core_imports_no_adapter() -> None:
    import subprocess  # noqa: PLC0415  # only this test starts a process

    script = (
        "import sys, lance_bridge; lance_bridge.catalogs();"
        "sys.exit(any(m.split('.')[0] in ('lance_bridge_hive', 'hmsclient', 'thrift', 'pyspark')"
        " for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0


# -- whose namespace it is -------------------------------------------------------------------------


class Foreign(lance_namespace.LanceNamespace):
    """A namespace of another library."""

    def namespace_id(self) -> str:
        return "foreign"


def test_only_lance_bridges_own_namespaces_pass(tmp_path: Path) -> None:
    ours = lance_bridge.connect("hive", HIVE)
    assert registry.require_lance_bridge(ours, "hive") is ours

    directory = lance_bridge.connect("dir", {"root": str(tmp_path)})
    with pytest.raises(InvalidInputError) as error:
        registry.require_lance_bridge(directory, "dir", "Name a catalog")
    path = lance_namespace.NATIVE_IMPLS["dir"]
    assert str(error.value) == (
        f"'dir' is pylance's own ({path}), but this works only on glue, hive, unity. Name a catalog"
    )
    with pytest.raises(InvalidInputError, match="not lance-bridge's own"):
        registry.require_lance_bridge_class(Foreign, "foreign")


# -- methods that the capabilities of a catalog promise --------------------------------------------


ALL = replace(CAPABILITIES, no_rename="", no_alter="")
BY_COPY = replace(ALL, renames_by_copy=True)


def class_without(*methods: str) -> type[MemoryCatalog]:
    """Return a catalog's class that has the port's own version of these methods."""
    return type("Lacking", (MemoryCatalog,), {name: getattr(Catalog, name) for name in methods})


@pytest.fixture
def connect(
    server: MemoryServer, request: pytest.FixtureRequest
) -> Callable[[type[Catalog], Capabilities], MemoryNamespace]:
    def connected(catalog: type[Catalog], capabilities: Capabilities) -> MemoryNamespace:
        class Namespace(MemoryNamespace):
            def open_catalog(self, config: MemoryConfig) -> Catalog:
                return catalog(config)  # type: ignore[call-arg]  # a MemoryCatalog's

        server.capabilities = capabilities
        return Namespace(uri=request.node.nodeid)

    return connected


@pytest.mark.spec("docs/write-a-catalog.md#what-the-catalog-can-do")
@pytest.mark.parametrize(
    ("method", "capabilities", "field"),
    [
        ("rename_table", ALL, "no_rename"),
        ("copy_table", BY_COPY, "no_rename"),
        ("commit_guard", ALL, "no_managed_tables"),
        ("partition_locations", ALL, "has_partitions"),
        ("scan_hidden_tables", ALL, "hides_tables"),
    ],
)
def test_a_method_that_is_promised_and_missing_is_named_when_the_namespace_is_made(
    connect: Any, method: str, capabilities: Capabilities, field: str
) -> None:
    with pytest.raises(TypeError, match=rf"Lacking must implement {method}: .*{field}"):
        connect(class_without(method), capabilities)


@pytest.mark.spec("docs/write-a-catalog.md#what-the-catalog-can-do")
@pytest.mark.parametrize(
    ("methods", "capabilities"),
    [
        (("rename_table",), replace(ALL, no_rename="no")),
        (("rename_table",), BY_COPY),
        (("copy_table",), ALL),
        (("rename_table", "copy_table"), replace(BY_COPY, no_rename="no")),
        (("commit_guard",), replace(ALL, no_managed_tables="no")),
        (("commit_guard",), replace(ALL, no_alter="no")),
        (("partition_locations",), replace(ALL, has_partitions=False)),
        (("scan_hidden_tables",), replace(ALL, hides_tables=False)),
    ],
)
def test_a_method_that_is_not_promised_may_be_missing(
    connect: Any, methods: tuple[str, ...], capabilities: Capabilities
) -> None:
    namespace = connect(class_without(*methods), capabilities)
    assert namespace.list_tables(api.ListTablesRequest(id=DATASET)).tables == []


@pytest.mark.spec("docs/write-a-catalog.md#what-the-catalog-can-do")
def test_marks_are_loaded_and_altered_or_neither(connect: Any) -> None:
    one = type("Half", (MemoryCatalog,), {"load_ownership": lambda _self, _path: {"a": "b"}})
    with pytest.raises(TypeError, match="both load_ownership and alter_ownership"):
        connect(one, ALL)


@pytest.mark.spec("docs/write-a-catalog.md#the-version-of-the-port")
def test_a_catalog_of_another_version_of_the_port_is_refused(connect: Any) -> None:
    later = type("Later", (MemoryCatalog,), {"port_version": PORT_VERSION + 1})
    with pytest.raises(TypeError, match=r"Later is written for version 2 .* this is version 1"):
        connect(later, ALL)


@pytest.mark.spec("docs/write-a-catalog.md#what-the-catalog-can-do")
@pytest.mark.parametrize(
    "call",
    [
        lambda catalog, record: catalog.rename_table(record, ("u",)),
        lambda catalog, record: catalog.copy_table(record, record),
        lambda catalog, record: catalog.commit_guard(record),
    ],
)
def test_what_a_catalog_does_not_implement_is_unsupported_and_named(
    call: Callable[[Catalog, TableRecord], object],
) -> None:
    with pytest.raises(UnsupportedOperationError, match=r"LocationCatalog does not implement \w+"):
        call(LocationCatalog(), TableRecord(("t",)))


def test_what_an_adapter_needs_is_public() -> None:
    assert {
        "GUARD",
        "Column",
        "NamespaceWords",
        "OutcomeUnknownError",
        "errors",
        "select_tables",
    } <= set(lance_bridge.__all__)
    assert {"table_not_found", "namespace_not_empty", "OutcomeUnknownError"} <= set(
        vars(public_errors)
    )
    missing = [name for name in lance_bridge.__all__ if not hasattr(lance_bridge, name)]
    assert missing == []


def test_entries_in_any_order_are_selected_by_name_and_sorted() -> None:
    entries = [
        TableRecord(("n", name), properties={"table_type": kind})
        for name, kind in (("b", "LANCE"), ("B", "lance"), ("a", "parquet"), ("b", "lance"))
    ]

    def names(**options: Any) -> list[str]:
        return [record.path[-1] for record in lance_bridge.select_tables(entries, **options)]

    assert names() == ["B", "a", "b"]
    assert names(lance_only=True) == ["B", "b"]
    assert names(lance_only=True, after="B") == ["b"]
    assert names(after="b") == []


def test_an_entry_is_selected_once_and_every_entry_of_a_name() -> None:
    first, second = (TableRecord(("n", "a"), identity=each) for each in ("1", "2"))
    assert lance_bridge.select_tables([second, first, first]) == [first, second]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"properties": {"table_type": "LANCE"}, "data_format": "TEXT"}, "Lance"),
        ({"properties": {"table_type": "ICEBERG"}}, "Iceberg"),
        ({"properties": {"spark.sql.sources.provider": "delta"}, "data_format": "Text"}, "Delta"),
        ({"properties": {"classification": "parquet"}}, "Parquet"),
        ({"data_format": "org.apache.hudi.hadoop.HoodieParquetInputFormat"}, "Hudi"),
        ({"data_format": "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat"}, "ORC"),
        ({"data_format": "org.apache.hadoop.mapred.TextInputFormat"}, "Text"),
        ({"entry_type": "VIRTUAL_VIEW", "data_format": "TextInputFormat"}, "view"),
        ({"entry_type": "MATERIALIZED_VIEW"}, "materialized view"),
        ({"entry_type": "EXTERNAL_TABLE"}, ""),
    ],
)
def test_an_entry_has_a_format_in_the_words_of_people(
    record: dict[str, Any], expected: str
) -> None:
    assert TableRecord(("n", "t"), **record).format == expected


def test_records_that_differ_in_what_is_for_people_are_equal() -> None:
    known = TableRecord(("n", "t"), data_format="DELTA", owner="ada")
    assert known == TableRecord(("n", "t"))
    assert (known.data_format, known.owner) == ("DELTA", "ada")

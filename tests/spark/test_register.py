"""`register` and `settings`: catalogs that a session knows in SQL and in the data source."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
import sys
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from lance_namespace.errors import InvalidInputError, UnsupportedOperationError
from pyspark import SparkFiles
from pyspark.errors import PySparkException
from servers.http_proxy import Request

from lance_bridge_spark import jar, redaction
from lance_bridge_spark.addresses import (
    CATALOG_CLASS,
    CATALOG_SETTINGS,
    SESSION_CATALOG_CLASS,
    CatalogAddress,
    catalogs_in,
    catalogs_of,
    with_session_catalog,
)
from lance_bridge_spark.environment import _find_problem, check_python
from lance_bridge_spark.registration import register, settings
from lance_bridge_spark.source.datasource import with_settings

from .sql_helpers import set_conf
from .tables import LOCAL_ROWS, TOKEN, proxied_catalog, unity_catalog

pytestmark = [pytest.mark.servers, pytest.mark.spec("spark.md#register")]

FUNCTIONS = "org.lancebridge.spark.LanceFunctions"


@pytest.mark.spec("docs/how-to/spark.md#what-was-run")
def test_a_registered_catalog_works_in_sql_and_by_option(spark: Any, catalog: str) -> None:
    spark.sql(f"CREATE TABLE {catalog}.db.t AS SELECT id, CAST(id AS STRING) AS s FROM range(5)")

    assert spark.sql(f"SELECT count(*) FROM {catalog}.db.t WHERE s = '3'").collect() == [(1,)]
    read = spark.read.format("lance").option("catalog", catalog).load("db.t")
    assert sorted(row.id for row in read.collect()) == [0, 1, 2, 3, 4]


@pytest.mark.spec("spark.md#commits")
def test_a_statement_that_inserts_asks_the_catalog_three_times(spark: Any, tmp_path: Path) -> None:
    """To resolve its table, to commit, and to see whether the table is still the same."""
    with proxied_catalog(spark, "counted", tmp_path, _named) as proxy:
        spark.sql("CREATE TABLE counted.db.t (id BIGINT)")
        proxy.reset()
        spark.sql("INSERT INTO counted.db.t VALUES (1), (2)")
        assert sum(n for key, n in proxy.counts.items() if key.startswith("GET /")) == 3
        assert spark.sql("SELECT count(*) FROM counted.db.t").collect() == [(2,)]


@pytest.mark.spec("spark.md#speed")
def test_a_query_asks_the_catalog_when_it_is_analysed_and_when_it_runs(
    spark: Any, tmp_path: Path
) -> None:
    """Spark loads the tables of a plan again before it runs, to read their latest versions."""
    with proxied_catalog(spark, "read", tmp_path, _named) as proxy:
        spark.sql("CREATE TABLE read.db.t AS SELECT id FROM range(9)")
        for rows in ("0", "10"):
            with set_conf(spark, LOCAL_ROWS, rows):
                proxy.reset()
                found = spark.sql("SELECT id FROM read.db.t WHERE id = 5")
                assert proxy.counts.total() == 1
                assert found.collect() == [(5,)]
                assert proxy.counts.total() == 2


def _named(request: Request) -> str:
    return f"{request.method} {request.path}"


def test_a_jar_is_added_whatever_its_directory_is_called(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "it's \"O'Hara's\" back\\slash" / "another.jar"
    place.parent.mkdir()
    shutil.copy(jar.path(), place)
    monkeypatch.setattr(jar, "path", lambda: place)
    register(spark, {})
    listed = [row[0] for row in spark.sql("LIST JARS").collect()]
    assert any(each.endswith("another.jar") for each in listed)


def test_every_thread_knows_a_catalog_that_one_has_registered(spark: Any, tmp_path: Path) -> None:
    def namespaces() -> list[str]:
        jvm = spark._jvm.org.apache.spark.sql.classic
        jvm.SparkSession.setActiveSession(spark._jsparkSession)
        return [row.namespace for row in spark.sql("SHOW NAMESPACES IN threads").collect()]

    with unity_catalog(spark, "threads", tmp_path), ThreadPoolExecutor(1) as pool:
        assert pool.submit(namespaces).result(60) == ["db"]


def test_catalogs_of_the_settings_get_the_class_and_others_keep_their_own(spark: Any) -> None:
    spark.conf.set("spark.sql.catalog.found.impl", "hive")
    spark.conf.set("spark.sql.catalog.foreign", "org.example.Catalog")
    spark.conf.set("spark.sql.catalog.foreign.impl", "hive")
    try:
        register(spark)

        assert spark.conf.get("spark.sql.catalog.found") == CATALOG_CLASS
        assert spark.conf.get("spark.sql.catalog.foreign") == "org.example.Catalog"
        assert "foreign" not in catalogs_of(spark)
    finally:
        for name in ("found", "found.impl", "foreign", "foreign.impl"):
            spark.conf.unset(f"spark.sql.catalog.{name}")


def test_a_catalog_of_another_connector_gets_no_properties(spark: Any) -> None:
    with set_conf(spark, "spark.sql.catalog.foreign", "org.example.Catalog"):
        with pytest.raises(InvalidInputError, match=r"'foreign' .* org\.example\.Catalog"):
            register(spark, {"foreign": {"impl": "unity", "token": TOKEN}})
        assert spark.conf.get("spark.sql.catalog.foreign.token", None) is None


@pytest.mark.spec("spark.md#the-jar")
def test_without_the_jar_sql_is_refused_and_nothing_is_set(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_CACHE", str(tmp_path))
    monkeypatch.setattr("lance_bridge.jvm._find_executables", lambda: iter(()))
    with pytest.raises(UnsupportedOperationError, match=r"Install a JDK.*sql=False"):
        register(spark, {"nojar": {"impl": "hive", "uri": "thrift://localhost:1"}})

    assert "nojar" not in catalogs_of(spark)


@pytest.mark.spec("spark.md#the-jar")
def test_without_sql_all_else_is_registered_without_the_jar(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_CACHE", str(tmp_path))
    monkeypatch.setattr("lance_bridge.jvm._find_executables", lambda: iter(()))
    register(spark, {"nojar": {"impl": "hive", "uri": "thrift://localhost:1"}}, sql=False)

    assert spark.conf.get("spark.sql.catalog.nojar", None) is None
    assert catalogs_of(spark)["nojar"].properties["impl"] == "hive"
    spark.conf.unset("spark.sql.catalog.nojar.impl")
    spark.conf.unset("spark.sql.catalog.nojar.uri")


# -- the workers' Python ---------------------------------------------------------------------------


def refusal(spark: Any, executable: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Register with workers of another Python; return why that is refused."""
    monkeypatch.setattr(spark.sparkContext, "pythonExec", executable)
    with pytest.raises(UnsupportedOperationError) as raised:
        register(spark, {"other_python": {"impl": "hive", "uri": "thrift://localhost:1"}})
    assert spark.conf.get("spark.sql.catalog.other_python.impl", None) is None
    [line] = str(raised.value).splitlines()
    assert f"set PYSPARK_PYTHON to {sys.executable}" in line
    return line


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "which does not exist"),
        ("echo 3.9", "which is Python 3.9, and the driver is 3."),
        ("exit 1", "is not a working Python 3"),
    ],
)
def test_a_python_of_workers_that_cannot_do_tasks_is_refused(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str | None, said: str
) -> None:
    program = tmp_path / "python3"
    if answer is not None:
        program.write_text(f"#!/bin/sh\n{answer}\n")
        program.chmod(0o755)
    line = refusal(spark, str(program), monkeypatch)
    assert str(program) in line
    assert said in line


def test_a_python_of_workers_without_the_package_is_refused(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    bare = str(tmp_path / "bare" / "bin" / "python")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    line = refusal(spark, bare, monkeypatch)
    assert f"{bare}, which lacks lance_bridge, lance, pyarrow" in line


def test_a_python_that_may_be_in_an_archive_of_a_cluster_is_logged(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(tmp_path / "python3"))
    monkeypatch.setattr(spark.sparkContext, "master", "yarn")
    with caplog.at_level(logging.WARNING):
        check_python(spark)
    assert "which does not exist" in caplog.text


def test_packages_that_are_added_to_the_session_are_found(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(tmp_path / "bare/bin/python"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    archive = Path(SparkFiles.getRootDirectory()) / f"{tmp_path.name}.zip"
    with ZipFile(archive, "w") as file:
        for package in ("lance_bridge", "lance", "pyarrow"):
            file.writestr(f"{package}/__init__.py", "")
    # What addPyFile does, which cannot be undone.
    monkeypatch.setattr(spark.sparkContext, "_python_includes", [archive.name])
    check_python(spark)
    archive.unlink()
    _find_problem.cache_clear()
    with pytest.raises(UnsupportedOperationError):
        check_python(spark)


@pytest.mark.spec("spark.md#searches-in-sql", "spark.md#settings")
def test_settings_add_the_jar_to_jars_that_are_there(tmp_path: Path) -> None:
    base = {"spark.jars": f"{tmp_path}{os.sep}other.jar", "spark.app.name": "x"}
    merged = settings({"prod": {"impl": "hive", "uri": "thrift://h:1"}}, base)

    other, ours = merged["spark.jars"].split(",")
    assert other == base["spark.jars"]
    assert ours.endswith(".jar")
    assert Path(ours).is_file()
    assert merged["spark.app.name"] == "x"
    assert merged["spark.sql.catalog.prod"] == CATALOG_CLASS
    assert merged["spark.sql.catalog.prod.uri"] == "thrift://h:1"
    again = settings(base={**merged, "spark.sql.extensions": "a.B"})
    assert again["spark.jars"] == merged["spark.jars"]
    assert merged["spark.sql.extensions"] == FUNCTIONS
    assert again["spark.sql.extensions"] == f"a.B,{FUNCTIONS}"


@pytest.mark.spec("spark.md#session-catalog")
def test_settings_of_the_session_catalog_keep_the_one_of_another_format() -> None:
    delta = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    key = "spark.sql.catalog.spark_catalog"
    merged = settings(base={key: delta}, session_catalog=True)

    assert merged[key] == SESSION_CATALOG_CLASS
    assert merged[f"{key}.lance.delegate"] == delta
    assert "org.lancebridge.spark.LanceExtensions" in merged["spark.sql.extensions"]
    given = settings({"spark_catalog": {"impl": "glue"}}, merged, session_catalog=True)
    assert given[f"{key}.lance.delegate"] == delta
    found = catalogs_in({**given, f"{key}.type": "hive"})
    assert found["spark_catalog"].properties == {"impl": "glue"}
    assert with_session_catalog(["db", "t"], found) == ["spark_catalog", "db", "t"]
    assert with_session_catalog(["spark_catalog", "t"], found) == ["spark_catalog", "t"]
    assert with_session_catalog(["db", "t"], {}) == ["db", "t"]


@pytest.fixture(scope="module")
def java(spark: Any) -> Any:
    """A loader of the jar's classes: the versions check is no public one."""
    urls = spark._sc._gateway.new_array(spark._jvm.java.net.URL, 1)
    urls[0] = spark._jvm.java.io.File(str(jar.path())).toURI().toURL()
    parent = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return spark._jvm.java.net.URLClassLoader(urls, parent)


@pytest.mark.spec("spark.md#versions")
@pytest.mark.parametrize("version", ["4.0.2", "4.4.0", "3.5.8", "5", "41.1.0"])
def test_other_versions_of_spark_are_refused_by_name(spark: Any, java: Any, version: str) -> None:
    with pytest.raises(Exception, match=rf"runs on Spark 4\.1, 4\.2 and 4\.3.*{version}"):
        _check_version(spark, java, version)
    for tested in ("4.1.0", "4.2.1", "4.3.0", "4.3.0-SNAPSHOT"):
        assert _check_version(spark, java, tested) is None


def _check_version(spark: Any, java: Any, version: str) -> Any:
    gateway, lang = spark._sc._gateway, spark._jvm.java.lang
    text = java.loadClass("java.lang.String")
    types = gateway.new_array(lang.Class, 1)
    types[0] = text
    values = gateway.new_array(lang.Object, 1)
    values[0] = version
    check = java.loadClass("org.lancebridge.spark.SparkVersions").getDeclaredMethod("check", types)
    check.setAccessible(True)
    try:
        return check.invoke(None, values)
    except Exception as error:
        java_error = getattr(error, "java_exception", None)
        raise RuntimeError(java_error.getCause().getMessage() if java_error else error) from error


@pytest.mark.spec("spark.md#sql-catalog")
def test_lance_cannot_be_the_session_catalog(spark: Any, java: Any) -> None:
    gateway, lang = spark._sc._gateway, spark._jvm.java.lang
    maker = java.loadClass(CATALOG_CLASS).getDeclaredConstructor(gateway.new_array(lang.Class, 0))
    catalog = maker.newInstance(gateway.new_array(lang.Object, 0))
    empty = spark._jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap.empty()

    with pytest.raises(PySparkException, match="LanceSessionCatalog"):
        catalog.initialize("spark_catalog", empty)


@pytest.mark.spec("spark.md#configuration-without-register")
def test_the_extension_has_the_source_know_the_catalogs_of_the_settings(
    spark: Any, java: Any
) -> None:
    """As Spark does: it calls the rule with each plan before it looks for a data source."""
    catalog = {"impl": "hive", "uri": "thrift://localhost:1"}
    for key, value in catalog.items():
        spark.conf.set(f"spark.sql.catalog.by_setting.{key}", value)
    zone = "spark.sql.session.timeZone"
    spark.conf.set(zone, "Asia/Tokyo")
    try:
        plan = spark.range(1)._jdf.queryExecution().analyzed()
        assert _rule(spark, java).apply(plan) == plan
        names = spark._jsparkSession.sessionState().dataSourceManager()
        command = names.lookupDataSource("lance").dataSourceCls().command().mkString(",")
        source = pickle.loads(bytes(int(each) & 255 for each in command.split(",")))
        assert source.catalogs["by_setting"].properties == catalog
        assert source.zone == "Asia/Tokyo"
    finally:
        spark.conf.unset(zone)
        for key in catalog:
            spark.conf.unset(f"spark.sql.catalog.by_setting.{key}")


def _rule(spark: Any, java: Any) -> Any:
    """Return the rule that the extension adds to a session."""
    gateway, lang = spark._sc._gateway, spark._jvm.java.lang
    extensions = spark._jvm.org.apache.spark.sql.SparkSessionExtensions()
    made = java.loadClass("org.lancebridge.spark.LanceExtensions")
    make = made.getDeclaredConstructor(gateway.new_array(lang.Class, 0))
    make.newInstance(gateway.new_array(lang.Object, 0)).apply(extensions)
    return extensions.buildHintResolutionRules(spark._jsparkSession).head()


@pytest.mark.spec("spark.md#configuration-without-register")
def test_settings_of_other_catalogs_are_none_of_the_sources() -> None:
    settings = {
        "spark.sql.catalog.prod.impl": "hive",
        "spark.sql.catalog.prod.uri": "thrift://h:1",
        "spark.sql.catalog.ice": "org.example.Catalog",
        "spark.sql.catalog.ice.impl": "hive",
    }
    [(name, address)] = with_settings(json.dumps(settings)).catalogs.items()
    assert (name, address.properties) == ("prod", {"impl": "hive", "uri": "thrift://h:1"})


@pytest.mark.spec("spark.md#credentials")
def test_no_plan_and_no_error_shows_the_catalogs_secrets(spark: Any, catalog: str) -> None:
    spark.sql(f"CREATE TABLE {catalog}.db.plain AS SELECT id FROM range(5)")
    with set_conf(spark, LOCAL_ROWS, "0"):
        frame = spark.table(f"{catalog}.db.plain").filter("id > 1")
        frame.collect()
    with pytest.raises(PySparkException) as refused:
        spark.sql(f"SELECT * FROM {catalog}.db.plain VERSION AS OF 77")

    plan = frame._jdf.queryExecution().toString()
    assert "lance " in plan
    assert TOKEN not in plan
    assert "VERSION_NOT_FOUND" in str(refused.value)
    assert TOKEN not in str(refused.value)


# -- secrets among the settings --------------------------------------------------------------------


@pytest.mark.spec("spark.md#credentials")
def test_secrets_among_the_settings_are_a_warning_that_names_them(
    spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    redaction._warn_once.cache_clear()
    properties = {
        "impl": "unity",
        "host": "http://127.0.0.1:1",
        "token": TOKEN,
        "storage.azure_storage_account_key": TOKEN,
        "storage.aws_region": "eu-1",
    }
    settings({"warned": properties})
    settings({"warned": properties})
    [record] = [each for each in caplog.records if each.name == "lance_bridge_spark.redaction"]
    said = record.getMessage()
    assert "spark.sql.catalog.warned.storage.azure_storage_account_key, " in said
    assert "spark.sql.catalog.warned.token hold secrets" in said
    assert "spark.sql.catalog.warned.secrets.file" in said
    assert "aws_region" not in said
    assert TOKEN not in said
    caplog.clear()
    redaction._warn_once.cache_clear()
    with (
        set_conf(spark, "spark.sql.catalog.of_settings.impl", "hive"),
        set_conf(spark, "spark.sql.catalog.of_settings.auth.password", TOKEN),
    ):
        redaction.warn_of_secrets(
            CATALOG_SETTINGS, {k: v.properties for k, v in catalogs_of(spark).items()}
        )
        assert "spark.sql.catalog.of_settings.auth.password hold" in caplog.text


HIDING = [
    "storage.azure_storage_account_key",
    "storage.azure_sas_key",
    "storage.sas",
    "storage.anything.else",
    "auth.password",
    "http.token",
    "db.pwd",
    "session_cookie",
    "tls.pem",
]


@pytest.mark.spec("spark.md#credentials")
def test_spark_hides_secrets_whose_names_its_own_pattern_does_not_know(
    spark: Any, catalog: str
) -> None:
    assert catalog
    for key in HIDING:
        name = f"spark.sql.catalog.hiding.{key}"
        with set_conf(spark, name, TOKEN):
            [(_, shown)] = spark.sql(f"SET `{name}`").collect()
        assert shown == "*********(redacted)", key
    core = spark.sparkContext._jsc.sc().conf()
    pattern = core.get("spark.redaction.regex")
    java = spark._jvm.java.util.regex.Pattern.compile(pattern)
    assert all(java.matcher(f"spark.sql.catalog.x.{key}").find() for key in HIDING)
    for plain in ("spark.sql.catalog.x.storage.aws_region", "a comment on a cookie", "compass"):
        assert not java.matcher(plain).find()


@pytest.mark.spec("spark.md#credentials")
def test_a_session_connects_with_secrets_of_a_file_and_of_its_catalogs_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secrets.yaml").write_text(f"token: {TOKEN}\n")
    given = {"impl": "unity", "host": "http://127.0.0.1:1"}
    file = {**given, "secrets.file": str(tmp_path / "secrets.yaml")}
    of_file = CatalogAddress("of_file", file).connect().connection.config
    assert of_file.token.get_secret_value() == TOKEN  # type: ignore[attr-defined]  # of Unity
    monkeypatch.setenv("LANCE_BRIDGE_OF_ENVIRONMENT_TOKEN", f"{TOKEN}-2")
    other = CatalogAddress("of_environment", given).connect().connection.config
    assert other.token.get_secret_value() == f"{TOKEN}-2"  # type: ignore[attr-defined]

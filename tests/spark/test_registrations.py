"""What `register` passes on to later sessions, by the settings that a stand-in of Spark keeps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lance_namespace.errors import InvalidInputError

from lance_bridge import engine
from lance_bridge_spark import registration
from lance_bridge_spark.addresses import (
    HIDDEN,
    REGISTERED,
    SESSION_CATALOG_CLASS,
    catalogs_of,
    missing_secrets,
)
from lance_bridge_spark.redaction import secret_properties

pytestmark = [pytest.mark.quick, pytest.mark.spec("spark.md#other-sessions", "spark.md#register")]

PROD = "spark.sql.catalog.prod."
HIVE = {"impl": "hive", "uri": "thrift://h:1", "root": "A", "storage.aws_endpoint": "http://s"}
UNITY = {"impl": "unity", "host": "http://u", "catalog": "main", "root": "A", "token": "T1"}


class Settings(dict[str, str]):
    """Settings of a session, of an application or of the JVM, with Spark's and Java's methods."""

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def unset(self, key: str) -> None:
        self.pop(key, None)

    remove = clearProperty = unset
    setProperty = set

    @property
    def getAll(self) -> dict[str, str]:
        return dict(self)

    def getAllWithPrefix(self, prefix: str) -> list[Any]:
        found = [key.removeprefix(prefix) for key in self if key.startswith(prefix)]
        return [SimpleNamespace(_1=lambda key=key: key) for key in found]

    def getProperty(self, key: str) -> str | None:
        return self.get(key)

    def getProperties(self) -> Any:
        return SimpleNamespace(stringPropertyNames=lambda: set(self))


class Session:
    """A session of an application that begins with the JVM's properties and its own settings."""

    def __init__(self, jvm: Settings, own: Mapping[str, str], application: Settings | None = None):
        self.application = Settings({**jvm, **own}) if application is None else application
        self.conf = Settings(self.application)
        self.dataSource = SimpleNamespace(register=lambda _: None)
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(conf=lambda: self.application))
        self._jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=jvm)))

    def new(self) -> Session:
        return Session(self._jvm.java.lang.System, {}, self.application)

    def properties(self) -> Mapping[str, str]:
        return catalogs_of(self)["prod"].properties


@pytest.fixture
def jvm(monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The properties of a JVM whose program has registered nothing yet."""
    for name in ("check_python", "check_executors"):
        monkeypatch.setattr(registration, name, lambda _: None)
    monkeypatch.setattr(engine, "use", lambda _: None)
    for name in list(REGISTERED):
        monkeypatch.delitem(REGISTERED, name)
    return Settings()


def register(session: Session, properties: Mapping[str, str] | None = None) -> None:
    registration.register(session, None if properties is None else {"prod": properties}, sql=False)


def test_a_later_session_keeps_its_own_settings_and_gets_the_secrets_it_lacks(
    jvm: Settings,
) -> None:
    register(Session(jvm, {}), UNITY)
    assert "T1" not in jvm.values()

    without = Session(jvm, {PROD + "root": "B"})
    with pytest.raises(InvalidInputError, match=r"secrets \(token\), which this one does not have"):
        catalogs_of(without)["prod"].connect()
    register(without)
    assert without.properties() == {**UNITY, "root": "B"}

    own = Session(jvm, {PROD + "root": "C", PROD + "token": "T2"})
    assert own.properties() == {**UNITY, "root": "C", "token": "T2"}
    register(own)
    assert own.properties() == own.new().properties() == {**UNITY, "root": "C", "token": "T2"}


def test_a_session_with_all_the_secrets_is_not_refused() -> None:
    given = {**UNITY, "left_out": "token"}
    session = Session(Settings(), {PROD + key: value for key, value in given.items()})
    assert session.properties() == UNITY
    assert missing_secrets({**given, "left_out": "token, storage.x"}) == ["storage.x"]


def test_properties_of_an_earlier_registration_are_removed(jvm: Settings) -> None:
    first = Session(jvm, {"spark.sql.catalog.production.uri": "other"})
    register(first, HIVE)
    register(first.new(), UNITY)
    assert first.new().properties() == UNITY
    expected = {**UNITY, "left_out": "token"}
    del expected["token"]
    assert {key.removeprefix(PROD): jvm[key] for key in jvm if key.startswith(PROD)} == expected

    register(first, {key: value for key, value in HIVE.items() if key != "storage.aws_endpoint"})
    assert "storage.aws_endpoint" not in first.properties()
    assert "token" not in first.properties()
    assert PROD + "left_out" not in jvm
    assert first.new().conf["spark.sql.catalog.production.uri"] == "other"


def test_properties_without_an_impl_do_not_replace_a_catalog(
    jvm: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    session = Session(jvm, {})
    register(session, UNITY)
    before = dict(session.conf)
    message = r"replace all .*\(catalog, host, impl, root, token\), and have no 'impl': give all"
    for given in ({"root": "B"}, {}):
        with pytest.raises(InvalidInputError, match=message):
            register(session, given)
    assert session.conf == before
    register(session, {**UNITY, "root": "B"})
    assert session.properties() == {**UNITY, "root": "B"}

    file = tmp_path / "catalogs.yaml"
    file.write_text("catalogs:\n  prod:\n    impl: hive\n    uri: thrift://h:1\n")
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(file))
    register(session, {"root": "C"})
    assert {key: session.conf[key] for key in session.conf if key.startswith(PROD)} == {
        PROD + "root": "C"
    }


class RemoteSettings(Settings):
    """Settings of a session of Spark Connect, whose server hides those that look like secrets."""

    @property
    def getAll(self) -> dict[str, str]:
        return {key: value for key, value in self.items() if "token" not in key}

    def get(self, key: str, default: Any = None) -> Any:
        return self.getAll.get(key, default)


class RemoteSession(Session):
    """A session of Spark Connect, or a clone of one."""

    def __init__(self, session_id: str, own: Mapping[str, str]) -> None:
        super().__init__(Settings(), {})
        self.session_id = session_id
        self.conf = RemoteSettings(own)


@pytest.mark.spec("spark.md#spark-connect")
def test_a_session_of_spark_connect_keeps_the_secrets_that_its_server_hides(
    jvm: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert jvm == {}
    monkeypatch.setitem(HIDDEN, "one", {})
    monkeypatch.setattr(RemoteSession, "__module__", "pyspark.sql.connect.session")
    session, sources = RemoteSession("one", {}), list[Any]()
    session.dataSource.register = sources.append
    register(session, UNITY)
    assert session.properties() == UNITY
    assert sources[0].catalogs["prod"].properties == UNITY

    clone = RemoteSession("two", session.conf)
    assert "token" not in clone.properties()

    register(session, HIVE)
    assert session.properties() == HIVE
    assert PROD + "token" not in session.conf


def test_the_session_catalog_keeps_what_it_has_completed(jvm: Settings) -> None:
    prefix = "spark.sql.catalog.spark_catalog"
    own = {prefix: SESSION_CATALOG_CLASS, f"{prefix}.lance.impl": "hive"}
    session = Session(jvm, own)
    registration.register(session, {"spark_catalog": {"root": "B"}}, sql=False)
    assert catalogs_of(session)["spark_catalog"].properties == {"impl": "hive", "root": "B"}


def test_values_that_are_secrets_do_not_become_properties_of_the_jvm(jvm: Settings) -> None:
    secret = {**HIVE, "uri": "thrift://user:hidden@h:1", "storage.unknown": "hidden"}
    assert secret_properties(secret) == ["storage.unknown", "uri"]
    assert secret_properties({"storage.unknown": "x", "root": "A"}) == ["storage.unknown"]
    register(Session(jvm, {}), HIVE)
    register(Session(jvm, {}), secret)
    assert "hidden" not in str(jvm)
    assert PROD + "uri" not in jvm, "an old value would pass for the secret"
    assert jvm[PROD + "left_out"] == "storage.unknown, uri"
    later = Session(jvm, {})
    register(later)
    assert later.properties() == secret

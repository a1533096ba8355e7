"""Secrets: where they come from, that nothing shows them, and that new ones are read in time."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from core.secret_search import Secrets, hadoop_token
from lance_namespace.errors import InvalidInputError
from servers.processes import free_port, returns_in_child

from lance_bridge.config import load
from lance_bridge.namespace import LanceBridgeNamespace
from lance_bridge.redaction import contains_secret, is_secret, redact
from lance_bridge.secret_renewal import Renewal
from lance_bridge.testing.concurrency import answers_only, race
from lance_bridge_glue import GlueNamespace
from lance_bridge_hive import HiveNamespace
from lance_bridge_unity import UnityNamespace

from .memory_catalog import MemoryConfig, MemoryNamespace

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#secrets-that-change")]

SECRET = "s3cr3t-value"
THREADS = 10


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with a provider that works, and others that do not."""
    (tmp_path / "vaults.py").write_text(
        "def fetch(properties):\n"
        f"    return {{'token': '{SECRET}-' + properties['uri'], 'storage.sas_key': '{SECRET}'}}\n"
        f"def broken(properties):\n    raise RuntimeError('{SECRET}')\n"
        f"def text(properties):\n    return '{SECRET}'\n"
        f"def unknown(properties):\n    return {{'tokn': '{SECRET}'}}\n"
        f"def nested(properties):\n    return {{'token': ['{SECRET}']}}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return "vaults"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.yaml"
    path.write_text(f"token: {SECRET}\nstorage.aws_secret_access_key: {SECRET}\n")
    return path


def token(config: MemoryConfig) -> str:
    assert config.token is not None
    return config.token.get_secret_value()


def test_a_file_and_a_function_give_properties(file: Path, module: str) -> None:
    of_file = load(MemoryConfig, "memory", {"uri": "x", "secrets.file": str(file)})
    assert token(of_file) == SECRET
    assert of_file.storage == {"aws_secret_access_key": SECRET}
    named = {"uri": "x", "secrets.file": str(file), "secrets.provider": f"{module}:fetch"}
    of_both = load(MemoryConfig, "memory", named)
    assert token(of_both) == f"{SECRET}-x"
    assert of_both.storage == {"aws_secret_access_key": SECRET, "sas_key": SECRET}


def test_given_properties_come_first_and_those_of_the_environment_last(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_MEMORY_TOKEN", "environment")
    monkeypatch.setenv("LANCE_BRIDGE_MEMORY_SECRETS_FILE", str(file))
    assert token(load(MemoryConfig, "memory", {"uri": "x"})) == SECRET
    assert token(load(MemoryConfig, "memory", {"uri": "x", "token": "given"})) == "given"


def test_a_pickle_carries_where_the_secrets_are_and_none_of_them(
    file: Path, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    namespace = MemoryNamespace(uri=request.node.nodeid, **{"secrets.file": str(file)})
    content = pickle.dumps(namespace)
    assert SECRET.encode() not in content
    assert SECRET not in repr(namespace.connection)
    assert token(pickle.loads(content).connection.config) == SECRET
    assert not caplog.records
    file.unlink()
    with pytest.raises(InvalidInputError, match=r"secrets\.file.*No such file"):
        pickle.loads(content)


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"secrets.file": "/nowhere/x.yaml"}, "No such file"),
        ({"secrets.provider": "vaults"}, "module:function"),
        ({"secrets.provider": "vaults:missing"}, "cannot be imported"),
        ({"secrets.provider": "no_such_module:x"}, "cannot be imported"),
        ({"secrets.provider": ".vaults:fetch"}, "cannot be imported"),
        ({"secrets.provider": "..:fetch"}, "cannot be imported"),
        ({"secrets.provider": "vaults:broken"}, "failed with RuntimeError"),
        ({"secrets.provider": "vaults:text"}, "must return a mapping"),
        ({"secrets.provider": "vaults:unknown"}, "did you mean 'token'"),
        ({"secrets.provider": "vaults:nested"}, "'token' must be a string"),
    ],
)
@pytest.mark.usefixtures("module")
def test_a_source_that_gives_nothing_is_refused_and_no_value_shown(
    properties: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said) as caught:
        load(MemoryConfig, "memory", {"uri": "x", **properties})
    shown = traceback.format_exception_only(caught.value)
    assert SECRET not in "".join(shown)


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"token: [{SECRET}",
        f"- {SECRET}",
        "secrets.file: x",
        f"token: {SECRET}\ntoken: {SECRET}",
        f"1: {SECRET}",
    ],
)
def test_a_file_that_is_no_mapping_is_refused_and_no_line_shown(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=r"secrets\.file") as caught:
        load(MemoryConfig, "memory", {"uri": "x", "secrets.file": str(path)})
    assert SECRET not in "".join(traceback.format_exception(caught.value))


# -- by what they are recognized -------------------------------------------------------------------

KEYS = [
    "spark.hadoop.fs.s3a.secret.key",
    "spark.hadoop.fs.s3a.access.key",
    "spark.hadoop.fs.s3a.encryption.key",
    "spark.hadoop.fs.gs.auth.service.account.private.key",
    "spark.hadoop.fs.azure.sas.box.account.blob.core.windows.net",
    "spark.hadoop.fs.azure.account.key.box",
    "spark.sql.catalog.x.header.Authorization",
    "spark.sql.catalog.x.header.X-Api-Key",
    "spark.sql.catalog.x.token",
    "spark.sql.catalog.x.auth.token",
    "spark.hadoop.javax.jdo.option.ConnectionPassword",
    "storage.sas",
    "storage.azure_sas_key",
    "account_key",
    "db.pwd",
    "dbPwd",
    "jdbc_pass",
    "spark.cookie",
    "session_cookie",
    "spark.kerberos.keytab",
    "tls.pem",
    "server.pem.key",
    "sasl.jaas.config",
    "kafka.sasl.jaas.config",
    "http.auth",
    "azure_storage_connection_string",
    "bearer",
]


@pytest.mark.spec("migration.md#plan")
def test_settings_whose_names_say_so_are_secret() -> None:
    assert [key for key in KEYS if not is_secret(key)] == []


SECRETS = [
    "jdbc:postgresql://h/db?user=u&password=hunter2",
    "https://user:hunter2@host/x",
    "-Djavax.net.ssl.keyStorePassword=hunter2",
    "Bearer hunter2",
    "https://host/x?sig=hunter2",
    "Basic dXNlcjpodW50ZXIy",
    "Authorization: Negotiate hunter2hunter2",
    "dapi0123456789abcdef0123456789abcdef",
    "dapi0123456789abcdef0123456789abcdef-2",
    "x eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJodW50ZXIyIn0.c2lnbmF0dXJl",
    "jdbc:oracle:thin:scott/hunter2@//db:1521/x",
    "jdbc:mysql://ann:hunter2@db/x",
    "jdbc:sqlserver://db;user=ann;password=hunter2;encrypt=true",
    "jdbc:db2://db/x:user=ann;pwd=hunter2;",
    "ann:hunter2@db.example.com",
    "cannot reach ann:hunter2@db.example.com",
    'org.x.PlainLoginModule required username="ann" password="hunter2 with a space";',
    '{"password": "hunter2"}',
    "{'sasl.jaas.config': 'hunter2'}",
    "AccountName=a;AccountKey=aHVudGVyMg==;EndpointSuffix=x",
    "SharedAccessSignature=sv=2024&sig=hunter2",
    "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----",
    "ya29.a0hunter2hunter2",
]


@pytest.mark.spec("migration.md#plan")
def test_texts_with_a_secret_in_them_are_found() -> None:
    assert [text for text in SECRETS if not contains_secret(text)] == []
    assert [text for text in SECRETS if "hunter2" in redact(text)] == []


OTHERS = [
    "thrift://host:9083",
    "s3://bucket/key=1/x",
    "/data/a",
    "hive",
    "org.apache.X",
    "abfss://container@account.dfs.core.windows.net/x",
    "jdbc:postgresql://db:5432/x?user=ann",
    "12:30:01 read 5 rows",
    "spark.sql.compass.direction",
    "bypass",
    "passthrough",
    "basic statistics",
    "compressionCodec",
    "secrets.file",
    "spark.sql.catalog.prod.secrets.provider",
    "spark.sql.catalog.prod.pickle.secrets",
    "credentials.vend",
    "auth.token-file",
    "spark.sql.catalog.prod.auth.token-service",
    "author",
]


@pytest.mark.spec("migration.md#plan")
def test_other_texts_are_kept() -> None:
    assert [text for text in OTHERS if contains_secret(text) or is_secret(text)] == []
    assert [redact(text) for text in OTHERS] == OTHERS


# -- what a process leaves behind ------------------------------------------------------------------

SCRIPT = Path(__file__).with_name("secrets_process.py")


def cases(secrets: Secrets) -> list[dict[str, object]]:
    port = free_port()
    storage = secrets.storage("storage")

    def case(impl: str, bad: dict[str, str], **properties: str) -> dict[str, object]:
        wrong = {"root": f"s3://me:{secrets.new(f'{impl} root')}@b/x", **bad}
        return {"impl": impl, "bad": wrong, "properties": {**storage, **properties}}

    def url(scheme: str, what: str) -> str:
        return f"{scheme}://me:{secrets.new(what)}@127.0.0.1:{port}"

    quick = {"client.retry-timeout": "0", "client.timeout": "5"}
    aws = {"region": "eu-central-1", "endpoint": f"http://127.0.0.1:{port}", "max_retries": "0"}
    keys = {
        "access_key_id": "AKKNOWN",
        "secret_access_key": secrets.new("glue secret"),
        "session_token": secrets.new("glue token"),
    }
    unity = {"host": f"http://127.0.0.1:{port}", "max_retries": "0", "retry_timeout": "0"}
    return [
        case(
            "hive",
            {"uri": url("thrift", "hive uri"), "client.timeout": secrets.new("hive timeout")},
            uri=f"thrift://127.0.0.1:{port}",
            **{"auth.mechanism": "plain", "auth.username": "ann"},
            **{"auth.password": secrets.new("hive password")},
            **quick,
        ),
        case(
            "hive",
            {},
            uri=f"thrift://127.0.0.1:{port}",
            **{
                "auth.mechanism": "delegation-token",
                "auth.token": hadoop_token(secrets.new("hive delegation token")),
            },
            **quick,
        ),
        case(
            "hive",
            {},
            uri=f"http://127.0.0.1:{port}/x",
            **{"http.token": secrets.new("hive token")},
            **quick,
        ),
        case("glue", {"endpoint": url("http", "glue endpoint")}, **aws, **keys),
        case(
            "glue",
            {"assume_role_endpoint": url("http", "sts endpoint")},
            assume_role_arn="arn:aws:iam::123456789012:role/x",
            assume_role_endpoint=f"http://127.0.0.1:{port}",
            **aws,
            **keys,
        ),
        case("unity", {"host": url("http", "unity host")}, token=secrets.new("token"), **unity),
        case("unity", {}, auth_token=secrets.new("unity auth_token"), **unity),
        case(
            "unity",
            {},
            client_id="known",
            client_secret=secrets.new("unity client_secret"),
            server="databricks",
            **unity,
        ),
    ]


@pytest.mark.spec("common.md#security")
@pytest.mark.parametrize("kind", [HiveNamespace, GlueNamespace, UnityNamespace])
def test_every_secret_property_of_an_adapter_is_among_the_cases(
    kind: type[LanceBridgeNamespace],
) -> None:
    given = {
        key
        for case in cases(Secrets())
        if case["impl"] == kind.impl
        for key in case["properties"]  # type: ignore[attr-defined]  # a mapping
    }
    assert {each.key for each in kind.config_type.declared() if each.secret} <= given


@pytest.mark.spec("common.md#security")
@pytest.mark.servers
def test_no_secret_is_in_anything_that_a_process_leaves_behind(tmp_path: Path) -> None:
    secrets = Secrets()
    given = cases(secrets)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "DATABRICKS_"))}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path)],
        input=json.dumps(given),
        cwd=tmp_path,
        env={**kept, "HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    content = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    content |= {"stdout": done.stdout.encode(), "stderr": done.stderr.encode()}
    log = next(text for name, text in content.items() if name.endswith("debug.log"))
    assert b"botocore" in log
    assert b"AKKNOWN" in log
    assert secrets.found_among(content) == {}


# -- secrets that are read again -------------------------------------------------------------------


@pytest.fixture
def old_file(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.yaml"
    path.write_text("token: old\nstorage.aws_secret_access_key: old-key\n")
    return path


@pytest.fixture
def readings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """A module `counted` whose function `read` counts its calls, returned by this function."""
    log = tmp_path / "readings"
    log.write_text("")
    (tmp_path / "counted.py").write_text(
        "import os\n"
        "def read(properties):\n"
        "    with open(os.environ['LOG_OF_VAULT'], 'a') as log:\n        log.write('x')\n"
        "    return {'token': os.environ['TOKEN_OF_VAULT']}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("LOG_OF_VAULT", str(log))
    monkeypatch.setenv("TOKEN_OF_VAULT", "old")
    return lambda: len(log.read_text())


def connected(**properties: str) -> MemoryConfig:
    return load(MemoryConfig, "memory", {"uri": "x", **properties})


def test_a_file_that_has_changed_is_read_again(old_file: Path) -> None:
    config = connected(**{"secrets.file": str(old_file)})
    old_file.write_text("token: new\n")
    assert token(config.renewal.config) == "old"
    assert config.renewal.renew(config).changed
    assert token(config.renewal.config) == "new"
    assert token(config) == "old"


def test_a_file_that_has_not_changed_is_named_and_changes_nothing(old_file: Path) -> None:
    config = connected(**{"secrets.file": str(old_file)})
    for _ in range(3):
        found = config.renewal.renew(config.renewal.config)
        assert not found.changed
        assert "read again from secrets.file, and are the same" in found.advice
    old_file.write_text("token: new\n")
    assert config.renewal.renew(config.renewal.config).changed


def test_a_file_that_is_gone_or_half_written_keeps_the_secrets(old_file: Path) -> None:
    config = connected(**{"secrets.file": str(old_file)})
    for text, said in ((None, "No such file"), ("", "mapping"), ("tokn: x", "did you mean")):
        old_file.unlink(missing_ok=True)
        if text is not None:
            old_file.write_text(text)
        found = config.renewal.renew(config.renewal.config)
        assert not found.changed
        assert "could not be read again: impl=memory" in found.advice
        assert said in found.advice
        assert token(config.renewal.config) == "old"
    old_file.write_text("token: new\n")
    assert config.renewal.renew(config.renewal.config).changed
    assert token(config.renewal.config) == "new"


def test_secrets_that_were_given_are_never_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_MEMORY_TOKEN", "old")
    config = connected()
    monkeypatch.setenv("LANCE_BRIDGE_MEMORY_TOKEN", "new")
    assert config.renewal.renew(config) == Renewal(changed=False, advice="")
    assert token(config.renewal.config) == "old"


def test_a_property_that_was_given_comes_before_the_new_file(old_file: Path) -> None:
    config = connected(token="given", **{"secrets.file": str(old_file)})
    old_file.write_text("token: new\n")
    config.renewal.renew(config)
    assert token(config.renewal.config) == "given"


@pytest.mark.parametrize("secret", ["new", "old"])
def test_many_threads_read_once(
    readings: Callable[[], int], monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    config = connected(**{"secrets.provider": "counted:read"})
    monkeypatch.setenv("TOKEN_OF_VAULT", secret)
    found = answers_only(race(lambda _: config.renewal.renew(config), THREADS))
    assert {each.changed for each in found} == {secret == "new"}
    assert readings() == 2


def test_many_threads_share_one_failure(
    readings: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = connected(**{"secrets.provider": "counted:read"})
    monkeypatch.delenv("TOKEN_OF_VAULT")
    found = answers_only(race(lambda _: config.renewal.renew(config), THREADS))
    assert {each.changed for each in found} == {False}
    assert all("counted:read failed with KeyError" in each.advice for each in found)
    assert readings() == 2


def test_a_slow_caller_gets_what_others_have_read(
    readings: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = connected(**{"secrets.provider": "counted:read"})
    monkeypatch.setenv("TOKEN_OF_VAULT", "new")
    assert config.renewal.renew(config).changed
    assert not config.renewal.renew(config.renewal.config).changed
    assert config.renewal.renew(config).changed
    assert readings() == 3


def test_listeners_know_a_new_secret_before_it_is_used(old_file: Path) -> None:
    config = connected(**{"secrets.file": str(old_file)})
    known = []
    config.renewal.call_before_use(
        lambda found: known.append((token(found), token(config.renewal.config)))
    )
    config.renewal.renew(config.renewal.config)
    old_file.write_text("token: new\n")
    config.renewal.renew(config.renewal.config)
    assert known == [("new", "old")]


def test_storage_options_of_the_file_are_renewed_with_it(
    old_file: Path, request: pytest.FixtureRequest
) -> None:
    namespace = MemoryNamespace(uri=request.node.nodeid, **{"secrets.file": str(old_file)})
    assert namespace.connection.secrets.config.storage == {"aws_secret_access_key": "old-key"}
    old_file.write_text("token: new\nstorage.aws_secret_access_key: new-key\n")
    config = namespace.connection.config
    assert config.renewal.renew(config).changed
    assert namespace.connection.secrets.config.storage == {"aws_secret_access_key": "new-key"}
    assert copy.deepcopy(namespace).connection.secrets.config.storage == {
        "aws_secret_access_key": "new-key"
    }
    assert (
        pickle.loads(pickle.dumps(namespace)).connection.secrets.config.storage
        == namespace.connection.secrets.config.storage
    )


def test_a_child_renews_while_a_thread_of_its_parent_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow.py").write_text(
        "import threading\n"
        "calls, begun, release = [], threading.Event(), threading.Event()\n"
        "def read(properties):\n"
        "    calls.append(1)\n"
        "    if len(calls) == 2:\n        begun.set(); release.wait(30)\n"
        "    return {'token': str(len(calls))}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    config = connected(**{"secrets.provider": "slow:read"})
    import slow  # type: ignore[import-not-found]  # noqa: PLC0415 - made above

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(config.renewal.renew, config)
        try:
            assert slow.begun.wait(10)
            assert returns_in_child(lambda: config.renewal.renew(config).changed)
        finally:
            slow.release.set()
        assert waiting.result(20).changed


def test_no_text_has_a_secret(old_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    old_file.write_text("token: hush-1\n")
    config = connected(**{"secrets.file": str(old_file)})
    old_file.write_text("token: hush-2\n")
    texts = [config.renewal.renew(config).advice, repr(config.renewal), repr(config)]
    old_file.write_text("token: [hush-3\n")
    texts.append(config.renewal.renew(config.renewal.config).advice)
    texts += [record.getMessage() for record in caplog.records]
    assert caplog.records
    assert "hush" not in os.linesep.join(texts)

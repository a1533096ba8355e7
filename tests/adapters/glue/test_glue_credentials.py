"""Credentials: whose are used, a role assumed and a key pair read again in time, no log of them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs

import pytest
from botocore.loaders import JSONFileLoader
from lance_namespace.errors import (
    PermissionDeniedError,
    ServiceUnavailableError,
    UnauthenticatedError,
)
from servers.glue_server import ACCESS_KEY, ROLE, SECRET_KEY, GlueServer
from servers.http_proxy import Answer, Delay, HttpProxy
from servers.processes import returns_in_child

from lance_bridge.catalog import TableRecord
from lance_bridge.testing.calls import Calls
from lance_bridge.testing.concurrency import race
from lance_bridge_glue import client
from lance_bridge_glue.client import redact_logs

from .conftest import Connect, catalog_at

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("glue.md#connections", "common.md#secrets-that-change"),
]

THREADS = 8
DENIED = (
    b"<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>User: u is not "
    b"authorized to perform: sts:AssumeRole on resource: r</Message></Error></ErrorResponse>"
)
GOOD = f"access_key_id: {ACCESS_KEY}\nsecret_access_key: {SECRET_KEY}\n"
BAD = "access_key_id: nobody\nsecret_access_key: hush-hush\n"
WORSE = "access_key_id: nobody-else\nsecret_access_key: hush-hush\nsession_token: hush\n"


@pytest.fixture
def sts(server: GlueServer) -> Iterator[HttpProxy]:
    """A proxy in front of STS, which counts how often roles are assumed."""
    with HttpProxy(server.endpoint) as running:
        yield running


@pytest.fixture
def assume(connect: Connect, sts: HttpProxy) -> Callable[..., Calls]:
    """Makes namespaces that assume the role."""

    def make(**properties: str) -> Calls:
        role = {"assume_role_arn": ROLE, "assume_role_endpoint": sts.endpoint}
        return connect(**{**role, **properties})

    return make


def names(calls: Calls) -> list[str]:
    return list(calls.all_namespaces([]))


def signers(proxy: HttpProxy) -> list[str]:
    """Return the access keys that requests were signed with."""
    headers = [request.headers["authorization"] for request in proxy.requests]
    return [header.split("Credential=")[1].split("/")[0] for header in headers]


# -- whose credentials ---------------------------------------------------------------------------


NO_KEYS = {"access_key_id": "", "secret_access_key": ""}


@pytest.fixture
def other_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A profile, and a key pair in the environment."""
    text = "[sales]\naws_access_key_id = of-the-profile\naws_secret_access_key = x\n"
    (tmp_path / "credentials").write_text(text)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)


@pytest.mark.usefixtures("other_credentials")
@pytest.mark.parametrize(
    ("properties", "signer"),
    [
        ({"access_key_id": "of-the-properties", "session_token": "a"}, "of-the-properties"),
        ({**NO_KEYS, "profile_name": "sales"}, "of-the-profile"),
        (NO_KEYS, "of-the-environment"),
    ],
)
def test_the_key_pair_or_profile_of_the_properties_signs_requests_and_else_the_environment(
    connect: Connect, proxy: HttpProxy, properties: dict[str, str], signer: str
) -> None:
    names(connect(**properties))
    assert {*signers(proxy)} == {signer}
    token = proxy.requests[0].headers.get("x-amz-security-token")
    assert token == properties.get("session_token")


def test_a_role_is_assumed_as_the_properties_say(
    assume: Callable[..., Calls], sts: HttpProxy, proxy: HttpProxy
) -> None:
    calls = assume(
        assume_role_external_id="ext-1",
        assume_role_session_name="reporting",
        assume_role_source_identity="ann@example.com",
        assume_role_timeout_sec="1800",
        assume_role_region="eu-west-1",
    )
    assert sts.counts["AssumeRole"] == 0
    names(calls)
    (request,) = sts.requests
    asked = {key: value for key, (value,) in parse_qs(request.body.decode()).items()}
    assert asked["RoleArn"] == ROLE
    assert asked["ExternalId"] == "ext-1"
    assert asked["RoleSessionName"] == "reporting"
    assert asked["SourceIdentity"] == "ann@example.com"
    assert asked["DurationSeconds"] == "1800"
    assert "/eu-west-1/sts/" in request.headers["authorization"]
    assert {*signers(sts)} == {ACCESS_KEY}
    assert ACCESS_KEY not in signers(proxy)


@pytest.mark.usefixtures("other_credentials")
def test_a_role_is_assumed_with_the_environments_credentials_too(
    assume: Callable[..., Calls], sts: HttpProxy
) -> None:
    names(assume(**NO_KEYS))
    assert {*signers(sts)} == {"of-the-environment"}


# -- once for all --------------------------------------------------------------------------------


def test_a_role_is_assumed_once_for_many_threads_and_calls(
    assume: Callable[..., Calls], sts: HttpProxy
) -> None:
    calls = assume()
    start = threading.Barrier(THREADS)

    def work(_: int) -> None:
        start.wait()
        for _ in range(5):
            names(calls)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    assert sts.counts["AssumeRole"] == 1


def test_credentials_about_to_end_are_refreshed_once_for_all_before_anything_is_asked(
    assume: Callable[..., Calls], sts: HttpProxy, server: GlueServer
) -> None:
    calls = assume()
    with server.known_keys_only():
        with server.short_sessions(30):  # botocore refreshes within the last minutes
            names(calls)
        before = sts.counts["AssumeRole"]
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda _: names(calls), range(4 * THREADS)))
    assert sts.counts["AssumeRole"] == before + 1


def test_a_refresh_in_the_middle_gives_no_thread_a_wrong_answer(
    assume: Callable[..., Calls], sts: HttpProxy, server: GlueServer, database: str
) -> None:
    calls = assume(assume_role_timeout_sec="900")
    tables = [f"t{number}" for number in range(THREADS)]
    with server.known_keys_only():
        # botocore refreshes a session of 900 s when 225 s of it are left.
        with server.short_sessions(228):
            names(calls)
        for table in tables:
            calls.declare_table([database, table], location=f"s3://glue-tests/{table}")
        refreshed = threading.Event()
        deadline = time.monotonic() + 60

        def work(table: str) -> int:
            asked = after = 0
            while after < 10 and time.monotonic() < deadline:
                found = calls.describe_table([database, table])
                assert found.location == f"s3://glue-tests/{table}"
                asked += 1
                after += refreshed.is_set()
            return asked

        with ThreadPoolExecutor(THREADS) as pool:
            asked = pool.map(work, tables)
            sts.await_requests("AssumeRole", count=2, seconds=50)
            refreshed.set()
            assert min(asked) >= 10
    assert sts.counts["AssumeRole"] == 2


def test_a_slow_sts_blocks_no_call_while_the_old_credentials_are_valid(
    assume: Callable[..., Calls], sts: HttpProxy, server: GlueServer
) -> None:
    calls = assume(assume_role_timeout_sec="900", **{"client.read-timeout": "30"})
    with server.short_sessions(200):  # botocore wants to refresh that at once, and need not
        names(calls)
        sts.reset()
        slow = Delay()
        sts.fail_next("AssumeRole", slow)
        with ThreadPoolExecutor(2) as pool:
            refreshing = pool.submit(names, calls)
            sts.await_requests("AssumeRole")
            assert names(calls) is not None
            assert not refreshing.done()
            slow.release.set()
            assert refreshing.result(20) is not None


@pytest.mark.spec("common.md#concurrency-and-crash-safety")
def test_a_child_process_uses_neither_connection_nor_credentials_of_its_parent(
    assume: Callable[..., Calls], sts: HttpProxy, proxy: HttpProxy
) -> None:
    calls = assume()
    names(calls)
    proxy.reset()
    assert returns_in_child(lambda: names(calls))
    names(calls)
    assert proxy.counts["GetDatabases"] == 2
    assert proxy.connections == 1
    assert sts.counts["AssumeRole"] == 2
    assert len({*signers(proxy)}) == 2


# -- what may go wrong ---------------------------------------------------------------------------


@pytest.mark.spec("glue.md#errors-of-every-operation")
def test_a_refused_role_is_permission_denied(
    assume: Callable[..., Calls], sts: HttpProxy, proxy: HttpProxy
) -> None:
    sts.fail_next("AssumeRole", Answer(403, DENIED, {"Content-Type": "text/xml"}))
    calls = assume()
    with pytest.raises(PermissionDeniedError, match="trust policy"):
        names(calls)
    assert proxy.requests == []
    assert names(calls) is not None


@pytest.mark.spec("glue.md#errors-of-every-operation")
def test_an_sts_out_of_reach_is_unavailable_soon(
    assume: Callable[..., Calls], sts: HttpProxy
) -> None:
    calls = assume()
    sts.stop()
    begun = time.monotonic()
    with pytest.raises(ServiceUnavailableError):
        names(calls)
    assert time.monotonic() - begun < 30


@pytest.mark.spec("glue.md#errors-of-every-operation")
def test_a_session_that_was_ended_is_unauthenticated(
    assume: Callable[..., Calls], server: GlueServer
) -> None:
    calls = assume()
    with server.known_keys_only():
        names(calls)
        server.end_sessions()
        with pytest.raises(UnauthenticatedError, match="Check the credentials"):
            names(calls)


@pytest.mark.spec("glue.md#errors-of-every-operation")
def test_a_key_that_is_not_known_is_unauthenticated(connect: Connect, server: GlueServer) -> None:
    with server.known_keys_only(), pytest.raises(UnauthenticatedError):
        names(connect(access_key_id="nobody"))


# -- what botocore logs ----------------------------------------------------------------------------


TOKEN = "t0ken/of+the=properties"


@pytest.mark.spec("glue.md#security")
def test_no_secret_of_ours_is_logged_at_debug_level(
    server: GlueServer, proxy: HttpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    lake = {"SecretAccessKey": "key-of-the-lake", "SessionToken": "token-of-the-lake"}
    answer = Answer.of_json(200, {"AccessKeyId": "ASIALAKE", **lake, "Expiration": 4e9})
    proxy.fail_next("POST /GetTemporaryGlueTableCredentials", answer)
    catalog = catalog_at(
        proxy.endpoint,
        server,
        session_token=TOKEN,
        catalog_id="123456789012",
        assume_role_arn=ROLE,
        assume_role_endpoint=proxy.endpoint,
        **{"lakeformation.vend-credentials": "true", "lakeformation.endpoint": proxy.endpoint},
    )
    list(catalog.list_namespaces(()))
    record = TableRecord(("db", "t"), "s3://bucket/t", identity="now")
    options = catalog.vend_credentials(record, write=False)
    assert options is not None
    assert options["aws_session_token"] == "token-of-the-lake"
    assert catalog._session is not None
    of_role, _ = catalog._session.storage_credentials()
    assert "x-amz-security-token:***" in caplog.text.lower()
    for secret in (TOKEN, of_role.token, of_role.secret_key, *lake.values()):
        assert secret not in caplog.text


@pytest.mark.spec("glue.md#security")
@pytest.mark.parametrize(
    "text",
    [
        "x-amz-security-token:hidden\nx-amz-date:1",
        "{'X-Amz-Security-Token': b'hidden', 'Authorization'",
        "<SecretAccessKey>hidden</SecretAccessKey><SessionToken>hidden</SessionToken>",
        '{"SecretAccessKey": "hidden", "SessionToken":"hidden"}',
        '{"accessToken":"hidden", "clientSecret": "hidden"}',
        '"Token" : "hidden",',
        "GET /?X-Amz-Security-Token=hidden&X-Amz-Signature=1",
        "Action=AssumeRoleWithWebIdentity&WebIdentityToken=hidden&Version=1",
    ],
)
def test_credentials_are_known_by_the_names_before_them(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    redact_logs()
    caplog.set_level(logging.DEBUG)
    logging.getLogger("botocore.parsers").debug("Response body:\n%s", text)
    assert "hidden" not in caplog.text
    assert "***" in caplog.text


@pytest.mark.spec("glue.md#security")
def test_other_messages_stay_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    redact_logs()
    caplog.set_level(logging.DEBUG)
    text = "SignedHeaders=host;x-amz-security-token, NextToken=page %d"
    logging.getLogger("botocore.auth").debug(text, 2)
    assert caplog.records[-1].getMessage() == text % 2
    assert caplog.records[-1].args == (2,)


# -- what botocore reads of AWS's services: once for the process ---------------------------------


class CountingLoader(JSONFileLoader):  # type: ignore[misc]  # botocore has no types
    """Notes which files it has read."""

    read: ClassVar[list[str]] = []

    def load_file(self, file_path: str) -> Any:
        found = super().load_file(file_path)
        if found is not None:
            self.read.append("/".join(Path(file_path).parts[-3::2]))
        return found


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The models that are read during the test, as if it were the first in the process."""
    monkeypatch.setattr(client._Models, "FILE_LOADER_CLASS", CountingLoader)
    monkeypatch.setattr(CountingLoader, "read", [])
    client._models.cache_clear()
    client._models(None)
    yield CountingLoader.read
    client._models.cache_clear()


def test_models_are_read_once_for_all_namespaces_and_threads(
    connect: Connect, server: GlueServer, read: list[str]
) -> None:
    start = threading.Barrier(THREADS)

    def work(_: int) -> bool:
        calls = connect(assume_role_arn=ROLE, assume_role_endpoint=server.endpoint)
        start.wait()
        return calls.all_namespaces([]) is not None

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(work, range(THREADS)))
    assert read.count("glue/service-2") == 1
    assert read.count("glue/paginators-1") == 1
    assert read.count("sts/service-2") == 1


# -- key pairs from a file, read again when AWS refuses the old one --------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.yaml"
    path.write_text(BAD)
    return path


@pytest.fixture
def ended(server: GlueServer, connect: Connect, file: Path, database: str) -> Iterator[Calls]:
    """A namespace on the test's database whose key pair is not valid any more."""
    assert database
    with server.known_keys_only():
        yield connect(access_key_id="", secret_access_key="", **{"secrets.file": str(file)})


def test_a_new_key_pair_in_the_file_is_used(
    ended: Calls, proxy: HttpProxy, file: Path, database: str
) -> None:
    file.write_text(GOOD)
    assert database in names(ended)
    assert database in names(ended)
    assert signers(proxy) == ["nobody", ACCESS_KEY, ACCESS_KEY]


@pytest.mark.parametrize("mode", ["legacy", "adaptive"])
def test_every_mode_of_retries_does_it(
    server: GlueServer, connect: Connect, proxy: HttpProxy, file: Path, mode: str
) -> None:
    none = {"access_key_id": "", "secret_access_key": "", "max_retries": "0"}
    with server.known_keys_only():
        calls = connect(retry_mode=mode, **none, **{"secrets.file": str(file)})
        file.write_text(GOOD)
        assert names(calls) is not None
    assert signers(proxy) == ["nobody", ACCESS_KEY]


def test_a_change_is_made_once(ended: Calls, proxy: HttpProxy, file: Path, database: str) -> None:
    file.write_text(GOOD)
    ended.create_namespace([f"{database}_2"])
    assert proxy.counts["CreateDatabase"] == 2
    assert names(ended).count(f"{database}_2") == 1


def test_a_listing_with_a_new_key_pair_has_every_page_once(
    ended: Calls, server: GlueServer, proxy: HttpProxy, file: Path, database: str
) -> None:
    for number in range(4):
        entry = {"Name": f"t{number}", "TableType": "EXTERNAL_TABLE"}
        entry |= {"Parameters": {"table_type": "LANCE"}}  # type: ignore[dict-item]  # boto3's
        server.glue.create_table(DatabaseName=database, TableInput=entry)
    with server.small_pages(2):
        file.write_text(GOOD)
        tables = ended.all_tables([database])
    assert list(tables) == [f"t{number}" for number in range(4)]
    assert proxy.counts["GetTables"] == 3


def test_ten_threads_read_the_file_once(
    ended: Calls, file: Path, reads_of: Callable[..., list[Path]], database: str
) -> None:
    opened = reads_of(file)
    file.write_text(GOOD)
    found = race(lambda _: names(ended), 10)
    assert all(isinstance(each, list) and database in each for each in found)
    assert opened == [file]


def test_a_file_with_the_same_key_pair_is_named_and_the_request_sent_once(
    ended: Calls, proxy: HttpProxy
) -> None:
    with pytest.raises(UnauthenticatedError, match=r"secrets\.file, and are the same") as caught:
        names(ended)
    assert "hush" not in str(caught.value)
    assert len(proxy.requests) == 1


def test_a_file_with_a_wrong_key_pair_is_tried_once_and_the_next_one_is_used(
    ended: Calls, proxy: HttpProxy, file: Path
) -> None:
    file.write_text(WORSE)
    with pytest.raises(UnauthenticatedError, match="the new ones are refused, too") as caught:
        names(ended)
    assert "hush" not in str(caught.value)
    assert signers(proxy) == ["nobody", "nobody-else"]
    file.write_text(GOOD)
    assert names(ended) is not None
    assert "x-amz-security-token" not in proxy.requests[-1].headers


def test_a_file_that_is_gone_is_named_and_read_when_it_is_back(ended: Calls, file: Path) -> None:
    file.unlink()
    with pytest.raises(UnauthenticatedError, match=r"could not be read again.*No such file"):
        names(ended)
    file.write_text(GOOD)
    assert names(ended) is not None


def test_a_key_pair_that_was_given_is_sent_once(
    server: GlueServer, connect: Connect, proxy: HttpProxy
) -> None:
    with server.known_keys_only(), pytest.raises(UnauthenticatedError) as caught:
        names(connect(access_key_id="nobody"))
    assert "again" not in str(caught.value)
    assert len(proxy.requests) == 1


# -- roles, and storage --------------------------------------------------------------------------


@pytest.fixture
def assume_by_file(
    connect: Connect, server: GlueServer, file: Path
) -> Iterator[Callable[[], Calls]]:
    """Makes namespaces that assume a role with the key pair of the file."""
    with HttpProxy(server.endpoint) as sts, server.known_keys_only():
        given = {"access_key_id": "", "secret_access_key": "", "secrets.file": str(file)}
        role = {"assume_role_arn": ROLE, "assume_role_endpoint": sts.endpoint}
        yield lambda: connect(**given, **role)


def test_a_role_is_assumed_with_the_new_key_pair(
    assume_by_file: Callable[[], Calls], file: Path
) -> None:
    calls = assume_by_file()
    with pytest.raises(UnauthenticatedError, match="are the same"):
        names(calls)
    file.write_text(WORSE)
    with pytest.raises(UnauthenticatedError, match="the new ones are refused, too"):
        names(calls)
    file.write_text(GOOD)
    assert names(calls) is not None


def test_storage_gets_the_new_key_pair(
    ended: Calls, connect: Connect, file: Path, database: str
) -> None:
    given = {"access_key_id": "", "secret_access_key": "", "secrets.file": str(file)}
    stored = {"storage.aws_access_key_id": "", "storage.aws_secret_access_key": ""}
    calls = connect(**given, **stored)
    file.write_text(GOOD)
    table = calls.declare_table([database, "t"])
    assert table.storage_options is not None
    assert table.storage_options["aws_access_key_id"] == ACCESS_KEY
    assert names(ended) is not None

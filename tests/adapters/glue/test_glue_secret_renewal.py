"""Key pairs from a file that are read again when AWS refuses the old one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lance_namespace.errors import UnauthenticatedError
from servers.glue_server import ACCESS_KEY, ROLE, SECRET_KEY, GlueServer
from servers.http_proxy import HttpProxy

from lance_bridge.testing.calls import Calls
from lance_bridge.testing.concurrency import race

from .building import Connect

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("common.md#secrets-that-change", "glue.md#connections"),
]

THREADS = 10
GOOD = f"access_key_id: {ACCESS_KEY}\nsecret_access_key: {SECRET_KEY}\n"
BAD = "access_key_id: nobody\nsecret_access_key: hush-hush\n"
WORSE = "access_key_id: nobody-else\nsecret_access_key: hush-hush\nsession_token: hush\n"


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


def names(calls: Calls) -> list[str]:
    return list(calls.all_namespaces([]))


def keys(proxy: HttpProxy) -> list[str]:
    return [
        each.headers["authorization"].split("Credential=")[1].split("/")[0]
        for each in proxy.requests
    ]


@pytest.fixture
def readings(file: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The file, once for each time that it was read."""
    opened: list[Path] = []
    read_text = Path.read_text

    def counted(path: Path, *args: str, **more: str) -> str:
        opened.extend([path] if path == file else [])
        return read_text(path, *args, **more)

    monkeypatch.setattr(Path, "read_text", counted)
    return opened


def test_a_new_key_pair_in_the_file_is_used(
    ended: Calls, proxy: HttpProxy, file: Path, database: str
) -> None:
    file.write_text(GOOD)
    assert database in names(ended)
    assert database in names(ended)
    assert keys(proxy) == ["nobody", ACCESS_KEY, ACCESS_KEY]


@pytest.mark.parametrize("mode", ["legacy", "adaptive"])
def test_every_mode_of_retries_does_it(
    server: GlueServer, connect: Connect, proxy: HttpProxy, file: Path, mode: str
) -> None:
    none = {"access_key_id": "", "secret_access_key": "", "max_retries": "0"}
    with server.known_keys_only():
        calls = connect(retry_mode=mode, **none, **{"secrets.file": str(file)})
        file.write_text(GOOD)
        assert names(calls) is not None
    assert keys(proxy) == ["nobody", ACCESS_KEY]


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
    ended: Calls, file: Path, readings: list[Path], database: str
) -> None:
    file.write_text(GOOD)
    found = race(lambda _: names(ended), THREADS)
    assert all(isinstance(each, list) and database in each for each in found)
    assert readings == [file]


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
    assert keys(proxy) == ["nobody", "nobody-else"]
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
def assume(connect: Connect, server: GlueServer, file: Path) -> Iterator[Callable[[], Calls]]:
    """Makes namespaces that assume a role with the key pair of the file."""
    with HttpProxy(server.endpoint) as sts, server.known_keys_only():
        given = {"access_key_id": "", "secret_access_key": "", "secrets.file": str(file)}
        role = {"assume_role_arn": ROLE, "assume_role_endpoint": sts.endpoint}
        yield lambda: connect(**given, **role)


def test_a_role_is_assumed_with_the_new_key_pair(assume: Callable[[], Calls], file: Path) -> None:
    calls = assume()
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

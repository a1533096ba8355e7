"""Passwords and tokens from a file that are read again when a metastore refuses the old ones."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey
from lance_namespace.errors import UnauthenticatedError
from servers.metastores import Metastores

from lance_bridge.testing.calls import Calls
from lance_bridge.testing.concurrency import race
from lance_bridge_hive import HiveNamespace

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("common.md#secrets-that-change", "hive.md#connections"),
]

THREADS = 10


class Secured:
    """A metastore that checks secrets, and a file with those of its clients."""

    def __init__(
        self, uri: str, key: str, new_secret: Callable[[], str], file: Path, **properties: str
    ) -> None:
        self.uri = uri
        self.file = file
        self._key = key
        self._new_secret = new_secret
        self._properties = {"client.retry-timeout": "5", "secrets.file": str(file), **properties}

    def write_wrong(self, text: str = "hush-hush") -> None:
        """Write a secret that the metastore refuses."""
        self.file.write_text(f"{self._key}: {text}\n")

    def write_right(self) -> None:
        """Write one that it accepts."""
        self.file.write_text(f"{self._key}: {self._new_secret()}\n")

    def connect(self) -> Calls:
        """Return a client; no call is made."""
        return Calls(HiveNamespace(uri=self.uri, **self._properties))


@pytest.fixture(scope="module")
def with_password(
    metastores: Metastores, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    settings = {
        "metastore.authentication": "CONFIG",
        "metastore.authentication.config.username": "alice",
        "metastore.authentication.config.password": "wonderland",
        "metastore.execute.setugi": "false",
    }
    file = tmp_path_factory.mktemp("password") / "secrets.yaml"
    with closing(metastores.new("4.0", stub=False, settings=settings)) as metastore:
        plain = {"auth.mechanism": "plain", "auth.username": "alice"}
        yield Secured(metastore.uri, "auth.password", lambda: "wonderland", file, **plain)


@pytest.fixture(scope="module")
def with_token(
    metastores: Metastores, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("token")
    key = RSAKey.generate_key(2048, {"kid": "k1", "alg": "RS256", "use": "sig"})
    keys_file = directory / "jwks.json"
    keys_file.write_text(json.dumps({"keys": [key.as_dict(private=False)]}))

    def token() -> str:
        claims = {"sub": "alice", "exp": int(time.time()) + 3600}
        return str(jwt.encode({"alg": "RS256", "kid": "k1"}, claims, key))

    settings = {
        "metastore.server.thrift.transport.mode": "http",
        "metastore.authentication": "JWT",
        "metastore.authentication.jwt.jwks.url": keys_file.as_uri(),
    }
    with closing(metastores.new("4.0", stub=False, settings=settings)) as metastore:
        uri = metastore.uri.replace("thrift://", "http://")
        yield Secured(uri, "http.token", token, directory / "secrets.yaml")


@pytest.fixture(params=["password", "token"])
def secured(request: pytest.FixtureRequest) -> Secured:
    found: Secured = request.getfixturevalue(f"with_{request.param}")
    found.write_wrong()
    return found


@pytest.fixture
def ended(secured: Secured) -> Iterator[Calls]:
    """A client whose secret is refused."""
    with closing(secured.connect()) as calls:
        yield calls


def names(calls: Calls) -> list[str]:
    return list(calls.all_namespaces([]))


def test_a_new_secret_in_the_file_is_used(ended: Calls, secured: Secured) -> None:
    secured.write_right()
    assert [names(ended) for _ in range(3)] == [["default"]] * 3


def test_ten_threads_read_the_file_once(
    ended: Calls, secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []
    read_text = Path.read_text

    def counted(path: Path, *args: str, **more: str) -> str:
        opened.extend([path] if path == secured.file else [])
        return read_text(path, *args, **more)

    monkeypatch.setattr(Path, "read_text", counted)
    secured.write_right()
    assert race(lambda _: names(ended), THREADS) == [["default"]] * THREADS
    assert opened == [secured.file]


def test_a_change_is_made_with_the_new_secret(
    ended: Calls, secured: Secured, tmp_path: Path
) -> None:
    secured.write_right()
    ended.create_namespace(["sales"], properties={"database.location-uri": f"file:{tmp_path}/db"})
    assert "sales" in names(ended)
    ended.drop_namespace(["sales"])


def test_a_file_with_the_same_secret_is_named(ended: Calls) -> None:
    for _ in range(2):
        with pytest.raises(
            UnauthenticatedError, match=r"secrets\.file, and are the same"
        ) as caught:
            names(ended)
        assert "hush" not in str(caught.value)


def test_a_file_with_another_wrong_secret_is_tried_once_and_the_next_one_is_used(
    ended: Calls, secured: Secured
) -> None:
    secured.write_wrong("hush-again")
    with pytest.raises(UnauthenticatedError, match="the new ones are refused, too") as caught:
        names(ended)
    assert "hush" not in str(caught.value)
    secured.write_right()
    assert names(ended) == ["default"]


def test_a_file_that_is_gone_is_named_and_read_when_it_is_back(
    ended: Calls, secured: Secured
) -> None:
    secured.file.unlink()
    with pytest.raises(UnauthenticatedError, match=r"could not be read again.*No such file"):
        names(ended)
    secured.write_right()
    assert names(ended) == ["default"]


def test_open_connections_go_on_with_no_old_token(with_token: Secured) -> None:
    """Over HTTP, each request has the token that its connection was opened with."""
    with_token.write_right()
    with closing(with_token.connect()) as calls:
        assert names(calls) == ["default"]
        assert isinstance(calls.client, HiveNamespace)
        renewal = calls.client.connection.config.renewal
        with_token.write_wrong()
        assert renewal.renew(renewal.config).changed
        with pytest.raises(UnauthenticatedError):
            names(calls)
        with_token.write_right()
        assert names(calls) == ["default"]

"""Pickled namespaces, and secrets: withheld, and in no text."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from lance_namespace import errors

from .building import TABLE, count_rows, create
from .memory_catalog import MemoryNamespace, MemoryServer

TOKEN = "t0p-secret-token"
STORE_SECRET = "very/secret+key"


@pytest.fixture
def with_secrets(
    server: MemoryServer, request: pytest.FixtureRequest, tmp_path: Path
) -> dict[str, str]:
    assert not server.effects
    return {
        "uri": request.node.nodeid,
        "root": str(tmp_path / "lake"),
        "token": TOKEN,
        "storage.aws_access_key_id": "known",
        "storage.aws_secret_access_key": STORE_SECRET,
    }


def test_a_pickle_carries_no_secret_and_takes_them_from_the_environment(
    with_secrets: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = MemoryNamespace(**with_secrets)
    create(namespace, TABLE)
    content = pickle.dumps(namespace)
    for secret in (TOKEN, STORE_SECRET):
        assert secret.encode() not in content
    monkeypatch.setenv("LANCE_BRIDGE_MEMORY_TOKEN", "from the environment")
    monkeypatch.setenv("LANCE_BRIDGE_MEMORY_STORAGE_AWS_SECRET_ACCESS_KEY", "also")
    other = pickle.loads(content)
    config = other._bridge.config
    assert config.token.get_secret_value() == "from the environment"
    assert config.storage == {"aws_access_key_id": "known", "aws_secret_access_key": "also"}
    assert other.namespace_id() == namespace.namespace_id()
    assert count_rows(other, TABLE) == 3


def test_a_pickle_carries_secrets_when_asked_to(with_secrets: dict[str, str]) -> None:
    namespace = MemoryNamespace(**with_secrets, **{"pickle.secrets": "true"})
    other = pickle.loads(pickle.dumps(namespace))
    assert other._bridge.config.token.get_secret_value() == TOKEN
    assert other._bridge.config.storage["aws_secret_access_key"] == STORE_SECRET


@pytest.mark.parametrize(
    "option", ["proxy_url", "google_service_account", "default_headers", "sas", "unheard_of"]
)
def test_a_pickle_carries_no_storage_option_that_may_be_secret(
    with_secrets: dict[str, str], option: str
) -> None:
    value = "https://me:hunter2@proxy"
    namespace = MemoryNamespace(**with_secrets, **{f"storage.{option}": value})
    content = pickle.dumps(namespace)
    assert value.encode() not in content
    assert pickle.loads(content)._bridge.config.storage == {"aws_access_key_id": "known"}


def test_secrets_are_in_no_text_of_a_namespace(with_secrets: dict[str, str]) -> None:
    namespace = MemoryNamespace(**with_secrets)
    bridge = namespace._bridge
    for text in (repr(namespace), str(namespace), namespace.namespace_id(), repr(bridge)):
        assert TOKEN not in text
        assert STORE_SECRET not in text


def test_a_root_with_a_password_is_refused_without_showing_it(server: MemoryServer) -> None:
    assert not server.effects
    with pytest.raises(errors.InvalidInputError) as caught:
        MemoryNamespace(uri="x", root="s3://me:hunter2@bucket/root")
    assert "hunter2" not in str(caught.value)

"""Secrets from a file or a function are read again when a server refuses them, once for all."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from core.forking import returns_in_child

from lance_bridge.config import load
from lance_bridge.secrets import Renewal
from lance_bridge.testing.concurrency import answers_only, race

from .memory_catalog import MemoryConfig, MemoryNamespace

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#secrets-that-change")]

THREADS = 10


@pytest.fixture
def file(tmp_path: Path) -> Path:
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


def token(config: MemoryConfig) -> str:
    assert config.token is not None
    return config.token.get_secret_value()


def test_a_file_that_has_changed_is_read_again(file: Path) -> None:
    config = connected(**{"secrets.file": str(file)})
    file.write_text("token: new\n")
    assert token(config.renewal.config) == "old"
    assert config.renewal.renew(config).changed
    assert token(config.renewal.config) == "new"
    assert token(config) == "old"


def test_a_file_that_has_not_changed_is_named_and_changes_nothing(file: Path) -> None:
    config = connected(**{"secrets.file": str(file)})
    for _ in range(3):
        found = config.renewal.renew(config.renewal.config)
        assert not found.changed
        assert "read again from secrets.file, and are the same" in found.advice
    file.write_text("token: new\n")
    assert config.renewal.renew(config.renewal.config).changed


def test_a_file_that_is_gone_or_half_written_keeps_the_secrets(file: Path) -> None:
    config = connected(**{"secrets.file": str(file)})
    for text, said in ((None, "No such file"), ("", "mapping"), ("tokn: x", "did you mean")):
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_text(text)
        found = config.renewal.renew(config.renewal.config)
        assert not found.changed
        assert "could not be read again: impl=memory" in found.advice
        assert said in found.advice
        assert token(config.renewal.config) == "old"
    file.write_text("token: new\n")
    assert config.renewal.renew(config.renewal.config).changed
    assert token(config.renewal.config) == "new"


def test_secrets_that_were_given_are_never_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_MEMORY_TOKEN", "old")
    config = connected()
    monkeypatch.setenv("LANCE_BRIDGE_MEMORY_TOKEN", "new")
    assert config.renewal.renew(config) == Renewal(changed=False, advice="")
    assert token(config.renewal.config) == "old"


def test_a_property_that_was_given_comes_before_the_new_file(file: Path) -> None:
    config = connected(token="given", **{"secrets.file": str(file)})
    file.write_text("token: new\n")
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


def test_listeners_know_a_new_secret_before_it_is_used(file: Path) -> None:
    config = connected(**{"secrets.file": str(file)})
    known = []
    config.renewal.call_before_use(
        lambda found: known.append((token(found), token(config.renewal.config)))
    )
    config.renewal.renew(config.renewal.config)
    file.write_text("token: new\n")
    config.renewal.renew(config.renewal.config)
    assert known == [("new", "old")]


def test_storage_options_of_the_file_are_renewed_with_it(
    file: Path, request: pytest.FixtureRequest
) -> None:
    namespace = MemoryNamespace(uri=request.node.nodeid, **{"secrets.file": str(file)})
    assert namespace.connection.secrets.config.storage == {"aws_secret_access_key": "old-key"}
    file.write_text("token: new\nstorage.aws_secret_access_key: new-key\n")
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


def test_no_text_has_a_secret(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    file.write_text("token: hush-1\n")
    config = connected(**{"secrets.file": str(file)})
    file.write_text("token: hush-2\n")
    texts = [config.renewal.renew(config).advice, repr(config.renewal), repr(config)]
    file.write_text("token: [hush-3\n")
    texts.append(config.renewal.renew(config.renewal.config).advice)
    texts += [record.getMessage() for record in caplog.records]
    assert caplog.records
    assert "hush" not in os.linesep.join(texts)

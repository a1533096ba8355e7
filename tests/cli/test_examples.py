"""Every example in the help of a command runs as it stands."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import lance
import lance_namespace as api
import pytest

from lance_bridge_server.authentication.key_file import ApiKeyFile

from .conftest import ORDERS, Lake
from .running import COMMANDS, examples, pasted, run, started

pytestmark = [pytest.mark.servers, pytest.mark.spec("cli.md#commands")]

KEY = "0123456789abcdef"
URI, DATA = "thrift://metastore:9083", "/data/"
EXITS = {"managed check": 3}
"""Commands whose examples find something."""


@pytest.fixture
def sales(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """The catalog that examples are about: ``prod``, with a database ``sales``."""
    monkeypatch.chdir(tmp_path)
    for name in ("sales", "attic"):
        lake.namespace.create_namespace(api.CreateNamespaceRequest(id=[name]))
    lake.databases += ["sales", "attic", "archive"]
    lake.database = "sales"
    for name in ("orders", "drafts", "scratch"):
        lake.create(name)
    lance.write_dataset(ORDERS, str(tmp_path / "data" / "old_orders.lance"))
    lake.create("embeddings")
    return lake


def _registered(lake: Lake) -> None:
    location = str(lake.config.parent / "data" / "old_orders.lance")
    request = api.RegisterTableRequest(id=["sales", "old_orders"], location=location)
    lake.namespace.register_table(request)


def _managed(lake: Lake) -> None:
    lake.namespace.manage_table(["sales", "embeddings"])


def _past_the_catalog(lake: Lake) -> None:
    _managed(lake)
    lake.append("embeddings")


def _with_key(lake: Lake) -> None:
    file = ApiKeyFile(lake.config.parent / "data" / "keys.json")
    key, _ = file.add("ann")
    file.path.write_text(file.path.read_text().replace(key.split("_")[1], KEY))


def _with_staging(lake: Lake) -> None:
    run("config", "set", "staging", "impl=hive", f"uri={lake.metastore.uri}")


BEFORE: dict[str, Callable[[Lake], None]] = {
    "table deregister": _registered,
    "config remove": _with_staging,
    "keys list": _with_key,
    "keys revoke": _with_key,
    "managed end": _managed,
    "managed check": _past_the_catalog,
    "managed adopt": _past_the_catalog,
    "managed discard": _past_the_catalog,
}
"""What some examples need besides."""


@pytest.mark.parametrize("words", [each for each in COMMANDS if each[0] == "managed"], ids=" ".join)
def test_every_example_of_managed_tables_runs(sales: Lake, words: tuple[str, ...]) -> None:
    require_examples(sales, words)


def test_every_other_example_runs(sales: Lake) -> None:
    for words in COMMANDS:
        if words != ("metastore", "start") and words[0] != "managed":
            require_examples(sales, words)


def require_examples(sales: Lake, words: tuple[str, ...]) -> None:
    name = " ".join(words)
    if name in BEFORE:
        BEFORE[name](sales)
    for example in examples(*words):
        command = example.replace(URI, sales.metastore.uri)
        done = pasted(command.replace(DATA, f"{sales.config.parent}/data/"))
        assert done.exit_code == EXITS.get(name, 0), f"{command}\n{done.output}"


@pytest.mark.spec("cli.md#metastore")
def test_the_example_of_the_metastore_runs() -> None:
    for example in examples("metastore", "start"):
        with started(*shlex.split(example)[1:]) as running:
            assert running.process.stdout is not None
            lines = iter(running.process.stdout.readline, "")
            uri = next(line.strip() for line in lines if line.startswith("thrift://"))
            assert "default" in run("ns", "list", "hive", "-p", f"uri={uri}").stdout
            code, _, error = running.interrupt()
        assert code == 0
        assert "Traceback" not in error

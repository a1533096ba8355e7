"""The gateway of ``docs/gateway-clients.md``: a catalog ``prod`` over a real Hive Metastore."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lance_namespace as api
from docs.gateway_pages import ADDRESS, CLIENTS_PAGE, Block, Reader, blocks
from servers.metastores import Metastores

from lance_bridge_hive import HiveNamespace
from lance_bridge_server.authentication.key_file import ApiKeyFile

from .authenticated import serve

DATABASE = "sales"
_CREATES = re.compile("create_table|write_dataset")


@contextmanager
def reader_of_clients_page(directory: Path, metastores: Metastores) -> Iterator[Reader]:
    """Run the gateway; yield a reader who has its address and a key. Drop the database after it."""
    uri = f"thrift://127.0.0.1:{metastores.get('2.3').port}"
    keys = ApiKeyFile(directory / "keys.json")
    key, _ = keys.add("ann")
    catalog = ["--catalog", f"prod=hive:uri={uri}", "-p", f"prod.root={directory}/lake"]
    with serve(*catalog, "--api-keys", str(keys.path), "--port", "0") as served:
        yield Reader(directory, {ADDRESS: served.url}, {"LANCE_KEY": key})
    with HiveNamespace(uri=uri) as namespace:
        request = api.DropNamespaceRequest(id=[DATABASE], mode="Skip", behavior="Cascade")
        namespace.drop_namespace(request)


@contextmanager
def reader_after_python(directory: Path, metastores: Metastores) -> Iterator[Reader]:
    """The same for a reader who has come to the sections after Python's: `films` has three rows."""
    with reader_of_clients_page(directory, metastores) as reader:
        for block in blocks(CLIENTS_PAGE):
            is_python = block.section in ("pylance", "LanceDB for Python")
            if block.section == "curl" or (is_python and _CREATES.search(block.text)):
                reader.follow(block)
        yield reader


def section(title: str) -> list[Block]:
    """Return the snippets of a section."""
    return [each for each in blocks(CLIENTS_PAGE) if each.section == title]

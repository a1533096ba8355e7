"""Connects with every secret there is, fails, and leaves behind what a process may leave.

Called as ``python secrets_process.py DIRECTORY``, with the properties of the catalogs as JSON on
standard input. Logs of all libraries at DEBUG go to a file of the directory.
"""

from __future__ import annotations

import json
import logging
import pickle
import sys
import traceback
from pathlib import Path

from lance_namespace import (
    DescribeTableRequest,
    ListNamespacesRequest,
    ListTablesRequest,
)
from lance_namespace.errors import LanceNamespaceError

import lance_bridge
from lance_bridge_migrate.endpoints import Directory, address_of
from lance_bridge_migrate.plan import Address


def main(directory: Path) -> None:
    logging.basicConfig(filename=directory / "debug.log", level=logging.DEBUG)
    with (directory / "left.txt").open("wb") as left:
        for case in json.load(sys.stdin):
            left.write(all_of(case["impl"], case["properties"], case["bad"]))


def all_of(impl: str, properties: dict[str, str], bad: dict[str, str]) -> bytes:
    """Return all texts of a namespace and of its failures, its pickle, and its address in plans."""
    namespace = lance_bridge.connect(impl, properties)
    assert isinstance(namespace, lance_bridge.LanceBridgeNamespace)
    texts = [
        repr(namespace),
        str(namespace),
        repr(namespace.catalog),
        repr(vars(namespace.catalog)),
    ]
    texts += [repr(namespace.connection), namespace.namespace_id()]
    for call in (
        lambda: namespace.list_namespaces(ListNamespacesRequest(id=[])),
        lambda: namespace.list_tables(ListTablesRequest(id=["db"])),
        lambda: namespace.describe_table(DescribeTableRequest(id=["db", "t"])),
    ):
        try:
            call()
        except LanceNamespaceError as error:
            texts.append("".join(traceback.format_exception(error)))
        else:
            raise AssertionError("the server of this test does not run")
    for key, value in bad.items():
        try:
            lance_bridge.connect(impl, {**properties, key: value})
        except LanceNamespaceError as error:
            texts.append("".join(traceback.format_exception(error)))
        else:
            raise AssertionError(f"{key} was taken")
    addresses: list[Address] = [address_of(namespace)]
    options = {k.removeprefix("storage."): v for k, v in properties.items() if "storage." in k}
    addresses.append(Directory.at("s3://bucket/lake", options).address)
    texts += [address.model_dump_json() for address in addresses]
    texts += Path("/proc/self/cmdline").read_text().split("\0")
    return "\n".join(texts).encode() + pickle.dumps(namespace)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

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
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lance_namespace import DescribeTableRequest, ListNamespacesRequest, ListTablesRequest
from lance_namespace.errors import LanceNamespaceError

import lance_bridge
from lance_bridge_migrate.endpoints import Directory, address_of


def main(directory: Path) -> None:
    logging.basicConfig(filename=directory / "debug.log", level=logging.DEBUG)
    with (directory / "left.txt").open("wb") as left:
        for case in json.load(sys.stdin):
            left.write(all_of(case["impl"], case["properties"], case["bad"]))


def all_of(impl: str, properties: dict[str, str], bad: dict[str, str]) -> bytes:
    """Return all texts of a namespace and of its failures, its pickle, and its address in plans."""
    namespace = lance_bridge.connect(impl, properties)
    assert isinstance(namespace, lance_bridge.LanceBridgeNamespace)
    shown = (namespace, namespace.catalog, vars(namespace.catalog), namespace.connection)
    texts = [str(namespace), namespace.namespace_id(), *map(repr, shown)]
    texts += [  # the server of this test does not run
        failure_of(lambda: namespace.list_namespaces(ListNamespacesRequest(id=[]))),
        failure_of(lambda: namespace.list_tables(ListTablesRequest(id=["db"]))),
        failure_of(lambda: namespace.describe_table(DescribeTableRequest(id=["db", "t"]))),
    ]
    for key, value in bad.items():
        texts.append(failure_of(partial(lance_bridge.connect, impl, {**properties, key: value})))
    options = {k.removeprefix("storage."): v for k, v in properties.items() if "storage." in k}
    addresses = [address_of(namespace), Directory.at("s3://bucket/lake", options).address]
    texts += [address.model_dump_json() for address in addresses]
    texts += Path("/proc/self/cmdline").read_text().split("\0")
    return "\n".join(texts).encode() + pickle.dumps(namespace)


def failure_of(call: Callable[[], object]) -> str:
    """Return the whole text of the error that a call must meet."""
    try:
        call()
    except LanceNamespaceError as error:
        return "".join(traceback.format_exception(error))
    raise AssertionError("the call was answered")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

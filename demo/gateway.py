"""The demo's gateway: one table, written by Spark and used by others, who have different rights."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance
import lancedb
import yaml
from lance_namespace.errors import TableNotFoundError
from lancedb.remote.errors import LanceDBClientError
from pyspark.sql import SparkSession

import lance_bridge
import lance_bridge_spark
from demo.story import Story

PROGRAM = str(Path(sys.executable).with_name("lance-bridge"))
CATALOG = "lake"
_STOP_SECONDS = 60
_WRITES = f"""\
CREATE NAMESPACE {CATALOG}.museum;

CREATE TABLE {CATALOG}.museum.paintings TBLPROPERTIES ('vector.look' = '2') AS
SELECT * FROM VALUES
  (1, 'The Starry Night', array(0.1f, 0.9f)),
  (2, 'Water Lilies',     array(0.3f, 0.7f)),
  (3, 'The Night Watch',  array(0.9f, 0.1f)) AS t(id, title, look);

CREATE TABLE {CATALOG}.museum.prices AS SELECT 1 AS id, 100 AS millions"""
POLICIES = f"""\
@id("curators-do-everything")
permit(principal in Group::"curators", action, resource in Namespace::"{CATALOG}.museum");

@id("visitors-look")
permit(
  principal in Group::"visitors",
  action in Action::"read",
  resource in Namespace::"{CATALOG}.museum"
);

@id("prices-are-not-for-visitors")
forbid(principal in Group::"visitors", action, resource == Table::"{CATALOG}.museum.prices");
"""
_PAINTINGS = [CATALOG, "museum", "paintings"]


@dataclass
class Gateway:
    """A running gateway, and the keys of those who may call it."""

    url: str
    keys: dict[str, str] = field(repr=False)

    def get(self, name: str, path: str) -> Any:
        """Return the gateway's response to an HTTP request that has the key of `name`."""
        headers = {"x-api-key": self.keys[name]}
        request = urllib.request.Request(f"{self.url}{path}", headers=headers)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as response:
            return json.load(response)

    def database(self, name: str) -> Any:
        """Return LanceDB's connection of somebody."""
        return lancedb.connect(
            f"db://{CATALOG}.museum", api_key=self.keys[name], host_override=self.url
        )

    def namespace(self, name: str) -> Any:
        """Return the namespace that pylance takes, of somebody."""
        return lance_bridge.connect("rest", {"uri": self.url, "header.x-api-key": self.keys[name]})


def through_gateway(story: Story, spark: SparkSession, hive_uri: str, directory: Path) -> None:
    """Write a table with Spark, and use it through a gateway as two people."""
    _write_with_spark(story, spark, hive_uri, directory / "museum")
    with _running_gateway(story, hive_uri, directory) as gateway:
        _list_over_http(story, gateway)
        _read_with_pylance(story, gateway)
        _search_with_lancedb(story, gateway)
        _refuse(story, gateway)
        _add_and_read_in_spark(story, gateway, spark)


def _write_with_spark(story: Story, spark: SparkSession, uri: str, root: Path) -> None:
    story.step(
        "Write two Lance tables with Spark SQL",
        "Spark knows the metastore as the catalog lake. A property makes vectors of the arrays.",
    )
    story.call(
        "lance_bridge_spark.register(spark,\n"
        f"    {{'{CATALOG}': {{'impl': 'hive', 'uri': '{uri}', 'root': …}}}})"
    )
    properties = {"impl": "hive", "uri": uri, "root": str(root)}
    lance_bridge_spark.register(spark, {CATALOG: properties})
    story.call(_WRITES)
    for statement in _WRITES.split(";\n"):
        spark.sql(statement)
    rows = spark.table(f"{CATALOG}.museum.paintings").count()
    story.check("paintings in Spark", rows, 3)


@contextmanager
def _running_gateway(story: Story, uri: str, directory: Path) -> Iterator[Gateway]:
    story.step(
        "Start a gateway for two people",
        "Ann is a curator, bob a visitor. Each has an API key; policies say what they may do.",
    )
    files = directory / "gateway"
    files.mkdir()
    (files / "policies.cedar").write_text(POLICIES, encoding="utf-8")
    content = {
        "catalogs": {CATALOG: {"impl": "hive", "uri": uri, "root": str(directory / "museum")}},
        "listeners": [{"port": 0}],
        "authentication": [{"method": "api_keys", "file": str(files / "keys.json")}],
        "authorization": {"method": "cedar", "policies": str(files / "policies.cedar")},
    }
    (files / "server.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    keys = {
        name: _run(story, "keys", "add", name, "--group", group, "--file", str(files / "keys.json"))
        for name, group in (("ann", "curators"), ("bob", "visitors"))
    }
    story.result(POLICIES.rstrip())
    command = ["serve", "--config", str(files / "server.yaml")]
    story.call(" ".join(["lance-bridge", *command]))
    with (files / "log").open("wb") as log:
        process = subprocess.Popen(
            [PROGRAM, *command], stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            raise RuntimeError((files / "log").read_text(encoding="utf-8"))
        story.result(f"Gateway at {url}")
        yield Gateway(url, keys)
    finally:
        process.terminate()
        process.wait(_STOP_SECONDS)


def _run(story: Story, *arguments: str) -> str:
    story.call(" ".join(["lance-bridge", *arguments]))
    done = subprocess.run([PROGRAM, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _list_over_http(story: Story, gateway: Gateway) -> None:
    story.step(
        "List the tables with plain HTTP, as curl does",
        "The response leaves out what bob may not see.",
    )
    path = f"/v1/namespace/{CATALOG}$museum/table/list"
    story.call(f"GET {gateway.url}{path}\nx-api-key: …")
    found = gateway.get("ann", path)["tables"]
    story.check("tables for ann", sorted(found), ["paintings", "prices"])
    story.check("tables for bob", gateway.get("bob", path)["tables"], ["paintings"])


def _read_with_pylance(story: Story, gateway: Gateway) -> None:
    story.step("Read what Spark wrote with pylance, as bob")
    story.call(
        f'ns = lance_bridge.connect("rest", {{"uri": "{gateway.url}", "header.x-api-key": key}})\n'
        f"lance.dataset(namespace_client=ns, table_id={_PAINTINGS})"
    )
    dataset = lance.dataset(namespace_client=gateway.namespace("bob"), table_id=_PAINTINGS)
    story.check("paintings in pylance", dataset.count_rows(), 3)


def _search_with_lancedb(story: Story, gateway: Gateway) -> None:
    story.step("Search it with LanceDB, as bob", "LanceDB has the gateway do the search.")
    story.call(
        f'db = lancedb.connect("db://{CATALOG}.museum", api_key=key,\n'
        f'    host_override="{gateway.url}")\n'
        'db.open_table("paintings").search([0.2, 0.8]).limit(2).to_list()'
    )
    found = gateway.database("bob").open_table("paintings").search([0.2, 0.8]).limit(2).to_list()
    titles = sorted(row["title"] for row in found)
    story.check("the two that look most like it", titles, ["The Starry Night", "Water Lilies"])


def _refuse(story: Story, gateway: Gateway) -> None:
    story.step(
        "Try more than bob may do",
        "A write is refused; a table that he may not see does not exist for him.",
    )
    table = gateway.database("bob").open_table("paintings")
    story.call('table.add([{"id": 4, "title": "Mine", "look": [1.0, 1.0]}])')
    try:
        table.add(_painting("Mine"))
        answer = "added"
    except LanceDBClientError as error:
        answer = f"HTTP {error.status_code}"
    story.check("what bob gets", answer, "HTTP 403")
    prices = [CATALOG, "museum", "prices"]
    story.call(f"lance.dataset(namespace_client=ns, table_id={prices})")
    for name, expected in (("ann", 1), ("bob", "TableNotFoundError")):
        story.check(f"what {name} gets", _rows_of(gateway, name, prices), expected)


def _painting(title: str) -> list[dict[str, Any]]:
    return [{"id": 4, "title": title, "look": [1.0, 1.0]}]


def _rows_of(gateway: Gateway, name: str, table: Sequence[str]) -> object:
    try:
        found = lance.dataset(namespace_client=gateway.namespace(name), table_id=list(table))
    except TableNotFoundError as error:
        return type(error).__name__
    return found.count_rows()


def _add_and_read_in_spark(story: Story, gateway: Gateway, spark: SparkSession) -> None:
    story.step("Add a painting with LanceDB, as ann, and find it in Spark")
    story.call('table.add([{"id": 4, "title": "Guernica", "look": [1.0, 1.0]}])')
    gateway.database("ann").open_table("paintings").add(_painting("Guernica"))
    query = f"SELECT title FROM {CATALOG}.museum.paintings WHERE id = 4"
    story.call(f'spark.sql("{query}")')
    story.check("titles", [row["title"] for row in spark.sql(query).collect()], ["Guernica"])

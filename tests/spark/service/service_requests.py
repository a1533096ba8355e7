"""Asking the service of the SQL catalog as Spark's driver does, over the catalog in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import lance
import pyarrow as pa
from core.memory_catalog import MemoryServer, Moment
from lance.fragment import write_fragments

from lance_bridge_spark.addresses import CatalogAddress
from lance_bridge_spark.source import writer
from lance_bridge_spark.sql import service

CATALOG = "prod"
NAMESPACE = ["db"]
TABLE = ["db", "t"]
ID = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
NAME = {"name": "name", "type": "string", "nullable": True, "metadata": {}}
VECTOR = {
    "name": "v",
    "type": {"type": "array", "elementType": "float", "containsNull": True},
    "nullable": True,
    "metadata": {},
}


@dataclass(frozen=True)
class Service:
    """The service, asked of a catalog as the driver does, and the server behind the catalog."""

    catalog: CatalogAddress
    server: MemoryServer

    def ask(self, op: str, **args: Any) -> dict[str, Any]:
        """Return the answer, which must be JSON and no error."""
        answer = self.respond(op, args)
        assert "error" not in answer, answer
        return dict(answer["answer"])

    def refusal(self, op: str, **args: Any) -> tuple[int, str]:
        """Return the code and the message of an answer that must be an error."""
        answer = self.respond(op, args)
        assert "error" in answer, f"{op} was done: {answer}"
        return answer["error"]["code"], answer["error"]["message"]

    def respond(self, op: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``{answer}`` or ``{error}``, of a call without byte strings."""
        answer, parts = self.call(op, args, [])
        assert parts == []
        return dict(json.loads(json.dumps(answer)))

    def call(
        self, op: str, args: Mapping[str, Any], parts: list[bytes]
    ) -> tuple[dict[str, Any], list[bytes]]:
        """Return the answer to a call with byte strings, and those of the answer."""
        return service.respond({"op": op, "args": args, "catalog": self.address}, parts)

    @property
    def address(self) -> dict[str, Any]:
        """Where the catalog is, as calls say it."""
        return {"name": self.catalog.name, "properties": dict(self.catalog.properties)}

    def create(
        self, table: list[str], *fields: Mapping[str, Any], **properties: str
    ) -> dict[str, Any]:
        """Create a table; with columns ``id`` and ``name`` where none are given."""
        schema = struct(*(fields or (ID, NAME)))
        return self.ask("create_table", table=table, schema=schema, properties=properties)

    def dataset(self, table: list[str]) -> lance.LanceDataset:
        """Open the data of a table, as pylance alone has it."""
        return lance.dataset(self.ask("load_table", table=table)["properties"]["location"])

    def append(self, table: list[str], *ids: int) -> None:
        """Append a row for each id, in a fragment of their own."""
        rows = pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{i}" for i in ids]})
        lance.write_dataset(rows, self.dataset(table), mode="append")

    def ids_in(self, table: list[str]) -> list[int]:
        """Return the ids of all rows, sorted."""
        return sorted(self.dataset(table).to_table()["id"].to_pylist())

    def write_staged(self, answer: Mapping[str, Any], *ids: int) -> None:
        """Write a row for each id as two tasks and the writer of a staged table do."""
        stage = writer.Stage.from_json(answer)
        access, schema = writer.access(self.catalog, stage), stage.schema()
        written = []
        for part in (ids[:1], ids[1:]):
            columns = {"id": pa.array(part, pa.int64()), "name": [f"n{i}" for i in part]}
            rows = pa.table({name: columns[name] for name in schema.names}, schema=schema)
            written += write_fragments(
                rows, access.location, schema, mode="overwrite" if stage.replaces else "create",
                storage_options=access.storage_options(),
            )  # fmt: skip
        writer.keep(self.catalog, stage, [json.dumps(each.to_json()) for each in written])


def struct(*fields: Mapping[str, Any]) -> str:
    """Return the JSON text of a ``StructType``."""
    return json.dumps({"type": "struct", "fields": list(fields)})


def fields_of(answer: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the columns of a description, by name."""
    return {each["name"]: each for each in json.loads(answer["schema"])["fields"]}


def fault_of_change(change: str, error: Exception, when: Moment) -> Callable[[str, Moment], None]:
    """Return a fault of the catalog in memory: a change that fails, before or after it is done."""

    def fault(name: str, moment: Moment) -> None:
        if (name, moment) == (change, when):
            raise error

    return fault

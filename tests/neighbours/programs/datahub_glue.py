"""DataHub: ingests all of Glue (``read``), and says which columns each table has."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datahub.ingestion.run.pipeline import Pipeline


def columns_of(change: dict[str, Any]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the columns that a change gives a table, with the table's name."""
    aspects = [aspect for snapshot in change.values() for aspect in snapshot["aspects"]]
    for kind, schema in (item for aspect in aspects for item in aspect.items()):
        if kind.endswith(".SchemaMetadata"):
            fields = [(each["fieldPath"], each["nativeDataType"]) for each in schema["fields"]]
            name = schema["schemaName"].split(".")[-1]
            yield name, [(path.split(".")[-1], native) for path, native in fields]


given = json.load(sys.stdin)
found = Path(given["directory"], "datahub.json")
config = {"aws_region": given["region"], "extract_transforms": False}
sink = {"type": "file", "config": {"filename": str(found)}}
pipeline = Pipeline.create({"source": {"type": "glue", "config": config}, "sink": sink})
pipeline.run()
report = pipeline.source.get_report()
changes = [each.get("proposedSnapshot", {}) for each in json.loads(found.read_text("utf-8"))]
answer = {
    "failures": [str(each) for each in report.failures],
    "warnings": [str(each) for each in report.warnings],
    "columns": dict(each for change in changes for each in columns_of(change)),
}
print(json.dumps(answer))

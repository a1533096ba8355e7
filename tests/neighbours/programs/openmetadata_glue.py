"""OpenMetadata: reads a database of Glue (``read``), and says which columns each table has.

No OpenMetadata server runs: a double replaces its client, and connections are not tested.
"""

from __future__ import annotations

import json
import sys
from typing import Any
from unittest.mock import MagicMock, patch

from metadata.generated.schema.metadataIngestion.workflow import Source
from metadata.ingestion.source.database.glue.metadata import GlueSource

given = json.load(sys.stdin)
connection = {
    "type": "Glue",
    "awsConfig": {
        "awsAccessKeyId": given["access_key_id"],
        "awsSecretAccessKey": given["secret_access_key"],
        "awsRegion": given["region"],
        "endPointURL": given["endpoint"],
    },
}
config = {
    "type": "glue",
    "serviceName": "glue",
    "serviceConnection": {"config": connection},
    "sourceConfig": {"config": {"type": "DatabaseMetadata"}},
}
# The server lists the steps of a test of the connection.
with patch.object(GlueSource, "test_connection"):
    source = GlueSource(Source.model_validate(config), MagicMock())
context = source.context.get()
context.__dict__["database_service"] = "glue"
[context.__dict__["database"]] = source.get_database_names()
found: dict[str, Any] = {}
errors: list[str] = []
for schema in source.get_database_schema_names():
    context.__dict__["database_schema"] = schema
    for table in source.get_tables_name_and_type():
        for answer in source.yield_table(table):
            if answer.left is not None:
                errors.append(answer.left.error)
            else:
                request = answer.right
                format = request.fileFormat
                found[request.name.root] = {
                    "type": request.tableType.value,
                    "format": format.value if format else None,
                    "columns": [[each.name.root, each.dataTypeDisplay] for each in request.columns],
                }
report = source.status
errors += [each.error for each in report.failures]
print(
    json.dumps({"tables": found, "errors": errors, "warnings": [str(w) for w in report.warnings]})
)

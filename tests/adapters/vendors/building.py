"""What tests of the vendors share: a namespace in memory whose tables are on S3, and grants."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import lance_namespace as api
from core.memory_catalog import CAPABILITIES, SERVERS, MemoryNamespace, MemoryServer, rule
from servers.glue_server import ROLE, GlueServer

from lance_bridge.credentials import Grant
from lance_bridge.managed.batch_records import BatchRecord
from lance_bridge.storage import TableFiles, TableStorage

BUCKET = "vended"
DATABASE = "films"
TABLE = [DATABASE, "reels"]
WRITERS_FILES = (
    "data/1.lance",
    "_transactions/1.txn",
    "_transactions/1.staged.json",
    "_transactions/1.stream.json",
)
"""What a writer of a governed table makes and deletes: Lance's files, and the Spark source's."""
GRANT = Grant("s3", BUCKET, "lake/films.db/reels.lance", tuple(TABLE), write=True)


def grant(**changes: Any) -> Grant:
    """Return a grant to write one table, with changes."""
    return replace(GRANT, **changes)


def batch_files() -> tuple[str, ...]:
    """Return the paths, in its first table, of the files of a batch."""
    files = TableFiles(TableStorage({}), "s3://bucket/t")
    intent = BatchRecord(files, tuple(TABLE), str(uuid.UUID(int=16)))
    return intent._record_path, intent._outcome_path


def aws_properties(server: GlueServer) -> dict[str, str]:
    """Return the properties by which a catalog vends sessions of the server's role."""
    stored = {f"storage.{key}": value for key, value in server.storage_options.items()}
    return {
        **stored,
        "root": f"s3://{BUCKET}/lake",
        "credentials.vendor": "aws",
        "credentials.role_arn": ROLE,
        "credentials.sts_endpoint": server.endpoint,
    }


def memory_namespace(name: str, **properties: str) -> MemoryNamespace:
    """Return a namespace on a server in memory, which has one database. Same name, same server."""
    if name not in SERVERS:
        able = replace(
            CAPABILITIES, namespace_levels=(rule("database"),), no_rename="", no_alter=""
        )
        SERVERS[name] = MemoryServer(capabilities=able)
    namespace = MemoryNamespace(uri=name, **properties)
    namespace.create_namespace(api.CreateNamespaceRequest(id=[DATABASE], mode="ExistOk"))
    return namespace

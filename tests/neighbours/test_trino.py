"""A Lance table beside tables of Parquet, ORC and Iceberg, and what Trino sees of it.

Trino reads a metastore and Glue, each with its Hive and its Iceberg connector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from migrate.places import Entries, glue_reader, hive_reader
from servers.glue_server import GlueServer
from servers.metastores import Metastores
from servers.query_engines import Trino

from lance_bridge import LanceBridgeNamespace
from lance_bridge.testing.calls import Calls
from lance_bridge_glue import GlueNamespace
from lance_bridge_hive import HiveNamespace

from .conftest import Ask

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

BUCKET = "lakehouse"
DATABASE = "trino_sales"
ROWS = pa.table(
    {"id": pa.array([1, 2, 3]), "vector": pa.array([[0.0, 1.0]] * 3, pa.list_(pa.float32(), 2))}
)
OTHER_FORMATS = {"parquet": "{}", "orc": "{}", "iceberg": "{}_iceberg"}
"""Tables of others, and the catalog with which Trino reads each."""
VALUES = [[1, "a"], [2, "b"]]
PUBLISHED = [["id", "bigint"], ["vector", "array(real)"]]
UNSUPPORTED = "HIVE_INVALID_METADATA: Unsupported storage format: "
NOT_ICEBERG = "UNSUPPORTED_TABLE_TYPE: Not an Iceberg table: "

Run = Callable[..., list[Any]]
"""``run(statement, …)`` returns what Trino answers to each; an error is text."""


@dataclass(frozen=True)
class Place:
    """A catalog that Trino and lance-bridge share.

    Attributes:
        name: Trino's name of its Hive connector's catalog; the Iceberg connector's one ends with
            ``_iceberg``.
        calls: A client of lance-bridge.
        read: Returns all entries, with a client that knows nothing of either.
    """

    name: str
    calls: Calls
    read: Callable[[str], Entries]
    run: Run

    def entries(self) -> Entries:
        return self.read(DATABASE)

    def refresh_entry(self, *path: str) -> None:
        client = self.calls.client
        assert isinstance(client, LanceBridgeNamespace)
        client.tables.load(client.tables.path_of(path)).refresh_entry()

    def columns(self, table: str) -> list[list[str]]:
        """Return the names and types of the columns that Trino shows."""
        [found] = self.run(f"DESCRIBE {self.name}.{DATABASE}.{table}")
        return [each[:2] for each in found]

    def read_other_tables(self) -> list[Any]:
        """Return the rows of the other tables."""
        catalogs = {table: catalog.format(self.name) for table, catalog in OTHER_FORMATS.items()}
        return self.run(
            *(
                f"SELECT * FROM {catalog}.{DATABASE}.{table} ORDER BY id"
                for table, catalog in catalogs.items()
            )
        )


@pytest.fixture(scope="module")
def server() -> Iterator[GlueServer]:
    """Glue, and the files of all tables."""
    with GlueServer() as running:
        running.make_bucket(BUCKET)
        yield running


@pytest.fixture(scope="module")
def run(server: GlueServer, metastores: Metastores, ask: Ask) -> Iterator[Run]:
    """Run statements in a Trino with catalogs ``hive`` and ``glue``."""
    given = server.properties
    keys = {"aws-access-key": given["access_key_id"], "aws-secret-key": given["secret_access_key"]}
    files = {
        "fs.native-s3.enabled": "true",
        "s3.endpoint": given["endpoint"],
        "s3.region": given["region"],
        "s3.path-style-access": "true",
        **{f"s3.{name}": value for name, value in keys.items()},
    }
    hive = {"hive.metastore.uri": metastores.get("2.3").uri, **files}
    glue = {
        "hive.metastore.glue.endpoint-url": given["endpoint"],
        "hive.metastore.glue.region": given["region"],
        **{f"hive.metastore.glue.{name}": value for name, value in keys.items()},
        **files,
    }
    catalogs = {
        "hive": {"connector.name": "hive", **hive},
        "hive_iceberg": {"connector.name": "iceberg", **hive},
        "glue": {"connector.name": "hive", "hive.metastore": "glue", **glue},
        "glue_iceberg": {"connector.name": "iceberg", "iceberg.catalog.type": "glue", **glue},
    }
    with Trino(catalogs) as trino:
        yield lambda *statements: ask(
            "trino_sql", "run", {}, port=trino.port, statements=statements
        )


@pytest.fixture(scope="module", params=["hive", "glue"])
def place(
    request: pytest.FixtureRequest,
    server: GlueServer,
    metastores: Metastores,
    run: Run,
    ask: Ask,
) -> Iterator[Place]:
    """A catalog with a database of tables: Trino's, but in Glue those of AWS SDK for pandas.

    Trino's Hive connector writes statistics that this Glue does not have.
    """
    name = request.param
    root, others = f"s3://{BUCKET}/{name}", f"s3://{BUCKET}/{name}/others"
    storage = {f"storage.{key}": value for key, value in server.storage_options.items()}
    metastore = metastores.get("2.3")
    if name == "glue":
        client: LanceBridgeNamespace = GlueNamespace(**server.properties, **storage, root=root)
        read = glue_reader(server)
    else:
        client = HiveNamespace(uri=metastore.uri, **storage, root=root)
        read = hive_reader(metastore.port)
    assert run(f"CREATE SCHEMA {name}.{DATABASE} WITH (location = '{others}')") == [[]]
    if name == "glue":
        ask("aws_pandas", "write", server.environment, database=DATABASE, root=others)
    else:
        assert run(*(make(name, each) for each in ("parquet", "orc"))) == [[[2]]] * 2
    assert run(make(f"{name}_iceberg", "iceberg")) == [[[2]]]
    yield Place(name, Calls(client), read, run)
    run(f"DROP SCHEMA {name}.{DATABASE} CASCADE")


def make(catalog: str, table: str) -> str:
    """Return a statement that makes a table with `VALUES`, and the name of its format."""
    given = "" if table == "iceberg" else f"WITH (format = '{table}')"
    values = "VALUES (1, 'a'), (2, 'b')"
    return (
        f"CREATE TABLE {catalog}.{DATABASE}.{table} {given} "
        f"AS SELECT * FROM ({values}) AS rows (id, name)"
    )


@pytest.fixture(params=[False, True], ids=["no columns", "published columns"])
def publishes(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def ours(place: Place, publishes: bool) -> Iterator[str]:
    """A Lance table, named as Trino's Hive connector names it; nothing of the others changes."""
    before = place.entries()
    properties = {"publish.columns": "true"} if publishes else {}
    place.calls.create_table([DATABASE, "ours"], ROWS, properties=properties)
    assert place.read_other_tables() == [VALUES] * 3
    yield f"{place.name}.{DATABASE}.ours"
    place.calls.drop_table([DATABASE, "ours"])
    assert place.entries() == before
    assert place.read_other_tables() == [VALUES] * 3


def test_trino_lists_all_tables_and_the_columns_of_a_whole_database(
    place: Place, ours: str, publishes: bool
) -> None:
    tables, columns, comments = place.run(
        f"SHOW TABLES FROM {place.name}.{DATABASE}",
        f"SELECT table_name, column_name, data_type FROM {place.name}.information_schema.columns "
        f"WHERE table_schema = '{DATABASE}'",
        f"SELECT table_name FROM system.metadata.table_comments "
        f"WHERE catalog_name = '{place.name}' AND schema_name = '{DATABASE}'",
    )
    csv = ["csv"] if place.name == "glue" else []
    names = sorted([*OTHER_FORMATS, *csv, "ours"])
    assert sorted(name for [name] in tables) == sorted(name for [name] in comments) == names
    shown = [rest for table, *rest in columns if table == "ours"]
    assert shown == place.columns("ours") == (PUBLISHED if publishes else [])
    expected = {"orc", "parquet", *csv, *(["ours"] if publishes else [])}
    assert {table for table, *_ in columns} == expected
    [[[text]]] = place.run(f"SHOW CREATE TABLE {ours}")
    assert f"external_location = 's3://{BUCKET}/{place.name}/{DATABASE}.db/ours.lance'" in text


def test_trino_refuses_to_read_it(place: Place, ours: str, publishes: bool) -> None:
    """No row is made of its files, and no count is taken from published statistics."""
    rows, *counts = place.run(
        f"SELECT * FROM {ours}", f"SELECT count(*) FROM {ours}", f"SELECT 1 FROM {ours}"
    )
    if publishes:
        assert rows.startswith(UNSUPPORTED)
    else:
        assert rows.endswith("SELECT * not allowed from relation that has no columns")
    for answer in counts:
        assert answer.startswith(UNSUPPORTED)
        assert "serde=org.apache.hadoop.hive.serde2.lazybinary.LazyBinarySerDe" in answer


def test_trino_refuses_to_change_its_rows(place: Place, ours: str, publishes: bool) -> None:
    statements = {
        f"DELETE FROM {ours}": "NOT_SUPPORTED: Cannot delete from non-managed Hive table",
        f"TRUNCATE TABLE {ours}": "NOT_SUPPORTED: ",
        f"ANALYZE {ours}": UNSUPPORTED,
        f"CREATE OR REPLACE TABLE {ours} AS SELECT 1 AS id": "NOT_SUPPORTED: ",
        f"CREATE TABLE {ours} AS SELECT 1 AS id": "TABLE_ALREADY_EXISTS: ",
    }
    if publishes:
        insert = f"INSERT INTO {ours} VALUES (7, ARRAY[REAL '1'])"
        statements[insert] = "NOT_SUPPORTED: Cannot write to non-managed Hive table"
    for answer, expected in zip(place.run(*statements), statements.values(), strict=True):
        assert answer.startswith(expected)
    assert place.calls.count([DATABASE, "ours"]) == 3


def test_the_iceberg_connector_lists_it_and_refuses_all_else(place: Place, ours: str) -> None:
    catalog = f"{place.name}_iceberg"
    other = ours.replace(f"{place.name}.", f"{catalog}.")
    tables, columns, *refused = place.run(
        f"SHOW TABLES FROM {catalog}.{DATABASE}",
        f"SELECT DISTINCT table_name FROM {catalog}.information_schema.columns "
        f"WHERE table_schema = '{DATABASE}'",
        f"DESCRIBE {other}",
        f"SELECT * FROM {other}",
        f"ALTER TABLE {other} ADD COLUMN more integer",
        f"ALTER TABLE {other} RENAME TO {catalog}.{DATABASE}.renamed",
        f"DROP TABLE {other}",
    )
    assert {name for [name] in tables} >= {*OTHER_FORMATS, "ours"}
    assert columns == [["iceberg"]]
    assert refused == [f"{NOT_ICEBERG}{DATABASE}.ours"] * 5


def test_columns_that_trino_changes_are_corrected_and_the_rows_stay(
    place: Place, ours: str, publishes: bool
) -> None:
    changes = [f"ALTER TABLE {ours} ADD COLUMN more integer"]
    if publishes:
        changes.append(f"ALTER TABLE {ours} RENAME COLUMN id TO key")
    assert place.run(*changes) == [[]] * len(changes)
    assert ["more", "integer"] in place.columns("ours")
    [refused] = place.run(f"SELECT * FROM {ours}")
    assert refused.startswith(UNSUPPORTED)
    assert place.calls.count([DATABASE, "ours"]) == 3
    place.refresh_entry(DATABASE, "ours")
    assert place.columns("ours") == (PUBLISHED if publishes else [["more", "integer"]])


def test_a_table_that_trino_renames_stays_whole(place: Place, ours: str) -> None:
    """Glue has no call that renames."""
    renamed = f"{place.name}.{DATABASE}.renamed"
    [answer] = place.run(f"ALTER TABLE {ours} RENAME TO {renamed}")
    if place.name == "glue":
        assert answer.startswith("NOT_SUPPORTED: Table rename is not supported")
    else:
        assert answer == []
        assert place.calls.all_tables([DATABASE]) == ["renamed"]
        assert place.calls.count([DATABASE, "renamed"]) == 3
        place.calls.rename_table([DATABASE, "renamed"], "ours")
    assert place.calls.count([DATABASE, "ours"]) == 3


@pytest.mark.usefixtures("ours")
def test_a_table_that_trino_drops_keeps_its_files(place: Place) -> None:
    dropped = [DATABASE, "dropped"]
    location = place.calls.create_table(dropped, ROWS).location
    assert location is not None
    assert place.run(f"DROP TABLE {place.name}.{DATABASE}.dropped") == [[]]
    assert place.calls.all_tables([DATABASE]) == ["ours"]
    place.calls.register_table(dropped, location)
    assert place.calls.count(dropped) == 3
    place.calls.drop_table(dropped)

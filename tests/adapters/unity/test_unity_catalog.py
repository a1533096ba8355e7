"""The open-source server and Databricks: entries, requests, limits, and what they refuse."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import lance
import pyarrow as pa
import pytest
import requests
from lance_namespace import ErrorCode
from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    UnsupportedOperationError,
)
from servers.http_proxy import Answer, Fault, HttpProxy, Request
from servers.unity import (
    DIALECTS,
    OPEN_SOURCE_0_4,
    OPEN_SOURCE_0_6,
    WAREHOUSE_ID,
    Dialect,
    UnityServer,
)

from lance_bridge.catalog import NamespaceRecord, TableRecord
from lance_bridge.config import load
from lance_bridge.testing.calls import Calls, refused
from lance_bridge_unity import UnityConfig, UnityNamespace
from lance_bridge_unity.catalog import UnityCatalog

from .conftest import API, ID, TABLE, Connect, record, server_with_schema

pytestmark = pytest.mark.quick


# -- tables --------------------------------------------------------------------------------------


def test_describing_is_one_request_and_listing_one_per_page(
    server: UnityServer, proxy: HttpProxy, connect: Connect
) -> None:
    for number in range(300):
        server.add_table("c", "s", f"t{number:03}", properties={"table_type": "lance"})
    catalog = connect()
    catalog.load_table(("c", "s", "t000"))
    assert sum(proxy.counts.values()) == 1
    assert len(list(catalog.list_tables(("c", "s"), lance_only=True))) == 300
    # Three full pages, and an empty one that says that there are no more.
    assert sum(proxy.counts.values()) == 1 + 4
    assert len(list(catalog.list_tables(("c", "s")))) == 300
    assert sum(proxy.counts.values()) == 1 + 4 + 4


def test_listings_leave_out_what_they_do_not_need(
    server: UnityServer, proxy: HttpProxy, connect: Connect
) -> None:
    server.add_table("c", "s", "t")
    list(connect().scan_tables(("c", "s")))
    list(connect().list_tables(("c", "s")))
    scan, names = (request.path for request in proxy.requests)
    assert "omit_columns=true" in scan
    assert "omit_properties" not in scan
    assert "omit_properties=true" in names


def test_an_entry_without_a_name_is_listed_as_one_that_cannot_be_read(
    connect: Connect, proxy: HttpProxy
) -> None:
    rows = [
        {"name": "good", "table_type": "EXTERNAL"},
        {"table_id": "x7", "table_type": "EXTERNAL"},
    ]
    proxy.fail_next(
        lambda request: "/tables" in request.path, Answer.of_json(200, {"tables": rows})
    )
    found = list(connect().scan_tables(("unity", "default")))
    assert [record.path[-1] for record in found] == ["good", "x7"]
    assert found[1] == TableRecord.unreadable(("unity", "default", "x7"))


@pytest.mark.spec("unity.md#deletion-of-data")
def test_dropping_never_asks_for_force(proxy: HttpProxy, connect: Connect) -> None:
    catalog = connect()
    catalog.create_table(record())
    catalog.drop_table(record())
    catalog.drop_namespace(("c", "s"))
    catalog.drop_namespace(("c",))
    assert not [request.path for request in proxy.requests if "force" in request.path]


# -- renaming ------------------------------------------------------------------------------------


@pytest.mark.spec("unity.md#renametable")
@pytest.mark.parametrize("exists", [True, False])
def test_an_old_server_cannot_rename_a_table_or_a_missing_one(exists: bool) -> None:
    with server_with_schema(OPEN_SOURCE_0_4) as server:
        if exists:
            server.add_table("c", "s", "t")
        config = load(UnityConfig, "unity", {"host": server.url})
        with (
            closing(UnityCatalog(config)) as catalog,
            pytest.raises(UnsupportedOperationError, match="older than Unity Catalog"),
        ):
            catalog.rename_table(record(), ("c", "s", "u"))


# -- creating against others ---------------------------------------------------------------------


@pytest.mark.spec("unity.md#concurrent-changes")
def test_of_threads_that_create_one_name_exactly_one_does(
    server: UnityServer, connect: Connect
) -> None:
    server.state.race_window = 0.2  # two creators within it would both succeed
    catalogs = [connect() for _ in range(8)]
    together = threading.Barrier(len(catalogs))

    def create(number: int) -> bool:
        together.wait()
        try:
            catalogs[number].create_table(record(own=str(number)))
        except TableAlreadyExistsError:
            return False
        return True

    with ThreadPoolExecutor(len(catalogs)) as threads:
        won = list(threads.map(create, range(len(catalogs))))
    assert won.count(True) == 1
    assert connect().load_table(TABLE).properties[ID] == str(won.index(True))


@pytest.mark.spec("unity.md#declaretable", "unity.md#errors-of-every-operation")
@pytest.mark.parametrize(
    ("replaces", "error", "said"),
    [(False, InternalError, "same name"), (True, TableAlreadyExistsError, "already exists")],
    ids=["beside it", "in its place"],
)
def test_a_name_that_another_client_creates_right_after_is_broken_or_taken(
    server: UnityServer,
    proxy: HttpProxy,
    connect: Connect,
    *,
    replaces: bool,
    error: type[LanceNamespaceError],
    said: str,
) -> None:
    def create_another(request: Request) -> bool:
        if request.method == "GET" and request.path.endswith(".t"):
            if replaces:
                server.remove_table("c", "s", "t")
            server.add_table("c", "s", "t", properties={ID: "the rival's"})
        return False

    proxy.fail_next(create_another, Fault.RESET)
    with pytest.raises(error, match=said):
        connect().create_table(record())


# -- namespaces ----------------------------------------------------------------------------------


def test_reading_a_schema_is_one_request(proxy: HttpProxy, connect: Connect) -> None:
    assert connect(root="").load_namespace(("c", "s")).location is None
    assert sum(proxy.counts.values()) == 1


# -- a pinned catalog ----------------------------------------------------------------------------


@pytest.mark.spec("common.md#listnamespaces")
def test_a_missing_pinned_catalog_is_named(connect: Connect) -> None:
    with pytest.raises(NamespaceNotFoundError, match="not found: nowhere"):
        connect(catalog="nowhere").list_namespaces(())


# -- storage roots ---------------------------------------------------------------------------------


@pytest.mark.spec("unity.md#declaretable")
@pytest.mark.parametrize("dialect", ["oss-0.4", "oss-0.6"])
@pytest.mark.parametrize("whose", ["catalog", "schema", "schema below a catalog's"])
def test_tables_go_below_the_storage_root_of_their_schema_or_catalog(
    whose: str, dialect: str, tmp_path: Path
) -> None:
    """And not where the server keeps managed tables, which it says is the schema's location."""
    own, outer = f"file://{tmp_path}/own", f"file://{tmp_path}/outer"
    with (
        UnityServer(DIALECTS[dialect]) as server,
        UnityNamespace(host=server.url) as rootless,
    ):
        calls = Calls(rootless)
        of_catalog = {} if whose == "schema" else {"catalog.storage-root": outer}
        of_schema = {} if whose == "catalog" else {"schema.storage-root": own}
        calls.create_namespace(["c"], properties=of_catalog)
        for schema in ("one", "two"):
            calls.create_namespace(["c", schema], properties=of_schema)
            # Two schemas share the root: nothing is written yet that would show the first's place.
            calls.declare_table(["c", schema, "t"])
        below = "outer" if whose == "catalog" else "own"
        for schema in ("one", "two"):
            location = calls.describe_table(["c", schema, "t"]).location
            assert location == f"{tmp_path}/{below}/c/{schema}.db/t.lance"
            calls.create_table(["c", schema, "u"], pa.table({"id": [1]}))
            assert calls.count(["c", schema, "u"]) == 1


@pytest.mark.spec("unity.md#declaretable")
@pytest.mark.parametrize("below", ["", "/__unitystorage/x"])
def test_a_location_that_the_server_manages_is_refused_with_what_to_do(
    connect: Connect, below: str
) -> None:
    catalog = connect()
    catalog.create_namespace(NamespaceRecord(("c", "m"), {"schema.storage-root": "file:///data/m"}))
    taken = TableRecord(("c", "m", "t"), f"file:///data/m{below}", {})
    with pytest.raises(InvalidInputError, match=r"managed storage.*set the property 'root'"):
        catalog.create_table(taken)


# -- cascades, and the longest texts -------------------------------------------------------------


SCHEMA = ["c", "s"]
TABLE_ID = [*SCHEMA, "t"]
ROWS = pa.table({"i": [0, 1, 2]})


@pytest.mark.spec("unity.md#dropnamespace")
@pytest.mark.parametrize("refused_route", ["/schemas/{full_name}", "/catalogs/{name}"])
def test_cascade_by_a_caller_without_the_right_to_drop_changes_nothing(
    server: UnityServer, calls: Calls, refused_route: str
) -> None:
    """The server checks permissions before it checks whether the namespace is empty."""
    calls.create_table(TABLE_ID, ROWS)
    calls.create_namespace(["c", "empty"])
    server.refuse(f"DELETE {refused_route}")
    with refused(ErrorCode.PERMISSION_DENIED):
        calls.drop_namespace(["c"], behavior="Cascade")
    assert calls.all_namespaces(["c"]) == ["empty", "s"]
    assert calls.count(TABLE_ID) == 3


def test_a_cascade_without_tables_drops_once(proxy: HttpProxy, calls: Calls) -> None:
    calls.drop_namespace(SCHEMA, behavior="Cascade")
    assert proxy.counts[f"DELETE {API}/schemas/c.s"] == 1


@pytest.mark.spec("unity.md#createnamespace")
@pytest.mark.parametrize(
    ("level", "key", "limit"),
    [
        (["c"], "schema.comment", 255),
        ([], "catalog.comment", 255),
        (["c"], "schema.storage-root", 194),
        ([], "catalog.storage-root", 194),
    ],
)
def test_the_longest_comment_and_storage_root_are_kept_and_longer_ones_invalid_input(
    proxy: HttpProxy, calls: Calls, level: list[str], key: str, limit: int
) -> None:
    start = "s3://b/" if key.endswith("root") else ""
    longest = start + "x" * (limit - len(start))
    calls.create_namespace([*level, "n"], properties={key: longest})
    assert calls.describe_namespace([*level, "n"]).properties == {key: longest}
    before = sum(proxy.counts.values())
    with refused(ErrorCode.INVALID_INPUT, naming=f"allows {limit}"):
        calls.create_namespace([*level, "m"], properties={key: longest + "x"})
    assert sum(proxy.counts.values()) == before


@pytest.mark.spec("unity.md#createtable")
def test_a_column_whose_name_is_too_long_is_invalid_input_and_nothing_is_made(
    calls: Calls, tmp_path: Path
) -> None:
    with refused(ErrorCode.INVALID_INPUT, naming="has 256 characters; Unity Catalog allows 255"):
        calls.create_table(TABLE_ID, pa.table({"x" * 256: [1]}))
    assert calls.all_tables(SCHEMA) == []
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []
    calls.create_table(TABLE_ID, pa.table({"x" * 255: [1]}))


# -- the property `catalog` -----------------------------------------------------------------------


@pytest.mark.parametrize("dialect", [OPEN_SOURCE_0_4, OPEN_SOURCE_0_6], ids=lambda it: it.name)
def test_a_missing_catalog_of_the_property_says_how_to_create_it(dialect: Dialect) -> None:
    with UnityServer(dialect) as running:
        pinned = UnityNamespace(host=running.url, catalog="lake", root="/data")
        with closing(Calls(pinned)) as calls:
            tried: list[Callable[[], object]] = [
                lambda: calls.list_namespaces([]),
                lambda: calls.create_namespace(["s"]),
                lambda: calls.describe_namespace(["s"]),
                lambda: calls.register_table(["s", "t"], "s3://b/t"),
            ]
            advice = f"lance-bridge ns create unity lake -p host={running.url}"
            # The older one does not say which of catalog and schema is missing.
            for call in tried[: 2 if dialect is OPEN_SOURCE_0_4 else 4]:
                with refused(ErrorCode.NAMESPACE_NOT_FOUND, naming=advice):
                    call()
            running.add_catalog("lake")
            calls.create_namespace(["s"])
            with refused(ErrorCode.NAMESPACE_NOT_FOUND, naming="lake.missing. Create it first"):
                calls.register_table(["missing", "t"], "s3://b/t")


# -- local paths with letters that a URI encodes ---------------------------------------------------


@pytest.mark.spec("unity.md#interoperability")
@pytest.mark.parametrize("name", ["öl", "a b", "100%", "a%41b", "x#y", "漢字"])
@pytest.mark.parametrize("client", ["ours", "another"])
def test_a_local_path_is_described_read_and_dropped(
    server: UnityServer, tmp_path: Path, name: str, client: str
) -> None:
    location = tmp_path / name / "t"
    lance.write_dataset(pa.table({"id": [1, 2]}), location)
    with closing(Calls(UnityNamespace(host=server.url, server="open-source"))) as calls:
        if client == "ours":
            calls.register_table(["c", "s", "t"], str(location))
        else:
            names = {"catalog_name": "c", "schema_name": "s", "name": "t"}
            # The server refuses a path with a space, and takes its URI.
            place = location.as_uri() if " " in name else str(location)
            body = {
                **names,
                "table_type": "EXTERNAL",
                "data_source_format": "TEXT",
                "columns": [],
                "storage_location": place,
                "properties": {"table_type": "lance"},
            }
            requests.post(f"{server.url}{API}/tables", json=body, timeout=10).raise_for_status()
        assert calls.describe_table(["c", "s", "t"]).location == str(location)
        assert calls.count(["c", "s", "t"]) == 2
        calls.drop_table(["c", "s", "t"])
        assert not location.exists()


# -- refusals that the spec promises --------------------------------------------------------------


@pytest.fixture
def on_databricks(workspace: UnityServer, tmp_path: Path) -> Iterator[Calls]:
    """A client with a warehouse of Databricks without shared or nested locations."""
    workspace.databricks.warehouse.refuses_overlaps = True
    properties = {"token": "dapi-double", "warehouse_id": WAREHOUSE_ID}
    root = f"file://{tmp_path}/lake"
    with UnityNamespace(host=workspace.url, root=root, **properties) as namespace:
        yield Calls(namespace)


# -- namespaces ----------------------------------------------------------------------------------


@pytest.mark.spec("unity.md#createnamespace")
@pytest.mark.parametrize(
    "properties",
    [
        {"": "x"},
        {"lance_bridge.id": "x"},
        {"k" * 256: "x"},
        {"k": "x" * 256},
        {"k": "\ud800"},
        {"schema.comment": "x" * 65_536},
    ],
)
def test_what_a_schema_cannot_hold_is_invalid_input_before_any_call(
    proxy: HttpProxy, calls: Calls, properties: dict[str, str]
) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        calls.create_namespace(["c", "new"], properties=properties)
    assert not proxy.requests


@pytest.mark.spec("unity.md#createnamespace")
def test_overwrite_of_a_schema_keeps_its_storage_root_or_is_refused(calls: Calls) -> None:
    root = {"schema.storage-root": "s3://bucket/managed"}
    calls.create_namespace(["c", "n"], properties=root)
    with refused(ErrorCode.INVALID_INPUT, naming="schema.storage-root"):
        calls.create_namespace(
            ["c", "n"], mode="Overwrite", properties={"schema.storage-root": "s3://bucket/other"}
        )
    calls.create_namespace(["c", "n"], mode="Overwrite", properties={"k": "v"})
    assert calls.describe_namespace(["c", "n"]).properties == {**root, "k": "v"}


@pytest.mark.spec("unity.md#dropnamespace")
@pytest.mark.parametrize(
    ("kind", "key"),
    [("volumes", "volumes"), ("functions", "functions"), ("models", "registered_models")],
)
def test_cascade_refuses_a_schema_that_holds_more_than_tables_and_changes_nothing(
    proxy: HttpProxy, calls: Calls, kind: str, key: str
) -> None:
    calls.create_table(TABLE_ID, ROWS)
    for page in ({"next_page_token": "more"}, {key: [{"name": "precious"}]}):
        proxy.fail_next(f"GET {API}/{kind}", Answer.of_json(200, page))
    with refused(ErrorCode.NAMESPACE_NOT_EMPTY, naming=f"{kind}, such as precious"):
        calls.drop_namespace(SCHEMA, behavior="Cascade")
    assert calls.count(TABLE_ID) == 3


# -- declaring and registering -------------------------------------------------------------------


@pytest.mark.spec("unity.md#declaretable")
def test_a_declaration_cannot_be_repeated_with_other_properties(calls: Calls) -> None:
    calls.declare_table(TABLE_ID, properties={"k": "v"})
    with refused(ErrorCode.UNSUPPORTED, naming="no call that changes a table"):
        calls.declare_table(TABLE_ID, properties={"k": "other"})
    assert calls.declare_table(TABLE_ID, properties={"k": "v"}).properties == {"k": "v"}


@pytest.mark.spec("unity.md#declaretable")
def test_a_location_of_a_scheme_that_the_server_does_not_know_is_invalid_input(
    calls: Calls,
) -> None:
    with refused(ErrorCode.INVALID_INPUT, naming="Unsupported URI scheme"):
        calls.declare_table(TABLE_ID, location="az://container/t.lance")
    assert calls.all_tables(SCHEMA) == []


@pytest.mark.spec("common.md#createtable", "common.md#registertable")
@pytest.mark.parametrize("value", ["x" * 256, "\ud800"])
def test_what_a_table_cannot_hold_is_invalid_input_and_nothing_is_made(
    calls: Calls, value: str, tmp_path: Path
) -> None:
    for make in (
        lambda: calls.declare_table(TABLE_ID, properties={"k": value}),
        lambda: calls.create_table(TABLE_ID, ROWS, properties={"k": value}),
        lambda: calls.register_table(TABLE_ID, str(tmp_path / "t"), properties={"k": value}),
    ):
        with refused(ErrorCode.INVALID_INPUT):
            make()
    assert calls.all_tables(SCHEMA) == []
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


# -- Databricks ----------------------------------------------------------------------------------


@pytest.mark.spec("common.md#registertable")
def test_a_location_that_overlaps_another_tables_is_invalid_input_on_databricks(
    on_databricks: Calls,
) -> None:
    place = on_databricks.create_table(TABLE_ID, ROWS).location or ""
    for overlapping in (place, f"{place}/inside", place.rpartition("/")[0]):
        with refused(ErrorCode.INVALID_INPUT, naming="overlaps"):
            on_databricks.register_table([*SCHEMA, "u"], overlapping)
    assert on_databricks.all_tables(SCHEMA) == ["t"]


@pytest.mark.spec("unity.md#createtable", "unity.md#registertable", "unity.md#renametable")
def test_without_a_warehouse_namespaces_change_and_tables_are_read_and_dropped_and_not_made(
    workspace: UnityServer, on_databricks: Calls
) -> None:
    on_databricks.create_table(TABLE_ID, ROWS)
    namespace = UnityNamespace(
        host=workspace.url, token="dapi-double", server="databricks", root="file:///nowhere"
    )
    with namespace:
        reader = Calls(namespace)
        for change in (
            lambda: reader.declare_table([*SCHEMA, "u"]),
            lambda: reader.create_table([*SCHEMA, "u"], ROWS),
            lambda: reader.register_table([*SCHEMA, "u"], "s3://bucket/u"),
            lambda: reader.rename_table(TABLE_ID, "u"),
        ):
            with refused(ErrorCode.UNSUPPORTED, naming="warehouse_id"):
                change()
        reader.create_namespace(["c", "n"], properties={"schema.comment": "x"})
        assert reader.describe_namespace(["c", "n"]).properties == {"schema.comment": "x"}
        reader.drop_namespace(["c", "n"])
        assert reader.all_tables(SCHEMA) == ["t"]
        assert reader.count(TABLE_ID) == 3
        reader.drop_table(TABLE_ID)
    assert on_databricks.all_tables(SCHEMA) == []

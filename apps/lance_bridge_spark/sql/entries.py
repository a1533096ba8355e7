"""SHOW, DESCRIBE, CREATE, ALTER and DROP of namespaces and tables, and deletes without tasks.

ALTER TABLE is in `alter_table`; definitions, CREATE with a query and REPLACE TABLE are in
`new_tables`.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance_namespace import (
    CreateNamespaceRequest,
    DescribeNamespaceRequest,
    DropNamespaceRequest,
    ListNamespacesRequest,
)
from lance_namespace.errors import NamespaceNotFoundError, TableNotFoundError

from lance_bridge import blobs
from lance_bridge.catalog import Path
from lance_bridge.connection import Connection
from lance_bridge.dataset import (
    NewTable,
    Rows,
    columns_read,
    delete_rows,
    scan_limits,
    translate_query_errors,
)
from lance_bridge.dataset import create_table as create_with_rows
from lance_bridge.errors import (
    display,
    invalid,
    translate_lance_errors,
)
from lance_bridge.locations import for_lance
from lance_bridge.requests import LATEST, CreateMode, Ref, parse_namespace
from lance_bridge.table import Table
from lance_bridge.tables import Tables

from ..addresses import CatalogAddress, TableAddress
from ..lookup import find_table
from ..schemas import ROW_ADDRESS, converted_columns, schema_to_json
from ..source.options import Options, ReadOptions, entry_to_json
from ..source.reading import stored_bytes
from ..spark_tables import SparkTable
from ..time_travel import TimeTravel, to_micros
from . import metadata_tables
from .new_tables import LANCE, Data, Definition, publish_new

Args = Mapping[str, Any]
Answer = dict[str, Any]

_FRAGMENT_BITS = 32
"""A row's address is its fragment's id, followed by its offset there in this many low bits."""

# -- namespaces ------------------------------------------------------------------------------------


def list_namespaces(catalog: CatalogAddress, args: Args) -> Answer:
    """``{namespace}`` to ``{namespaces: [path, …]}``, sorted.

    Raises: NamespaceNotFound, InvalidInput.
    """
    path = list(args["namespace"])
    found = catalog.connect().list_namespaces(ListNamespacesRequest(id=path))
    return {"namespaces": [[*path, name] for name in sorted(found.namespaces)]}


def load_namespace(catalog: CatalogAddress, args: Args) -> Answer:
    """``{namespace}`` to ``{properties}``, in Spark's spelling.

    Raises: NamespaceNotFound, InvalidInput.
    """
    connection, path = _namespace_of(catalog, args)
    request = DescribeNamespaceRequest(id=list(path))
    found = catalog.connect().describe_namespace(request).properties or {}
    to_spark = {theirs: ours for ours, theirs in _spelling(connection, path).items()}
    return {"properties": {to_spark.get(key, key): value for key, value in found.items()}}


def create_namespace(catalog: CatalogAddress, args: Args) -> Answer:
    """``{namespace, properties}`` to ``{}``.

    Raises: Unsupported, NamespaceNotFound (of the parent), NamespaceAlreadyExists,
        InvalidInput.
    """
    connection, path = _namespace_of(catalog, args)
    properties = _to_catalog_spelling(connection, path, args["properties"])
    request = CreateNamespaceRequest(id=list(path), mode="Create", properties=properties)
    catalog.connect().create_namespace(request)
    return {}


def alter_namespace(catalog: CatalogAddress, args: Args) -> Answer:
    """``{namespace, set, unset}`` to ``{}``; other properties are kept.

    Raises: Unsupported, NamespaceNotFound, InvalidInput.
    """
    connection, path = _namespace_of(catalog, args)
    wanted = _to_catalog_spelling(connection, path, args.get("set") or {})
    spelling = _spelling(connection, path)
    unwanted = {spelling.get(key, key) for key in args.get("unset") or ()}
    Tables(connection).change_namespace(path, wanted, unwanted)
    return {}


def drop_namespace(catalog: CatalogAddress, args: Args) -> Answer:
    """``{namespace, cascade}`` to ``{}``. Cascade deletes its tables.

    Raises: Unsupported, NamespaceNotFound, NamespaceNotEmpty, InvalidInput, InvalidTableState.
    """
    behavior = "Cascade" if args.get("cascade") else "Restrict"
    request = DropNamespaceRequest(id=args["namespace"], mode="Fail", behavior=behavior)
    catalog.connect().drop_namespace(request)
    return {}


def _namespace_of(catalog: CatalogAddress, args: Args) -> tuple[Connection, Path]:
    connection = catalog.connect().connection
    return connection, parse_namespace(args["namespace"], connection.capabilities)


def _spelling(connection: Connection, path: Path) -> Mapping[str, str]:
    """Return the catalog's names of Spark's own properties, by Spark's names."""
    levels = connection.capabilities.namespace_words
    if not 0 < len(path) <= len(levels):
        return {}
    words = levels[len(path) - 1]
    named = {"comment": words.comment, "location": words.location, "owner": words.owner}
    return {ours: theirs for ours, theirs in named.items() if theirs}


def _to_catalog_spelling(
    connection: Connection, path: Path, properties: Mapping[str, str]
) -> dict[str, str]:
    """Return properties in the catalog's spelling.

    Spark sets an owner on everything that it creates. It is dropped if the catalog has no such
    property, because the catalog then tracks owners itself.
    """
    spelling = _spelling(connection, path)
    given = {k: v for k, v in properties.items() if k != "owner" or k in spelling}
    return {spelling.get(key, key): value for key, value in given.items()}


# -- finding and describing tables -----------------------------------------------------------------


def list_tables(catalog: CatalogAddress, args: Args) -> Answer:
    """``{namespace}`` to ``{tables: [name, …]}``: only Lance tables, sorted.

    A namespace that contains namespaces has none.

    Raises: NamespaceNotFound, InvalidInput.
    """
    namespace = catalog.connect()
    path = parse_namespace(args["namespace"], namespace.capabilities)
    if len(path) < namespace.capabilities.levels:
        namespace.describe_namespace(DescribeNamespaceRequest(id=list(path)))
        return {"tables": []}
    return {"tables": list(namespace.catalog.list_tables(path, lance_only=True))}


def table_exists(catalog: CatalogAddress, args: Args) -> Answer:
    """``{table}`` to ``{exists}``, without reading the storage.

    Raises: InvalidInput (also: not Lance's).
    """
    named = metadata_tables.parse(catalog, args["table"])
    if named is not None and named.name not in metadata_tables.TABLES:
        return {"exists": False}
    try:
        find(catalog, args if named is None else {"table": named.table})
    except (TableNotFoundError, NamespaceNotFoundError):
        return {"exists": False}
    return {"exists": True}


def load_table(catalog: CatalogAddress, args: Args) -> Answer:
    """``{table, version?, timestamp_us?, options?, zone?}`` to a description.

    ``version`` is a number or the name of a tag or branch; ``timestamp_us`` is in microseconds
    since 1970. ``options`` are the relation's options for the data source; only version, tag,
    branch and timestamp are used here, a timestamp without a zone in the session's ``zone``. In
    the result, ``chosen`` means that the caller requested this version, instead of the latest;
    ``loaded`` is for `plan_read`.

    Of a metadata table, the result is ``{metadata, schema}``.

    Raises: NamespaceNotFound, TableNotFound, TableTagNotFound, TableVersionNotFound,
        InvalidInput, InvalidTableState.
    """
    named = metadata_tables.parse(catalog, args["table"])
    if named is not None:
        find(catalog, {"table": named.table})
        return metadata_tables.describe(named, args)
    travel = TimeTravel.of(args.get("version"), args.get("timestamp_us"))
    options = args.get("options")
    if options and travel == TimeTravel():
        travel = _to_time_travel(Options(options, zone=args.get("zone")).reading())
    table = find(catalog, args)
    travel, dataset = travel.open(table)
    description = {**describe(table, dataset), "loaded": _keep(table)}
    if travel.ref.branch is not None:
        description["branch"] = travel.ref.branch
    return {**description, "chosen": True} if travel.is_chosen else description


def metadata_rows(catalog: CatalogAddress, args: Args) -> pa.Table:
    """``{table}``, a metadata table, to its rows.

    Raises: NamespaceNotFound, TableNotFound, InvalidInput, InvalidTableState, ServiceUnavailable.
    """
    named = metadata_tables.parse(catalog, args["table"])
    if named is None:
        raise invalid(f"'{display(args['table'])}' is no metadata table")
    return metadata_tables.read(named, find(catalog, {"table": named.table}))


def _to_time_travel(read: ReadOptions) -> TimeTravel:
    moment = None if read.timestamp is None else to_micros(read.timestamp)
    return TimeTravel(Ref.of(read.version, read.tag, read.branch), moment)


def find(catalog: CatalogAddress, args: Args) -> SparkTable:
    """Return the table that a call names, with one call to the catalog."""
    return find_table(TableAddress(catalog, tuple(args["table"])))


def describe(table: Table, dataset: lance.LanceDataset) -> Answer:
    """Return the description of a table at one version for Spark.

    ``bytes`` is the size of its data files; ``converted`` are the columns whose values in Spark
    differ from the stored ones, so that only Spark can compare them, and ``opaque`` are those that
    Lance's SQL cannot even compare with null.
    """
    with translate_lance_errors(f"Table '{table.name}' could not be read"):
        rows = int(dataset.count_rows())
        size = stored_bytes(dataset)
    return {
        "schema": schema_to_json(dataset.schema),
        "converted": converted_columns(dataset.schema),
        "opaque": blobs.columns_with_blobs(dataset.schema, dataset.schema.names),
        "version": int(dataset.version),
        "rows": rows,
        "bytes": size,
        "id": table.entry_id or table.record.identity or table.record.location,
        "properties": spark_properties(table),
        # Commits change the entry of a managed table.
        "entry": entry_to_json(table.record) if table.managed is None else None,
    }


def spark_properties(table: Table) -> dict[str, str]:
    """Return a table's properties for Spark: the user's own, and Spark's provider and location."""
    own = {**table.properties, "provider": LANCE}
    return {**own, "location": for_lance(table.record.location)} if table.record.location else own


# -- creating, dropping and renaming tables --------------------------------------------------------


def create_table(catalog: CatalogAddress, args: Args) -> Answer:
    """``{table, schema, properties}`` to a description.

    With a location and no columns, register the existing table at that location.

    Raises: Unsupported, NamespaceNotFound, TableAlreadyExists, InvalidInput,
        ConcurrentModification, ServiceUnavailable.
    """
    tables = catalog.connect().tables
    definition = Definition.of(tables.path_of(args["table"]), args)
    if not definition.has_columns:
        table = _register(tables, definition)
    elif definition.location is not None:
        data = Data(definition.location, definition.schema())
        table = publish_new(tables, definition, data)
    else:
        empty = Rows.from_data(pa.Table.from_batches([], definition.schema()))
        new = NewTable(definition.path, empty, CreateMode.CREATE, definition.properties)
        made, _ = create_with_rows(tables.connection, new)
        table = made.refreshed()
    return describe(table, table.open())


def _register(tables: Tables, definition: Definition) -> Table:
    name, place = display(definition.path), definition.location
    if place is None:
        raise invalid(
            f"Table '{name}' has no columns: name them, or give the LOCATION of a Lance table"
        )
    if not tables.at(definition.path, place).storage().has_dataset(place):
        raise invalid(f"Table '{name}' has no columns, and there is no Lance table at {place}")
    return tables.add(definition.path, place, definition.properties)


def drop_table(catalog: CatalogAddress, args: Args) -> Answer:
    """``{table, purge}`` to ``{}``; with PURGE, no retention keeps the data.

    Raises: NamespaceNotFound, TableNotFound, InvalidInput, InvalidTableState, Unsupported.
    """
    tables = catalog.connect().tables
    tables.drop(tables.path_of(args["table"]), purge=args["purge"])
    return {}


def rename_table(catalog: CatalogAddress, args: Args) -> Answer:
    """``{table, to}`` to ``{}``.

    ``to`` is a path with or without the catalog's name, or a name in the same namespace.

    Raises: Unsupported, NamespaceNotFound, TableNotFound, TableAlreadyExists, InvalidInput,
        ConcurrentModification, InvalidTableState.
    """
    tables = catalog.connect().tables
    path = tables.path_of(args["table"])
    target = _rename_target(catalog, path, tuple(args["to"]))
    tables.rename(path, tables.path_of(target))
    return {}


def _rename_target(catalog: CatalogAddress, path: Path, to: Path) -> Path:
    if len(to) == 1:
        return (*path[:-1], *to)
    if len(to) == len(path) + 1 and to[0] == catalog.name:
        return to[1:]
    return to


# -- changes of rows without tasks -----------------------------------------------------------------


def truncate(catalog: CatalogAddress, args: Args) -> Answer:
    """``{table}`` to ``{version}``, the version without rows.

    Raises: NamespaceNotFound, TableNotFound, InvalidInput, ConcurrentModification,
        ServiceUnavailable, InvalidTableState.
    """
    return delete_where(catalog, {**args, "where": "true"})


def delete_where(catalog: CatalogAddress, args: Args) -> Answer:
    """``{table, where}`` to ``{version}``; retried if another writer changes the same rows.

    Raises: NamespaceNotFound, TableNotFound, TableColumnNotFound, InvalidInput,
        ConcurrentModification, ServiceUnavailable, InvalidTableState.
    """
    table = find(catalog, args)
    return {"version": delete_rows(table, args["where"], LATEST).version}


def fragments(catalog: CatalogAddress, args: Args) -> Answer:
    """``{table, version, branch?, filter}`` to ``{fragments}``: ids of those with a matching row.

    Raises: NamespaceNotFound, TableNotFound, TableVersionNotFound, TableColumnNotFound,
        InvalidInput, ServiceUnavailable, InvalidTableState, TableBranchNotFound.
    """
    table = find(catalog, args)
    dataset = table.open(Ref.of(args.get("version"), branch=args.get("branch")))
    wanted = args.get("filter")
    with translate_query_errors(f"Rows of table '{table.address.name}' could not be found"):
        if wanted is None:
            return {"fragments": [each.fragment_id for each in dataset.get_fragments()]}
        return {"fragments": sorted(_matching_fragments(dataset, wanted))}


def _matching_fragments(dataset: lance.LanceDataset, wanted: str) -> set[int]:
    found: set[int] = set()
    limits = scan_limits(dataset, columns_read(dataset.schema.names, [], wanted))
    scanner = dataset.scanner(
        columns=[], filter=wanted, with_row_address=True, scan_in_order=False, **limits
    )
    for batch in scanner.to_batches():
        addresses = batch.column(ROW_ADDRESS).cast(pa.uint64()).to_numpy()
        found.update(np.unique(addresses >> np.uint64(_FRAGMENT_BITS)).tolist())
    return found


# -- loaded tables ---------------------------------------------------------------------------------
#
# Tables that statements have loaded, so that planning a read needs no second catalog call.

_MOST = 256
"""More tables than concurrent statements load before they are planned."""

_tables: OrderedDict[str, SparkTable] = OrderedDict()
_lock = threading.Lock()


def _keep(table: SparkTable) -> str:
    """Keep a table for some time, and return the name to get it by."""
    name = uuid.uuid4().hex
    with _lock:
        _tables[name] = table
        while len(_tables) > _MOST:
            _tables.popitem(last=False)
    return name


def loaded(name: str | None) -> SparkTable | None:
    """Return a table by its name, or None if another process kept it or it was evicted."""
    with _lock:
        return None if name is None else _tables.get(name)

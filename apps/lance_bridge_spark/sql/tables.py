"""SHOW TABLES, DESCRIBE, CREATE, DROP and RENAME TABLE, and what needs no task: counts, deletes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance_namespace import DescribeNamespaceRequest
from lance_namespace.errors import NamespaceNotFoundError, TableNotFoundError

from lance_bridge.catalog import Path
from lance_bridge.dataset import (
    NewTable,
    Rows,
    create_table,
    delete_rows,
    translate_query_errors,
)
from lance_bridge.errors import display, invalid, translate_lance_errors
from lance_bridge.location import for_lance
from lance_bridge.records import ENTRY_ID
from lance_bridge.requests import LATEST, CreateMode, Ref, parse_namespace
from lance_bridge.table import Table
from lance_bridge.tables import Tables

from ..addresses import CatalogAddress, TableAddress
from ..lookup import find_table
from ..source import requests
from ..source.options import Options, ReadOptions
from ..source.types import ROW_ADDRESS
from ..spark_tables import SparkTable
from ..time_travel import TimeTravel, to_micros
from . import loaded, publishing, schemas
from .publishing import LANCE, Definition

Args = Mapping[str, Any]
Answer = dict[str, Any]

_FRAGMENT_BITS = 32
"""A row's address is its fragment's id, and in that many low bits its place there."""


# -- reading -------------------------------------------------------------------------------------


def list_names(catalog: CatalogAddress, args: Args) -> Answer:
    """``{namespace}`` to ``{tables: [name, …]}``: Lance's only, sorted.

    A namespace of namespaces holds none.

    Raises: NamespaceNotFound, InvalidInput.
    """
    namespace = catalog.connect()
    path = parse_namespace(args["namespace"], namespace.capabilities)
    if len(path) < namespace.capabilities.levels:
        namespace.describe_namespace(DescribeNamespaceRequest(id=list(path)))
        return {"tables": []}
    return {"tables": list(namespace.catalog.list_tables(path, lance_only=True))}


def exists(catalog: CatalogAddress, args: Args) -> Answer:
    """``{table}`` to ``{exists}``, without looking at storage.

    Raises: InvalidInput (also: not Lance's).
    """
    try:
        find(catalog, args)
    except (TableNotFoundError, NamespaceNotFoundError):
        return {"exists": False}
    return {"exists": True}


def load(catalog: CatalogAddress, args: Args) -> Answer:
    """``{table, version?, timestamp_us?, options?}`` to a description.

    ``version`` is a number or the name of a tag or branch; ``timestamp_us`` is in microseconds
    since 1970. ``options`` are those of the relation, as the data source has them: version, tag,
    branch and timestamp among them, and others that mean nothing here. ``chosen`` in the answer
    says that the version is one that the caller wants, and not the latest; ``loaded`` is for
    `plan_read`.

    Raises: NamespaceNotFound, TableNotFound, TableTagNotFound, TableVersionNotFound,
        InvalidInput, InvalidTableState.
    """
    travel = TimeTravel.of(args.get("version"), args.get("timestamp_us"))
    options = args.get("options")
    if options and travel == TimeTravel():
        travel = _chosen(Options(options).reading())
    table = find(catalog, args)
    travel, dataset = travel.open(table)
    description = {**describe(table, dataset), "loaded": loaded.keep(table)}
    if travel.ref.branch is not None:
        description["branch"] = travel.ref.branch
    return {**description, "chosen": True} if travel.is_chosen else description


def _chosen(read: ReadOptions) -> TimeTravel:
    moment = None if read.timestamp is None else to_micros(read.timestamp)
    return TimeTravel(Ref.of(read.version, read.tag, read.branch), moment)


def find(catalog: CatalogAddress, args: Args) -> SparkTable:
    """Return the table that a call is about, with one call to the catalog."""
    return find_table(TableAddress(catalog, tuple(args["table"])))


def describe(table: Table, dataset: lance.LanceDataset) -> Answer:
    """Return the description of a table at one version, as Spark gets it.

    ``bytes`` are those of its data files; ``converted`` are the columns whose values Spark does not
    have as they are stored, so that only Spark can compare them.
    """
    with translate_lance_errors(f"Table '{table.name}' could not be read"):
        rows = int(dataset.count_rows())
        size = sum(
            file.file_size_bytes or 0
            for fragment in dataset.get_fragments()
            for file in fragment.metadata.files
        )
    return {
        "schema": schemas.to_spark(dataset.schema),
        "converted": schemas.converted(dataset.schema),
        "version": int(dataset.version),
        "rows": rows,
        "bytes": size,
        "id": table.record.properties.get(ENTRY_ID)
        or table.record.identity
        or table.record.location,
        "properties": shown(table),
        # Commits change the entry of a table that the catalog manages.
        "entry": requests.entry_to_json(table.record) if table.managed is None else None,
    }


def shown(table: Table) -> dict[str, str]:
    """Return a table's properties as Spark shows them: the caller's own, and Spark's."""
    own = {**table.properties, "provider": LANCE}
    return {**own, "location": for_lance(table.record.location)} if table.record.location else own


# -- creating, dropping, renaming ----------------------------------------------------------------


def create(catalog: CatalogAddress, args: Args) -> Answer:
    """``{table, schema, properties}`` to a description.

    With a location and no columns, the table is the one that lies there.

    Raises: Unsupported, NamespaceNotFound, TableAlreadyExists, InvalidInput,
        ConcurrentModification, ServiceUnavailable.
    """
    tables = catalog.connect().tables
    definition = Definition.of(tables.path_of(args["table"]), args)
    if not definition.has_columns:
        table = _registered(tables, definition)
    elif definition.location is not None:
        data = publishing.Data(definition.location, definition.schema())
        table = publishing.publish_new(tables, definition, data)
    else:
        empty = Rows.from_data(definition.schema().empty_table())
        new = NewTable(definition.path, empty, CreateMode.CREATE, definition.properties)
        made, _ = create_table(tables.connection, new)
        table = made.refreshed()
    return describe(table, table.open())


def _registered(tables: Tables, definition: Definition) -> Table:
    name, place = display(definition.path), definition.location
    if place is None:
        raise invalid(
            f"Table '{name}' has no columns: name them, or give the LOCATION of a Lance table"
        )
    if not tables.at(definition.path, place).storage().has_dataset(place):
        raise invalid(f"Table '{name}' has no columns, and there is no Lance table at {place}")
    return tables.add(definition.path, place, definition.properties)


def drop(catalog: CatalogAddress, args: Args) -> Answer:
    """``{table}`` to ``{}``; the data is deleted, with PURGE or without.

    Raises: NamespaceNotFound, TableNotFound, InvalidInput, InvalidTableState.
    """
    tables = catalog.connect().tables
    tables.drop(tables.path_of(args["table"]))
    return {}


def rename(catalog: CatalogAddress, args: Args) -> Answer:
    """``{table, to}`` to ``{}``.

    ``to`` is a path, with or without the catalog's name, or a name in the same namespace.

    Raises: Unsupported, NamespaceNotFound, TableNotFound, TableAlreadyExists, InvalidInput,
        ConcurrentModification, InvalidTableState.
    """
    tables = catalog.connect().tables
    path = tables.path_of(args["table"])
    target = _target(catalog, path, tuple(args["to"]))
    tables.rename(path, tables.path_of(target))
    return {}


def _target(catalog: CatalogAddress, path: Path, to: Path) -> Path:
    if len(to) == 1:
        return (*path[:-1], *to)
    if len(to) == len(path) + 1 and to[0] == catalog.name:
        return to[1:]
    return to


# -- rows, without tasks -------------------------------------------------------------------------


def truncate(catalog: CatalogAddress, args: Args) -> Answer:
    """``{table}`` to ``{version}``, in which it has no row.

    Raises: NamespaceNotFound, TableNotFound, InvalidInput, ConcurrentModification,
        ServiceUnavailable, InvalidTableState.
    """
    return delete_where(catalog, {**args, "where": "true"})


def delete_where(catalog: CatalogAddress, args: Args) -> Answer:
    """``{table, where}`` to ``{version}``; if another writer changes the same rows, it starts over.

    Raises: NamespaceNotFound, TableNotFound, TableColumnNotFound, InvalidInput,
        ConcurrentModification, ServiceUnavailable, InvalidTableState.
    """
    table = find(catalog, args)
    return {"version": delete_rows(table, args["where"], LATEST).version}


def fragments(catalog: CatalogAddress, args: Args) -> Answer:
    """``{table, version, branch?, filter}`` to ``{fragments}``: ids of those with a row that fits.

    Raises: NamespaceNotFound, TableNotFound, TableVersionNotFound, TableColumnNotFound,
        InvalidInput, ServiceUnavailable, InvalidTableState, TableBranchNotFound.
    """
    table, dataset = _at_version(catalog, args)
    wanted = args.get("filter")
    with translate_query_errors(f"Rows of table '{table.address.name}' could not be found"):
        if wanted is None:
            return {"fragments": [each.fragment_id for each in dataset.get_fragments()]}
        return {"fragments": sorted(_fragments_with(dataset, wanted))}


def _fragments_with(dataset: lance.LanceDataset, wanted: str) -> set[int]:
    found: set[int] = set()
    scanner = dataset.scanner(columns=[], filter=wanted, with_row_address=True, scan_in_order=False)
    for batch in scanner.to_batches():
        addresses = batch.column(ROW_ADDRESS).cast(pa.uint64()).to_numpy()
        found.update(np.unique(addresses >> np.uint64(_FRAGMENT_BITS)).tolist())
    return found


def _at_version(catalog: CatalogAddress, args: Args) -> tuple[SparkTable, lance.LanceDataset]:
    table = find(catalog, args)
    ref = Ref.of(args.get("version"), branch=args.get("branch"))
    return table, table.open(ref)

"""The catalog port on a Hive Metastore: names, records and errors, over one connection pool.

With `catalog_levels`, namespaces have one more level above databases: Hive's own catalogs.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

from lance_namespace.errors import (
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableNotFoundError,
    UnsupportedOperationError,
)
from thrift.Thrift import TException

from lance_bridge.catalog import (
    LANCE,
    TABLE_TYPE,
    Capabilities,
    Catalog,
    CatalogColumn,
    NamespaceRecord,
    Path,
    TableRecord,
)
from lance_bridge.catalog_scan import innermost_namespaces
from lance_bridge.errors import (
    OutcomeUnknownError,
    display,
    invalid,
    namespace_already_exists,
    namespace_not_empty,
    namespace_not_found,
    table_already_exists,
    table_not_found,
    unsupported,
)

from . import mapping
from .client import Calls, ClientPool
from .commit_records import RECORDS, CommitRecords
from .config import HiveConfig
from .entries import ABSENT, NO_DATABASE, EntryReads, TableChanges, without_statistics
from .errors import is_a, is_vanished_row, map_errors, refuse_long_values, text_of, translate_errors
from .mapping import (
    CATALOG_LOCATION,
    DEFAULT_DATABASE,
    HIVE_CATALOG,
    capabilities,
    database_argument,
    is_builtin,
)

logger = logging.getLogger(__name__)

# `like` with (?i) finds every letter case that implementations write; `=` would find one.
_LANCE_FILTER = f'hive_filter_field_params__{TABLE_TYPE} like "(?i){LANCE}"'
_ALL = -1
_BATCH = 500  # entries in one call of a scan of all entries
_PAGE = 100  # in one call of a scan that may end after a page
_NO_FILTER_SECONDS = 300.0
"""How long tables are listed without a filter after the metastore failed to filter."""
_PARTITIONS = 1000
"""Partitions read in one call, unless the metastore allows fewer."""
_EXCEEDS_LIMIT = re.compile(r"exceeds limit|limit\.partition\.request")


class HiveCatalog(Catalog):
    """See :class:`~lance_bridge.catalog.Catalog` for what each method does and raises."""

    def __init__(self, config: HiveConfig, pool: ClientPool | None = None) -> None:
        self._config = config
        self._calls = Calls(config, pool)
        self._read, self._change = self._calls.read, self._calls.change
        self._capabilities = capabilities(catalog_levels=config.catalog_levels)
        self._owner = config.user[0] if config.user else config.auth_username
        self._catalogs = CatalogLevel(self._calls, config.root)
        self._records = CommitRecords(self._calls)
        self._entries = EntryReads(self._calls, self._records, catalog_levels=config.catalog_levels)
        self._changes = TableChanges(self._calls, self._entries.load, self._records)
        self._no_filter_until = 0.0
        self._has_catalogs = True
        """False if the metastore has no catalogs: it is older than Hive 3."""
        self._partitions = _PARTITIONS

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def describe_connection(self) -> str:
        levels = ", catalog_levels=true" if self._config.catalog_levels else ""
        return self._config.uri + levels

    def describe_server(self) -> Mapping[str, str]:
        with translate_errors("ask for the version"):
            version = str(self._read("getVersion", lambda c: c.getVersion()))
        # Every release before Hive 4 reports 3.0.
        return {"server": "Hive Metastore", "version": "2 or 3" if version == "3.0" else version}

    def close(self) -> None:
        self._calls.close()

    @property
    def _types(self) -> Any:
        return self._calls.types

    # -- namespaces ------------------------------------------------------------------------------

    def list_namespaces(self, parent: Path) -> Iterable[str]:
        with translate_errors(f"list the namespaces of '{display(parent)}'"):
            if not self._config.catalog_levels:
                return sorted(self._read("get_all_databases", lambda c: c.get_all_databases()))
            names = self._catalogs.databases_of(parent[0]) if parent else self._catalogs.names()
        if not names:
            self.load_namespace(parent)
        return sorted(names)

    def load_namespace(self, path: Path) -> NamespaceRecord:
        missing = {ABSENT: namespace_not_found(path)}
        with translate_errors(f"read namespace '{display(path)}'"), map_errors(missing):
            if len(path) < self._capabilities.levels:
                return mapping.catalog_from(self._catalogs.load(path[0]))
            return mapping.namespace_from(path, self._load_database(path))

    def _load_database(self, path: Path) -> Any:
        name = database_argument(path)
        return self._read("get_database", lambda c: c.get_database(name))

    def create_namespace(self, record: NamespaceRecord) -> None:
        path = record.path
        with translate_errors(f"create namespace '{display(path)}'"):
            try:
                if len(path) < self._capabilities.levels:
                    self._catalogs.create(record)
                else:
                    database = mapping.database_from(self._types, record)
                    self._change("create_database", lambda c: c.create_database(database))
            except TException as error:
                if self._is_taken(path, error):
                    raise namespace_already_exists(path) from error
                if len(path) == self._capabilities.levels > 1:
                    self.load_namespace(path[:-1])
                raise

    def _is_taken(self, path: Path, error: TException) -> bool:
        """Return True if a create failed because the name exists.

        If another client created it concurrently, the error may be one of the metastore's database.
        """
        return is_a(error, "AlreadyExistsException") or (
            is_a(error, "MetaException") and self._exists(path)
        )

    def alter_namespace(self, record: NamespaceRecord) -> None:
        path = record.path
        missing = {ABSENT: namespace_not_found(path)}
        with translate_errors(f"change namespace '{display(path)}'"), map_errors(missing):
            if len(path) < self._capabilities.levels:
                self._catalogs.alter(record)
                return
            database = mapping.database_with(self._load_database(path), record.properties)
            name = database_argument(path)
            self._change("alter_database", lambda c: c.alter_database(name, database))

    def drop_namespace(self, path: Path) -> None:
        with translate_errors(f"drop namespace '{display(path)}'"):
            try:
                if len(path) < self._capabilities.levels:
                    self._catalogs.drop(path[0])
                else:
                    # deleteData and cascade are False: the metastore must never delete files.
                    name = database_argument(path)
                    self._change("drop_database", lambda c: c.drop_database(name, False, False))
            except TException as error:
                self._explain_failed_drop(path, error)
                raise

    def require_droppable(self, path: Path) -> None:
        if self._is_builtin(path):
            raise invalid(f"'{display(path)}' is built into Hive and cannot be dropped")
        if len(path) < self._capabilities.levels:
            return
        database = database_argument(path)
        with translate_errors(f"list the functions of '{display(path)}'"):
            found = self._read("get_functions", lambda c: c.get_functions(database, "*"))
        if found:
            raise namespace_not_empty(path, f"It contains functions {', '.join(sorted(found)[:5])}")

    def _is_builtin(self, path: Path) -> bool:
        return is_builtin(path, catalog_levels=self._config.catalog_levels)

    def _explain_failed_drop(self, path: Path, error: TException) -> None:
        if is_a(error, "InvalidOperationException"):
            hidden = len(path) == self._capabilities.levels and not self.list_tables(path)
            hint = ". Drop the views lance_bridge_* that are left in it, in Hive" if hidden else ""
            raise namespace_not_empty(path, f"{text_of(error)}{hint}") from error
        if is_a(error, ABSENT):
            raise namespace_not_found(path) from error
        # Hive 2 and 3 raise a MetaException (null pointer) if the database does not exist.
        self.load_namespace(path)
        if self._is_builtin(path):
            raise invalid(
                f"'{display(path)}' is built into Hive and cannot be dropped: {text_of(error)}"
            ) from error

    # -- tables ----------------------------------------------------------------------------------

    def scan_tables(
        self, namespace: Path, *, lance_only: bool = False, after: str | None = None
    ) -> Iterable[TableRecord]:
        names = self._filter_names(namespace) if lance_only else self._all_names(namespace)
        if names is None:
            names = self._unfiltered_names(namespace)
        if after is not None:
            names = [name for name in names if name > after]
        # Only listings of Lance tables are paged.
        records = self._entries.load_many(namespace, names, _PAGE if lance_only else _BATCH)
        return (record for record in records if record.is_lance or not lance_only)

    def list_tables(self, namespace: Path, *, lance_only: bool = False) -> Iterable[str]:
        if not lance_only:
            return self._all_names(namespace)
        found = self._filter_names(namespace)
        if found is not None:
            return found
        records = self._entries.load_many(namespace, self._unfiltered_names(namespace), _BATCH)
        return [record.path[-1] for record in records if record.is_lance]

    def _filter_names(self, namespace: Path) -> list[str] | None:
        """Return the sorted names of the Lance tables, in one call.

        Return None if the metastore cannot filter by parameter.
        """
        if time.monotonic() < self._no_filter_until:
            return None
        database = database_argument(namespace)
        with translate_errors(f"list the Lance tables of '{display(namespace)}'"):
            try:
                found: list[str] = self._read(
                    "get_table_names_by_filter",
                    lambda c: c.get_table_names_by_filter(database, _LANCE_FILTER, _ALL),
                )
            except TException as error:
                if is_a(error, "UnknownDBException"):
                    raise namespace_not_found(namespace) from error
                if is_vanished_row(error):
                    raise
                logger.info("the metastore cannot filter tables by parameter: %s", text_of(error))
                return None
        if not found:
            self.load_namespace(namespace)
        return sorted(set(found))

    def _unfiltered_names(self, namespace: Path) -> list[str]:
        """Return all names, and list without a filter for a while."""
        names = self._all_names(namespace)
        now = time.monotonic()
        if now >= self._no_filter_until:  # otherwise a busy process extends it forever
            self._no_filter_until = now + _NO_FILTER_SECONDS
        return names

    def _all_names(self, namespace: Path) -> list[str]:
        database = database_argument(namespace)
        missing = dict.fromkeys(NO_DATABASE, namespace_not_found(namespace))
        with translate_errors(f"list the tables of '{display(namespace)}'"), map_errors(missing):
            names = self._read("get_all_tables", lambda c: c.get_all_tables(database))
        if not names:
            self.load_namespace(namespace)
        return sorted({name for name in names if not CommitRecords.is_helper_table(name)})

    def load_table(self, path: Path) -> TableRecord:
        with translate_errors(f"read table '{display(path)}'"):
            return mapping.record_from(path[:-1], self._entries.load(path))

    def load_columns(self, path: Path) -> Iterable[CatalogColumn]:
        with translate_errors(f"read the columns of table '{display(path)}'"):
            return mapping.columns_from(self._entries.load_once(path))

    def create_table(self, record: TableRecord) -> TableRecord:
        path = record.path
        table = mapping.table_from(self._types, record, self._owner)
        context = self._types.EnvironmentContext(properties=without_statistics({}))
        with translate_errors(f"create table '{display(path)}' at {record.location}"):
            try:
                self._change(
                    "create_table",
                    lambda c: c.create_table_with_environment_context(table, context),
                )
            except TException as error:
                if self._is_taken(path, error):
                    raise table_already_exists(path) from error
                refuse_long_values(error, table.parameters)
                if is_a(error, "InvalidObjectException", "NoSuchObjectException"):
                    self.load_namespace(path[:-1])
                raise
        return record

    def alter_table(self, record: TableRecord) -> None:
        with translate_errors(f"change table '{display(record.path)}'"):
            self._changes.alter(record)

    def load_ownership(self, path: Path) -> Mapping[str, str]:
        with translate_errors(f"read table '{display(path)}'"):
            return mapping.ownership_of(self._entries.load(path))

    def alter_ownership(self, record: TableRecord, ownership: Mapping[str, str]) -> None:
        with translate_errors(f"change table '{display(record.path)}'"):
            self._changes.alter(record, ownership)

    def commit_guard(self, record: TableRecord) -> str:
        with translate_errors(f"find out how to compare and set table '{display(record.path)}'"):
            return self._changes.commit_guard(record)

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        path = record.path
        if path[:-2] != new_path[:-2]:
            raise unsupported(
                f"Table '{display(path)}' cannot be moved to another Hive catalog: register it "
                "there, and deregister it here"
            )
        with translate_errors(f"rename table '{display(path)}' to '{display(new_path)}'"):
            try:
                self._changes.rename(record, new_path)
            except TException as error:
                self._explain_failed_rename(path, new_path, error)
                raise

    def _explain_failed_rename(self, path: Path, new_path: Path, error: TException) -> None:
        """Raise the reason why a rename failed, if reads find one."""
        self.load_namespace(new_path[:-1])
        try:
            self._entries.load(new_path)
        except TableNotFoundError:
            self._entries.load(path)
        else:
            raise table_already_exists(new_path) from error

    def drop_table(self, record: TableRecord) -> None:
        path = record.path
        database = database_argument(path[:-1])
        missing = {ABSENT: table_not_found(path)}
        with translate_errors(f"drop table '{display(path)}'"), map_errors(missing):
            # deleteData is always False: only core deletes files.
            try:
                self._change("drop_table", lambda c: c.drop_table(database, path[-1], False))
            except OutcomeUnknownError:
                self._drop_unused_records(record)
                raise
        if RECORDS in record.properties:
            self._records.drop(path, record.properties[RECORDS])

    def _drop_unused_records(self, record: TableRecord) -> None:
        """Drop the commit records of an entry that is gone, unless it was renamed."""
        records = record.properties.get(RECORDS)
        if records is None:
            return
        with suppress(LanceNamespaceError):  # the records stay
            if self._exists(record.path):
                return
            namespaces = innermost_namespaces(self, named=[record.path[:-1]])
            others = (each for path in namespaces for each in self.scan_tables(path))
            if all(each.is_readable and each.properties.get(RECORDS) != records for each in others):
                self._records.drop(record.path, records)

    # -- locations of other entries, which core reads before it deletes files ----------------------

    @cached_property
    def _all_catalogs(self) -> HiveCatalog:
        """The same metastore with the level of catalogs, over the same connections."""
        if self._config.catalog_levels:
            return self
        config = self._config.model_copy(update={"catalog_levels": True})
        return HiveCatalog(config, self._calls.pool)

    def scan_hidden_tables(self) -> Iterable[TableRecord]:
        """Return the tables of the catalogs that this client does not list.

        Makes 1 call if the metastore has one catalog, or is older than Hive 3.
        """
        if self._config.catalog_levels or not self._has_catalogs:
            return
        try:
            names = list(self._all_catalogs.list_namespaces(()))
        except UnsupportedOperationError:
            self._has_catalogs = False
            return
        if len(names) > 1:
            calls = self._all_catalogs._calls
            with translate_errors("read the default database"):
                default = calls.read("get_database", lambda c: c.get_database(DEFAULT_DATABASE))
            for name in names:
                if name != (default.catalogName or HIVE_CATALOG):
                    yield from self._all_catalogs._scan_catalog(name)

    def _scan_catalog(self, name: str) -> Iterator[TableRecord]:
        try:
            databases = list(self.list_namespaces((name,)))
        except NamespaceNotFoundError:  # dropped since it was listed
            return
        for database in databases:
            try:
                yield from self.scan_tables((name, database))
            except NamespaceNotFoundError:
                continue

    def partition_locations(self, record: TableRecord) -> Iterable[str]:
        """Return the locations of partitions: 1 call for all names, and 1 for each 1,000."""
        is_hidden = len(record.path) > self.capabilities.levels + 1
        source = self._all_catalogs if is_hidden else self
        calls = source._calls
        database, table = database_argument(record.path[:-1]), record.path[-1]
        with translate_errors(f"read the partitions of '{display(record.path)}'"):
            try:
                names = calls.read(
                    "get_partition_names", lambda c: c.get_partition_names(database, table, _ALL)
                )
                yield from self._locations_of(calls, database, table, names)
            except TException as error:
                if is_a(error, "NoSuchObjectException", "UnknownDBException"):
                    return
                # Hive 2 returns an internal error for a table that does not exist.
                if not is_a(error, "TApplicationException") or source._exists(record.path):
                    raise

    def _locations_of(
        self, calls: Calls, database: str, table: str, names: list[str]
    ) -> Iterator[str]:
        """Read partitions by name, in fewer a call if the metastore limits them.

        Hive 4.1 and later do, by ``metastore.limit.partition.request``.
        """

        def read(part: list[str]) -> list[Any]:
            return calls.read(
                "get_partitions_by_names",
                lambda c: c.get_partitions_by_names(database, table, part),
            )

        start = 0
        while start < len(names):
            wanted = names[start : start + self._partitions]
            try:
                found = read(wanted)
            except TException as error:
                if len(wanted) == 1 or not _EXCEEDS_LIMIT.search(text_of(error)):
                    raise
                self._partitions = len(wanted) // 2
                continue
            for partition in found:
                yield from mapping.partition_locations(partition)
            start += len(wanted)

    def _exists(self, path: Path) -> bool:
        is_table = len(path) > self._capabilities.levels
        try:
            self.load_table(path) if is_table else self.load_namespace(path)
        except (TableNotFoundError, NamespaceNotFoundError):
            return False
        return True


# -- the level of Hive catalogs --------------------------------------------------------------------

_DROPPED = "/.dropped-"
_MOVED = re.compile(rf"(?:{re.escape(_DROPPED)}[0-9a-f]{{32}}/?)+$")


class CatalogLevel:
    """Loads, creates, alters and drops catalogs. Raises Thrift errors unchanged."""

    def __init__(self, calls: Calls, root: str | None) -> None:
        self._calls = calls
        self._root = root

    def names(self) -> list[str]:
        """Return the names of all catalogs."""
        return list(self._calls.read("get_catalogs", lambda c: c.get_catalogs()).names or [])

    def databases_of(self, name: str) -> list[str]:
        """Return the names of a catalog's databases; none if the catalog does not exist."""
        pattern = f"@{name}#"  # every database of the catalog
        return list(self._calls.read("get_databases", lambda c: c.get_databases(pattern)))

    def load(self, name: str) -> Any:
        """Return the Thrift Catalog."""
        request = self._calls.types.GetCatalogRequest(name=name)
        return self._calls.read("get_catalog", lambda c: c.get_catalog(request)).catalog

    def create(self, record: NamespaceRecord) -> None:
        """Create a catalog; Hive adds its database `default`.

        Raises:
            NamespaceAlreadyExistsError: even if the properties would be invalid for a new one.
        """
        (name,) = record.path
        if name in self.names():
            raise namespace_already_exists(record.path)
        catalog = self._calls.types.Catalog(**mapping.catalog_fields(record, self._root))
        request = self._calls.types.CreateCatalogRequest(catalog=catalog)
        self._calls.change("create_catalog", lambda c: c.create_catalog(request))

    def alter(self, record: NamespaceRecord) -> None:
        """Replace a catalog's description, and its location if one is given."""
        (name,) = record.path
        current = self.load(name)
        kept = {CATALOG_LOCATION: _original_location(current.locationUri)}
        wanted = NamespaceRecord(record.path, {**kept, **record.properties})
        self._replace(name, mapping.catalog_fields(wanted, None))

    def drop(self, name: str) -> None:
        """Drop a catalog that contains nothing but an empty `default`, but keep its files.

        Hive deletes the directory of a catalog that it drops. Therefore the catalog's location is
        first changed to a directory that does not exist. It is restored if the catalog was
        certainly not dropped. It is not restored if the outcome is unknown, because a delayed drop
        would then delete the directory: the next drop completes it.

        Raises:
            NamespaceNotEmptyError
            InvalidInputError: the catalog is Hive's own.
            OutcomeUnknownError: a reply was lost.
        """
        if name == HIVE_CATALOG:
            raise invalid(f"Catalog '{name}' is built into Hive and cannot be dropped")
        databases = set(self.databases_of(name))
        catalog = self.load(name)
        location = _original_location(catalog.locationUri)
        unfinished = bool(location != catalog.locationUri)
        missing = self._new_default(name, location) if unfinished else None
        others = sorted(databases - {DEFAULT_DATABASE})
        if others:
            if unfinished:
                self._undo_drop(
                    catalog, location, None if DEFAULT_DATABASE in databases else missing
                )
            raise namespace_not_empty((name,), f"It contains namespaces {', '.join(others[:5])}")
        default = self._drop_default(name) or missing
        try:
            if not unfinished:
                self._set_location(catalog, f"{location.rstrip('/')}{_DROPPED}{uuid.uuid4().hex}")
            request = self._calls.types.DropCatalogRequest(name=name)
            self._calls.change("drop_catalog", lambda c: c.drop_catalog(request))
        except OutcomeUnknownError:
            raise
        except (TException, LanceNamespaceError):
            self._undo_drop(catalog, location, default)
            raise

    def _undo_drop(self, catalog: Any, location: str, default: Any) -> None:
        """Undo the first steps of a failed drop; if that fails too, the next drop completes it."""
        try:
            self._set_location(catalog, location)
            if default is not None:
                self._calls.change("create_database", lambda c: c.create_database(default))
        except (TException, LanceNamespaceError) as error:
            logger.warning(
                "catalog '%s' is partly dropped: drop it again (%s)", catalog.name, error
            )

    def _drop_default(self, name: str) -> Any:
        """Drop the database `default` of the catalog; return it, or None if it does not exist."""
        argument = database_argument((name, DEFAULT_DATABASE))
        try:
            database = self._calls.read("get_database", lambda c: c.get_database(argument))
        except TException as error:
            if is_a(error, "NoSuchObjectException"):
                return None
            raise
        try:
            self._calls.change("drop_database", lambda c: c.drop_database(argument, False, False))
        except OutcomeUnknownError:
            if DEFAULT_DATABASE in self.databases_of(name):
                raise
        except TException as error:
            if is_a(error, "InvalidOperationException"):
                raise namespace_not_empty((name,), text_of(error)) from error
            if not is_a(error, "NoSuchObjectException"):
                raise
        return database

    def _new_default(self, name: str, location: str) -> Any:
        """Return the database `default` as Hive creates it for a new catalog."""
        return self._calls.types.Database(
            name=DEFAULT_DATABASE,
            description=f"Default database for catalog {name}",
            locationUri=location,
            parameters={},
            catalogName=name,
        )

    def _set_location(self, catalog: Any, location: str) -> None:
        fields = {"name": catalog.name, "description": catalog.description}
        self._replace(catalog.name, {**fields, "locationUri": location})

    def _replace(self, name: str, fields: dict[str, str | None]) -> None:
        request = self._calls.types.AlterCatalogRequest(
            name=name, newCat=self._calls.types.Catalog(**fields)
        )
        self._calls.change("alter_catalog", lambda c: c.alter_catalog(request))


def _original_location(location: str) -> str:
    """Return the location that a catalog had before an unfinished drop moved it."""
    return _MOVED.sub("", location)
